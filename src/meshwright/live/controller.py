"""`Controller`: decides for jobs on a cluster that others use too, holds the devices, and keeps all of it.

The same core serves in the caller's process and behind `meshwright serve`. One thread at a time calls it; others that read open
the ledger by themselves. It follows a job from devices that are held for it to the scheduler's report of its end.

Only leases depend on a clock: the time for which a plan is held for a job that nobody has handed over. They use the monotonic
clock of this process and begin anew when it starts. Times of schedulers are data.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

from ..errors import ConflictError, MeshwrightError
from ..plans import PlacementPlan
from .changes import JobAdded, JobConfirmed, JobRemoved, listed
from .deciding import Decided, Planners
from .decisions import DecisionInputs, JobDecision, JobRequest, KeptDecision, Mention, Observation, ObservedFactor, free_runs
from .ledger import Ledger
from .plan_parts import PlanParts, whole_plan
from .sources.listings import Listing
from .state import ClusterState, HeldDevices, held_by_plan, occupancy, occupancy_after, of_whole_hosts
from .store import keep_observations, stored_decision

LEASE_S = 600.0
"""How long devices are held for a job that nobody has handed to the scheduler."""

LISTINGS_TO_END = 2
"""Listings in a row that do not know a job which was handed over, after which it has ended: one may come between two records."""

PHASES = ("state", "policy", "commit")
"""Of a decision: the state is folded onto the cluster, the policy chooses, the decision is kept."""


class Controller:
    """See the module.

    Attributes:
        timed: called with each of `PHASES` of a decision and its seconds.

    Args:
        store: the ledger in which all is kept, or its path.
        planners: the cluster, and the policy that decides.
        whole_hosts: whether jobs hold their hosts to the exclusion of others, the default of the Slurm export.
        lease_s: how long devices are held for a job that nobody has handed over.
        seed: of policies that draw.
        factors: factors of earlier runs over predicted times, see `feedback.calibration.ObservedLayer`.
        now: the time.
        elapsed_s: a clock that never goes back.

    Raises:
        InputFileError: the ledger cannot be used.
        StateError: its state is not of the cluster.
    """

    def __init__(
        self,
        store: Ledger | Path,
        planners: Planners,
        *,
        whole_hosts: bool = False,
        lease_s: float = LEASE_S,
        seed: int = 0,
        factors: Callable[[str | None], tuple[ObservedFactor, ...]] = lambda graph: (),
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        elapsed_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store = Ledger(store) if isinstance(store, Path) else store
        self.cluster = planners.cluster
        self.lease_s = lease_s
        self.timed: Callable[[str, float], None] = lambda phase, seconds: None
        self.planners = planners
        self.whole_hosts = whole_hosts
        self.seed = seed
        self._factors = factors
        self._now = now
        self._elapsed_s = elapsed_s
        self._began = now(), elapsed_s()
        self._parts = PlanParts()
        self._missed: Counter[str] = Counter()
        self._leases: dict[str, float] = {}
        self._ended: set[str] = set()
        self._held: tuple[ClusterState, HeldDevices] | None = None
        self.held(self.store.last()[1])
        self._begin_leases(self.store.last()[1])

    def confirmed_now(self) -> datetime:
        """Return the time, at most as much later than at the start as the clock that never goes back confirms."""
        began, began_s = self._began
        return min(self._now(), began + timedelta(seconds=self._elapsed_s() - began_s))

    def decide(self, request: JobRequest, key: str | None = None) -> KeptDecision:
        """Decide for a job, and hold its devices.

        Args:
            request: the job.
            key: by which the same request gets the same answer again.

        Raises:
            ConflictError: the key is that of another request.
            MeshwrightError: the job or policy is missing or wrong.
        """
        record = self.known(request, key)
        if record is None:
            self.planners.make_ready(request)
            record = self._decided(request, key, None)
        elif record.decision.outcome == "preparing":
            record = self.finish(record.decision.id)
        return record

    def known(self, request: JobRequest, key: str | None) -> KeptDecision | None:
        """Return the decision that a key has, None where it has none.

        Raises:
            ConflictError: it is that of another request, or of a decision that was given up, see `records.retention`.
        """
        record = None if key is None else self.store.decision_of_key(key)
        old = None if key is None or record is not None else self.store.old_key(key)
        if old is not None:
            of = "of this key" if old.request == request.digest else "of another request with this key"
            problem = f"the decision {of}, {old.decision}, is kept no more; ask under another key"
            raise ConflictError(problem, field="Idempotency-Key", value=key)
        if record is not None and record.decision.request != request:
            was, new = (one.model_dump(mode="json") for one in (record.decision.request, request))
            field = next(name for name in new if was[name] != new[name])
            change = json.dumps(new[field]) if field != "job" or isinstance(new[field], str) else "another job"
            raise ConflictError("the key is that of another request, which differs here", field=field, value=change[:200])
        return record

    def decide_or_prepare(self, request: JobRequest, key: str | None = None) -> KeptDecision:
        """Decide, as `decide` does, where the job is ready; otherwise begin a decision that `finish` completes.

        Raises:
            ConflictError: the key is that of another request.
        """
        record = self.known(request, key)
        if record is not None:
            return record
        if self.planners.is_ready(request):
            return self._decided(request, key, None)
        with self.store.turn() as turn:
            made = JobDecision(id=turn.next_id(), request=request, outcome="preparing")
            return self.known(request, key) or turn.keep(made, key)

    def finish(self, name: str) -> KeptDecision:
        """Decide what was being prepared; a job that is not ready is made so here.

        Raises:
            StateError: there is no such decision.
            InputFileError: the store cannot be used; then it is still prepared.
        """
        record = self.stored(name)
        if record.decision.outcome != "preparing":
            return record
        try:
            self.planners.make_ready(record.decision.request)
        except MeshwrightError as error:
            return self.fail(name, str(error), error.field)
        return self._decided(record.decision.request, None, name)

    def fail(self, name: str, why: str, field: str | None = None) -> KeptDecision:
        """End the preparation of a decision that cannot be made.

        Args:
            name: of the decision.
            why: a sentence.
            field: the key of the request that is wrong.

        Raises:
            StateError: there is no such decision.
            ConflictError: it is decided already.
        """
        decision = self.stored(name).decision.model_copy(update={"outcome": "failed", "why": why, "field": field})
        with self.store.turn() as turn:
            return turn.keep(decision)

    def try_plan(self, request: JobRequest) -> tuple[DecisionInputs, Decided]:
        """Return a decision that holds nothing and is not kept.

        Raises:
            MeshwrightError: the job or policy is missing or wrong.
        """
        self.planners.make_ready(request)
        inputs = self._inputs(request, *self.store.last())
        return inputs, self.planners.decide(inputs)

    def whole_plan(self, decision: JobDecision) -> PlacementPlan | None:
        """Return the plan of a decision with its job and cluster in it; None where it has none.

        Raises:
            MeshwrightError: what is kept of it cannot be read.
        """
        return whole_plan(self.store, decision)

    def close(self) -> None:
        """Close the store."""
        self.store.close()

    def forget(self) -> None:
        """Forget what was kept a moment ago, as the disk failed."""
        self._held = None
        self._missed.clear()
        self._begin_leases(self.store.last()[1])

    def held(self, state: ClusterState) -> HeldDevices:
        """Return the job that holds each device of the cluster.

        Raises:
            StateError: the state is not of the cluster.
        """
        if self._held is None or self._held[0] is not state:
            known = self._held
            held = occupancy(state, self.cluster) if known is None else occupancy_after(*known, state, self.cluster)
            self._held = state, held
        return self._held[1]

    def stored(self, name: str) -> KeptDecision:
        """See `store.stored_decision`."""
        return stored_decision(self.store, name)

    def confirm(self, name: str, scheduler_id: str) -> None:
        """Note that the job of a decision was handed to the scheduler; once more is no change.

        Args:
            name: of the decision.
            scheduler_id: the scheduler's id of the job.

        Raises:
            StateError: there is no such decision.
            ConflictError: its devices were given back, or it was handed over as another job.
        """
        self.stored(name)
        with self.store.turn() as turn:
            if turn.state.planned(name) is None:
                mentions = self.store.mentions(name)
                if any(mention.detail == scheduler_id and mention.status in ("confirmed", "running") for mention in mentions):
                    return
                last = mentions[-1] if mentions else None
                state = "holds no devices" if last is None else f"is {last.status}" + (f": {last.detail}" if last.detail else "")
                raise ConflictError(state, field=f"decision {name}", value=scheduler_id)
            turn.change(JobConfirmed(id=name, confirmed_as=scheduler_id))
        self._leases.pop(name, None)

    def renew(self, name: str) -> None:
        """Renew the lease of a decision whose job has not been submitted yet, because its devices are still needed."""
        if name in self._leases:
            self._leases[name] = self._elapsed_s() + self.lease_s

    def release(self, name: str, reason: str | None = None) -> bool:
        """Release the devices of a decision; whether it held any.

        Raises:
            StateError: there is no such decision.
            ConflictError: its job runs, which only the scheduler can end.
        """
        self.stored(name)
        with self.store.turn() as turn:
            running = next((job for job in turn.state.jobs if job.of_decision == name), None)
            if running is not None and running.source != "plan":
                raise ConflictError(f"runs as {running.id}: end it there", field=f"decision {name}")
            if running is not None:
                turn.change(JobRemoved(id=name, reason=reason))
        self._leases.pop(name, None)
        return running is not None

    def end(self, scheduler_id: str, reason: str) -> bool:
        """End a job at the scheduler's word, before a listing does. Return whether it held devices.

        Args:
            scheduler_id: the scheduler's id of the job.
            reason: how it ended.
        """
        with self.store.turn() as turn:
            for job in turn.state.jobs:
                if scheduler_id == (job.confirmed_as if job.source == "plan" else job.id):
                    self._ended.add(scheduler_id)
                    turn.change(JobRemoved(id=job.id, reason=reason[:1000], has_ended=True))
                    return True
        return False

    def mentions(self, name: str) -> list[Mention]:
        """See `Ledger.mentions`."""
        return self.store.mentions(name)

    def expire(self) -> list[str]:
        """Release the devices of decisions whose jobs were not submitted in time; ids of these decisions."""
        expired, now_s = [], self._elapsed_s()
        for name in [name for name, until_s in self._leases.items() if until_s <= now_s]:
            with self.store.turn() as turn:
                held = turn.state.planned(name)
                if held is not None and held.confirmed_as is None:
                    turn.change(JobRemoved(id=name, reason=f"not handed to the scheduler within {self.lease_s:g} s"))
                    expired.append(name)
            del self._leases[name]
        return expired

    def handed_over(self) -> tuple[str, ...]:
        """Return the decisions whose jobs were handed to a scheduler; to be called before it is asked for a listing."""
        self._ended.clear()
        return tuple(job.id for job in self.store.last()[1].jobs if job.source == "plan" and job.confirmed_as is not None)

    def take(self, listing: Listing, handed: Iterable[str] = ()) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Apply a listing as the truth.

        Args:
            listing: of a scheduler.
            handed: what `handed_over` said before it was asked.

        Returns:
            Contradictions to the known state, a sentence each; ids of decisions whose devices were given back by closed hosts.

        Raises:
            StateError: the listing contradicts itself or is of another cluster; then nothing changes.
        """
        listing = listing.without(self._ended)  # it was asked for before they ended
        occupancy(listing.state, self.cluster)
        missing = set(handed) - {job.decision for job in listing.state.jobs} - set(listing.waiting)
        missed = Counter({name: self._missed[name] + 1 for name in missing})
        ended = [name for name, count in missed.items() if count >= LISTINGS_TO_END]
        released = []
        with self.store.turn() as turn:
            for job in turn.state.jobs:
                entry = listing.queued.get(job.id) or listing.ended.get(job.id)
                if job.is_unconfirmed and entry is not None:  # whoever handed it over died before saying so
                    turn.change(JobConfirmed(id=job.id, confirmed_as=entry))
                    self._leases.pop(job.id, None)
            before = turn.state
            ended += [job.id for job in before.jobs if job.source == "plan" and job.id in listing.ended]
            change = listed(before, listing.state, ended)
            after = turn.change(change)
            for job in after.jobs:
                closed = next((host for host in job.devices if after.is_closed(host)), None)
                if job.is_unconfirmed and closed is not None and job.id in self._leases:
                    state = after.hosts[closed]
                    why = f"{closed} is {state.condition}" + (f": {state.reason}" if state.reason else "")
                    turn.change(JobRemoved(id=job.id, reason=why[:1000]))
                    released.append(job.id)
        for name in released:
            self._leases.pop(name, None)
        self._missed = missed
        return change.drift, tuple(released)

    def observe(self, name: str, observed: Sequence[Observation]) -> int:
        """See `store.keep_observations`."""
        return keep_observations(self.store, name, observed)

    def _decided(self, request: JobRequest, key: str | None, name: str | None) -> KeptDecision:
        times_s = [time.perf_counter()]
        with self.store.turn() as turn:
            twin = self.known(request, key)
            if twin is not None:  # both came at once
                return twin
            inputs = self._inputs(request, turn.seq, turn.state)
            times_s.append(time.perf_counter())
            result = self.planners.decide(inputs)
            times_s.append(time.perf_counter())
            made = result.as_decision(turn.next_id() if name is None else name, inputs)
            if result.plan is not None:
                made = self._parts.with_plan(made, result.plan, turn)
                job = held_by_plan(result.plan, made.id, whole_hosts=self.whole_hosts)
                turn.change(JobAdded(job=job))
            record = turn.keep(made, key)
        times_s.append(time.perf_counter())
        for phase, (begin_s, end_s) in zip(PHASES, pairwise(times_s), strict=True):
            self.timed(phase, end_s - begin_s)
        if result.plan is not None:
            self._leases[made.id] = self._elapsed_s() + self.lease_s
        return record

    def _inputs(self, request: JobRequest, seq: int, state: ClusterState) -> DecisionInputs:
        now = self._now()
        free_s = self.held(state).free_at_s(state, now)
        if self.whole_hosts:
            free_s = of_whole_hosts(free_s, self.cluster)
        graph = self.planners.graph(request)
        return DecisionInputs(
            request=request,
            policy=self.planners.policy,
            digest=self.planners.digest(request),
            seq=seq,
            now=now,
            free=free_runs(free_s),
            seed=self.seed,
            whole_hosts=self.whole_hosts,
            graph=graph,
            factors=self._factors(graph),
        )

    def _begin_leases(self, state: ClusterState) -> None:
        """Begin the leases of plans that nobody has handed over and that have none."""
        for job in state.jobs:
            if job.is_unconfirmed and job.id not in self._leases and self.store.decision(job.id) is not None:
                self._leases[job.id] = self._elapsed_s() + self.lease_s
