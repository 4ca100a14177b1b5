"""PipeDream's recurrence from one state to all that contain it, compiled.

Legend of shapes: ``d`` states, by number of ops, the empty one first; ``w`` words of 64 ops; ``M`` machines.
"""

from __future__ import annotations

import numpy as np

from ....compiled import njit
from .downset_kernel import is_inside


@njit
def best_from(start, words, figures, inner, num_machines, bandwidth, one_stage_bandwidth, is_straight):  # type: ignore[no-untyped-def]
    """Least seconds from one state to each other on each number of machines, ``(d, M)``, and how.

    Args:
        start: the state from which ops count.
        words: bits of the ops of each state, ``(d, w)``.
        figures: seconds, parameters and bytes handed on of each state, ``(d, 3)``.
        inner: seconds of the ops between two states on one machine, ``(d, d)``; empty where it is the difference of theirs.
        num_machines: of the level, all used at the end.
        bandwidth: bytes a second between them.
        one_stage_bandwidth: the same for the parameters of a first stage.
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
            best[here, machines - 1] = _stage_s(start, here, machines, figures, inner, one_stage_bandwidth)
            choice[here, machines - 1] = start, 0, machines
        for before in range(start + 1, here):
            if not (best[before] < np.inf).any() or not is_inside(words, before, here):
                continue
            for own in range(1, num_machines):
                if is_straight and own > 1:
                    break
                transfer = 2.0 * figures[before, 2] / (bandwidth * own)
                if here < d - 1:
                    transfer = max(transfer, 2.0 * figures[here, 2] / (bandwidth * own))
                stage = _stage_s(before, here, own, figures, inner, bandwidth)
                for machines in range(own + 1, num_machines + 1):
                    value = max(max(stage, transfer), best[before, machines - own - 1])
                    if value < best[here, machines - 1]:
                        best[here, machines - 1] = value
                        choice[here, machines - 1] = before, machines - own, own
    return best, choice


@njit
def _stage_s(before, after, machines, figures, inner, bandwidth):  # type: ignore[no-untyped-def]
    """Seconds of the ops between two states as one stage."""
    work = inner[before, after] if inner.shape[0] > 0 else figures[after, 0] - figures[before, 0]
    parameters = figures[after, 1] - figures[before, 1]
    return (work + 4.0 * (machines - 1) * parameters / (bandwidth * machines)) / machines
