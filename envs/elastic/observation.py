"""What a policy sees of elastic jobs: one row for each, and what each number of ranks would do for it."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ...planners.elastic.expected_remaining import FIRST_S, job_goodputs
from ...planners.elastic.known_curves import KnownCurves
from ...planners.elastic.shortest_remaining import job_spans
from ...simulation.elastic.simulation import ElasticSimulation

JOB = ("active", "decided", "ranks", "given", "asked", "held", "age", "restarts")
"""Features of a job."""

HELD_S, AGE_S, RESTARTS, SPAN_S = 36_000.0, 3_600.0, 4.0, 3_600.0
"""Seconds held ``x`` are observed as ``x / (x + HELD_S)``, and so on."""


def elastic_space(num_jobs: int, num_choices: int) -> spaces.Dict:
    """The space of an observation; ``j`` jobs of an episode, ``o`` numbers of ranks.

    ``jobs``: `JOB` of each, zeros for those that have not come or have ended; ``spans``: remaining time on each number of ranks
    as ``s / (s + 3600)``, 1 where it cannot be used; ``cluster``: share of devices that are still to be given this round;
    ``current``: the job that is decided.
    """
    return spaces.Dict(
        {
            "jobs": spaces.Box(0.0, 1.0, (num_jobs, len(JOB)), np.float32),
            "spans": spaces.Box(0.0, 1.0, (num_jobs, num_choices), np.float32),
            "cluster": spaces.Box(0.0, 1.0, (1,), np.float32),
            "current": spaces.Discrete(num_jobs),
            "action_mask": spaces.MultiBinary(num_choices + 1),
        }
    )


class Spans:
    """Remaining times of jobs by what is known of them.

    Args:
        simulation: reset.
        num_ranks: numbers of ranks that are considered, ``(o,)``.
        curves: of applications that ran before; None where jobs are known by their own steps alone.
        e: the episode.
    """

    def __init__(
        self, simulation: ElasticSimulation, num_ranks: NDArray[np.int64], curves: KnownCurves | None, e: int = 0
    ) -> None:
        self._simulation, self._num_ranks, self._curves, self._e = simulation, num_ranks, curves, e

    def of(self, job: int) -> NDArray[np.float64]:
        """Seconds to the end on each number of ranks, infinite where it cannot be used, ``(o,)``.

        Known by its own steps alone a job is expected to take as long again as it has had, as by `ExpectedRemaining`.
        """
        simulation, jobs, e = self._simulation, self._simulation.jobs, self._e
        found = np.full(len(self._num_ranks), np.inf)
        if self._curves is not None:
            job_spans(simulation.apps, jobs, e, job, self._curves, found)
            return found
        goodputs = np.zeros(len(self._num_ranks))
        most = int(simulation.most_ranks[jobs.application[e, job]])
        job_goodputs(simulation.apps, jobs, e, job, most, self._num_ranks, simulation.cluster.devices_per_node, goodputs)
        can = goodputs > 0.0
        found[can] = (FIRST_S + jobs.service_s[e, job]) * goodputs[0] / goodputs[can]
        return found
