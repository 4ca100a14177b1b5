"""`Controller`: decides for jobs on a cluster that others use too, holds the devices, and keeps all of it.

The same core serves in the caller's process and behind `meshwright serve`. One thread at a time calls it; others that read open
the ledger by themselves. Nothing hangs on clocks but how long a plan is held for a job that nobody has handed over (its lease),
by the monotonic clock of this process, and begun anew when it starts; times of schedulers are data.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from ..clusters.cluster import Cluster
from ..errors import ConflictError, MeshwrightError, StateError
from ..plans import PlacementPlan
from .changes import JobAdded, JobConfirmed, JobRemoved, listed
from .deciding import Decided, Planners
from .decisions import DecisionInputs, JobDecision, JobRequest, KeptDecision, Mention, Observation, ObservedFactor, free_runs
from .ledger import Ledger
from .plan_parts import PlanParts, whole_plan
from .sources.listings import Listing, Taken
from .state import ClusterState, HeldDevices, held_by_plan, occupancy, of_whole_hosts
from .store import Store

LEASE_S = 600.0
"""How long devices are held for a job that nobody has handed to the scheduler."""

LISTINGS_TO_END = 2
"""Listings in a row that do not know a job which was handed over, after which it has ended: one may come between two records."""


PHASES = ("state", "policy", "commit")
"""Of a decision: the state is folded onto the cluster, the policy chooses, the decision is kept."""


class Controller:
    """See the module.

    Args:
        store: what is kept, or the path of its ledger.
        planners: the cluster, and the policy that decides.
        whole_hosts: whether jobs hold their hosts to the exclusion of others, as the Slurm export has it unless told otherwise.
        lease_s: how long devices are held for a job that nobody has handed over.
        seed: of policies that draw.
        factors: what earlier runs of a graph add to its predicted times, see `feedback.calibration.ObservedLayer`.
        now: the time.
        elapsed_s: a clock that never goes back.
        timed: called with each of `PHASES` of a decision and its seconds.

    Raises:
        InputFileError: the ledger cannot be used.
        StateError: its state is not of the cluster.
    """

    def __init__(
        self,
        store: Store | Path,
        planners: Planners,
        *,
        whole_hosts: bool = False,
        lease_s: float = LEASE_S,
        seed: int = 0,
        factors: Callable[[str | None], tuple[ObservedFactor, ...]] = lambda graph: (),
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        elapsed_s: Callable[[], float] = time.monotonic,
        timed: Callable[[str, float], None] = lambda phase, seconds: None,
    ) -> None:
        self.timed = timed
        self.store: Store = Ledger(store) if isinstance(store, Path) else store
        self.planners = planners
        self.cluster: Cluster = planners.cluster
        self.whole_hosts = whole_hosts
        self.lease_s = lease_s
        self.seed = seed
        self._factors = factors
        self._now = now
        self._elapsed_s = elapsed_s
        self._missed: Counter[str] = Counter()
        self._leases: dict[str, float] = {}
        self._ended: set[str] = set()
        self._held: tuple[ClusterState, HeldDevices] | None = None
        self._parts = PlanParts()
        _, state = self.store.last()
        self.held(state)
        self._begin_leases(state)

    def close(self) -> None:
        """Let go of the store."""
        self.store.close()

    def forget(self) -> None:
        """Forget what was kept a moment ago, as the disk failed."""
        self._parts = PlanParts()
        self._held = None
        self._missed.clear()
        self._begin_leases(self.store.last()[1])

    def _begin_leases(self, state: ClusterState) -> None:
        """Begin the leases of plans that nobody has handed over and that have none."""
        for job in state.jobs:
            if job.is_unconfirmed and job.id not in self._leases and self.store.decision(job.id) is not None:
                self._leases[job.id] = self._elapsed_s() + self.lease_s

    def held(self, state: ClusterState) -> HeldDevices:
        """Who holds each device of the cluster.

        Raises:
            StateError: the state is not of the cluster.
        """
        if self._held is None or self._held[0] is not state:
            self._held = state, occupancy(state, self.cluster)
        return self._held[1]

    def decide(self, request: JobRequest, key: str | None = None) -> KeptDecision:
        """Decide for a job, and hold its devices.

        Args:
            request: the job.
            key: by which the same request gets the same answer again.

        Raises:
            ConflictError: the key is that of another request.
            MeshwrightError: the job or policy is missing or wrong.
        """
        kept = self.known(request, key)
        if kept is None:
            self.planners.make_ready(request)
            kept = self._decided(request, key, None)
        elif kept.decision.outcome == "preparing":
            kept = self.finish(kept.decision.id)
        return kept

    def known(self, request: JobRequest, key: str | None) -> KeptDecision | None:
        """The decision that a key has, None where it has none.

        Raises:
            ConflictError: it is that of another request.
        """
        kept = None if key is None else self.store.decision_of_key(key)
        if kept is not None and kept.decision.request != request:
            old, new = (one.model_dump(mode="json") for one in (kept.decision.request, request))
            field = next(name for name in new if old[name] != new[name])
            told = json.dumps(new[field]) if field != "job" or isinstance(new[field], str) else "another job"
            raise ConflictError("the key is that of another request, which differs here", field=field, value=told[:200])
        return kept

    def decide_or_prepare(self, request: JobRequest, key: str | None = None) -> KeptDecision:
        """As `decide` where the job is ready; otherwise a decision that is being prepared, for `finish`.

        Raises:
            ConflictError: the key is that of another request.
        """
        kept = self.known(request, key)
        if kept is not None:
            return kept
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
        kept = self.kept(name)
        if kept.decision.outcome != "preparing":
            return kept
        try:
            self.planners.make_ready(kept.decision.request)
        except MeshwrightError as error:
            return self.fail(name, str(error), error.field)
        return self._decided(kept.decision.request, None, name)

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
        decision = self.kept(name).decision.model_copy(update={"outcome": "failed", "why": why, "field": field})
        with self.store.turn() as turn:
            return turn.keep(decision)

    def try_plan(self, request: JobRequest) -> tuple[DecisionInputs, Decided]:
        """A decision that holds nothing and is not kept.

        Raises:
            MeshwrightError: the job or policy is missing or wrong.
        """
        self.planners.make_ready(request)
        inputs = self._inputs(request, *self.store.last())
        return inputs, self.planners.decide(inputs)

    def confirm(self, name: str, scheduler_id: str) -> None:
        """The job of a decision was handed to the scheduler; once more is no change.

        Args:
            name: of the decision.
            scheduler_id: the scheduler's id of the job.

        Raises:
            StateError: there is no such decision.
            ConflictError: its devices were given back, or it was handed over as another job.
        """
        self.kept(name)
        with self.store.turn() as turn:
            if turn.state.planned(name) is None:
                mentions = self.store.mentions(name)
                if any(mention.detail == scheduler_id and mention.status in ("confirmed", "running") for mention in mentions):
                    return
                last = mentions[-1] if mentions else None
                told = "holds no devices" if last is None else f"is {last.status}" + (f": {last.detail}" if last.detail else "")
                raise ConflictError(told, field=f"decision {name}", value=scheduler_id)
            turn.change(JobConfirmed(id=name, confirmed_as=scheduler_id))
        self._leases.pop(name, None)

    def renew(self, name: str) -> None:
        """Begin the lease of a decision anew, where nobody has handed its job over: somebody still wants its devices."""
        if name in self._leases:
            self._leases[name] = self._elapsed_s() + self.lease_s

    def release(self, name: str, reason: str | None = None) -> bool:
        """Give the devices of a decision back; whether it held any.

        Raises:
            StateError: there is no such decision.
            ConflictError: its job runs, which only the scheduler can end.
        """
        self.kept(name)
        with self.store.turn() as turn:
            running = next((job for job in turn.state.jobs if job.of_decision == name), None)
            if running is not None and running.source != "plan":
                raise ConflictError(f"runs as {running.id}: end it there", field=f"decision {name}")
            if running is not None:
                turn.change(JobRemoved(id=name, reason=reason))
        self._leases.pop(name, None)
        return running is not None

    def end(self, scheduler_id: str, reason: str) -> bool:
        """The scheduler says that a job has ended, before a listing does; whether it held devices.

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
        """See `Store.mentions`."""
        return self.store.mentions(name)

    def expire(self) -> list[str]:
        """Give back what nobody handed over in time; ids of the decisions."""
        now_s = self._elapsed_s()
        late = [name for name, until_s in self._leases.items() if until_s <= now_s]
        expired = []
        for name in late:
            with self.store.turn() as turn:
                held = turn.state.planned(name)
                if held is not None and held.confirmed_as is None:
                    turn.change(JobRemoved(id=name, reason=f"not handed to the scheduler within {self.lease_s:g} s"))
                    expired.append(name)
            del self._leases[name]
        return expired

    def asked(self) -> tuple[str, ...]:
        """To be called before a scheduler is asked for a listing: ids of the decisions whose jobs it has been handed."""
        self._ended.clear()
        return tuple(job.id for job in self.store.last()[1].jobs if job.source == "plan" and job.confirmed_as is not None)

    def take(self, listing: Listing, handed: Iterable[str] = ()) -> Taken:
        """Take a listing as the truth.

        Args:
            listing: of a scheduler.
            handed: what `asked` said before it was asked.

        Raises:
            StateError: the listing contradicts itself or is of another cluster; then nothing changes.
        """
        listing = listing.without(self._ended)  # it was asked for before they ended
        occupancy(listing.state, self.cluster)
        known = {job.decision for job in listing.state.jobs} | set(listing.waiting)
        missing = set(handed) - known
        missed = Counter({name: self._missed[name] + 1 for name in missing})
        ended = [name for name, count in missed.items() if count >= LISTINGS_TO_END]
        released = []
        with self.store.turn() as turn:
            for job in turn.state.jobs:
                told = listing.queued.get(job.id) or listing.ended.get(job.id)
                if job.is_unconfirmed and told is not None:  # whoever handed it over died before saying so
                    turn.change(JobConfirmed(id=job.id, confirmed_as=told))
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
        return Taken(change.drift, tuple(released))

    def observe(self, name: str, observed: Sequence[Observation]) -> int:
        """Keep how long steps of a decision's job took; how many of them are new.

        Raises:
            StateError: there is no such decision.
        """
        self.kept(name)
        with self.store.turn() as turn:
            return turn.observe(name, observed)

    def kept(self, name: str) -> KeptDecision:
        """A decision by its id.

        Raises:
            StateError: there is none.
        """
        found = self.store.decision(name)
        if found is None:
            raise StateError("there is no such decision", field="decision", value=name)
        return found

    def whole_plan(self, decision: JobDecision) -> PlacementPlan | None:
        """The plan of a decision with its job and cluster in it; None where it has none.

        Raises:
            MeshwrightError: what is kept of it cannot be read.
        """
        return whole_plan(self.store, decision)

    def _decided(self, request: JobRequest, key: str | None, name: str | None) -> KeptDecision:
        begin_s = time.perf_counter()
        with self.store.turn() as turn:
            twin = self.known(request, key)
            if twin is not None:  # both came at once
                return twin
            inputs = self._inputs(request, turn.seq, turn.state)
            with_state_s = time.perf_counter()
            found = self.planners.decide(inputs)
            decided_s = time.perf_counter()
            made = found.as_decision(turn.next_id() if name is None else name, inputs)
            if found.plan is not None:
                made = self._parts.with_plan(made, found.plan, turn)
                job = held_by_plan(found.plan, made.id, whole_hosts=self.whole_hosts)
                turn.change(JobAdded(job=job))
            kept = turn.keep(made, key)
        end_s = time.perf_counter()
        for phase, seconds in zip(PHASES, (with_state_s - begin_s, decided_s - with_state_s, end_s - decided_s), strict=True):
            self.timed(phase, seconds)
        if found.plan is not None:
            self._leases[made.id] = self._elapsed_s() + self.lease_s
            self._parts.keep()
        return kept

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
