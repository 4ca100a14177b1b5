"""PipeDream's recurrence from one state to all that contain it, compiled.

Legend of shapes: ``d`` states, by number of ops, the empty one first; ``w`` words of 64 ops; ``M`` machines.
"""

from __future__ import annotations

import math

import numpy as np

from ....compiled import njit
from .downset_kernel import bits_of, is_inside, largest_workspace


@njit
def best_from(start, words, figures, inner, num_machines, bandwidth, one_stage_bandwidth, memory, is_straight):  # type: ignore[no-untyped-def]
    """Least seconds from one state to each other on each number of machines, ``(d, M)``, and how.

    Args:
        start: the state from which ops count.
        words: bits of the ops of each state, ``(d, w)``.
        figures: seconds, outputs, parameters and bytes handed on of each state, ``(d, 4)``.
        inner: seconds of the ops between two states on one machine, ``(d, d)``; empty where it is the difference of theirs.
        num_machines: of the level, all used at the end.
        bandwidth: bytes a second between them.
        one_stage_bandwidth: the same for the parameters of a first stage.
        memory: bytes that the minibatches in flight of a stage may hold.
        is_straight: whether each stage has one machine.

    Returns:
        seconds, infinite where there is no way, and of the last stage the state before it, the machines before it, and its
        own, ``(d, M, 3)``.
    """
    d = len(words)
    best = np.full((d, num_machines), np.inf)
    choice = np.zeros((d, num_machines, 3), np.int64)
    for here in range(start + 1, d):
        if not is_inside(words, start, here):
            continue
        for machines in range(1, num_machines + 1):
            if is_straight and machines > 1:
                break
            stash = math.ceil((num_machines - machines) / machines)
            value = _stage_s(start, here, machines, figures, inner, one_stage_bandwidth, stash, memory)
            best[here, machines - 1] = value
            choice[here, machines - 1] = start, 0, machines
        for before in range(start + 1, here):
            if not (best[before] < np.inf).any() or not is_inside(words, before, here):
                continue
            for own in range(1, num_machines):
                if is_straight and own > 1:
                    break
                transfer = 2.0 * figures[before, 3] / (bandwidth * own)
                if here < d - 1:
                    transfer = max(transfer, 2.0 * figures[here, 3] / (bandwidth * own))
                stage = _stage_s(before, here, own, figures, inner, bandwidth, 0, memory)
                for machines in range(own + 1, num_machines + 1):
                    value = max(max(stage, transfer), best[before, machines - own - 1])
                    if value < best[here, machines - 1]:
                        stash = math.ceil((num_machines - machines) / own)
                        if _stash(before, here, figures, stash) <= memory:
                            best[here, machines - 1] = value
                            choice[here, machines - 1] = before, machines - own, own
    return best, choice


@njit
def best_line(downsets, times_s, resident, workspace, memory, num_devices, handed_s, upper_bound_s):  # type: ignore[no-untyped-def]
    """The least largest of a stage's seconds and of what is handed on between stages, over chains of downsets, and that chain.

    Legend: ``d`` downsets, each after those that it contains, the empty one first and that of all units last; ``u`` units.

    Args:
        downsets: ``(d, u)``.
        times_s: of each unit, ``(u,)``.
        resident: bytes of each unit.
        workspace: bytes of each unit, of which the largest of a stage counts.
        memory: of a device.
        num_devices: stages at most.
        handed_s: of each downset, seconds for what units behind it read, ``(d,)``; 0 for the last.
        upper_bound_s: seconds above it need not be looked at; infinite where nothing is known.

    Returns:
        seconds (infinite if there is no chain), and of each stage, last first, its downset and the one before.
    """
    d, u = downsets.shape
    words, sums_s, held = bits_of(downsets), np.zeros(d), np.zeros(d)
    for here in range(d):
        for unit in range(u):
            if downsets[here, unit]:
                sums_s[here] += times_s[unit]
                held[here] += resident[unit]
    by_workspace = np.argsort(-workspace)
    best = np.full((d, num_devices + 1), np.inf)
    choice = np.zeros((d, num_devices + 1), np.int64)
    best[0, 0] = 0.0
    reached = np.full(d, np.inf)
    reached[0] = 0.0
    limit = upper_bound_s * (1.0 + 1e-9)
    for here in range(1, d):
        for before in range(here - 1, -1, -1):
            stage_s = max(sums_s[here] - sums_s[before], handed_s[before])
            if sums_s[here] - sums_s[before] > limit:
                break
            if (
                stage_s > limit
                or reached[before] > limit
                or held[here] - held[before] > memory
                or not is_inside(words, before, here)
            ):
                continue
            largest = largest_workspace(downsets, before, here, workspace, by_workspace)
            if held[here] - held[before] + largest > memory:
                continue
            for used in range(num_devices):
                value = max(best[before, used], stage_s)
                if value > limit or sums_s[d - 1] - sums_s[here] > limit * (num_devices - used - 1) * (1.0 + 1e-9):
                    continue  # too much is left for the other devices
                if value < best[here, used + 1]:
                    best[here, used + 1] = value
                    reached[here] = min(reached[here], value)
                    choice[here, used + 1] = before
                    if here == d - 1:
                        limit = min(limit, value)
    used = int(np.argmin(best[d - 1]))
    found = best[d - 1, used]
    stages = np.zeros((num_devices, 2), np.int64)
    count, here = 0, d - 1
    while here > 0 and found < np.inf:
        stages[count, 0], stages[count, 1] = here, choice[here, used]
        here, used = choice[here, used], used - 1
        count += 1
    return found, stages[:count]


@njit
def _stash(before, after, figures, times):  # type: ignore[no-untyped-def]
    return times * (figures[after, 1] - figures[before, 1] + figures[after, 2] - figures[before, 2])


@njit
def _stage_s(before, after, machines, figures, inner, bandwidth, stash, memory):  # type: ignore[no-untyped-def]
    """Seconds of the ops between two states as one stage; infinite where it does not fit."""
    if stash > 0 and _stash(before, after, figures, stash) > memory:
        return np.inf
    work = inner[before, after] if inner.shape[0] > 0 else figures[after, 0] - figures[before, 0]
    parameters = figures[after, 2] - figures[before, 2]
    return (work + 4.0 * (machines - 1) * parameters / (bandwidth * machines)) / machines
