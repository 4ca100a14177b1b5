"""The times at which blocks of each shape become free, by arrival, now and after each candidate; and how near the end is.

Switched on by ``shape_slots`` of a scenario, the number ``h`` of moments ahead. Slot ``i`` is the moment ``i + 1`` mean
inter-arrival times from now. With ``slot_growth`` each slot is so many times as long as the one before, and the moment is their
sum. Legend: ``a`` candidates, ``b`` blocks, ``s`` shapes of all degrees, ``d`` degrees.

- ``cluster_shapes``: share of the blocks of each shape that are free by each slot, ``(s, h)``.
- ``cluster_any``: whether any block of each degree is, ``(d, h)``.
- ``candidate_shapes``, ``candidate_any``: the same as it will be once the candidate has been taken, ``(a, s, h)`` and
  ``(a, d, h)``.
- ``candidate_ends``: whether the job would end within the episode, ``(a, 1)``.
- ``episode``: the end of the episode and its latest arrivals, ``(1 + recent,)``:

  - arrivals ``x`` until the episode ends, with the current one, as ``x / (x + the last slot)``;
  - for each of the scenario's ``load_windows`` of ``w`` mean inter-arrival times, the ``n`` arrivals in it, with the current one,
    as ``n / (n + w)``. It is one half where jobs come as often as on average;
  - for each of its ``deadline_windows``, a number of latest arrivals, mean and standard deviation of ``t / (t + s)``. ``t`` is
    the allowed time of a job, ``s`` its time on one device;
  - for each of its ``work_windows``, in mean inter-arrival times, the load ``r`` of the arrivals in it, as ``r / (r + 1)``. It is
    their time on one device over the window's times all devices.

A window that reaches back beyond the first arrival is cut to one inter-arrival time before it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..compiled import njit
from ..simulation.cluster.problem import Problem
from ..simulation.cluster.state import Episodes
from ..simulation.decision_space.space import DecisionSpace

KEYS = ("cluster_shapes", "cluster_any", "candidate_shapes", "candidate_any", "candidate_ends", "episode")


class Shapes(NamedTuple):
    """Figures that `write_availability` needs in addition to the problem.

    Attributes:
        mean_s: length of the first slot.
        slots_s: moments ahead, ``(h,)``.
        is_even: whether each slot is as long as the first.
        arrivals: mean inter-arrival times in it.
        windows: in which arrivals are counted, in mean inter-arrival times, ``(w,)``.
        latest: numbers of latest arrivals whose deadlines are observed, ``(l,)``.
        work: windows in which the offered load is observed, in mean inter-arrival times, ``(o,)``.
        shape: of each block, ``(b,)``.
        degree: of each shape, ``(s,)``.
        num_blocks: of each shape, ``(s,)``.
    """

    mean_s: float
    slots_s: NDArray[np.float64]
    is_even: bool
    arrivals: float
    windows: NDArray[np.float64]
    latest: NDArray[np.int64]
    work: NDArray[np.float64]
    shape: NDArray[np.int64]
    degree: NDArray[np.int64]
    num_blocks: NDArray[np.float64]


def shapes(
    space: DecisionSpace,
    mean_s: float,
    num_slots: int,
    arrivals: float = 1.0,
    growth: float = 1.0,
    windows: tuple[float, ...] = (),
    latest: tuple[int, ...] = (),
    work: tuple[float, ...] = (),
) -> Shapes:
    """The shapes of a cluster's blocks.

    Args:
        space: of the cluster.
        mean_s: length of the first slot.
        num_slots: ``h``.
        arrivals: mean inter-arrival times in it.
        growth: of each slot over the one before it.
        windows: in which arrivals are counted, in mean inter-arrival times.
        latest: numbers of latest arrivals whose deadlines are observed.
        work: windows in which the offered load is observed, in mean inter-arrival times.
    """
    first = np.unique(space.shape, return_index=True)[1]
    slots_s = mean_s * np.cumsum(growth ** np.arange(num_slots, dtype=np.float64))
    return Shapes(
        mean_s,
        slots_s,
        growth == 1.0,
        arrivals,
        np.array(windows, np.float64),
        np.array(latest, np.int64),
        np.array(work, np.float64),
        space.shape,
        space.degree[first],
        np.bincount(space.shape).astype(np.float64),
    )


def sizes(space: DecisionSpace, num_candidates: int, num_slots: int, num_recent: int = 0) -> dict[str, tuple[int, ...]]:
    """Shape of each array for one episode; without slots, nothing is held."""
    num_shapes, num_degrees = int(space.shape[-1]) + 1, len(space.degrees)
    return {
        "cluster_shapes": (num_shapes, num_slots),
        "cluster_any": (num_degrees, num_slots),
        "candidate_shapes": (num_candidates if num_slots else 0, num_shapes, num_slots),
        "candidate_any": (num_candidates if num_slots else 0, num_degrees, num_slots),
        "candidate_ends": (num_candidates if num_slots else 0, 1),
        "episode": (1 + num_recent if num_slots else 0,),
    }


@njit
def write_availability(problem: Problem, episodes: Episodes, e: int, inputs: Shapes, out: Any) -> None:
    """Write what is foreseen in episode ``e`` into row ``e`` of ``out``, an `envs.observation.ObservationArrays`."""
    num_slots = out.cluster_shapes.shape[2]
    now_s, degree, shape = episodes.now_s[e], inputs.degree, inputs.shape
    left = float(episodes.arrival_s.shape[1] - 1 - episodes.job[e]) / inputs.arrivals
    last = float(num_slots) if inputs.is_even or num_slots == 0 else inputs.slots_s[-1] / inputs.mean_s
    out.episode[e, 0] = left / (left + last)
    _write_recent(problem, episodes, e, inputs, out.episode[e, 1:])
    first_slot = np.empty(problem.num_blocks, np.int64)
    freed = np.zeros((len(inputs.num_blocks), num_slots + 1))
    for b in range(problem.num_blocks):
        first_slot[b] = _slot(episodes.block_free_at_s[e, b] - now_s, inputs, num_slots)
        freed[shape[b], first_slot[b]] += 1.0
    _write(freed, degree, inputs.num_blocks, out.cluster_shapes[e], out.cluster_any[e])
    after = np.empty_like(freed)
    for a in range(out.candidate_shapes.shape[1]):
        if not episodes.can_place[e, a]:
            if out.candidate_any[e, a, :, num_slots - 1].any():  # else it has been cleared before
                out.candidate_shapes[e, a] = 0.0
                out.candidate_any[e, a] = 0.0
            out.candidate_ends[e, a, 0] = 0.0
            continue
        after[:] = freed
        if a > 0:
            block = episodes.candidate_block[e, a]
            out.candidate_ends[e, a, 0] = 1.0 if now_s + episodes.candidate_s[e, a] <= episodes.arrival_s[e, -1] else 0.0
            until = _slot(episodes.candidate_s[e, a], inputs, num_slots)
            for i in range(problem.neighbour_start[block], problem.neighbour_start[block + 1]):
                other = problem.neighbours[i]
                if first_slot[other] < until:
                    after[shape[other], first_slot[other]] -= 1.0
                    after[shape[other], until] += 1.0
        _write(after, degree, inputs.num_blocks, out.candidate_shapes[e, a], out.candidate_any[e, a])


@njit
def _write_recent(problem, episodes, e, inputs, out):  # type: ignore[no-untyped-def]
    """Figures of the latest arrivals."""
    num, num_windows = episodes.num_arrived[e], len(inputs.windows)
    now_s, gap_s, arrival_s = episodes.now_s[e], inputs.mean_s / inputs.arrivals, episodes.arrival_s[e, :num]
    for i in range(num_windows):
        came = float(num - _first_within(arrival_s, now_s, inputs.windows[i] * gap_s))
        out[i] = came / (came + _cut(inputs.windows[i], arrival_s, now_s, gap_s))
    for i in range(len(inputs.latest)):
        first = max(0, num - inputs.latest[i])
        total = squares = 0.0
        for k in range(first, num):
            alone_s = episodes.num_steps[e, k] * problem.sequential_step_s[episodes.graph_id[e, k]]
            allowed = 1.0 - alone_s / (episodes.allowed_s[e, k] + alone_s)
            total += allowed
            squares += allowed * allowed
        mean = total / (num - first)
        out[num_windows + 2 * i] = mean
        out[num_windows + 2 * i + 1] = np.sqrt(max(0.0, squares / (num - first) - mean * mean))
    for i in range(len(inputs.work)):
        offered_s = 0.0
        for k in range(_first_within(arrival_s, now_s, inputs.work[i] * gap_s), num):
            offered_s += episodes.num_steps[e, k] * problem.sequential_step_s[episodes.graph_id[e, k]]
        room_s = episodes.free_at_s.shape[1] * gap_s * _cut(inputs.work[i], arrival_s, now_s, gap_s)
        out[num_windows + 2 * len(inputs.latest) + i] = offered_s / (offered_s + room_s)


@njit
def _first_within(arrival_s, now_s, window_s):  # type: ignore[no-untyped-def]
    """The first arrival within a time before now."""
    return np.searchsorted(arrival_s, now_s - window_s, side="right")


@njit
def _cut(window, arrival_s, now_s, gap_s):  # type: ignore[no-untyped-def]
    """A window in mean inter-arrival times; one that reaches back beyond the first arrival begins a time before it."""
    return min(window, (now_s - arrival_s[0]) / gap_s + 1.0)


@njit
def _slot(wait_s: float, inputs: Shapes, num_slots: int) -> int:
    """First slot by which a time has passed; the number of slots where none is."""
    if not inputs.is_even:
        return int(np.searchsorted(inputs.slots_s, wait_s))
    mean_s = inputs.mean_s
    if wait_s > num_slots * mean_s:
        return num_slots
    slot = max(0, int(wait_s / mean_s) - 1)
    while wait_s > (slot + 1) * mean_s:
        slot += 1
    return slot


@njit
def _write(freed, degree, count, shares, is_any):  # type: ignore[no-untyped-def]
    is_any[:] = 0.0
    for s in range(len(count)):
        total = 0.0
        for h in range(shares.shape[1]):
            total += freed[s, h]
            shares[s, h] = total / count[s]
            if total > 0.5:
                is_any[degree[s], h] = 1.0
