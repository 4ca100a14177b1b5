"""A span of the past: which jobs came and what became of them, and what others held meanwhile; a fold over a store's changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...clusters.cluster import Cluster
from ...errors import StateError
from ...quantities import counted
from ..changes import Listed, changed
from ..decisions import JobRequest, KeptDecision
from ..feedback.runs import JobRun, run_of
from ..ledger import Ledger
from ..state import ClusterState, HeldJob, numbered_hosts
from ..store import every_change, every_decision, last_before


class Arrival(NamedTuple):
    """A job that came in the span.

    Attributes:
        decision: the last one about it.
        request: the job.
        asked_s: when it was asked for first, seconds from the span's begin.
        run: what it got; None where it was refused and did not come again.
        devices: that it ran on, or was planned on, ``(r,)``; empty where it was refused.
    """

    decision: str
    request: JobRequest
    asked_s: float
    run: JobRun | None
    devices: NDArray[np.int64]


class Mark(NamedTuple):
    """An instant from which on others hold other devices, or hosts take jobs that did not, or the other way round.

    Attributes:
        at_s: seconds from the span's begin.
        is_held: devices that they hold, ``(n,)``.
        is_closed: hosts that take no jobs, ``(m,)``.
        is_down: hosts that are gone, with what runs on them, ``(m,)``.
    """

    at_s: float
    is_held: NDArray[np.bool_]
    is_closed: NDArray[np.bool_]
    is_down: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class PastSpan:
    """A span of the past.

    Attributes:
        begin, end: of it.
        cluster: whose.
        arrivals: by their time.
        marks: by their time, the first one at the begin.
        whole_hosts: whether jobs hold their hosts to the exclusion of others.
        earlier: runs of decisions before the span, from which step times are known too.
        remarks: what is left out, for people.
    """

    begin: datetime
    end: datetime
    cluster: Cluster
    arrivals: tuple[Arrival, ...]
    marks: tuple[Mark, ...]
    whole_hosts: bool
    earlier: tuple[JobRun, ...]
    remarks: tuple[str, ...]

    @property
    def runs(self) -> tuple[JobRun, ...]:
        """All runs that are known, the first one first."""
        return (*self.earlier, *(arrival.run for arrival in self.arrivals if arrival.run is not None))

    def seconds(self, at: datetime) -> float:
        """Return an instant in seconds from the begin."""
        return (at - self.begin).total_seconds()


def read_span(store: Ledger, cluster: Cluster, since: datetime, until: datetime) -> PastSpan:
    """Read a span of a store.

    A job that was refused and then requested again in the same words is one job, which waited. Its last refusal counts only if
    it did not come again.

    Args:
        store: of it.
        cluster: of the store.
        since: the begin; where the store begins later, that is the begin.
        until: the end of arrivals; their history is read to the end of the store.

    Raises:
        StateError: no job came in the span, the store keeps nothing of it any more, or the state is not of the cluster.
    """
    floor = store.floor()
    kept_since = None if floor.at is None else datetime.fromisoformat(floor.at)
    if kept_since is not None and until <= kept_since:
        problem = f"the time before {kept_since:%Y-%m-%d %H:%M} is kept no more, and the span ends at {until:%Y-%m-%d %H:%M}"
        raise StateError(problem, field="--until")
    is_cut = kept_since is not None and since < kept_since
    since = kept_since if is_cut and kept_since is not None else since
    every = every_decision(store)
    within = [stored for stored in every if since <= _at(stored) < until]
    if not within:
        raise StateError(f"no job came between {since:%Y-%m-%d %H:%M} and {until:%Y-%m-%d %H:%M}", field="--since")
    begin = max(since, _at(within[0])) if within[0].number == 1 else since
    own = {stored.decision.id for stored in within}
    fold = _Fold(store, cluster, begin, own)
    marks = tuple(fold.marks())
    jobs, left_out = _arrivals(within, store)
    arrivals = []
    for record, asked_at, run in jobs:
        devices = fold.devices.get(record.decision.id)
        if devices is None:
            planned = [] if run is None or record.decision.plan is None else record.decision.plan["ranks"]
            devices = np.array([fold.device(rank["host"], rank["local_rank"]) for rank in planned], np.int64)
        request, framework = record.decision.request, (record.decision.plan or {}).get("framework")
        if framework is not None:  # of the service where the request names none
            request = request.model_copy(update={"framework": framework})
        arrivals.append(Arrival(record.decision.id, request, (asked_at - begin).total_seconds(), run, devices))
    earlier = tuple(run_of(stored, store) for stored in every if _at(stored) < since and stored.decision.plan is not None)
    ordered = tuple(sorted(arrivals, key=lambda one: one.asked_s))
    if not ordered:
        raise StateError("no job of the span was decided on and started; " + "; ".join(left_out), field="--since")
    if store.floor() != floor:
        raise StateError("the span was given up while it was read; begin later", field="--since")
    if is_cut:
        left_out = [f"the time before {since:%Y-%m-%d %H:%M} is kept no more: the span begins then", *left_out]
    whole = any(stored.decision.inputs is not None and stored.decision.inputs.whole_hosts for stored in within)
    return PastSpan(begin, until, cluster, ordered, marks, whole, earlier, (*left_out, *fold.remarks))


def _arrivals(within: list[KeptDecision], store: Ledger) -> tuple[list[tuple[KeptDecision, datetime, JobRun | None]], list[str]]:
    """Return the decisions of jobs with the time at which each was asked for first, and what is left out."""
    results: list[tuple[KeptDecision, datetime, JobRun | None]] = []
    refused: dict[str, tuple[KeptDecision, datetime]] = {}
    left_out: Counter[str] = Counter()
    for record in within:
        words = record.decision.request.digest
        asked_at = refused[words][1] if words in refused else _at(record)
        if record.decision.outcome == "refused":
            refused[words] = record, asked_at
        elif record.decision.plan is None:
            left_out["that could not be read or was not decided"] += 1
        else:
            refused.pop(words, None)
            mentions = store.mentions(record.decision.id)
            run = run_of(record, store)
            if run.began_at is None and mentions and mentions[-1].status != "reserved":
                left_out["whose devices were given back before it was handed over"] += 1
            else:
                results.append((record, asked_at, run))
    results += [(stored, asked_at, None) for stored, asked_at in refused.values()]
    return results, [f"left out: {counted(number, 'job')} {reported}" for reported, number in left_out.items()]


class _Fold:
    """Folds the changes of a span.

    Attributes:
        devices: of the jobs of the span's decisions, as schedulers listed them, by decision.
        remarks: for people.
    """

    def __init__(self, store: Ledger, cluster: Cluster, begin: datetime, own: set[str]) -> None:
        self._store, self._begin, self._own = store, begin, own
        self._index, self._sizes, self._first = numbered_hosts(cluster)
        self._num_devices = cluster.num_devices
        self._known: dict[str, tuple[HeldJob, NDArray[np.int64]]] = {}
        self.devices: dict[str, NDArray[np.int64]] = {}
        self._last = begin
        self.remarks: list[str] = []

    def device(self, host: str, local: int) -> int:
        """Return the number of a device.

        Raises:
            StateError: the cluster has no such host.
        """
        if host not in self._index:
            raise StateError("the cluster has no such host", field="host", value=host, choices=self._index)
        return int(self._first[self._index[host]]) + local

    def marks(self) -> Iterator[Mark]:
        """Yield the instants at which something changes, the begin first."""
        seq = last_before(self._store, self._begin)
        state = self._store.state_at(seq)
        closed, is_down = self._hosts(state)
        known = Mark(0.0, self._withheld(state), closed, is_down)
        yield known
        for record in every_change(self._store, seq):
            state = changed(state, record.change)
            if not isinstance(record.change, Listed) or record.change.hosts or record.change.gone_hosts or known.at_s == 0.0:
                closed, is_down = self._hosts(state)
            self._last = max(self._last, datetime.fromisoformat(record.at))
            result = Mark((self._last - self._begin).total_seconds(), self._withheld(state), closed, is_down)
            if any((new != old).any() for new, old in zip(result[1:], known[1:], strict=True)):
                known = result
                yield result
        yield from self._after(state, known)

    def _after(self, state: ClusterState, known: Mark) -> Iterator[Mark]:
        """Yield the known events after the last change: limits of jobs that still run."""
        others = [job for job in state.jobs if job.of_decision not in self._own]
        ending = [(job.ends_at, job) for job in others if job.ends_at is not None and job.ends_at > self._last]
        if endless := len(others) - len(ending):
            message = "runs on, and nobody says" if endless == 1 else "run on, and nobody says"
            self.remarks.append(f"{counted(endless, 'other job')} {message} until when: held to the end")
        for ends_at, job in sorted(ending, key=lambda row: row[0]):
            others.remove(job)
            yield known._replace(at_s=(ends_at - self._begin).total_seconds(), is_held=self._union(others))

    def _hosts(self, state: ClusterState) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return the hosts that take no jobs, and those that are gone."""
        closed = np.full(len(self._sizes), state.source is not None)
        is_down = closed.copy()
        for name, host in state.hosts.items():
            if name in self._index:
                closed[self._index[name]] = host.condition != "up"
                is_down[self._index[name]] = host.condition == "down"
        return closed, is_down

    def _withheld(self, state: ClusterState) -> NDArray[np.bool_]:
        """Return which devices others hold; where jobs of the span run is noted."""
        others = []
        for job in state.jobs:
            decision = job.of_decision
            if decision not in self._own:
                others.append(job)
            elif job.source != "plan":
                self.devices[str(decision)] = self._held(job)
        return self._union(others)

    def _union(self, jobs: Sequence[HeldJob]) -> NDArray[np.bool_]:
        """Return which devices some jobs hold."""
        is_held = np.zeros(self._num_devices, np.bool_)
        for job in jobs:
            is_held[self._held(job)] = True
        return is_held

    def _held(self, job: HeldJob) -> NDArray[np.int64]:
        """Return the devices that a job holds; on hosts that the cluster lacks none."""
        known = self._known.get(job.id)
        if known is None or known[0] is not job:
            results: list[int] = []
            for host, local in job.devices.items():
                if host in self._index:
                    number = self._index[host]
                    results += (
                        int(self._first[number]) + one for one in (range(self._sizes[number]) if job.whole_hosts else local)
                    )
            known = self._known[job.id] = job, np.array(results, np.int64)
        return known[1]


def _at(record: KeptDecision) -> datetime:
    return datetime.fromisoformat(record.at)
