"""Annealing of stages in an order: devices or stages are exchanged, and only what a move changes is computed.

The order of the stages is part of the state. A move of two devices then changes two stages and at most four hand-overs between
neighbours, each a bottleneck matching. The value is the slowest stage and twice the sum of the hand-overs. Most moves leave a
maximum as it is, so moves are judged by more than the value. The mean over stages and the least hand-over time of each device
count with small weights.

Legend of shapes: ``n`` devices, ``k`` stages, ``p`` replicas.
"""

import numpy as np

from ...compiled import njit
from ...simulation.tasklets.values import matching_s, reduction_s
from ..operators.search.problem import draw, draw_below
from ..tasklets.annealing import exchange

MEAN_WEIGHT = 0.1
"""Weight of the mean over stages relative to the slowest one."""
NEAR_WEIGHT = 0.3
"""Weight of the devices' least hand-over times relative to the slowest hand-over of two stages."""
ORDER_SHARE = 0.1
"""Share of moves that change the order of stages."""
BLOCK_SHARE = 0.2
"""Share of moves that exchange several devices of one region for as many of another."""
AIMED_SHARE = 0.3
"""Share of the other moves that begin at a device of the slowest stage or of the slowest hand-over."""


@njit
def anneal_chain(  # type: ignore[no-untyped-def]
    reduce_s, hand_over_s, region, stages, random, best, best_s, start_temperature_s, end_temperature_s, num_steps
):
    """Try a number of moves while the temperature falls geometrically.

    Args:
        reduce_s: see `TaskletInstance`, ``(n, n)``.
        hand_over_s: see `TaskletInstance`, ``(n, n)``.
        region: devices of one number are near each other, ``(n,)``.
        stages: devices of each stage, in the order of the pipeline, changed, ``(k, p)``.
        random: state of the generator, changed, ``(1,)``.
        best: the best stages so far, changed, ``(k, p)``.
        best_s: their value, changed, ``(1,)``.
        start_temperature_s, end_temperature_s: at the first and the last move.
        num_steps: moves.
    """
    k, p = stages.shape
    scratch = np.zeros((3, p), np.int64)
    stage_s, hand_s, near_s = np.zeros(k), np.zeros(k), np.zeros(k)
    for stage in range(k):
        stage_s[stage] = reduction_s(reduce_s, stages[stage])
    for place in range(k - 1):
        _set_hand(hand_over_s, stages, place, hand_s, near_s, scratch)
    new_stage_s, new_hand_s, new_near_s = stage_s.copy(), hand_s.copy(), near_s.copy()
    old = stages.copy()
    current_s = _energy(stage_s, hand_s, near_s)
    temperature_s = start_temperature_s
    factor = (end_temperature_s / start_temperature_s) ** (1.0 / num_steps) if start_temperature_s > 0.0 else 1.0
    touched = np.zeros(k, np.bool_)
    for _ in range(num_steps):
        temperature_s *= factor
        most_s = current_s - temperature_s * np.log(1.0 - draw(random))
        low, high = 0, k - 1
        touched[:] = False
        if k == 1:
            return
        if draw(random) < ORDER_SHARE:
            low, high = draw_below(random, k), draw_below(random, k)
            if low == high:
                continue
            if low > high:
                low, high = high, low
            if draw(random) < 0.5:
                for place in range(low, high + 1):
                    stages[place] = old[high - (place - low)]
            else:
                stages[low], stages[high] = old[high], old[low]
            for place in range(low, high + 1):
                touched[place] = True
                new_stage_s[place] = reduction_s(reduce_s, stages[place])
        else:
            if draw(random) < AIMED_SHARE:
                first, i = _slowest(reduce_s, hand_over_s, stages, stage_s, hand_s, random)
            else:
                first, i = draw_below(random, k), draw_below(random, p)
            second = (first + 1 + draw_below(random, k - 1)) % k
            exchange(region, stages[first], stages[second], i, BLOCK_SHARE, random)
            low, high = min(first, second), max(first, second)
            touched[first] = touched[second] = True
            new_stage_s[first] = reduction_s(reduce_s, stages[first])
            new_stage_s[second] = reduction_s(reduce_s, stages[second])
        is_taken = new_stage_s.max() <= most_s
        if is_taken:
            for place in range(max(0, low - 1), min(k - 1, high + 1)):
                if touched[place] or touched[place + 1]:
                    _set_hand(hand_over_s, stages, place, new_hand_s, new_near_s, scratch)
            found_s = _energy(new_stage_s, new_hand_s, new_near_s)
            is_taken = found_s <= most_s
            if is_taken:
                current_s = found_s
                value_s = new_stage_s.max() + 2.0 * new_hand_s[: k - 1].sum()
                if value_s < best_s[0]:
                    best_s[0] = value_s
                    best[:] = stages
        for place in range(max(0, low - 1), high + 1):
            if is_taken:
                old[place] = stages[place]
                stage_s[place], hand_s[place], near_s[place] = new_stage_s[place], new_hand_s[place], new_near_s[place]
            else:
                stages[place] = old[place]
                new_stage_s[place], new_hand_s[place], new_near_s[place] = stage_s[place], hand_s[place], near_s[place]


@njit
def chain_value_s(reduce_s, hand_over_s, stages):  # type: ignore[no-untyped-def]
    """Return the slowest stage and twice the transfers between stages in their order."""
    k, p = stages.shape
    scratch, total_s, slowest_s = np.zeros((3, p), np.int64), 0.0, 0.0
    for stage in range(k):
        slowest_s = max(slowest_s, reduction_s(reduce_s, stages[stage]))
    for place in range(k - 1):
        total_s += matching_s(hand_over_s, stages[place], stages[place + 1], scratch[0], scratch[1], scratch[2])
    return slowest_s + 2.0 * total_s


@njit
def _energy(stage_s, hand_s, near_s):  # type: ignore[no-untyped-def]
    """Return the cost by which moves are judged."""
    return stage_s.max() + MEAN_WEIGHT * stage_s.mean() + 2.0 * (hand_s.sum() + NEAR_WEIGHT * near_s.sum())


@njit
def _set_hand(hand_over_s, stages, place, hand_s, near_s, scratch):  # type: ignore[no-untyped-def]
    """Work out the hand-over of a stage to the next one, and the mean of what its devices need at least."""
    left, right = stages[place], stages[place + 1]
    p = len(left)
    hand_s[place] = matching_s(hand_over_s, left, right, scratch[0], scratch[1], scratch[2])
    total_s = 0.0
    for i in range(p):
        to_right, to_left = np.inf, np.inf
        for j in range(p):
            to_right = min(to_right, hand_over_s[left[i], right[j]])
            to_left = min(to_left, hand_over_s[left[j], right[i]])
        total_s += to_right + to_left
    near_s[place] = total_s / (2 * p)


@njit
def _slowest(reduce_s, hand_over_s, stages, stage_s, hand_s, random):  # type: ignore[no-untyped-def]
    """Return a stage and a place in it that the value depends on: of the slowest reduction, or of a hand-over drawn by length."""
    k, p = stages.shape
    if draw(random) < 0.5:
        stage = int(np.argmax(stage_s))
        slowest, most_s = 0, -1.0
        for place in range(p):
            total_s = 0.0
            for other in range(p):
                total_s += reduce_s[stages[stage, place], stages[stage, other]]
            if total_s > most_s:
                slowest, most_s = place, total_s
        return stage, slowest
    left = draw(random) * hand_s.sum()
    stage = 0
    while stage < k - 2 and left >= hand_s[stage]:
        left -= hand_s[stage]
        stage += 1
    one, other = (stage, stage + 1) if draw(random) < 0.5 else (stage + 1, stage)
    farthest, most_s = 0, -1.0
    for i in range(p):
        least_s = np.inf
        for j in range(p):
            least_s = min(least_s, hand_over_s[stages[one, i], stages[other, j]])
        if least_s > most_s:
            farthest, most_s = i, least_s
    return one, farthest
