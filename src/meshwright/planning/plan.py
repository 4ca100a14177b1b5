"""`plan`: the plan that a policy chooses for one job on a cluster, empty or shared, and why.

The policy sees the job exactly as an arriving job in the environment, so any baseline and any trained policy can answer. On an
empty cluster without other jobs, a candidate that another one beats in predicted time and in devices has no merit. If a policy
chooses such a candidate, the plan takes the fastest of those that beat it, and says so. Environments offer such candidates and
evaluations play them, since there the free devices matter too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .. import files, settings
from ..clusters import load_cluster
from ..clusters.cluster import Cluster
from ..costs import compute
from ..costs.settings import CostSettings
from ..costs.training_step.foreign_figures import foreign_figures
from ..envs import training_conditions
from ..envs.training_conditions import TrainingConditions
from ..errors import GraphError, PlanError
from ..jobs.arrivals import Arrivals
from ..jobs.job import MAX_STEPS, Job
from ..jobs.load import JobSource
from ..jobs.workload import Workload, WorkloadSettings
from ..models.policy_files import NETWORK, decided
from ..planners.policy import Policy, checked
from ..plans import PlacementPlan
from ..plans.memory import tight_text
from ..quantities import counted
from ..simulation.cluster.decision import Decision, can_decide_on_empty, decision, decision_on_empty
from ..simulation.cluster.scenario import Scenario, ScenarioSettings, assemble
from ..simulation.step.timeline import Timeline, simulate
from .plans_of_episode import plan_on
from .policies import base_of, display_name, is_rollout, known_conditions, policy, trained_file, wanted_settings

if TYPE_CHECKING:
    from ..envs.batch import EpisodeBatch

DEFAULT_NUM_STEPS = 10_000
RULES = ("first-fit", "best-fit", "aligned", "fastest")
"""Placement rules whose candidates are shown."""


@dataclass(frozen=True)
class Planned:
    """A chosen plan and its candidates.

    Attributes:
        plan: the plan, with predicted figures and the reason.
        candidates: a row per candidate: degree, rule, shape, step and completion seconds, device-seconds,
            communication share, whether it is offered and whether it is the plan.
        scenario: the job and the cluster as the policy met them.
        remarks: notes for people, also in the plan's reason. They name choices of the cost model, parts of the job that do not
            count, and figures of other devices. They also name traits of job and cluster that are new to the policy.
    """

    plan: PlacementPlan
    candidates: list[dict[str, Any]]
    scenario: Scenario
    remarks: tuple[str, ...] = ()

    def timeline(self) -> Timeline:
        """Return one step of the plan."""
        splits = self.plan.op_splits()
        assert splits is not None
        devices = self.plan.placement().devices
        return simulate(self.scenario.workload.graphs[0], self.scenario.cluster, splits, devices, self.scenario.settings.costs)


def plan(
    job: str,
    cluster: str,
    *,
    policy_spec: str | None = None,
    num_steps: int = DEFAULT_NUM_STEPS,
    deadline_s: float | None = None,
    max_degree: int = 16,
    free_at_s: NDArray[np.float64] | None = None,
    graphs_dir: Path | None = None,
    costs: CostSettings | None = None,
    keep_input_ops: bool = False,
    profile_batch: int | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Planned:
    """Choose a plan for one job.

    Args:
        job: ``zoo:NAME``, a name in ``graphs_dir`` or a path (see `jobs.load.load_graph`).
        cluster: ``preset:NAME`` or a path.
        policy_spec: who chooses (see `planning.policies`); by default ``fastest-feasible``, or with a deadline
            ``cheapest-feasible``.
        num_steps: training steps of the job.
        deadline_s: allowed completion time.
        max_degree: most ranks that the job may be cut into.
        free_at_s: when each device becomes free, so far as is known, in seconds from now, ``(n,)``; by default all are.
        graphs_dir: profiles by folder name.
        costs: one choice per layer of the cost model.
        keep_input_ops: whether the ``Input`` ops of a profile, which time the data loader, count.
        profile_batch: samples for which the figures of a profile hold; the plan's step has as many.
        progress: called before the job is simulated on the cluster (see `simulation.decision_space.step_times.step_times`).

    Raises:
        PlanError: the job fits no device, or nothing that the policy would take meets the deadline.
        MeshwrightError: job, cluster or policy are missing or wrong.
    """
    check_steps(num_steps, deadline_s)
    spec = ("fastest-feasible" if deadline_s is None else "cheapest-feasible") if policy_spec is None else policy_spec
    source = JobSource(job, graphs_dir, keep_input_ops, profile_batch)
    prepared = OpSplitPlanner.from_job(source, load_cluster(cluster), spec, max_degree=max_degree, costs=costs, progress=progress)
    return prepared.plan(num_steps, deadline_s, free_at_s)


@dataclass(frozen=True, eq=False)
class OpSplitPlanner:
    """A job on a cluster and a policy that cuts it op by op, to plan any number of times on what is free.

    Attributes:
        spec: of the policy.
        scenario: the job and the cluster.
        remarks: by which choices of the cost model it is priced, and what of the job does not count.
    """

    spec: str
    scenario: Scenario
    remarks: tuple[str, ...]
    _templates: dict[tuple[int, int], PlacementPlan] = field(default_factory=dict, init=False)
    """A plan by its number of devices and their type: the cut depends on nothing else."""

    @classmethod
    def from_job(
        cls,
        job: JobSource,
        cluster: Cluster,
        spec: str,
        *,
        max_degree: int = 16,
        costs: CostSettings | None = None,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> OpSplitPlanner:
        """Simulate the job on the cluster.

        Args:
            job: what is planned.
            cluster: where.
            spec: of a policy (see `planning.policies`); a run that was not better than a rule plays that rule.
            max_degree, costs, progress: as of `plan`.

        Raises:
            MeshwrightError: the job or a file of the policy is missing or wrong, or the job cannot be timed on the cluster.
        """
        chosen_costs = costs or CostSettings()

        def made(decides: str) -> OpSplitPlanner:
            scenario, left_out = _scenario(job, cluster, max_degree, chosen_costs, wanted_settings(decides, RULES), progress)
            planner = cls(decides, scenario, (*_choices(chosen_costs), *left_out))
            if decides != spec.removeprefix(NETWORK):
                _ = planner.chooser  # refuses a rule that the scenario does not have
            return planner

        planner, remarks = (made(spec), ()) if trained_file(spec) is None else decided(spec, made)[1:]
        return replace(planner, remarks=(*planner.remarks, *remarks))

    @cached_property
    def chooser(self) -> Policy:
        """The policy, ready to act."""
        return policy(self.spec, self.scenario)

    @cached_property
    def _known_conditions(self) -> Sequence[TrainingConditions] | None:
        return known_conditions(self.spec)

    @cached_property
    def _alone(self) -> TrainingConditions:
        return TrainingConditions.from_scenario("", self.scenario)

    @cached_property
    def _batch(self) -> EpisodeBatch:
        from ..envs.batch import EpisodeBatch  # loads the environment's kernels; most policies do without

        return EpisodeBatch(self.scenario, 1)

    @cached_property
    def _always(self) -> tuple[str, ...]:
        """Remarks on every plan: figures of other devices."""
        return tuple(foreign_figures(self.scenario.cluster, self.scenario.settings.costs, has_layers=False))

    @property
    def _file(self) -> Path | None:
        return trained_file(base_of(self.spec) if is_rollout(self.spec) else self.spec)

    @cached_property
    def digest(self) -> str:
        """A hash of all on which a plan depends besides the arguments of `plan`: job, cluster, costs and policy file."""
        file = self._file
        return files.digest(self.spec, self.scenario.digest, b"" if file is None else files.read_bytes(file))

    @cached_property
    def graph_digest(self) -> str:
        """A hash of what the job computes in a step."""
        return self.scenario.workload.graphs[0].digest

    def plan(
        self, num_steps: int, deadline_s: float | None = None, free_at_s: NDArray[np.float64] | None = None, seed: int = 0
    ) -> Planned:
        """Choose a plan.

        Args:
            num_steps, deadline_s, free_at_s: as of `plan`.
            seed: of a policy that draws.

        Raises:
            PlanError: nothing that the policy would take is free, or meets the deadline.
        """
        check_steps(num_steps, deadline_s)
        scenario, spec = self.scenario, self.spec
        graph = scenario.workload.graphs[0]
        work_s = num_steps * graph.step_s
        other = None
        if self._known_conditions is not None:
            here = self._alone.for_one_job(work_s, None if deadline_s is None else deadline_s / work_s)
            other = training_conditions.condition_changes(display_name(spec), self._known_conditions, here)
        remarks = (*self.remarks, *self._always, *(() if other is None else (other,)))
        allowed_s = np.inf if deadline_s is None else deadline_s
        chooser = self.chooser
        chooser.reset(seed)
        held = None if free_at_s is None or not (free_at_s > 0).any() else np.asarray(free_at_s, np.float64)
        if held is None and not getattr(chooser, "observes", True) and can_decide_on_empty(scenario):
            observation: dict[str, NDArray[Any]] = {}
            waiting = decision_on_empty(scenario, 0, num_steps, allowed_s)
        else:
            waiting, observation = self._first_of_episode(num_steps, allowed_s, held)
        choice = checked(chooser.choose(waiting, observation), spec, len(waiting.degree))
        if choice == 0 or not waiting.can_place[choice]:
            raise _refusal(scenario, waiting, spec, deadline_s, num_steps, held)
        taken = int(next(iter(waiting.beating(choice)), choice))
        rows = _rows(scenario, waiting, taken)
        why = (
            f"{spec} chose {_named(rows[choice - 1])} "
            f"out of {counted(int(waiting.can_place[1:].sum()), 'candidate')} on {_where(held)}"
            + ("" if deadline_s is None else f", counting those that finish within {deadline_s:g} s")
            + ("" if taken == choice else _replaced(rows[choice - 1], rows[taken - 1]))
            + _whose_times(scenario)
            + "".join(f"; {remark}" for remark in remarks)
        )
        planned = Job(graph, num_steps, 0.0, deadline_s)
        block = int(waiting.block[taken])
        first = int(scenario.devices_of(block)[0])
        key = int(waiting.degree[taken]), int(scenario.cluster.device_type[first])
        template = self._templates.get(key)
        made = plan_on(scenario, planned, 0, block, float(waiting.completion_s[taken]), why=why, template=template)
        held_bytes = next(float(figure.value) for figure in made.predicted if figure.name == "memory_bytes")
        if tight := tight_text(held_bytes, scenario.cluster.device_types[key[1]].memory_bytes):
            made = made.model_copy(update={"why": f"{why}; {tight}"})
        self._templates.setdefault(key, made)
        return Planned(made, rows, scenario, remarks)

    def _first_of_episode(
        self, num_steps: int, allowed_s: float, held: NDArray[np.float64] | None
    ) -> tuple[Decision, dict[str, NDArray[Any]]]:
        """Return an agent's observation of the job as the first of an episode, with the devices that others hold."""
        batch = self._batch
        fraction = allowed_s / (num_steps * self.scenario.workload.graphs[0].step_s)
        arrivals = Arrivals(np.zeros(2), np.zeros(2, np.int64), np.full(2, num_steps), np.full(2, fraction))
        batch.begin_with(0, arrivals, free_at_s=held)
        seen = {key: value[0] for key, value in batch.observations.current().items()}
        return decision(self.scenario, batch.episodes, 0), seen


def check_steps(num_steps: int, deadline_s: float | None) -> None:
    """Refuse impossible numbers of steps and deadlines.

    Raises:
        PlanError: they are.
    """
    if not 1 <= num_steps <= MAX_STEPS:
        raise PlanError(f"must be 1 to {MAX_STEPS}", field="steps", value=num_steps)
    if deadline_s is not None and not (np.isfinite(deadline_s) and deadline_s > 0):
        raise PlanError("must be finite and positive", field="deadline_s", value=str(deadline_s))


def _scenario(
    source: JobSource,
    where: Cluster,
    max_degree: int,
    costs: CostSettings,
    target: dict[str, Any],
    progress: Callable[[str, int, int], None] | None,
) -> tuple[Scenario, tuple[str, ...]]:
    graph, remarks = source.load(device=where.device_types[0])
    if graph.step_s <= 0:
        raise GraphError("a step of this job takes no time", field="job", value=source.spec)
    described = WorkloadSettings.model_validate(
        {
            "graphs": [source.spec],
            "device": "a100",
            "steps": {"kind": "fixed", "num_steps": DEFAULT_NUM_STEPS},
            "arrivals": {"kind": "fixed", "interarrival_s": 1000.0},
            "deadline": {"kind": "none"},
        }
    )
    rules = {"max_degree": max_degree, "placement_rules": RULES, "costs": costs}
    config = settings.build_settings(
        ScenarioSettings, {"cluster": where.name, "workload": source.spec, "num_jobs": 1, **rules, **target}
    )
    return assemble(config, where, Workload(described, (graph,)), progress=progress), remarks


def _rows(scenario: Scenario, waiting: Decision, choice: int) -> list[dict[str, Any]]:
    rows = []
    for candidate in range(1, len(waiting.degree)):
        block = int(waiting.block[candidate])
        has_block = block >= 0
        placement_class = int(scenario.space.placement_class[block]) if has_block else 0
        rows.append(
            {
                "degree": int(waiting.degree[candidate]),
                "rule": waiting.rule[candidate],
                "shape": scenario.space.shape_names[block] if has_block else None,
                "step_s": float(scenario.times.step_s[0, placement_class]) if has_block else None,
                "completion_s": float(waiting.completion_s[candidate]) if has_block else None,
                "device_seconds": float(waiting.device_seconds[candidate]) if has_block else None,
                "communication_share": float(scenario.times.communication_share[0, placement_class]) if has_block else None,
                "is_offered": bool(waiting.can_place[candidate]),
                "is_chosen": candidate == choice,
            }
        )
    return rows


def _choices(costs: CostSettings) -> tuple[str, ...]:
    """Return a remark where the cost model is other than by default."""
    changed = costs.model_dump(exclude_defaults=True)
    return ("priced with " + " ".join(f"{key}={value}" for key, value in changed.items()),) if changed else ()


def _named(row: dict[str, Any]) -> str:
    return f"{counted(row['degree'], 'rank')} on block {row['shape']} ({row['rule']})"


def _replaced(choice: dict[str, Any], planned: dict[str, Any]) -> str:
    """Return a remark where the plan is another candidate than the policy's, which it beats in time and in devices."""
    figures = (f"{row['completion_s']:.6g} s on {counted(row['degree'], 'device')}" for row in (planned, choice))
    return f"; replaced by {_named(planned)}, which beats it: {' against '.join(figures)}"


def _whose_times(scenario: Scenario) -> str:
    """Return a remark where the job's times are taken as they are and do not say on which device they hold."""
    graph = scenario.workload.graphs[0]
    if graph.reference_device is not None or compute.model_named(scenario.settings.costs.compute, graph).name != "profiled":
        return ""
    devices = ", ".join(kind.name for kind in scenario.cluster.device_types)
    return f"; {graph.name} does not say on which device its times hold, so they are taken as those of the cluster's {devices}"


def _where(held: NDArray[np.float64] | None) -> str:
    """Return which devices the policy chose from."""
    if held is None:
        return "the empty cluster"
    return f"the {counted(int((held <= 0).sum()), 'free device')} of {len(held)}"


def _refusal(
    scenario: Scenario, waiting: Decision, spec: str, deadline_s: float | None, num_steps: int, held: NDArray[np.float64] | None
) -> PlanError:
    free = "" if held is None else f"{int((held <= 0).sum())} of {len(held)} devices are free"
    if waiting.can_place[1:].any():
        return PlanError("the policy turns this job away" + (free and f"; {free}"), field="policy", value=spec)
    fastest_s = num_steps * float(scenario.times.step_s[0][scenario.times.can_run[0]].min())
    if held is not None and (deadline_s is None or fastest_s <= deadline_s):
        return PlanError(f"no block of free devices will do; {free}", field="--state")
    return PlanError(f"no candidate finishes in time; the fastest takes {fastest_s:.6g} s", field="deadline_s", value=deadline_s)
