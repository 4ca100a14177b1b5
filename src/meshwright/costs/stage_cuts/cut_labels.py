"""The cut of a GPipe or 1F1B pipeline that makes its step shortest, exactly.

A cut grows stage by stage. By the closed forms of `plain_schedules`, a few numbers describe what its first stages add to a
step: a *label*. Each of them can only make the step longer. Of two cuts of the same first units into as many stages, the one
whose label is nowhere less is dropped. Labels with which no step below the limit is possible are dropped too.

A label holds lengths of the paths of `plain_schedules` as far as they go through the stages that are cut:

- The longest forward pass, and the longest path on which ``t``, but not ``b`` and ``e``, is chosen.
- The longest path on which ``t`` and ``b``, ``t`` and ``e``, or all of them are chosen.
- For each number of stages behind ``e``, the longest path from some stage ``s``, with what follows its last task, on.

Paths of GPipe begin on that stage too. Its labels hold the longest path through the stages that are cut. They add nothing, the
slowest forward pass from ``s`` on, the slowest backward pass, or both.

Legend: ``p`` stages, ``u`` units, ``m`` micro-batches, ``n`` labels.

Source:
    Hansen, "Bicriterion path problems", 1980, for labels that none other beats.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from .cut_memory import StageMemoryUse, chunk_bytes

LONGEST, STAYS, GONE, LEFT, WHOLE, ENDS = 0, 1, 2, 3, 4, 5
"""Columns of labels; from ``ENDS`` on a column for each number of stages behind ``e``."""

NEVER = -1e300

ROUNDING = 1e-12
"""Relative. Less by no more is rounding."""


class CutPipeline(NamedTuple):
    """A pipeline that is to be cut, as compiled functions see it.

    Attributes:
        is_gpipe: else 1F1B or, of several chunks a stage, interleaved.
        num_micro_batches: ``m``.
        forward_s: of a micro-batch through all units before each one, ``(u + 1,)``.
        backward_s: the same backward, ``(u + 1,)``.
        transfer_s: in which a micro-batch goes past each place behind each chunk; nothing behind the last, ``(k, u + 1)``.
        skips_s: seconds that direct messages occupy a run of units, forward and backward, ``(2, g, u + 1, u + 1)``. By kind of
            way between stages, first unit of the run and the unit behind its last. No elements where outputs are relayed.
        way_of: kind of the way from each stage to the next one, ``(p,)``.
        hides: whether stages compute on while they send.
        held: what units hold.
        capacity_bytes: memory of a device.
    """

    is_gpipe: bool
    num_micro_batches: int
    forward_s: NDArray[np.float64]
    backward_s: NDArray[np.float64]
    transfer_s: NDArray[np.float64]
    skips_s: NDArray[np.float64]
    way_of: NDArray[np.int64]
    hides: bool
    held: StageMemoryUse
    capacity_bytes: float


@njit(inline="always")
def _passes_s(pipe, stage, first, last):  # type: ignore[no-untyped-def]
    """Return the seconds of both passes of a stage, and what it adds to a path down to it and back."""
    if pipe.skips_s.size > 0:
        sent = pipe.skips_s[0, pipe.way_of[stage], first, last]
        received = pipe.skips_s[1, pipe.way_of[max(0, stage - 1)], first, last]
    else:
        received = pipe.transfer_s[stage - 1, first] if stage > 0 else 0.0
        sent = pipe.transfer_s[stage, last]
    forward = pipe.forward_s[last] - pipe.forward_s[first]
    backward = pipe.backward_s[last] - pipe.backward_s[first]
    if pipe.hides:
        return forward, backward, forward + backward + 2.0 * sent
    return forward + sent, backward + received, forward + sent + backward + received


@njit()
def _bounds_s(pipe, tails_s, limit_s):  # type: ignore[no-untyped-def]
    """Return the least way through all stages from a unit on, least time of them, and with tails, ``(p + 1, u + 1)`` each."""
    p, u, m = len(pipe.transfer_s), len(pipe.forward_s) - 1, pipe.num_micro_batches
    way, span, ends = np.full((p + 1, u + 1), np.inf), np.full((p + 1, u + 1), np.inf), np.full((p + 1, u + 1), np.inf)
    held = pipe.held
    way[p, u] = span[p, u] = 0.0
    ends[p, u] = 0.0
    for stage in range(p - 1, -1, -1):
        behind = p - stage - 1
        for first in range(stage, u - behind):
            workspace = 0.0
            for last in range(first + 1, u - behind + 1):
                workspace = max(workspace, held.workspace_bytes[last - 1])
                forward, backward, adds = _passes_s(pipe, stage, first, last)
                own = pipe.forward_s[last] - pipe.forward_s[first] + pipe.backward_s[last] - pipe.backward_s[first]
                if m * own >= limit_s:
                    break
                if way[stage + 1, last] == np.inf or m * (forward + backward) >= limit_s:
                    continue
                if chunk_bytes(held, stage, first, last, workspace) > pipe.capacity_bytes:
                    continue
                down = way[stage + 1, last]
                if pipe.is_gpipe:
                    stays = (m - 1) * (forward + backward) + adds + down
                elif m > behind:
                    start, end = max(0.0, down - behind * forward), max(0.0, down - behind * backward)
                    stays = m * (forward + backward) + (start + end if m > behind + 1 else max(start, end))
                else:
                    stays = m * (forward + backward)
                takes = max(stays, adds + span[stage + 1, last])
                way[stage, first] = min(way[stage, first], adds + down)
                span[stage, first] = min(span[stage, first], takes)
                ended = max(takes + tails_s[first, last], ends[stage + 1, last])
                ends[stage, first] = min(ends[stage, first], ended)
    return way, span, ends


@njit()
def _grow(pipe, tails_s, label, stage, first, last, grown):  # type: ignore[no-untyped-def]
    """Write the label of a cut with one more stage."""
    p, m = len(pipe.transfer_s), pipe.num_micro_batches
    behind = p - stage - 1
    forward, backward, adds = _passes_s(pipe, stage, first, last)
    begun = max(label[ENDS], tails_s[first, last])
    if pipe.is_gpipe:
        grown[ENDS] = begun + adds
        grown[ENDS + 1] = max(label[ENDS + 1], begun + (m - 1) * backward) + adds
        grown[GONE] = max(label[GONE], begun + (m - 1) * forward) + adds
        stays = max(begun + (m - 1) * (forward + backward), label[GONE] + (m - 1) * backward)
        grown[WHOLE] = max(label[WHOLE], stays, label[ENDS + 1] + (m - 1) * forward) + adds
        grown[LONGEST] = grown[STAYS] = grown[LEFT] = NEVER
        return
    grown[LONGEST] = max(label[LONGEST], forward)
    for k in range(min(behind, m - 1) + 1):
        grown[ENDS + k] = max(label[ENDS + k], begun + k * backward) + adds
    stays = label[STAYS] + adds
    grown[LEFT] = label[LEFT] + adds
    grown[GONE], grown[WHOLE] = label[GONE], label[WHOLE]
    if behind < m:  # a path may stay here
        stays = max(stays, (m - behind - 1) * (forward + backward))
        arrived, left = behind * grown[LONGEST], grown[ENDS + behind]
        grown[GONE] = max(grown[GONE], stays + arrived)
        grown[LEFT] = max(grown[LEFT], stays + left)
        grown[WHOLE] = max(grown[WHOLE], max(grown[GONE] + left, grown[LEFT] + arrived))
    grown[STAYS] = stays


@njit()
def cut_by_labels(pipe, tails_s, limit_s, most, most_labels, cuts):  # type: ignore[no-untyped-def]
    """Write the cut of the shortest step that fits.

    Args:
        pipe: is cut.
        tails_s: what follows the last task of a stage by its first unit and the one behind its last, ``(u + 1, u + 1)``.
        limit_s: only less counts.
        most: labels that are kept for each place, those of the least bounds.
        most_labels: of all places, beyond which the search is given up.
        cuts: written where one is found, ``(p + 1,)``.

    Returns:
        Seconds of the step, infinity where none was found, and whether the search came to its end.
    """
    p, u, m = len(pipe.transfer_s), len(pipe.forward_s) - 1, pipe.num_micro_batches
    held, (way, span, ends) = pipe.held, _bounds_s(pipe, tails_s, limit_s)
    if span[0, 0] == np.inf or ends[0, 0] >= limit_s:
        return np.inf, True
    width, has_tails = ENDS + max(2, min(p, m)), tails_s.any()
    labels, came, place = np.full((1024, width), NEVER), np.zeros(1024, np.int64), np.zeros(1024, np.int64)
    labels[0, LONGEST] = 0.0
    begins, stops = np.zeros((p + 1, u + 1), np.int64), np.zeros((p + 1, u + 1), np.int64)
    stops[0, 0] = n = 1
    grown, bounds, origins = np.full((256, width), NEVER), np.zeros(256), np.zeros(256, np.int64)
    for stage in range(p):
        behind = p - stage - 1
        ways = 2 if pipe.is_gpipe else min(behind, m - 1) + 1
        # Without tails what is left is a line over the number of stages behind: both ends tell it.
        stride = 1 if has_tails else max(1, ways - 1)
        columns = np.append(np.arange(ENDS), np.arange(ENDS, ENDS + ways, stride))
        for last in range(stage + 1 if stage < p - 1 else u, u - behind + 1):
            k, workspace = 0, 0.0
            down, time_s = way[stage + 1, last], span[stage + 1, last]
            for first in range(last - 1, stage - 1, -1):
                workspace = max(workspace, held.workspace_bytes[first])
                own = pipe.forward_s[last] - pipe.forward_s[first] + pipe.backward_s[last] - pipe.backward_s[first]
                if m * own >= limit_s or down == np.inf:
                    break
                if begins[stage, first] == stops[stage, first]:
                    continue
                if chunk_bytes(held, stage, first, last, workspace) > pipe.capacity_bytes:
                    continue
                for origin in range(begins[stage, first], stops[stage, first]):
                    if k == len(grown):
                        grown, bounds = np.concatenate((grown, grown)), np.concatenate((bounds, bounds))
                        origins = np.concatenate((origins, origins))
                    new = grown[k]
                    _grow(pipe, tails_s, labels[origin], stage, first, last, new)
                    bound = max(new[WHOLE], new[ENDS] + time_s, ends[stage + 1, last])
                    if pipe.is_gpipe:
                        bound = max(bound, new[WHOLE] + down)
                    else:
                        bound = max(bound, new[GONE] + new[ENDS] + down, new[LEFT] + down)
                        bound = max(bound, new[STAYS] + new[ENDS] + 2.0 * down)
                    if bound < limit_s:
                        bounds[k], origins[k] = bound, origin
                        k += 1
            begins[stage + 1, last] = start = n
            for o in np.argsort(bounds[:k]):
                if n - start >= most:
                    break
                is_beaten = False
                for other in range(start, n):
                    is_beaten = True
                    for column in columns:
                        value = grown[o, column]
                        if labels[other, column] > value + ROUNDING * abs(value):
                            is_beaten = False
                            break
                    if is_beaten:
                        break
                if is_beaten:
                    continue
                if n == len(labels):
                    if n > most_labels:
                        return np.inf, False
                    labels, came = np.concatenate((labels, labels)), np.concatenate((came, came))
                    place = np.concatenate((place, place))
                labels[n], came[n], place[n] = grown[o], origins[o], last
                n += 1
            stops[stage + 1, last] = n
    if begins[p, u] == stops[p, u]:
        return np.inf, True
    at = begins[p, u] + np.argmin(labels[begins[p, u] : stops[p, u], WHOLE])
    step_s = labels[at, WHOLE]
    for stage in range(p, -1, -1):
        cuts[stage] = place[at]
        at = came[at]
    return step_s, True
