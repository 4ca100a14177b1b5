"""Episodes of the published simulator, played by the batched dynamics under its semantics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .... import settings
from ....envs.batch import EpisodeBatch
from ....jobs.arrivals import Arrivals
from ....jobs.graph import JobGraph
from ....jobs.workload import Workload, WorkloadSettings
from ....simulation.cluster.decision import Decision, decision
from ....simulation.cluster.scenario import Scenario, ScenarioSettings
from ....simulation.decision_space.space import decision_space
from ....simulation.pacml.block_times import block_step_times
from ....simulation.pacml.demands import Demand
from ....simulation.pacml.simulator import Simulator

INTERARRIVAL_S = 1000.0
MAX_DEGREE = 16
"""The largest degree of the published action space."""


@dataclass(frozen=True)
class PlayedEpisode:
    """The figures of an episode.

    Attributes:
        rewards: of each decision.
        arrived: decided jobs, and the one that arrives at the end.
        blocked: jobs that were turned away or still run at the end.
        completed: jobs that ended.
        lookaheads: graphs and degrees whose completion time was fixed.
        blocking_rate: blocked over arrived jobs.
        mean_completion_s: of completed jobs, from arrival; None without any.
        demand_bytes_per_s: memory and dependencies of accepted jobs, those that still run in part, over the episode.
    """

    rewards: tuple[int, ...]
    arrived: int
    blocked: int
    completed: int
    lookaheads: int
    blocking_rate: float
    mean_completion_s: float | None
    demand_bytes_per_s: float


def published_scenario(simulator: Simulator, graphs: Sequence[JobGraph], num_jobs: int) -> Scenario:
    """Return the scenario of episodes in which a simulator's jobs arrive at the published pace.

    Args:
        simulator: cluster, jobs and defects.
        graphs: the simulator's jobs, in its order.
        num_jobs: decisions of an episode.

    Raises:
        PlanError: a graph fits no block of the cluster.
    """
    data = {
        "graphs": [graph.name for graph in graphs],
        "steps": {"kind": "fixed", "num_steps": simulator.num_steps},
        "arrivals": {"kind": "fixed", "interarrival_s": INTERARRIVAL_S},
        "deadline": {"kind": "uniform", "low": 0.1, "high": 1.0},
        "drop_input_ops": False,
    }
    config = ScenarioSettings(
        cluster=simulator.cluster.name,
        workload="published",
        num_jobs=num_jobs,
        max_degree=MAX_DEGREE,
        placement_rules=("published",),
        semantics={"kind": "pacml", "defects": simulator.defects.model_dump()},
    )
    workload = Workload(settings.build_settings(WorkloadSettings, data), tuple(graphs))
    space = decision_space(simulator.cluster, MAX_DEGREE)
    times = block_step_times(simulator, graphs, space)
    return Scenario(config, simulator.cluster, workload, space, times, simulator)


def play(scenario: Scenario, demands: Sequence[Demand], choose: Callable[[Decision], int]) -> PlayedEpisode:
    """Play one episode.

    Args:
        scenario: from `published_scenario`.
        demands: the jobs by arrival, one more than is decided.
        choose: returns the candidate of a decision.
    """
    simulator, names = scenario.simulator, [graph.name for graph in scenario.workload.graphs]
    assert simulator is not None
    arrival_s = INTERARRIVAL_S * np.arange(len(demands), dtype=np.float64)
    graph_id = np.array([names.index(demand.graph) for demand in demands])
    fraction = np.array([demand.fraction for demand in demands])
    batch = EpisodeBatch(scenario, 1, observes=False)
    batch.begin_with(0, Arrivals(arrival_s, graph_id, np.full(len(demands), simulator.num_steps), fraction))
    rewards = []
    while not batch.is_over[0]:
        paid, _ = batch.step(np.array([choose(decision(scenario, batch.episodes, 0))]))
        rewards.append(int(paid[0]))
    record, end_s = batch.record(0), float(arrival_s[-1])
    completed_s = record.completion_s[record.is_served].tolist()
    accepted = np.flatnonzero(record.is_accepted).tolist()
    done = (min(1.0, (end_s - arrival_s[k]) / float(record.completion_s[k])) for k in accepted)
    demand_bytes = sum(share * simulator.demand_bytes(demands[k].graph) for share, k in zip(done, accepted, strict=True))
    return PlayedEpisode(
        rewards=tuple(rewards),
        arrived=len(demands),
        blocked=len(rewards) - len(completed_s),
        completed=len(completed_s),
        lookaheads=int((batch.episodes.fixed_block >= 0).sum()),
        blocking_rate=record.blocking_rate(),
        mean_completion_s=sum(completed_s) / len(completed_s) if completed_s else None,
        demand_bytes_per_s=float(demand_bytes / end_s),
    )
