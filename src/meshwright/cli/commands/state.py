"""``meshwright state``: the jobs that hold devices, kept in a file that ``plan --state`` reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...quantities import things
from .. import output
from ..help import group, takes_keys
from ..keys import own_keys
from ..options import JsonFile, KeyChanges, argument, file_option, option
from ..output import plain
from .live.ledgers import LedgerFile, check_ledger, opened
from .live.serve import EXTRA, hold

if TYPE_CHECKING:
    from ...live.changes import Change
    from ...live.state import ClusterState

StateOption = Annotated[Path, option("FILE", "A ledger, FILE.db, which outlives crashes; or a plain FILE.json.", "--state")]
ClusterOption = Annotated[
    str | None, option("CLUSTER", "The cluster by which the state is checked, preset:NAME or a path to YAML.")
]


def show_state(
    state: StateOption,
    cluster: ClusterOption = None,
    html: Annotated[Path | None, file_option("Write the --cluster as one page that loads nothing.", "--html")] = None,
    log: Annotated[bool, typer.Option("--log", help="Show every change of a ledger, the last one last.")] = False,
    json_file: JsonFile = None,
) -> None:
    """Print who holds which devices, and which hosts take no jobs.

    Examples:
      meshwright state show --state now.db --cluster mine.yaml --html now.html
    """
    from ... import files
    from ...clusters import load_cluster
    from ...errors import ConfigError, InputFileError
    from ...live.changes import places
    from ...live.keeping import KeptState
    from ...live.state import occupancy

    stored = KeptState(state)
    if not state.exists():
        raise InputFileError("no such file", field="--state", value=str(state))
    if log and not stored.is_ledger:
        raise InputFileError("only a ledger (.db) keeps its changes", field="--log", value=str(state))
    if html is not None and cluster is None:
        raise ConfigError("a page shows the hosts of a cluster: name it with --cluster", field="--html", value=str(html))
    result = stored.read()
    where = None if cluster is None else load_cluster(cluster)
    taken = None if where is None else occupancy(result, where, file=state)
    data = result.model_dump(mode="json", exclude_none=True)
    out = output.console(json_file)
    if stored.is_ledger and log:
        data = {"state": data, "changes": stored.changes()}
        rows = [[str(one["seq"]), one["at"], one["kind"], plain(_what(one))] for one in data["changes"]]
        output.table(out, "Changes", ["", "time (UTC)", "", ""], rows, numbers_from=4)
    jobs = [
        [plain(job.id), plain(job.name or ""), job.source, places(job.devices), "whole" if job.whole_hosts else "shared"]
        for job in result.jobs
    ]
    output.table(out, f"Jobs in {state.name}", ["job", "name", "known from", "devices", "hosts"], jobs, numbers_from=5)
    others = [[name, host.condition, plain(host.reason or "")] for name, host in result.hosts.items() if host.condition != "up"]
    if others:
        output.table(out, "Hosts that take no jobs", ["host", "", "reason"], others, numbers_from=3)
    if taken is not None and where is not None:
        held = int((taken.holder >= 0).sum())
        summary = f"{where.name}: {int(taken.is_free.sum())} of {where.num_devices} devices are free, {held} held"
        output.print_remarks(out, (summary, *taken.remarks))
    output.write_json(json_file, data)
    if html is not None and where is not None:
        try:
            from ...live.web.pages import state_page
        except ModuleNotFoundError as error:
            raise InputFileError(EXTRA, field=str(error.name)) from None
        files.write_text(html, state_page(state, where))
    output.print_written(out, json_file, html)


def add_plan(
    plan: Annotated[Path, argument("PLAN", "A plan's JSON file.")],
    state: StateOption,
    name: Annotated[str | None, option("JOB", "Name of the job in the state; by default the file's.", "--as")] = None,
    whole_hosts: Annotated[
        bool, typer.Option("--whole-hosts", help="Hold its hosts whole, as an export with --exclusive does.")
    ] = False,
    cluster: ClusterOption = None,
) -> None:
    """Let a planned job hold its devices; refused where another job holds one of them.

    Examples:
      meshwright state add plan.json --state now.db --as nightly
    """
    from ...live.changes import JobAdded
    from ...live.state import held_by_plan
    from ...plans import load_plan

    job = held_by_plan(load_plan(plan), plan.stem if name is None else name, whole_hosts=whole_hosts)
    for host in job.devices:
        _check_host(host, cluster)
    _apply(state, lambda before: JobAdded(job=job))


def remove_job(
    job: Annotated[str, argument("JOB", "Its name in the state.")],
    state: StateOption,
) -> None:
    """Free the devices of a job.

    Examples:
      meshwright state remove nightly --state now.db
    """
    from ...live.changes import JobRemoved

    _apply(state, lambda before: JobRemoved(id=job))


def drain_host(
    host: Annotated[str, argument("HOST", "Its name.")],
    state: StateOption,
    reason: Annotated[str | None, option("TEXT", "Why, for people.")] = None,
    cluster: ClusterOption = None,
) -> None:
    """Close a host for new jobs; running jobs stay.

    Examples:
      meshwright state drain host-3 --state now.db --reason "broken fan"
    """
    from ...live.changes import host_changed

    change = host_changed(host, "drained", reason)
    _check_host(host, cluster)
    _apply(state, lambda before: change)


def resume_host(
    host: Annotated[str, argument("HOST", "Its name.")],
    state: StateOption,
) -> None:
    """Open a host for jobs again.

    Examples:
      meshwright state resume host-3 --state now.db
    """
    from ...live.changes import host_changed

    _apply(state, lambda before: host_changed(host, "up"))


def _check_host(host: str, cluster: str | None) -> None:
    """Refuse a host that the cluster, where it was named, does not have."""
    from ...clusters import load_cluster
    from ...errors import StateError

    if cluster is not None and host not in (names := load_cluster(cluster).host_names):
        raise StateError(f"{cluster} has no such host", field="host", value=host, choices=names)


def _apply(state: Path, made: Callable[[ClusterState], Change]) -> tuple[ClusterState, ClusterState]:
    """Change a state, and print how it is now."""
    from ...live.keeping import KeptState
    from ...live.state import num_held

    output.check_file("--state", state, is_update=True)
    before, after = KeptState(state).apply(made)
    held = sum(num_held(job, after) for job in after.jobs)
    closed = sum(after.is_closed(host) for host in after.hosts)
    summary = f"{_counted(len(after.jobs), 'job')} on {_counted(held, 'device')}, {_counted(closed, 'host')} closed"
    out = output.console()
    out.print(f"{state.name}: {summary}" + ("" if after != before else "; nothing changed"))
    output.print_written(out, state)
    return before, after


def _what(change: dict[str, Any]) -> str:
    """Return a change in a few words."""
    if change["kind"] == "listed":
        counts = [("jobs", "job", ""), ("gone_jobs", "job", " gone"), ("hosts", "host", ""), ("gone_hosts", "host", " gone")]
        parts = [_counted(len(change[key]), thing) + more for key, thing, more in counts if change.get(key)]
        return f"{change['source']}: {', '.join(parts)}"
    if change["kind"] == "host changed":
        return f"{change['host']} {change['state']['condition']}"
    return str(change["job"]["id"] if change["kind"] == "job added" else change["id"])


def _counted(number: int, thing: str) -> str:
    return f"{number:,} {things(number, thing)}"


def prune_ledger(
    state: LedgerFile,
    keep_days: Annotated[int, option("N", "Days of the past that are kept.", "--keep-days", min=1)] = 90,
) -> None:
    """Delete records of a ledger that are older than so many days; jobs that hold devices keep theirs.

    The state stays. The file keeps its size and reuses the room. A running service does this by itself.

    Examples:
      meshwright state prune --state now.db --keep-days 30
    """
    from ...live.records.retention import give_up

    output.check_file("--state", state, is_update=True)
    with opened(state, is_read=False) as ledger:
        result = give_up(ledger, keep_days)
    parts = [f"{result.num_changes:,} changes", f"{result.num_decisions:,} decisions", f"{result.num_keys:,} old keys"]
    output.console().print(f"{state.name}: given up: {', '.join(parts)}; kept is what came since {result.before[:16]} (UTC)")
    output.print_written(output.console(), state)


def repair_ledger(state: LedgerFile) -> None:
    """Write a damaged ledger anew from its whole records; the damaged file is kept under another name.

    Lost changes are left out, with those that contradict the rest without them. Read the scheduler's listing again after that.
    Stop a service of this ledger first.

    Examples:
      meshwright state repair --state now.db
    """
    from ...live.records.repair import repair

    output.check_file("--state", state, is_update=True)
    check_ledger(state)
    hold(state)
    result = repair(state)
    out = output.console()
    counts_text = ", ".join(
        f"{result.counts[table]:,} {table}s" for table in ("decision", "change", "mention", "observation", "document")
    )
    if result.damaged is None:
        out.print(f"{state.name}: nothing is damaged; {counts_text}")
        return
    out.print(f"{state.name}: kept: {counts_text}")
    out.print(output.plain(f"lost: {', '.join(result.lost) or 'nothing'}"))
    if result.floor:
        out.print(f"changes up to {result.floor} are kept as the state after them")
    out.print(f"the damaged file is {result.damaged.name}")
    output.print_written(out, state)


@takes_keys(("ReadKeys", ""))
def read_source(
    name: Annotated[str, argument("SOURCE", "slurm, slurm:json, slurm:URL of slurmrestd, kubernetes, ray or file:PATH.")],
    state: StateOption,
    from_file: Annotated[
        Path | None, option("FILE", "A saved answer of the source, in place of asking it now.", "--from")
    ] = None,
    changes: KeyChanges = None,
) -> None:
    """Read which job holds which devices, and which hosts take no jobs, from a scheduler.

    Ray needs the extra [ray].

    Examples:
      meshwright state read slurm --state now.db
      meshwright state read kubernetes --state now.db --set context=prod
    """
    from ... import files
    from ...live.changes import drift, listed
    from ...live.keeping import KeptState
    from ...live.sources.source import source
    from ..key_models import ReadKeys

    asked = source(name, **own_keys(ReadKeys, changes).model_dump())
    known = KeptState(state).read()
    if from_file is None:
        result = asked.listing(known)
    else:
        result = asked.said(files.read_bytes(from_file).decode(errors="replace"), known, from_file)
    before, _ = _apply(state, lambda before: listed(before, result.state))
    output.print_remarks(output.console(), [f"not as it was known: {one}" for one in drift(before, result.state)])
    output.print_remarks(output.console(), result.remarks)


state = group(
    "state",
    """Keep which job holds which devices, and which hosts take no jobs.

    Examples:
      meshwright state read slurm --state now.db
      meshwright state add plan.json --state now.db
      meshwright plan --job zoo:vgg16 --cluster preset:dgx-a100-8x8 --state now.db
    """,
    {
        "show": (show_state, "Print who holds which devices."),
        "read": (read_source, "Read a listing of Slurm, Kubernetes or Ray."),
        "add": (add_plan, "Let a planned job hold its devices."),
        "remove": (remove_job, "Free the devices of a job."),
        "drain": (drain_host, "Close a host for new jobs."),
        "resume": (resume_host, "Open a host for jobs again."),
        "prune": (prune_ledger, "Delete old records of a ledger."),
        "repair": (repair_ledger, "Keep the whole records of a damaged ledger."),
    },
)
