"""Exact times of GPipe and 1F1B whose stages differ, in closed form, and what tails after them make of a step.

A pipeline is a graph of passes, and it takes as long as its longest path. GPipe is two flow shops, one after the other: a path
stays on the slowest stage of each. A path of 1F1B waits three times:

1. On a stage whose forward passes are long, until a stage ``b`` behind it begins to go backward.
2. On a stage ``t`` up to ``b`` whose passes of both kinds are long.
3. On a stage whose backward passes are long, once a stage ``e`` from ``t`` on has gone forward for the last time.

Stage ``s`` has ``w = p - s`` micro-batches under way. ``T`` is the time of both passes of a stage, ``A(s)`` the sum of ``T``
before it. The longest path to the end of stage ``s``, counted from that stage's first pass on, is the largest of

    ``(m - w(t)) T(t) - A(t + 1)``
    ``+ A(b + 1) + (w(b) - 1) max_{q <= b} F(q)``
    ``+ A(e + 1) + (w(e) - 1) max_{s <= q <= e} B(q) - A(s)     over t <= b, t <= e, s <= e, w(t) <= m``.

Every sum that is left has no negative part, so that no step grows when a pass or a transfer shrinks.

A stage of GPipe may begin late, since much follows its passes. In consecutive steps the micro-batches of the stages before it
are then ready. Let ``A(i, j)`` be the longest path from the first task of stage ``i`` to the end of stage ``j``. It goes
forward on the slowest stage from ``i`` on and back on the slowest from ``j`` on. So it is a part of ``i`` plus one of ``j``. On
a cycle of stages these parts can be combined stage by stage. So no cycle has a mean above the largest ``A(i, i)`` with what
follows there, and a step needs `gpipe_alone_s` alone.

Legend: ``p`` stages, ``m`` micro-batches. ``F`` and ``B`` are seconds of a forward and of a backward pass with the transfer
that occupies the stage.

Source:
    Derived from the orders of Huang et al., "GPipe", 2019. Also Narayanan et al., "Efficient large-scale language model
    training on GPU clusters", 2021, section 2.2. Tests compare it with the schedule as it is played.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit


@njit()
def plain_spans_s(is_gpipe, num_micro_batches, forward_s, backward_s, way_s):  # type: ignore[no-untyped-def]
    """Return the seconds from the first to the last task of each stage, ``(p,)``.

    Args:
        is_gpipe: else 1F1B.
        num_micro_batches: ``m``.
        forward_s: ``F`` of each stage, ``(p,)``.
        backward_s: ``B`` of each stage, ``(p,)``.
        way_s: between each stage and the next one, either way, while both go on; nothing behind the last one, ``(p,)``. Under
            1F1B nothing at all: there such a way makes paths go to and fro.
    """
    p, m = len(forward_s), num_micro_batches
    before, result, slowest = np.zeros(p + 1), np.zeros(p), 0.0
    for stage in range(p):
        slowest = max(slowest, forward_s[stage])
        before[stage + 1] = before[stage] + forward_s[stage] + backward_s[stage] + 2.0 * way_s[stage]
    longest = 0.0
    if is_gpipe:
        for stage in range(p - 1, -1, -1):
            longest = max(longest, backward_s[stage])
            result[stage] = before[p] - before[stage] + (m - 1) * (slowest + longest)
        return result
    # What a path gains at least until it stays on a stage for good, by that stage.
    arrived = np.zeros(p)
    for stage in range(p):
        longest = max(longest, forward_s[stage])
        arrived[stage] = before[stage + 1] + (p - stage - 1) * longest
    for stage in range(p - 2, -1, -1):
        arrived[stage] = max(arrived[stage], arrived[stage + 1])
    for stage in range(p):
        left, longest = np.full(p, -np.inf), 0.0
        for end in range(stage, p):
            longest = max(longest, backward_s[end])
            left[end] = before[end + 1] + (p - end - 1) * longest - before[stage]
        most, gone = 0.0, -np.inf
        for stay in range(p - 1, -1, -1):
            gone = max(gone, left[stay])
            if p - stay <= m:
                stays = (m - (p - stay)) * (forward_s[stay] + backward_s[stay]) - before[stay + 1]
                most = max(most, stays + arrived[stay] + gone)
        result[stage] = most
    return result


@njit()
def gpipe_alone_s(num_micro_batches, forward_s, backward_s, way_s):  # type: ignore[no-untyped-def]
    """Return the seconds from the first to the last task of each stage of GPipe whose stages before it are ahead of it, ``(p,)``.

    Args:
        num_micro_batches, forward_s, backward_s, way_s: as of `plain_spans_s`.
    """
    result, through, longest, longest_back = np.zeros(len(forward_s)), 0.0, 0.0, 0.0
    for stage in range(len(forward_s) - 1, -1, -1):
        through += forward_s[stage] + backward_s[stage] + 2.0 * way_s[stage]
        longest, longest_back = max(longest, forward_s[stage]), max(longest_back, backward_s[stage])
        result[stage] = through + (num_micro_batches - 1) * (longest + longest_back)
    return result


def kept_s(task_s: NDArray[np.float64], send_s: NDArray[np.float64], overlaps_sends: bool) -> tuple[NDArray[np.float64], ...]:
    """Return how long a forward and a backward pass keep each stage of a plain schedule, and the way to the next, ``(p,)`` each.

    A path that goes a way goes back on it too, so that the way is the mean of both.
    """
    p = len(task_s)
    send_forward, send_backward = np.append(send_s[: p - 1], 0.0), np.append(send_s[-p:-1], 0.0)
    forward, backward = np.ascontiguousarray(task_s[:, 0]), np.ascontiguousarray(task_s[:, 1])
    if overlaps_sends:
        return forward, backward, (send_forward + send_backward) / 2
    return forward + send_forward, backward + np.append(0.0, send_backward[:-1]), np.zeros(p)
