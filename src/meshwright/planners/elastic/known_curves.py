"""Remaining times of jobs whose applications ran before, for every number of ranks.

Legend: ``a`` applications, ``t`` epochs, ``o`` numbers of ranks that are considered.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from ...numba_records import by_reference
from ...simulation.elastic.batch_size import known_goodput
from ...simulation.elastic.measured import compact_placement
from ...simulation.elastic.simulation import ElasticSimulation

RANK_CHOICES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64)
"""Numbers of ranks that are considered."""


@by_reference
class KnownCurves(NamedTuple):
    """Curves of an application, learned from its earlier jobs.

    Attributes:
        num_ranks: considered, ``(o,)``.
        per_s: progress per second on compact places with the best batch, zero where none fits, ``(a, t, o)``.
        after_s: seconds that all epochs behind an epoch take, ``(a, t, o)``.
    """

    num_ranks: NDArray[np.int64]
    per_s: NDArray[np.float64]
    after_s: NDArray[np.float64]


def rank_choices(num_devices: int) -> NDArray[np.int64]:
    """Return the numbers of ranks that are considered on a number of devices, ``(o,)``."""
    return np.array([each for each in RANK_CHOICES if each <= num_devices], np.int64)


def known_curves(simulation: ElasticSimulation) -> KnownCurves:
    """Return the curves of all applications on a simulation's nodes."""
    ranks = rank_choices(simulation.cluster.num_devices)
    per_s = _speeds(simulation.apps, simulation.most_ranks, ranks, simulation.cluster.devices_per_node)
    spans = np.diff(simulation.apps.progress, axis=1)[:, :, None] / np.where(per_s > 0.0, per_s, np.inf)
    after_s = np.cumsum(spans[:, ::-1], axis=1)[:, ::-1] - spans
    return KnownCurves(ranks, per_s, after_s)


@njit
def _speeds(apps, most_ranks, num_ranks, devices_per_node):  # type: ignore[no-untyped-def]
    per_s = np.zeros((len(most_ranks), apps.progress.shape[1] - 1, len(num_ranks)))
    for a in range(len(most_ranks)):
        for o in range(len(num_ranks)):
            if num_ranks[o] > most_ranks[a]:
                continue
            placement, num_hosts = compact_placement(apps, a, num_ranks[o], devices_per_node)
            for t in range(apps.num_epochs[a]):
                per_s[a, t, o], _, _ = known_goodput(apps, a, t, placement, num_hosts, num_ranks[o])
    return per_s


@njit
def remaining_s(curves, a, epoch, left, o):  # type: ignore[no-untyped-def]
    """Return the seconds to the end on a number of ranks, infinite where they cannot be used.

    Args:
        curves: of all applications.
        a: the application.
        epoch: the job's.
        left: progress to the end of that epoch.
        o: which number of ranks.
    """
    per_s = curves.per_s[a, epoch, o]
    return left / per_s + curves.after_s[a, epoch, o] if per_s > 0.0 else np.inf
