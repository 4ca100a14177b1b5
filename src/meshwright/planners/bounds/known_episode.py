"""An episode whose arrivals are all known beforehand, as clairvoyant references see it.

The scenario says which jobs count: the arrivals after the warm-up and before the cool-down. Under the published PAC-ML rules
only jobs that end before the episode count.

Legend: ``k`` jobs to decide, ``g`` graphs, ``d`` degrees, ``c`` placement classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...errors import PolicyError
from ...jobs.arrivals import Arrivals
from ...simulation.cluster.scenario import Scenario


@dataclass(frozen=True, eq=False)
class KnownEpisode:
    """The jobs of an episode and what they need.

    Attributes:
        scenario: what is played.
        arrivals: its jobs, one more than are decided.
        arrival_s: of all of them, ``(k + 1,)``.
        graph_id: ``(k,)``.
        num_steps: ``(k,)``.
        limit_s: longest completion time that meets the deadline, ``(k,)``.
        is_counted: which jobs the blocking rate counts, ``(k,)``.
        end_s: a job that ends later counts as blocked; infinite where none does.
        num_counted: what the blocking rate is a share of.
        class_s: completion time on the blocks of each class, infinite where the job cannot run, ``(k, c)``.
    """

    scenario: Scenario
    arrivals: Arrivals
    arrival_s: NDArray[np.float64]
    graph_id: NDArray[np.int64]
    num_steps: NDArray[np.int64]
    limit_s: NDArray[np.float64]
    is_counted: NDArray[np.bool_]
    end_s: float
    num_counted: int
    class_s: NDArray[np.float64]

    def blocking_rate(self, num_accepted: int) -> float:
        """Return the blocking rate where a given number of the counted jobs are accepted."""
        return (int(self.is_counted.sum()) - num_accepted) / self.num_counted


def draw(scenario: Scenario, seed: int) -> KnownEpisode:
    """Return the episode that every policy meets under a seed (see `envs.batch.EpisodeBatch.begin`)."""
    return known(scenario, scenario.sample(np.random.default_rng(seed), scenario.settings.num_jobs + 1))


def known(scenario: Scenario, arrivals: Arrivals) -> KnownEpisode:
    """Return an episode of given jobs, one more than it decides.

    Raises:
        PolicyError: jobs wait or are interrupted in this scenario, which no clairvoyant reference takes into account.
    """
    check(scenario)
    problem, settings = scenario.problem, scenario.settings
    num_jobs = settings.num_jobs
    graph_id, num_steps = arrivals.graph_id[:num_jobs], arrivals.num_steps[:num_jobs]
    sequential_s = num_steps * problem.sequential_step_s[graph_id]
    is_counted = np.zeros(num_jobs, np.bool_)
    is_counted[settings.counted] = True
    ends = settings.defects.running_jobs_are_blocked
    classes = slice(0, problem.num_classes)
    step_s: NDArray[np.float64] = np.where(problem.can_run[:, classes], problem.step_s[:, classes], np.inf)
    return KnownEpisode(
        scenario=scenario,
        arrivals=arrivals,
        arrival_s=arrivals.arrival_s,
        graph_id=graph_id,
        num_steps=num_steps,
        limit_s=arrivals.deadline_fraction[:num_jobs] * sequential_s * (1.0 + problem.deadline_tolerance),
        is_counted=is_counted,
        end_s=float(arrivals.arrival_s[num_jobs]) if ends else np.inf,
        num_counted=int(is_counted.sum()) + int(ends),
        class_s=num_steps[:, None].astype(np.float64) * step_s[graph_id],
    )


def check(scenario: Scenario) -> None:
    """Refuse a scenario that clairvoyant references do not model.

    Raises:
        PolicyError: jobs wait or are interrupted in it.
    """
    if scenario.settings.queue_capacity > 0:
        raise PolicyError("clairvoyant references know no queue", field="queue_capacity", value=scenario.settings.queue_capacity)
    if scenario.problem.interruptions.is_on:
        raise PolicyError("clairvoyant references know no failures and no preemption; switch them off in the scenario")
