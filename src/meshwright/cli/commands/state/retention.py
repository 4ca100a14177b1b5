"""``meshwright state prune``."""

from __future__ import annotations

from typing import Annotated

import typer

from ... import output
from ..live.ledgers import LedgerFile, opened


def prune_ledger(
    state: LedgerFile,
    keep_days: Annotated[int, typer.Option("--keep-days", metavar="N", min=1, help="Days of the past that are kept.")] = 90,
) -> None:
    """Give up what of a ledger is older than so many days; jobs that hold devices stay with all that is known of them.

    The state stays as it is. The file keeps its size, and what is kept from now on goes into the room that became free. A
    service does this by itself, and goes on meanwhile.
    """
    from ....live.records.retention import give_up

    output.check_file("--state", state, is_update=True)
    with opened(state, is_read=False) as ledger:
        found = give_up(ledger, keep_days)
    parts = [f"{found.num_changes:,} changes", f"{found.num_decisions:,} decisions", f"{found.num_keys:,} old keys"]
    output.console().print(f"{state.name}: given up: {', '.join(parts)}; kept is what came since {found.before[:16]} (UTC)")
    output.print_written(output.console(), state)
