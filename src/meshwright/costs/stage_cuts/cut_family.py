"""Cuts of a pipeline that are good for some machine: a set that does not depend on the figures of any machine.

Interleaved schedules, and 1F1B whose transfers overlap, have no closed form, and there are too many cuts to play them all. So
a family of cuts is made from the graph alone, and the cut whose step, as played, is shortest is taken. No figure of a cluster
decides which cuts there are, and none of these takes longer on a better cluster. So no better cluster ever makes the chosen
step longer.

Work is measured in several ways: a profile's seconds, or operations and bytes weighed as devices of many kinds would. A launch
for each op is counted or not. Transfers weigh from nothing to several times a chunk's work. Some measures count memory
instead, for where it is short. For each measure the family has the cuts that send least among those whose busiest chunk is
nearly the least busy one.

Legend: ``u`` units that stay whole, ``k`` chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from ...jobs.graph import JobGraph

FLOPS_PER_BYTE = (16.0, 64.0, 256.0, 1024.0)
"""Operations that a device does while its memory moves a byte: those of `configs/devices` lie between 139 and 420."""

LAUNCHES = (0.0, 1.0)
"""Launch of an op, in the mean work of one."""

TRANSFERS = (0.0, 1 / 32, 1 / 8, 1 / 2, 2.0, 8.0)
"""Seconds of a transfer of the mean size, in those of a chunk's work."""

SLACKS = (0.0, 0.2)
"""By how much the busiest chunk may be busier, so that less is sent."""

MOST_CUTS = 1_000
"""Where there are no more cuts, the family is all of them."""


@dataclass(frozen=True, eq=False)
class CutFamily:
    """The families of a graph's cuts.

    Attributes:
        graph: the job.
        starts: first op of each unit by its place in the topological order and, last, the number of ops, ``(u + 1,)``.
        crossing_bytes: what goes past each place between two units; nothing at both ends, ``(u + 1,)``.
        is_roofline: whether ops are timed by their operations and bytes, and not by a profile.
        prices: of messages of the graph's runs, see `trailing_collectives.run_tails_s`; kept here since layouts share them.
    """

    graph: JobGraph
    starts: NDArray[np.int64]
    crossing_bytes: NDArray[np.float64]
    is_roofline: bool
    prices: dict[object, NDArray[np.float64]] = field(default_factory=dict, repr=False)
    _known: dict[int, NDArray[np.int64]] = field(default_factory=dict, repr=False)

    def cuts(self, num_chunks: int) -> NDArray[np.int64]:
        """Return the first unit of each chunk and, last, ``u``, of every cut, ``(f, k + 1)``."""
        if num_chunks not in self._known:
            self._known[num_chunks] = self._cuts(num_chunks)
        return self._known[num_chunks]

    def is_whole(self, num_chunks: int) -> bool:
        """Return whether the family is all cuts."""
        return comb(len(self.starts) - 2, num_chunks - 1) <= MOST_CUTS

    def _cuts(self, k: int) -> NDArray[np.int64]:
        u = len(self.starts) - 1
        if self.is_whole(k):
            return np.array([(0, *inner, u) for inner in combinations(range(1, u), k - 1)], np.int64)
        crossing = self.crossing_bytes / (float(self.crossing_bytes[1:-1].mean()) or 1.0)
        results: dict[bytes, NDArray[np.int64]] = {}
        for work in self._measures():
            before = np.concatenate([np.zeros(1), np.cumsum(work[self.graph.order])])[self.starts]
            for weight in TRANSFERS:
                sends = crossing * (weight * before[-1] / k)
                for cuts in evenest(before, sends, k, SLACKS):
                    results[cuts.tobytes()] = cuts
        return np.array(list(results.values()), np.int64)

    def _measures(self) -> list[NDArray[np.float64]]:
        """Return the work of each op, ``(n,)``."""
        graph = self.graph
        result = []
        if self.is_roofline:
            flops, moved = graph.forward_flops + graph.backward_flops, 3.0 * graph.moved_bytes
            for balance in FLOPS_PER_BYTE:
                busy = np.maximum(flops, balance * moved)
                result += [busy + launch * busy.mean() * (busy > 0) for launch in LAUNCHES]
        else:
            result.append(graph.forward_s + graph.backward_s)
        of_time = result[len(result) // 2] / (result[len(result) // 2].sum() or 1.0)
        for held in (graph.parameter_bytes, graph.activation_bytes):
            if held.sum() > 0:
                result += [held, of_time + held / held.sum()]
        return result


def evenest(
    before: NDArray[np.float64], sends: NDArray[np.float64], num_chunks: int, slacks: Sequence[float]
) -> list[NDArray[np.int64]]:
    """Return for each slack the cut that sends least of those whose busiest chunk is nearly the least busy, ``(k + 1,)`` each.

    Args:
        before: work of all units before each one, ``(u + 1,)``.
        sends: of a transfer past each place, which counts as work of both chunks, ``(u + 1,)``.
        num_chunks: ``k``.
        slacks: by which share the busiest chunk may be busier.
    """
    result = np.zeros((len(slacks) + 1, num_chunks + 1), np.int64)
    least = lightest_cut(before[None], sends, np.inf, result[-1])
    for cuts, slack in zip(result, slacks, strict=False):
        lightest_cut(before[None], sends, least * (1.0 + slack + 1e-12), cuts)
    return list(result[:-1])


@njit()
def lightest_cut(before, sends, limit, cuts):  # type: ignore[no-untyped-def]
    """Write the cut that sends least of those whose busiest chunk is no busier than a limit; return what it sends.

    Where the limit is infinite, write the cut whose busiest chunk, computing and sending, is least busy; return its work.

    Args:
        before: as of `evenest`, of each chunk or the same for all, ``(k, u + 1)`` or ``(1, u + 1)``.
        sends: as of `evenest`; nothing at both ends.
        limit: work of a chunk.
        cuts: written, ``(k + 1,)``.
    """
    k, u = len(cuts) - 1, before.shape[1] - 1
    least, came, is_bounded = np.full((k + 1, u + 1), np.inf), np.zeros((k + 1, u + 1), np.int64), limit < np.inf
    least[0, 0] = 0.0
    for chunk in range(k):
        work = before[min(chunk, len(before) - 1)]
        for last in range(chunk + 1, u - (k - chunk - 1) + 1):
            best = np.inf
            for first in range(last - 1, chunk - 1, -1):
                own = work[last] - work[first]
                if own >= best if not is_bounded else own > limit:
                    break
                load = own + sends[last] + sends[first]
                value = least[chunk, first] + sends[last] if is_bounded else max(least[chunk, first], load)
                if load <= limit and value < best:
                    best, came[chunk + 1, last] = value, first
            least[chunk + 1, last] = best
    go_back(came, cuts)
    return least[k, u]


@njit()
def go_back(came, cuts):  # type: ignore[no-untyped-def]
    """Write the cut that a dynamic programme found, from the first unit of the last chunk of the best cut up to each place."""
    cuts[len(cuts) - 1] = came.shape[1] - 1
    for chunk in range(len(cuts) - 1, 0, -1):
        cuts[chunk - 1] = came[chunk, cuts[chunk]]
