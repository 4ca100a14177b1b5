"""`Controller`: decides for jobs on a cluster that others use too, holds the devices, and keeps all of it.

The same core serves in the caller's process and behind `meshwright serve`. One thread at a time calls it; others that read open
the ledger by themselves. `follower.JobFollower` follows decisions to their end.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ..errors import ConflictError, MeshwrightError
from ..plans import PlacementPlan
from .changes import JobAdded
from .deciding import Decided, Planners
from .decisions import DecisionInputs, JobDecision, JobRequest, KeptDecision, ObservedFactor, free_runs
from .follower import LEASE_S, JobFollower
from .ledger import Ledger
from .plan_parts import PlanParts, whole_plan
from .state import ClusterState, held_by_plan, of_whole_hosts

PHASES = ("state", "policy", "commit")
"""Of a decision: the state is folded onto the cluster, the policy chooses, the decision is kept."""


class Controller(JobFollower):
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
        ledger = Ledger(store) if isinstance(store, Path) else store
        super().__init__(ledger, planners.cluster, lease_s=lease_s, elapsed_s=elapsed_s)
        self.timed: Callable[[str, float], None] = lambda phase, seconds: None
        self.planners = planners
        self.whole_hosts = whole_hosts
        self.seed = seed
        self._factors = factors
        self._now = now
        self._began = now(), elapsed_s()
        self._parts = PlanParts()

    def confirmed_now(self) -> datetime:
        """The time, at most as much later than at the start as the clock that never goes back confirms."""
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
        """The decision that a key has, None where it has none.

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
        """A decision that holds nothing and is not kept.

        Raises:
            MeshwrightError: the job or policy is missing or wrong.
        """
        self.planners.make_ready(request)
        inputs = self._inputs(request, *self.store.last())
        return inputs, self.planners.decide(inputs)

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
            result = self.planners.decide(inputs)
            decided_s = time.perf_counter()
            made = result.as_decision(turn.next_id() if name is None else name, inputs)
            if result.plan is not None:
                made = self._parts.with_plan(made, result.plan, turn)
                job = held_by_plan(result.plan, made.id, whole_hosts=self.whole_hosts)
                turn.change(JobAdded(job=job))
            record = turn.keep(made, key)
        end_s = time.perf_counter()
        for phase, seconds in zip(PHASES, (with_state_s - begin_s, decided_s - with_state_s, end_s - decided_s), strict=True):
            self.timed(phase, seconds)
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
