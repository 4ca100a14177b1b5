"""The cost of a grouping of devices into stages, compiled.

Data parallelism costs as much as the slowest device of the slowest stage. Between two stages the replicas are matched so that the
slowest hand-over is as fast as possible (a bottleneck matching). The stages are ordered so that these sum to the least (a
shortest open path through all of them, Held and Karp 1962). Forward and backward it is paid twice.

Legend of shapes: ``n`` devices, ``k`` stages, ``p`` replicas.
"""

import numpy as np

from ...compiled import njit

MOST_EXACT = 14
"""The shortest path through all stages is found over sets of stages, which are 2^k; of more stages by exchanges."""


@njit
def reduction_s(reduce_s, members):  # type: ignore[no-untyped-def]
    """Return the seconds to reduce the gradients of the stage that runs on these devices."""
    slowest = 0.0
    for device in members:
        total = 0.0
        for other in members:
            total += reduce_s[device, other]
        slowest = max(slowest, total)
    return slowest


@njit
def matching_s(hand_over_s, left, right, mate, seen, before):  # type: ignore[no-untyped-def]
    """Return the least slowest transfer between the replicas of two stages, and write ``mate``, the partner of each replica.

    The limit begins at the least need of every device. It rises to the next larger hand-over whenever a replica cannot be matched
    below it; earlier matches stay. ``mate``, ``seen`` and ``before`` are of length ``p`` and are written to.
    """
    p = len(left)
    limit = 0.0
    for i in range(p):
        to_right, to_left = np.inf, np.inf
        for j in range(p):
            to_right = min(to_right, hand_over_s[left[i], right[j]])
            to_left = min(to_left, hand_over_s[left[j], right[i]])
        limit = max(limit, to_right, to_left)
    mate[:] = -1
    for i in range(p):
        while not _augmented(hand_over_s, left, right, mate, seen, before, i, limit):
            larger = np.inf
            for a in range(p):
                for b in range(p):
                    seconds = hand_over_s[left[a], right[b]]
                    if limit < seconds < larger:
                        larger = seconds
            limit = larger
    return limit


@njit
def _augmented(hand_over_s, left, right, mate, seen, before, start, limit):  # type: ignore[no-untyped-def]
    """Match one more of the left by an alternating path, breadth first; whether there was one."""
    p = len(left)
    queue = seen[:p]
    reached = before[:p]
    reached[:] = -1
    queue[0] = start
    head, tail = 0, 1
    while head < tail:
        i = queue[head]
        head += 1
        for j in range(p):
            if reached[j] >= 0 or hand_over_s[left[i], right[j]] > limit:
                continue
            reached[j] = i
            if mate[j] < 0:
                while True:
                    i = reached[j]
                    left_behind = _place_of(mate, i)
                    mate[j] = i
                    if i == start:
                        return True
                    j = left_behind
            queue[tail] = mate[j]
            tail += 1
    return False


@njit
def _place_of(mate, i):  # type: ignore[no-untyped-def]
    for j in range(len(mate)):
        if mate[j] == i:
            return j
    return -1


@njit
def path_s(between_s, best_s, path):  # type: ignore[no-untyped-def]
    """Return the length of the shortest open path through all stages, and the path.

    Args:
        between_s: seconds between stages, symmetric, ``(k, k)``.
        best_s: shortest path through each set of stages that ends in each of them, written to, ``(2^k, k)``.
        path: stages in order, written to, ``(k,)``.
    """
    k = len(between_s)
    full = (1 << k) - 1
    for subset in range(1, full + 1):
        for last in range(k):
            if not (subset >> last) & 1:
                continue
            rest = subset ^ (1 << last)
            least = np.inf if rest else 0.0
            for previous in range(k):
                if (rest >> previous) & 1:
                    least = min(least, best_s[rest, previous] + between_s[previous, last])
            best_s[subset, last] = least
    last = int(np.argmin(best_s[full]))
    total = best_s[full, last]
    subset = full
    for place in range(k - 1, -1, -1):
        path[place] = last
        rest = subset ^ (1 << last)
        if rest:
            at, least = 0, np.inf
            for previous in range(k):
                if (rest >> previous) & 1 and best_s[rest, previous] + between_s[previous, last] < least:
                    at, least = previous, best_s[rest, previous] + between_s[previous, last]
            subset, last = rest, at
    return total


@njit
def improved_path_s(between_s, path):  # type: ignore[no-untyped-def]
    """Return the length of a short open path through all stages, and write the path, ``(k,)``.

    From every stage in turn the path goes to the nearest next stage. It is improved until neither the reversal of a part (2-opt)
    nor the move of up to three consecutive stages (Or-opt) shortens it. There is no bound.
    """
    k = len(between_s)
    best_s = np.inf
    for start in range(k):
        trial, is_in = np.empty(k, np.int64), np.zeros(k, np.bool_)
        trial[0] = start
        is_in[start] = True
        for place in range(1, k):
            nearest = -1
            for stage in range(k):
                if not is_in[stage] and (
                    nearest < 0 or between_s[trial[place - 1], stage] < between_s[trial[place - 1], nearest]
                ):
                    nearest = stage
            trial[place] = nearest
            is_in[nearest] = True
        found_s = _exchanged_s(between_s, trial)
        if found_s < best_s:
            best_s = found_s
            path[:] = trial
    return best_s


@njit
def _exchanged_s(between_s, path):  # type: ignore[no-untyped-def]
    """Improve a path in place until nothing shortens it; its length."""
    k = len(path)
    moved = np.empty(k, np.int64)
    is_better = True
    while is_better:
        is_better = False
        for first in range(k):
            for last in range(first + 1, k):
                gain_s = 0.0
                if first > 0:
                    gain_s += between_s[path[first - 1], path[first]] - between_s[path[first - 1], path[last]]
                if last < k - 1:
                    gain_s += between_s[path[last], path[last + 1]] - between_s[path[first], path[last + 1]]
                if gain_s > 1e-12 * between_s[path[first], path[last]] + 1e-300:
                    path[first : last + 1] = path[first : last + 1][::-1].copy()
                    is_better = True
        total_s = _along_s(between_s, path)
        for count in range(1, min(3, k - 1) + 1):
            for first in range(k - count + 1):
                for target in range(k - count + 1):
                    rest = 0
                    for place in range(k):
                        if place < first or place >= first + count:
                            moved[rest if rest < target else rest + count] = path[place]
                            rest += 1
                    moved[target : target + count] = path[first : first + count]
                    moved_s = _along_s(between_s, moved)
                    if moved_s < total_s * (1.0 - 1e-12):
                        path[:] = moved
                        total_s = moved_s
                        is_better = True
    return _along_s(between_s, path)


@njit
def _along_s(between_s, path):  # type: ignore[no-untyped-def]
    total_s = 0.0
    for place in range(len(path) - 1):
        total_s += between_s[path[place], path[place + 1]]
    return total_s


@njit
def path_table(k):  # type: ignore[no-untyped-def]
    """Return scratch space of `ordered_path_s` for so many stages."""
    return np.zeros((1 << k if k <= MOST_EXACT else 0, k))


@njit
def ordered_path_s(between_s, table, path):  # type: ignore[no-untyped-def]
    """Return a path through all stages, the shortest of up to `MOST_EXACT`: its length, and the order in ``path``."""
    return path_s(between_s, table, path) if len(between_s) <= MOST_EXACT else improved_path_s(between_s, path)


@njit
def update(reduce_s, hand_over_s, stages, first, second, stage_s, between_s, scratch):  # type: ignore[no-untyped-def]
    """Compute again what two stages (of one number: one stage) cost by themselves and with all others.

    Args:
        reduce_s: see `TaskletInstance`, ``(n, n)``.
        hand_over_s: see `TaskletInstance`, ``(n, n)``.
        stages: devices of each stage, ``(k, p)``.
        first: a stage.
        second: another, or the same.
        stage_s: data parallelism of each stage, written to, ``(k,)``.
        between_s: hand-over between stages, written to, ``(k, k)``.
        scratch: written to, ``(3, p)``.
    """
    for one in (first, second):
        stage_s[one] = reduction_s(reduce_s, stages[one])
        for other in range(len(stages)):
            if other != one and not (one == second and other == first and first != second):
                seconds = matching_s(hand_over_s, stages[one], stages[other], scratch[0], scratch[1], scratch[2])
                between_s[one, other] = seconds
                between_s[other, one] = seconds


@njit
def worked_out(reduce_s, hand_over_s, stages):  # type: ignore[no-untyped-def]
    """Return seconds of data and of pipeline parallelism, data of each stage, between stages, and the order of stages."""
    k, p = stages.shape
    stage_s, between_s = np.zeros(k), np.zeros((k, k))
    scratch, path = np.zeros((3, p), np.int64), np.zeros(k, np.int64)
    for stage in range(k):
        update(reduce_s, hand_over_s, stages, stage, stage, stage_s, between_s, scratch)
    pipeline_s = 2.0 * ordered_path_s(between_s, path_table(k), path)
    return stage_s.max(), pipeline_s, stage_s, between_s, path
