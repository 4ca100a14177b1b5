"""The policy at play: many episodes, greedily or drawn, and decisions replayed for learning.

Legend of shapes: ``b`` networks, ``E`` episodes, ``t`` decisions, ``n`` devices, ``f`` features of a candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from ...compiled import njit
from ...envs.tasklets.batch import FillingBatch
from ...simulation.tasklets.filling import NUM_CANDIDATE_FEATURES, NUM_PROGRESS_FEATURES, begin_filling, join
from .decoding import fill_stages, filling_weights
from .graphs import TaskletGraphs
from .policy import FilledSteps, TaskletPolicy

Made = TypeVar("Made")


@dataclass(frozen=True, eq=False)
class PlayedFilling:
    """Episodes that a policy played.

    Attributes:
        joined: devices in the order in which they joined, of each episode.
        log_p: logarithms of the probabilities of what was taken, of each episode.
        values: with the stages in their best order, in lower bounds of the network, ``(E,)``.
    """

    joined: list[NDArray[np.int64]]
    log_p: list[NDArray[np.float32]]
    values: NDArray[np.float64]


def play(
    policy: TaskletPolicy,
    graphs: TaskletGraphs,
    batch: FillingBatch,
    numbers: NDArray[np.int64],
    *,
    samples: int = 1,
    rng: np.random.Generator | None = None,
    num_threads: int = 1,
) -> PlayedFilling:
    """Fill the stages of some networks, of each some times.

    Args:
        policy: that decides.
        graphs: features of these networks.
        batch: with room for an episode of each.
        numbers: of the networks in the batch, ``(b,)``.
        samples: episodes of each network, which follow each other.
        rng: for drawing; None takes the likeliest device each time.
        num_threads: that play; the episodes are the same whatever their number.
    """
    weights = filling_weights(policy, graphs)
    sizes = [batch.instances[at].num_devices for at in numbers.tolist()]
    noise = [None if rng is None else rng.gumbel(size=(samples, n, n)).astype(np.float32) for n in sizes]

    def played(row: int) -> list[tuple[NDArray[np.int64], NDArray[np.float32], float]]:
        at, n, made, own = int(numbers[row]), sizes[row], [], noise[row]
        for sample in range(samples):
            log_p = fill_stages(weights[row], batch.stacked, batch.state, row, at, None if own is None else own[sample])
            batch.reorder(np.array([row]))
            made.append((batch.state.joined[row, :n].copy(), log_p, batch.state.value_s[row] / batch.stacked.scale_s[at]))
        return made

    joined, likely, values = zip(*chain.from_iterable(_mapped(played, len(numbers), num_threads)), strict=True)
    return PlayedFilling(list(joined), list(likely), np.array(values))


def replayed(
    batch: FillingBatch,
    numbers: NDArray[np.int64],
    of: NDArray[np.int64],
    joined: Sequence[NDArray[np.int64]],
    *,
    num_threads: int = 1,
) -> FilledSteps:
    """The decisions of episodes.

    Args:
        batch: with room for an episode for each thread.
        numbers: of the networks in the batch, ``(b,)``.
        of: network of each episode among these, ``(E,)``.
        joined: devices in the order in which they joined, of each episode.
        num_threads: that replay.
    """
    count_e, t = len(joined), max(map(len, joined))
    n = int(batch.stacked.num_devices[numbers].max())
    wanted = np.zeros((count_e, t), np.int64)
    for row, each in enumerate(joined):
        wanted[row, : len(each)] = each
    candidates = np.zeros((count_e, t, n, NUM_CANDIDATE_FEATURES), np.float32)
    progress = np.zeros((count_e, t, NUM_PROGRESS_FEATURES), np.float32)
    can_join = np.zeros((count_e, t, n), np.bool_)
    threads = min(num_threads, batch.num_episodes, count_e)
    ends = np.linspace(0, count_e, threads + 1).astype(np.int64)

    def replay(e: int) -> None:
        rows = slice(ends[e], ends[e + 1])
        _replay(batch.stacked, batch.state, e, numbers[of[rows]], wanted[rows], candidates[rows], progress[rows], can_join[rows])

    _mapped(replay, threads, threads)
    return FilledSteps(*(torch.from_numpy(each) for each in (of, wanted, candidates, progress, can_join)))


def _mapped(do: Callable[[int], Made], count: int, num_threads: int) -> list[Made]:
    """The results for the first so many numbers, by so many threads."""
    if num_threads == 1 or count == 1:
        return [do(number) for number in range(count)]
    with ThreadPoolExecutor(num_threads) as threads:
        return list(threads.map(do, range(count)))


@njit(nogil=True)
def _replay(stacked, state, e, numbers, joined, candidates, progress, can_join):  # type: ignore[no-untyped-def]
    n = can_join.shape[2]
    for row in range(len(numbers)):
        begin_filling(stacked, state, e, numbers[row])
        for step in range(stacked.num_devices[numbers[row]]):
            for device in range(n):
                can_join[row, step, device] = state.can_join[e, device]
                for f in range(candidates.shape[3]):
                    candidates[row, step, device, f] = state.candidates[e, device, f]
            for f in range(progress.shape[2]):
                progress[row, step, f] = state.progress[e, f]
            join(stacked, state, e, joined[row, step])
