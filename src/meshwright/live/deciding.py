"""`decide`: from a job and the free devices to a decision, by a policy; repeatable, without clock, disk or network.

A job is made ready once (`Planners.ready`): its graph is read and priced on the cluster. That takes from a tenth of a second to
minutes; a decision then takes milliseconds.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import files
from ..clusters.cluster import Cluster
from ..errors import GraphError, InputFileError, PlanError
from ..jobs.load import JobSource
from ..planners.fleet.rules import fleet_rule
from ..planning.plan import OpSplitPlanner
from ..planning.policies import MENU_RULE, base_of, is_by_menu, is_rollout, trained_file
from ..plans import PlacementPlan
from ..plans.frameworks.defaults import LauncherName
from .decisions import DecisionInputs, JobDecision, JobRequest, free_at_s
from .feedback.figures import plan_as_observed

if TYPE_CHECKING:
    from ..planners.menu.menu_rows import MenuRow
    from ..planning.menu_plan import MenuPlanner

KEPT_PLANNERS = 128
"""Jobs that are ready at a time."""

DEFAULT_POLICY = f"{MENU_RULE}fastest-feasible"
DEFAULT_MAX_DEVICES = 16
"""Most devices of a job that policies cut op by op may have, unless its request says."""


@dataclass(frozen=True)
class Decided:
    """A decision.

    Attributes:
        plan: None where the policy gives the job no devices now.
        why: a sentence.
        candidates: what there was to choose from, a row each, as plain data.
    """

    plan: PlacementPlan | None
    why: str
    candidates: tuple[dict[str, Any], ...]

    def as_decision(self, name: str, inputs: DecisionInputs) -> JobDecision:
        """Return the decision of an id, from its inputs; its plan is put into it by `plan_parts`."""
        return JobDecision(
            id=name,
            request=inputs.request,
            outcome="refused" if self.plan is None else "placed",
            inputs=inputs,
            why=self.why,
            candidates=self.candidates,
        )


class _Degrees(NamedTuple):
    """Numbers of devices."""

    degrees: NDArray[np.int64]


class Planners:
    """The jobs of a cluster under one policy, with the latest ones ready.

    Args:
        cluster: where jobs run.
        policy: ``menu:RULE`` or a trained policy of a fleet, which pick from a menu of layouts. Or a policy that cuts a job op
            by op, as `planning.policies` spells them.
        graphs_dir: where bare names of jobs are looked up.
        scratch: folder in which jobs that requests bring along lie.
        cache: folder of priced menus; the user's cache by default.
        framework: framework for the layouts of jobs that name none, where the policy is ``menu:RULE``.
    """

    def __init__(
        self,
        cluster: Cluster,
        policy: str,
        *,
        scratch: Path,
        graphs_dir: Path | None = None,
        cache: Path | None = None,
        framework: LauncherName | None = None,
    ) -> None:
        self.cluster = cluster
        self.policy = policy
        self.is_by_menu = is_by_menu(policy)
        self._scratch = scratch
        self._graphs_dir = graphs_dir
        self._cache = cache
        self._framework = framework
        self._lock = threading.Lock()
        self._ready: OrderedDict[str, OpSplitPlanner | MenuPlanner] = OrderedDict()

    @property
    def recipe(self) -> dict[str, Any]:
        """Arguments that make the same object in another process."""
        folders = {"scratch": self._scratch, "graphs_dir": self._graphs_dir, "cache": self._cache}
        return {"cluster": self.cluster, "policy": self.policy, "framework": self._framework, **folders}

    def check_policy(self) -> None:
        """Refuse an unknown policy before the first job.

        Raises:
            PolicyError: no rule, shipped policy, file or run folder of that name.
            PlanError: a framework, which the policy does not support.
        """
        if self._framework is not None and not self.policy.startswith(MENU_RULE):
            raise PlanError(f"goes with menu:RULE, not {self.policy}", field="--for", value=self._framework)
        if self.policy.startswith(MENU_RULE):
            degrees = np.array([1 << power for power in range(self.cluster.num_devices.bit_length())])
            fleet_rule(self.policy.removeprefix(MENU_RULE), _Degrees(degrees))
        elif not self.is_by_menu:
            trained_file(base_of(self.policy) if is_rollout(self.policy) else self.policy)

    def is_ready(self, request: JobRequest) -> bool:
        """Return whether a job can be decided on at once."""
        with self._lock:
            return self.key(request) in self._ready

    def make_ready(self, request: JobRequest) -> None:
        """Read and price a job, unless it is ready.

        Raises:
            MeshwrightError: the job or the policy is missing or wrong, or the job fits the cluster nowhere.
        """
        key = self.key(request)
        with self._lock:
            if key in self._ready:
                return
        try:
            made = self._made(request)
        except (GraphError, InputFileError) as error:
            field = error.field or "job"
            if isinstance(request.job, str):
                raise error.at(field=field) from None
            raise type(error)(error.problem, field=field, value=error.value, choices=error.choices) from None
        self._try(made)
        with self._lock:
            self._ready[key] = made
            while len(self._ready) > KEPT_PLANNERS:
                self._ready.popitem(last=False)

    def digest(self, request: JobRequest) -> str:
        """Return a hash of job, cluster, cost model and the policy's weights."""
        return self._planner(request).digest

    def graph(self, request: JobRequest) -> str:
        """Return a hash of what a job computes in a step, by which its runs are known again."""
        return self._planner(request).graph_digest

    def decide(self, inputs: DecisionInputs) -> Decided:
        """Decide for a job; the same for the same inputs.

        Raises:
            MeshwrightError: as `make_ready`, or what is asked for cannot be.
        """
        request, free_s = inputs.request, free_at_s(inputs.free)
        planner = self._planner(request)
        deadline_s, factors = request.deadline_s, inputs.factors
        try:
            if not isinstance(planner, OpSplitPlanner):
                result, plan = plan_as_observed(
                    lambda allowed_s: planner.plan(request.steps, allowed_s, free_s <= 0), deadline_s, factors
                )
                return Decided(_named(plan, request), plan.why or "", _menu_rows(planner, result.rows, request.steps))
            if request.devices is not None and (free := int((free_s <= 0).sum())) < request.devices:
                return Decided(None, f"{free} of {len(free_s)} devices are free", ())
            made, plan = plan_as_observed(
                lambda allowed_s: planner.plan(request.steps, allowed_s, free_s, inputs.seed), deadline_s, factors
            )
        except PlanError as error:
            return Decided(None, error.problem, ())
        if request.devices is not None and plan.num_ranks != request.devices:
            problem = f"{self.policy} gives it {plan.num_ranks} devices, not {request.devices}"
            return Decided(None, problem, tuple(made.candidates))
        return Decided(_named(plan, request), plan.why or "", tuple(made.candidates))

    def _planner(self, request: JobRequest) -> OpSplitPlanner | MenuPlanner:
        self.make_ready(request)
        with self._lock:
            key = self.key(request)
            self._ready.move_to_end(key)
            return self._ready[key]

    def key(self, request: JobRequest) -> str:
        """Return a hash of what the planner of a job hangs on."""
        job = request.job if isinstance(request.job, str) else json.dumps(request.job, sort_keys=True)
        name = request.name if isinstance(request.job, dict) else None
        devices = (request.max_devices, request.devices) if self.is_by_menu else (self._most_devices(request),)
        parts = (job, name, request.batch, request.sequence_length, request.framework or self._framework, *devices)
        return (_digest if isinstance(request.job, str) else files.digest)(*map(str, parts))

    def _most_devices(self, request: JobRequest) -> int:
        """Return the most devices of a job that is cut op by op."""
        most = request.max_devices or max(request.devices or 0, DEFAULT_MAX_DEVICES)
        return min(most, self.cluster.num_devices)

    def _made(self, request: JobRequest) -> OpSplitPlanner | MenuPlanner:
        spec = self.spec_of(request)
        if self.is_by_menu:
            from ..planning.menu_plan import MenuPlanner  # loads torch

            return MenuPlanner.from_job(
                spec,
                self.cluster,
                self.policy,
                batch=request.batch,
                sequence_length=request.sequence_length,
                devices=request.devices,
                max_devices=request.max_devices,
                framework=request.framework or self._framework,
                cache=self._cache,
            )
        for field in ("batch", "sequence_length", "framework"):
            if getattr(request, field) is not None:
                raise PlanError(f"goes with policies that pick from a menu; this one is {self.policy}", field=field)
        source = JobSource(spec, self._graphs_dir)
        return OpSplitPlanner.from_job(source, self.cluster, self.policy, max_degree=self._most_devices(request))

    def _try(self, planner: OpSplitPlanner | MenuPlanner) -> None:
        """Plan on a free cluster and with a held device, to load and compile all code and to detect a wrong policy."""
        for held in (0, 1):
            free_s = np.zeros(self.cluster.num_devices)
            free_s[:held] = np.inf
            with suppress(PlanError):
                if isinstance(planner, OpSplitPlanner):
                    planner.plan(1, None, free_s)
                else:
                    planner.plan(1, None, free_s <= 0)

    def spec_of(self, request: JobRequest) -> str:
        """Return how a job is called here: a file for one that the request brings along. Paths of this machine are refused.

        Raises:
            InputFileError: a path.
        """
        if isinstance(request.job, str):
            if request.job.startswith("zoo:"):
                return request.job
            result = None if self._graphs_dir is None else self._graphs_dir / request.job / "graph.txt"
            if result is None or "/" in request.job or request.job in (".", "..") or not result.is_file():
                problem = "is no zoo:NAME" + ("" if result is None else " and no name in the folder of graphs")
                raise InputFileError(f"{problem}; a file's content goes in its place", field="job", value=request.job)
            return str(result)
        kind = "config.json" if "model_type" in request.job else "graph.json"
        name = files.file_name(request.job_name)
        path = self._scratch / files.digest(json.dumps(request.job, sort_keys=True)) / name / kind
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            files.write_json(path, request.job)
        return str(path)


_digest = lru_cache(maxsize=4096)(files.digest)
"""Of short texts, which are the same again and again."""


def _named(plan: PlacementPlan, request: JobRequest) -> PlacementPlan:
    """Return the plan with the name that the request gives the job."""
    if request.name is None:
        return plan
    return plan.model_copy(update={"job": plan.job.model_copy(update={"name": request.name})})


def _menu_rows(planner: MenuPlanner, rows: tuple[MenuRow, ...], steps: int) -> tuple[dict[str, Any], ...]:
    names = planner.fleet.cluster.host_names
    return tuple(
        {
            "degree": row.degree,
            "layout": row.name,
            "device": row.device,
            "step_s": row.step_s,
            "completion_s": steps * row.step_s,
            "device_seconds": steps * row.step_s * row.degree,
            "memory_bytes": row.memory_bytes,
            "is_tight": bool(row.tight),
            "hosts": [names[host] for host in row.hosts],
            "is_chosen": row.is_chosen,
        }
        for row in rows
    )
