"""A scenario: a cluster, a workload and the rules of the game, joined into the arrays that the dynamics step.

Building a scenario simulates every job graph on every placement class once (see `simulation.decision_space.step_times`); after
that an episode costs microseconds per decision.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ... import files, settings
from ...clusters import load_cluster
from ...clusters.cluster import Cluster
from ...costs.routing import Routing
from ...errors import ConfigError, GraphError, PlanError
from ...jobs.arrivals import Arrivals
from ...jobs.deadlines import SkewNormalDeadline
from ...jobs.graph import JobGraph
from ...jobs.readers.pipedream import without_inputs
from ...jobs.workload import FixedSteps, Workload, load_workload
from ...plans.splitting.op_splits import OpSplits
from ..decision_space.space import DecisionSpace, decision_space
from ..decision_space.splitting import SplitSettings
from ..decision_space.step_times import FITS_NO_BLOCK, StepTimes, step_times
from ..pacml.block_times import block_step_times
from ..pacml.demands import draw_without_clipping
from ..pacml.placement_cache import PlacementCache
from ..pacml.semantics import PacmlSemantics
from ..pacml.simulator import Simulator
from ..pacml.splitting import QUANTUM_MS
from . import dynamics
from .arrays import problem_of
from .problem import ONE_BLOCK_RULES, Problem
from .scenario_settings import ScenarioSettings
from .state import Episodes, new_episodes

__all__ = ["Scenario", "ScenarioSettings", "assemble", "build_scenario"]

# Above this many blocks a list of all of them takes too long to make, and is too long to choose from.
MAX_BLOCKS_TO_LIST = 1024

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class Scenario:
    """Everything that is computed once and shared by all episodes.

    Attributes:
        settings: what it was built from.
        cluster: where jobs run.
        workload: which jobs arrive, and when.
        space: the blocks that a job may own.
        times: step time of each graph on each placement class.
        simulator: the published PAC-ML simulator where its semantics hold.
    """

    settings: ScenarioSettings
    cluster: Cluster
    workload: Workload
    space: DecisionSpace
    times: StepTimes
    simulator: Simulator | None = None

    @property
    def problem(self) -> Problem:
        """The arrays that the compiled dynamics read; placements of the published rule that are found later join them."""
        return self._problem if self.placements is None else self.placements.problem

    @cached_property
    def placements(self) -> PlacementCache | None:
        """The placements of the published rule that are known, where it is in use."""
        if self.simulator is None or "published" not in self.settings.placement_rules:
            return None
        return PlacementCache(self._problem, self.simulator, self.space)

    @property
    def sequential_step_s(self) -> NDArray[np.float64]:
        """Seconds of a step of each graph on one device, ``(g,)``."""
        jobs = self.workload.graphs if self.simulator is None else self.simulator.jobs.values()
        return np.array([job.step_s for job in jobs])

    @cached_property
    def _problem(self) -> Problem:
        return problem_of(self.settings, self.space, self.times, self.sequential_step_s, self.workload.mean_interarrival_s)

    @cached_property
    def candidate_degree(self) -> tuple[int, ...]:
        """Ranks of each candidate; zero for the rejection and for listed blocks, whose ranks differ."""
        return tuple(int(self.space.degrees[d]) if d >= 0 else 0 for d in self._problem.candidate_degree)

    @cached_property
    def ranks(self) -> NDArray[np.int64]:
        """``candidate_degree`` as an array, ``(a,)``."""
        return np.array(self.candidate_degree, np.int64)

    @cached_property
    def candidate_rule(self) -> tuple[str, ...]:
        """Placement rule of each candidate; empty for the rejection."""
        one_each = [rule for rule in self.settings.placement_rules if rule != "all-blocks"]
        named = ["", *(rule for _ in self.space.degrees for rule in one_each)]
        return (*named, *("all-blocks" for _ in range(len(self._problem.candidate_rule) - len(named))))

    def degree_of(self, block: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the ranks of jobs on blocks or placements; zero where there is none (-1)."""
        result: NDArray[np.int64] = np.where(block >= 0, self.problem.degrees[self.problem.degree[block]], 0)
        return result

    def devices_of(self, block: int) -> NDArray[np.int64]:
        """Return the devices of a block in rank order, or of a placement by the published rule, ascending."""
        problem = self.problem
        return problem.devices[problem.start[block] : problem.start[block + 1]]

    def splits(self, graph: JobGraph, degree: int) -> OpSplits:
        """Return how far each op of a job is cut that gets a number of ranks."""
        rule = self.settings.splitting if self.simulator is None else SplitSettings(rule="sip-ml", quantum_us=QUANTUM_MS * 1e3)
        return rule.splits(graph, degree)

    @property
    def digest(self) -> str:
        """A hash of everything that an episode's outcome depends on, the policy and the seed apart."""
        table = (self.times.step_s, self.times.communication_share, self.times.can_run)
        return files.digest(self.space.digest, self.workload.digest, list(table), self.settings.to_digest())

    @property
    def digest_but_arrivals(self) -> str:
        """A hash that scenarios share which differ in nothing but when and how often jobs arrive."""
        return files.digest(self.space.digest, self.workload.digest_but_arrivals, self.settings.to_digest())

    def sample(self, rng: np.random.Generator, num_jobs: int) -> Arrivals:
        """Draw the jobs of one episode (see `jobs.workload.Workload.sample`).

        As published, deadlines below the cut-off are raised to it; without the defect they are drawn again.
        """
        arrivals = self.workload.sample(rng, num_jobs)
        deadline = self.workload.settings.deadline
        if self.simulator is None or self.simulator.defects.resample_clips or not isinstance(deadline, SkewNormalDeadline):
            return arrivals
        return replace(arrivals, deadline_fraction=draw_without_clipping(rng, deadline, num_jobs))

    def new_episodes(self, num_episodes: int) -> Episodes:
        """Return arrays for a number of episodes, to be filled by `reset`."""
        return new_episodes(self.problem, num_episodes, self.settings.num_jobs, self.cluster.num_devices)

    def reset(self, episodes: Episodes, e: int, arrivals: Arrivals, seed: int = 0) -> None:
        """Start episode ``e`` with given jobs, one more than it decides, and show the first one.

        Args:
            episodes: the state.
            e: episode.
            arrivals: the jobs.
            seed: of failures and preemptions, from 0 to 2^63 - 1.
        """
        episodes.seed[e] = seed
        episodes.arrival_s[e] = arrivals.arrival_s
        episodes.graph_id[e] = arrivals.graph_id
        episodes.num_steps[e] = arrivals.num_steps
        sequential_s = arrivals.num_steps * self.problem.sequential_step_s[arrivals.graph_id]
        episodes.allowed_s[e] = arrivals.deadline_fraction * sequential_s
        dynamics.start(self.problem, episodes, e)
        self.resolve_placements(episodes, e)

    def hold(self, episodes: Episodes, e: int, free_at_s: NDArray[np.float64]) -> None:
        """Hold devices for others until they become free, ``(n,)``, and offer the current job of episode ``e`` the rest."""
        dynamics.hold(self.problem, episodes, e, free_at_s)
        self.resolve_placements(episodes, e)

    def decide(self, episodes: Episodes, e: int, candidate: int) -> bool:
        """Carry out a candidate for the current job and go to the next decision; whether the job was accepted."""
        accepted = bool(dynamics.decide(self.problem, episodes, e, candidate))
        self.resolve_placements(episodes, e)
        return accepted

    def resolve_placements(self, episodes: Episodes, e: int) -> None:
        """Find the placements that episode ``e`` waits for, if any."""
        if self.placements is not None:
            self.placements.resolve_placements(episodes, e)


def build_scenario(
    scenario_settings: ScenarioSettings,
    *,
    graphs_dir: Path | None = None,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Scenario:
    """Load cluster and workload and simulate the step times (see `simulation.decision_space.step_times.step_times`).

    Raises:
        MeshwrightError: cluster or workload are missing or wrong, or a graph cannot be timed on the cluster.
    """
    cluster = load_cluster(scenario_settings.cluster)
    try:
        workload = load_workload(
            scenario_settings.workload, graphs_dir=graphs_dir, changes=settings.as_changes(scenario_settings.workload_changes)
        )
    except ConfigError as error:
        if error.file != "--set":
            raise
        if error.field == "arrivals.file":
            raise ConfigError("jobs of this workload do not arrive as a trace recorded them", field="--trace") from None
        field = f"scenario.workload_changes.{error.field}"
        raise ConfigError(error.problem, field=field, value=error.value, choices=error.choices) from None
    except GraphError as error:
        may_want_profiles = isinstance(scenario_settings.semantics, PacmlSemantics) or scenario_settings.workload.startswith(
            "preset:"
        )
        if graphs_dir is not None or not may_want_profiles or error.problem != "no such job":
            raise
        problem = (
            "this benchmark runs PipeDream's profiles, which are not part of the package: give their folder with --graphs DIR, "
            "one DIR/NAME/graph.txt each, as the repository msr-fiddle/pipedream has them under profiler/*/profiles"
        )
        raise GraphError(problem, file=error.file, field=error.field, value=error.value) from None
    try:
        return assemble(scenario_settings, cluster, workload, cache=cache, progress=progress)
    except PlanError as error:
        raise (_of_workload(error, scenario_settings) if error.field == "job" else error) from None


def _of_workload(error: PlanError, scenario_settings: ScenarioSettings) -> PlanError:
    """Add the key and file of a workload's job to its error, and a configuration that accepts the job."""
    problem = error.problem
    if problem.startswith(FITS_NO_BLOCK):
        problem += "; for a benchmark of such jobs, write `fleet:` in place of `scenario:`, whose jobs are cut in all these ways"
    field = "scenario.workload_changes.graphs" if "graphs" in scenario_settings.workload_changes else "graphs"
    result = PlanError(problem, field=field, value=error.value)
    return result if scenario_settings.workload.startswith("preset:") else settings.located(result, scenario_settings.workload)


def assemble(
    scenario_settings: ScenarioSettings,
    cluster: Cluster,
    workload: Workload,
    *,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Scenario:
    """Build a scenario from a cluster and a workload that are loaded already; see `build_scenario`."""
    space = decision_space(cluster, scenario_settings.max_degree, Routing.from_settings(scenario_settings.costs))
    if "all-blocks" in scenario_settings.placement_rules and space.num_blocks > MAX_BLOCKS_TO_LIST:
        raise ConfigError(
            f"{cluster.name} has {space.num_blocks:,} blocks, more than the {MAX_BLOCKS_TO_LIST:,} that may be listed",
            field="placement_rules",
            value="all-blocks",
            choices=ONE_BLOCK_RULES,
        )
    if isinstance(scenario_settings.semantics, PacmlSemantics):
        return _assemble_as_published(scenario_settings, cluster, workload, space, cache, progress)
    training = scenario_settings.given_training
    times = step_times(
        workload.graphs,
        space,
        scenario_settings.costs,
        scenario_settings.splitting,
        training=training,
        cache=cache,
        progress=progress,
    )
    return Scenario(scenario_settings, cluster, workload, space, times)


def _assemble_as_published(
    scenario_settings: ScenarioSettings,
    cluster: Cluster,
    workload: Workload,
    space: DecisionSpace,
    cache: Path | None,
    progress: Progress | None,
) -> Scenario:
    defects = scenario_settings.defects
    if defects.milliseconds_as_seconds and not isinstance(workload.settings.steps, FixedSteps):
        raise ConfigError("where milliseconds pass as seconds, a workload gives the number of steps (kind: fixed)", field="steps")
    if defects.input_ops_run and workload.settings.drop_input_ops and any(g.source == "measured" for g in workload.graphs):
        problem = "the published simulator runs the Input ops of profiles; these semantics want drop_input_ops: false"
        raise ConfigError(problem, field="drop_input_ops", value="true")
    if not defects.pool_in_given_order and workload.settings.weights is None:
        workload = replace(workload, graphs=tuple(sorted(workload.graphs, key=lambda graph: graph.name)))
    simulator = Simulator(cluster, workload.graphs, defects)
    times = block_step_times(simulator, workload.graphs, space, cache=cache, progress=progress)
    if not defects.input_ops_run:
        workload = replace(workload, graphs=tuple(without_inputs(graph) for graph in workload.graphs))
    return Scenario(scenario_settings, cluster, workload, space, times, simulator)
