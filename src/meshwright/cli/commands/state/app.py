"""``meshwright state``: the jobs that hold devices, kept in a file that ``plan --state`` reads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ... import output
from ...help import group, takes_keys
from ...keys import own_keys
from ...options import KeyChanges
from ..live.ledgers import LedgerFile, check_ledger, opened
from ..live.serve import hold
from . import changes
from .changes import StateOption, keep_listing

if TYPE_CHECKING:
    from ....live.sources.source import Source


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


@takes_keys(("ReadKeys", ""))
def read_source(
    name: Annotated[
        str, typer.Argument(metavar="SOURCE", help="slurm, slurm:json, slurm:URL of slurmrestd, kubernetes, ray or file:PATH.")
    ],
    state: StateOption,
    from_file: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="A saved answer of the source, in place of asking it now.")
    ] = None,
    changes: KeyChanges = None,
) -> None:
    """Read which job holds which devices, and which hosts take no jobs, from a scheduler.

    Ray needs the extra [ray].

    Examples:
      meshwright state read slurm --state now.db
      meshwright state read kubernetes --state now.db --set context=prod
    """
    from ....live.sources.source import source
    from ...key_models import ReadKeys

    _keep(state, from_file, source(name, **own_keys(ReadKeys, changes).model_dump()))


def _keep(state: Path, file: Path | None, source: Source) -> None:
    """Keep the listing of a source or file, and print remarks on it."""
    from .... import files
    from ....live.keeping import KeptState

    known = KeptState(state).read()
    found = source.listing(known) if file is None else source.said(files.read_bytes(file).decode(errors="replace"), known, file)
    keep_listing(state, found.state)
    output.print_remarks(output.console(), found.remarks)


state = group(
    "state",
    """Keep which job holds which devices, and which hosts take no jobs.

    Examples:
      meshwright state read slurm --state now.db
      meshwright state add plan.json --state now.db
      meshwright plan --job zoo:vgg16 --cluster preset:dgx-a100-8x8 --state now.db
    """,
    {
        "show": (changes.show_state, "Print who holds which devices."),
        "read": (read_source, "Read a listing of Slurm, Kubernetes or Ray."),
        "add": (changes.add_plan, "Let a planned job hold its devices."),
        "remove": (changes.remove_job, "Free the devices of a job."),
        "drain": (changes.drain_host, "Close a host for new jobs."),
        "resume": (changes.resume_host, "Open a host for jobs again."),
        "prune": (prune_ledger, "Delete old records of a ledger."),
        "repair": (repair_ledger, "Keep the whole records of a damaged ledger."),
    },
)
