"""A bound that no policy can pass: the least blocking of an episode whose arrivals are known, by linear programming.

Each job may be accepted in part, at any of its degrees, for the shortest time of this degree. At each arrival the running jobs
hold no more devices than there are. Blocks are ignored: free devices suit any job. The true optimum is thus feasible for the
programme, whose own optimum cannot be worse.

Legend: ``k`` jobs to decide, ``g`` graphs, ``d`` degrees, ``x`` variables: a job and a degree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import MeshwrightError
from ...simulation.cluster.scenario import Scenario
from .known_episode import KnownEpisode

# The solver's answer may lie this far below the true optimum; jobs are counted whole after adding it.
SLACK = 1e-4


@dataclass(frozen=True, eq=False)
class Bound:
    """The solution of the linear programme for an episode.

    Attributes:
        accepted: counted jobs that it accepts, with fractions.
        num_accepted_at_most: whole jobs that anyone can accept.
        blocking_rate_at_least: no policy blocks less.
        price: of a device at each arrival, in accepted jobs (the dual solution), ``(k,)``.
    """

    accepted: float
    num_accepted_at_most: int
    blocking_rate_at_least: float
    price: NDArray[np.float64]


def bound(episode: KnownEpisode) -> Bound:
    """Solve the linear programme of an episode.

    Raises:
        MeshwrightError: the solver gave up.
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_matrix, vstack

    scenario = episode.scenario
    num_jobs, arrival_s = len(episode.graph_id), episode.arrival_s[: len(episode.graph_id)]
    duration_s = episode.num_steps[:, None] * least_step_s(scenario)[episode.graph_id]
    finish_s = arrival_s[:, None] + duration_s
    may = (duration_s <= episode.limit_s[:, None]) & (finish_s <= episode.end_s) & episode.is_counted[:, None]
    job, d = np.nonzero(may & np.isfinite(duration_s))
    if len(job) == 0:
        return Bound(0.0, 0, episode.blocking_rate(0), np.zeros(num_jobs))
    # A job holds its devices at its own arrival and at all later ones before its end.
    held = np.maximum(1, np.searchsorted(arrival_s, finish_s[job, d], side="left") - job)
    variable = np.repeat(np.arange(len(job)), held)
    moment = np.repeat(job, held) + np.arange(held.sum()) - np.repeat(np.cumsum(held) - held, held)
    num_devices = np.array(scenario.space.degrees, np.float64)[d]
    capacity = csr_matrix((num_devices[variable], (moment, variable)), shape=(num_jobs, len(job)))
    once = csr_matrix((np.ones(len(job)), (job, np.arange(len(job)))), shape=(num_jobs, len(job)))
    limits = np.concatenate([np.full(num_jobs, scenario.cluster.num_devices), np.ones(num_jobs)])
    rows: Any = vstack([capacity, once]).tocsr()
    solved = linprog(-np.ones(len(job)), A_ub=rows, b_ub=limits, bounds=(0, None), method="highs-ds")
    if solved.status != 0 or solved.fun is None:
        raise MeshwrightError(f"the linear programme was not solved: {solved.message}")
    accepted = -float(solved.fun)
    at_most = min(int(episode.is_counted.sum()), math.floor(accepted + SLACK))
    price = np.maximum(0.0, -np.asarray(solved.ineqlin.marginals[:num_jobs], np.float64))
    return Bound(accepted, at_most, episode.blocking_rate(at_most), price)


def least_step_s(scenario: Scenario) -> NDArray[np.float64]:
    """Return the shortest step of each graph at each degree on any placement, infinite where there is none, ``(g, d)``.

    The published PAC-ML first fit may spread a job over more servers than its degree. The ops that are cut most land on one
    block, and their compute bounds such steps from below. Where memory may prevent that, the bound is all compute shared by all
    devices.
    """
    problem = scenario.problem
    classes = slice(0, problem.num_classes)
    step_s = np.where(problem.can_run[:, classes], problem.step_s[:, classes], np.inf)
    least = np.full((len(step_s), len(problem.degrees)), np.inf)
    for c, d in enumerate(problem.class_degree.tolist()):
        least[:, d] = np.minimum(least[:, d], step_s[:, c])
    if scenario.simulator is None or scenario.placements is None:
        return least
    is_tight = problem.published.is_tight.reshape(least.shape)
    for g, graph in enumerate(scenario.workload.graphs):
        for d, degree in enumerate(scenario.space.degrees):
            cut = scenario.simulator.split(graph.name, degree)
            work_s = cut.job.compute_s
            cut_most = cut.splits == cut.splits.max()
            if is_tight[g, d]:
                serial_s = float(work_s.sum()) / scenario.cluster.num_devices
            else:
                serial_s = float((work_s[cut_most] / cut.splits[cut_most]).sum())
            least[g, d] = min(least[g, d], serial_s * (1.0 - 1e-12))  # sums in another order round otherwise
    return least
