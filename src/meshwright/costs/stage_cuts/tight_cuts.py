"""Cuts of an interleaved pipeline where none of the family fits: chunks of a stage share its memory, so all matter together.

Each moment of each stage has a price, all of them one in sum, and a device's room is the unit of memory. A cut that fits costs
one at most, whatever the prices. The cost of a cut is a sum over its chunks, or more. So the cheapest path bounds the cost of
any cut from below: above one, nothing fits. Prices rise where the cheapest path overfills a stage and fall elsewhere.

The search starts from such paths and the cuts of the family, the leanest first. It moves places: several that follow each
other, or two by themselves. Moves continue while the cut overfills its devices less or, once it fits, its pipeline ends
earlier. No such move betters the result.

Legend: ``u`` units that stay whole, ``p`` stages, ``v`` chunks of a stage, ``k = p v`` chunks, ``t`` ticks of a schedule.

Source:
    Geoffrion, "Lagrangean relaxation for integer programming", 1974; Arora, Hazan and Kale, "The multiplicative weights update
    method", 2012, section 3.2, for the prices.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from ..work.memory import FRAGMENTATION, RUNTIME_BYTES
from .cut_family import go_back
from .cut_labels import CutPipeline
from .cut_memory import stage_bytes
from .cut_prices import span_s

MOST_STEPS = 1e9
"""Runs of units and tasks that are looked at before a search is given up, some ten seconds."""

MOST_PRICES = 60
"""Times that prices change."""

MOST_STARTS = 24
"""Cuts from which places are moved, where one of them comes to fit; else all that there are."""

MOVES = np.array([(1, 1, 1), (-1, -1, 1), (3, 3, 1), (-3, -3, 1), (1, 1, 0), (1, -1, 0), (-1, 1, 0), (-1, -1, 0)])
"""By how many units the first and the last of some places move, and whether those between move with them."""

ROUNDING = 1e-11
"""Relative. A bound adds in another order than what it bounds, and must not pass it by a rounding error."""

BETTER = 1e-9
"""Relative. Less by no more is rounding."""


def tight_cuts(
    pipe: CutPipeline, turns: NDArray[np.int32], num_played: int, family: NDArray[np.int64], most_steps: float | None
) -> tuple[list[NDArray[np.int64]], float]:
    """Return the cuts that fit, and bytes that the fullest device holds at least with any cut; infinite where none fits.

    Args:
        pipe: is cut; its chunks share memory.
        turns: of the schedule's first rounds, until it repeats itself.
        num_played: micro-batches of these.
        family: cuts to begin with, ``(f, k + 1)``.
        most_steps: of the search; `MOST_STEPS` by default.
    """
    if pipe.capacity_bytes <= RUNTIME_BYTES:
        return [], np.inf
    steps = np.array([MOST_STEPS if most_steps is None else most_steps])
    priced = np.zeros((MOST_PRICES, len(pipe.transfer_s) + 1), np.int64)
    num, share = _priced_cuts(pipe, priced, steps)
    if share > 1.0 + ROUNDING:
        return [], np.inf
    starts = np.unique(np.concatenate([priced[:num], family]), axis=0)
    results: list[NDArray[np.int64]] = []
    for number, place in enumerate(np.argsort([_overfill_bytes(pipe, cuts) for cuts in starts], kind="stable")):
        if number >= MOST_STARTS and results:
            break
        if _move_places(pipe, turns, num_played, starts[place], steps) == 0.0:
            results.append(starts[place])
    return results, (share * (pipe.capacity_bytes - RUNTIME_BYTES) + RUNTIME_BYTES) * (1.0 - BETTER)


@njit()
def _priced_cuts(pipe, result, steps):  # type: ignore[no-untyped-def]
    """Write the cheapest cuts by prices that change; how many, and the share of a device's room that the dearest one needs."""
    held = pipe.held
    pp, num_ticks, v = held.flying.shape
    k, u = pp * v, len(pipe.forward_s) - 1
    room, more = pipe.capacity_bytes - RUNTIME_BYTES, 1.0 + FRAGMENTATION
    prices, used = np.zeros((pp, num_ticks)), np.zeros((pp, num_ticks))
    for stage in range(pp):
        for tick in range(num_ticks):
            prices[stage, tick] = 1.0 if tick == 0 or held.flying[stage, tick].any() else 0.0
    least, came, most_share = np.zeros((k + 1, u + 1)), np.zeros((k + 1, u + 1), np.int64), 0.0
    for num in range(len(result)):
        if steps[0] < 0.0:
            return num, most_share
        steps[0] -= 0.5 * k * u * u
        prices /= prices.sum()
        least[:] = np.inf
        least[0, 0] = 0.0
        for chunk in range(k):
            flying, moments = held.flying[chunk % pp, :, chunk // pp], prices[chunk % pp]
            price, kept_price, most = moments.sum(), (moments * flying).sum(), flying.max()
            for last in range(chunk + 1, u - (k - chunk - 1) + 1):
                workspace, sent = 0.0, held.crossing_bytes[last]
                for first in range(last - 1, chunk - 1, -1):
                    workspace = max(workspace, held.workspace_bytes[first])
                    state = held.state_bytes[last] - held.state_bytes[first]
                    own = held.activation_bytes[last] - held.activation_bytes[first]
                    received_bytes = held.crossing_bytes[first]
                    stored_bytes, again = (received_bytes, own) if held.recomputes else (own, 0.0)
                    if state + more * (workspace + sent + again) > room * (1.0 + ROUNDING):
                        break  # all of this grows with the run
                    largest = workspace + sent + again + received_bytes
                    if state + more * (most * stored_bytes + largest) > room * (1.0 + ROUNDING):
                        continue
                    # the largest of a stage's chunks is no less than their mean
                    cost = least[chunk, first] + (price * (state + more * largest / v) + more * kept_price * stored_bytes) / room
                    if cost < least[chunk + 1, last]:
                        least[chunk + 1, last] = cost
                        came[chunk + 1, last] = first
        share = least[k, u]
        if share > 1.0 + ROUNDING:
            return num, share
        most_share = max(most_share, share)
        go_back(came, result[num])
        for stage in range(pp):
            used[stage] = (stage_bytes(held, result[num], stage) - RUNTIME_BYTES) / room
        farthest = max(np.abs(used - 1.0).max(), 1e-9)
        rate = min(4.0, (1.02 - share) / farthest**2, 8.0 / (farthest * np.sqrt(num + 1.0)))
        prices = np.where(prices > 0.0, np.maximum(prices, 1e-7 / pp), 0.0) * np.exp(rate * (used - 1.0))
    return len(result), most_share


@njit()
def _overfill_bytes(pipe, cuts):  # type: ignore[no-untyped-def]
    """Return the bytes that a cut holds beyond the devices' memory, of all stages together."""
    over = 0.0
    for stage in range(len(pipe.held.flying)):
        over += max(0.0, stage_bytes(pipe.held, cuts, stage).max() - pipe.capacity_bytes)
    return over


@njit()
def _move_places(pipe, turns, num_played, cuts, steps):  # type: ignore[no-untyped-def]
    """Move places while that makes the cut better; bytes that it holds beyond the devices' memory then."""
    k, u, num_tasks = len(pipe.transfer_s), len(pipe.forward_s) - 1, len(turns)
    over, best_s, trial = _overfill_bytes(pipe, cuts), np.inf, cuts.copy()
    if over == 0.0:
        best_s = span_s(pipe, turns, num_played, cuts)
    is_better = True
    while is_better:
        is_better = False
        for first in range(1, k):
            for last in range(first, k):
                for by_first, by_last, is_run in MOVES:
                    if steps[0] < 0.0:
                        return over
                    if first == last and not is_run:
                        continue
                    trial[:] = cuts
                    if is_run:
                        trial[first : last + 1] += by_first
                    else:
                        trial[first] += by_first
                        trial[last] += by_last
                    if trial[first - 1] >= trial[first] or trial[first] >= trial[first + 1]:
                        continue
                    if trial[last - 1] >= trial[last] or trial[last] >= trial[last + 1]:
                        continue
                    steps[0] -= u
                    trial_over, trial_s = _overfill_bytes(pipe, trial), np.inf
                    if trial_over > over:
                        continue
                    if trial_over == 0.0:
                        steps[0] -= num_tasks
                        trial_s = span_s(pipe, turns, num_played, trial)
                    if trial_over < over * (1.0 - BETTER) or trial_s < best_s * (1.0 - BETTER):
                        cuts[:] = trial
                        over, best_s, is_better = trial_over, trial_s, True
    return over
