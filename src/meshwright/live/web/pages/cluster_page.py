"""The page of a cluster: how old what is known of it is, who holds which devices and until when, what waits, what was decided."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ....clusters.cluster import Cluster
from ...keeping import KeptState
from ...ledger import Ledger
from ...service import Service, SourceStatus
from ...state import ClusterState, devices_by_state, occupancy
from ..views import DecisionRow, row_of
from .hosts import MOST_OPEN_HOSTS, host_groups, job_rows, marks
from .rendering import duration, instant, page

LAST_DECISIONS = 10
MOST_ROWS = 300
"""Of a table of jobs."""


def cluster_page(service: Service, store: Ledger, *, has_session: bool = False) -> str:
    """Return the page of a service's cluster.

    Args:
        service: that decides on it.
        store: what it keeps, for reading.
        has_session: whether its reader signed in, and can sign out.

    Raises:
        StateError: the state is not of the cluster.
    """
    sources = [_source(status, service.max_age_s) for status in service.statuses]
    policy = service.controller.planners.policy
    last, alarms = store.last(), service.problems
    return _page(service.cluster, *last, store, sources=sources, policy=policy, has_session=has_session, problems=alarms)


def state_page(path: Path, cluster: Cluster) -> str:
    """Return the page of a cluster as a state's file has it, as one file that loads nothing.

    Raises:
        InputFileError: the file cannot be read.
        StateError: the state is not of the cluster.
    """
    stored = KeptState(path)
    if not stored.is_ledger:
        return _page(cluster, 0, stored.read(), None, (path.name, None))
    with Ledger(path, is_read=True) as store:
        seq, state = store.last()
        last = store.changes_after(seq - 1, 1) if seq else []
        return _page(cluster, seq, state, store, (path.name, last[0].at if last else None))


def _source(status: SourceStatus, max_age_s: float) -> dict[str, Any]:
    """Return the row of a source: its age in a sentence, and whether it has listed nothing for too long."""
    age_s = status.age_s
    if not math.isfinite(age_s):
        text = "has not listed anything yet"
    else:
        text = f"listed {duration(int(age_s))} ago" if age_s >= 1 else "listed just now"
    if status.num_drifts:
        text += f"; contradicted what was known {status.num_drifts:,} time{'s' * (status.num_drifts != 1)} so far"
    row = {"name": status.name, "problem": status.problem, "remarks": status.remarks}
    return {**row, "is_stale": age_s > max_age_s, "text": text}


def _page(
    cluster: Cluster,
    seq: int,
    state: ClusterState,
    store: Ledger | None,
    written_from: tuple[str, str | None] | None = None,
    **served: Any,
) -> str:
    """Return the page; ``served`` is what only a service has."""
    now, marked = datetime.now(UTC), marks(state.jobs)
    rows = job_rows(state, marked, now)
    planned = [row for row in rows if row["job"].source == "plan"]
    preparing = () if store is None else store.preparing()
    prepared = [store.decision(name) for name in preparing[:MOST_ROWS]] if store is not None else []
    waiting = [
        {"id": one.id, "name": one.job_name, "owner": one.request.owner, "text": "its job is read and priced first", "held": None}
        for one in (record.decision for record in prepared if record is not None)
    ]
    waiting += [_waiting(row, store) for row in planned[:MOST_ROWS]]
    last: list[DecisionRow] = [] if store is None else [row_of(store, record) for record in store.decisions(None, LAST_DECISIONS)]
    return page(
        "cluster.html",
        is_file=written_from is not None,
        written_from=written_from,
        title=cluster.name,
        here="cluster",
        seq=seq,
        now=instant(now),
        **({"has_session": False, "policy": None, "sources": (), "problems": {}} | served),
        devices=devices_by_state(state, cluster),
        num_devices=cluster.num_devices,
        num_hosts=cluster.num_hosts,
        remarks=occupancy(state, cluster).remarks,
        groups=host_groups(cluster, state, marked),
        is_open=cluster.num_hosts <= MOST_OPEN_HOSTS,
        waiting=waiting,
        num_more_waiting=len(planned) + len(preparing) - len(waiting),
        running=[row for row in rows if row["job"].source != "plan"][:MOST_ROWS],
        num_running=len(rows) - len(planned),
        last=last,
    )


def _waiting(row: dict[str, Any], store: Ledger | None) -> dict[str, Any]:
    """Return the row of a planned job that no scheduler has started: what it waits for, and the devices that it holds."""
    job = row["job"]
    record = None if store is None else store.decision(job.id)
    text = "reserved; nobody has handed it to the scheduler yet"
    if job.confirmed_as is not None:
        text = f"handed to the scheduler as {job.confirmed_as}, which has not started it yet"
    elif record is None:
        text = "added by hand"
    owner = record.decision.request.owner if record else None
    return {"id": job.id if record else "", "name": job.name or job.id, "owner": owner, "text": text, "held": row}
