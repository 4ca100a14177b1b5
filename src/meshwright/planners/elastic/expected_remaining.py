"""Shares by expected remaining time, from the jobs' history and their users' requests alone.

Sizes of jobs spread over orders of magnitude, so a job is expected to take as long again as so far. Its remaining time on one
rank counts as

    300 s e^first ranks^asked + e^again held

where ``ranks`` is its user's request and ``held`` its device-seconds so far. Other numbers of ranks follow from the model that
the job has fitted to its own steps. It may get up to twice the ranks on which it has run, as for Pollux (see `goodput_shares`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from ...simulation.elastic.batch_size import fitted_goodput
from ...simulation.elastic.rounds import is_active
from ...simulation.elastic.simulation import ElasticSimulation
from ...simulation.elastic.state import BatchRule
from .known_curves import rank_choices
from .shares import best_shares
from .shortest_remaining import BY_HAND, NUM_WEIGHTS, give, share_values

FIRST_S = 300.0
"""Expected of a job that has not run, whose user asks for one rank."""

WITHOUT_SIZE = (*BY_HAND, 0.0, 0.0, 0.0)
"""As `shortest_remaining.BY_HAND`; then ``first``, ``asked`` and ``again``: all jobs are expected to be equal, and to take as
long again."""


class ExpectedRemaining:
    """Shares by expected remaining time.

    Args:
        weights: what a share is worth and what a job is expected to take, ``(15,)``, as `WITHOUT_SIZE`.
    """

    batch_rule = BatchRule.ESTIMATED

    def __init__(self, weights: Sequence[float] = WITHOUT_SIZE) -> None:
        assert len(weights) == len(WITHOUT_SIZE)
        self._weights = np.array(weights, np.float64)

    def begin(self, simulation: ElasticSimulation) -> None:
        """See `ElasticScheduler`."""
        shape = simulation.jobs.application.shape
        self._ranks = rank_choices(simulation.cluster.num_devices)
        # Goodputs hold until a job fits its model anew or enters another epoch.
        self._goodputs = np.zeros((*shape, len(self._ranks)))
        self._seen = np.full((*shape, 2), -1, np.int64)

    def allocate(self, simulation: ElasticSimulation) -> NDArray[np.int16]:
        """See `ElasticScheduler`."""
        node_of_rank = simulation.jobs.node_of_rank.copy()
        size = (simulation.cluster.num_nodes, simulation.cluster.devices_per_node)
        remembered = (self._goodputs, self._seen)
        _allocate(
            simulation.apps, simulation.jobs, simulation.most_ranks, self._ranks, remembered, self._weights, node_of_rank, size
        )
        return node_of_rank


@njit
def _allocate(apps, jobs, most_ranks, num_ranks, remembered, weights, node_of_rank, size):  # type: ignore[no-untyped-def]
    goodputs, seen = remembered
    num_nodes, devices_per_node = size
    of_share, of_size = weights[:NUM_WEIGHTS], np.exp(weights[NUM_WEIGHTS:])
    request = weights[NUM_WEIGHTS + 1]
    for e in range(len(jobs.num_jobs)):
        active = np.array([j for j in range(jobs.num_jobs[e]) if is_active(jobs, e, j)], np.int64)
        spans_s = np.full((len(active), len(num_ranks)), np.inf)
        for i, j in enumerate(active):
            a = jobs.application[e, j]
            if seen[e, j, 0] != jobs.num_observed[e, j] or seen[e, j, 1] != jobs.epoch[e, j]:
                seen[e, j, 0], seen[e, j, 1] = jobs.num_observed[e, j], jobs.epoch[e, j]
                job_goodputs(apps, jobs, e, j, most_ranks[a], num_ranks, devices_per_node, goodputs[e, j])
            alone_s = FIRST_S * of_size[0] * float(jobs.requested_ranks[e, j]) ** request + of_size[2] * jobs.service_s[e, j]
            for o in range(len(num_ranks)):
                if goodputs[e, j, o] > 0.0:
                    spans_s[i, o] = alone_s * goodputs[e, j, 0] / goodputs[e, j, o]
        choice = np.empty(len(active), np.int64)
        values = share_values(spans_s, jobs.num_ranks[e][active], num_ranks, num_nodes * devices_per_node, of_share)
        best_shares(values, num_ranks, num_nodes * devices_per_node, choice)
        give(jobs, e, active, choice, num_ranks, node_of_rank, num_nodes, devices_per_node)


@njit
def job_goodputs(apps, jobs, e, j, most_ranks, num_ranks, devices_per_node, goodputs):  # type: ignore[no-untyped-def]
    """Write the goodput of a job for each number of ranks on compact places, by its model; zero beyond its limit."""
    goodputs[:] = 0.0
    limit = min(max(2 * jobs.max_profiled_ranks[e, j], 1), most_ranks)
    model = (jobs.fitted[e, j], jobs.grad_sqr[e, j], jobs.grad_var[e, j])
    for o in range(len(num_ranks)):
        if num_ranks[o] > limit:
            break
        if jobs.num_observed[e, j] == 0:
            goodputs[o] = float(num_ranks[o])
        else:
            num_hosts = -(-num_ranks[o] // devices_per_node)
            goodputs[o] = fitted_goodput(apps, jobs.application[e, j], model, num_hosts, num_ranks[o])[0]
