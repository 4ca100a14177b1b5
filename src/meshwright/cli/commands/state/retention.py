"""``meshwright state prune | repair``."""

from __future__ import annotations

from typing import Annotated

import typer

from ... import output
from ..live.ledgers import LedgerFile, check_ledger, opened
from ..live.serve import hold


def prune_ledger(
    state: LedgerFile,
    keep_days: Annotated[int, typer.Option("--keep-days", metavar="N", min=1, help="Days of the past that are kept.")] = 90,
) -> None:
    """Delete records of a ledger that are older than so many days; jobs that hold devices keep theirs.

    The state stays. The file keeps its size and reuses the room. A running service does this by itself.

    Examples:
      meshwright state prune --state now.db --keep-days 30
    """
    from ....live.records.retention import give_up

    output.check_file("--state", state, is_update=True)
    with opened(state, is_read=False) as ledger:
        found = give_up(ledger, keep_days)
    parts = [f"{found.num_changes:,} changes", f"{found.num_decisions:,} decisions", f"{found.num_keys:,} old keys"]
    output.console().print(f"{state.name}: given up: {', '.join(parts)}; kept is what came since {found.before[:16]} (UTC)")
    output.print_written(output.console(), state)


def repair_ledger(state: LedgerFile) -> None:
    """Write a damaged ledger anew from its whole records; the damaged file is kept under another name.

    Lost changes are left out, with those that contradict the rest without them. Read the scheduler's listing again after that.
    Stop a service of this ledger first.

    Examples:
      meshwright state repair --state now.db
    """
    from ....live.records.repair import repair

    output.check_file("--state", state, is_update=True)
    check_ledger(state)
    hold(state)
    found = repair(state)
    out = output.console()
    kept = ", ".join(f"{found.kept[table]:,} {table}s" for table in ("decision", "change", "mention", "observation", "document"))
    if found.damaged is None:
        out.print(f"{state.name}: nothing is damaged; {kept}", markup=False)
        return
    out.print(f"{state.name}: kept: {kept}", markup=False)
    out.print(output.plain(f"lost: {', '.join(found.lost) or 'nothing'}"), markup=False)
    if found.floor:
        out.print(f"changes up to {found.floor} are kept as the state after them", markup=False)
    out.print(f"the damaged file is {found.damaged.name}", markup=False)
    output.print_written(out, state)
