"""The hosts of the ranks of one layout, by the exact time of its step: the slowest group of every message counts.

Whole hosts change places, so that the ranks of a host stay together and every launcher can start them. The search begins with the
hosts in order and with what the published surrogate finds; each trial exchanges two hosts, turns a part of the order round or
moves a host, and is kept where the step takes no longer. Groups that a trial leaves as they are keep their prices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

StepOf = Callable[[NDArray[np.int64]], float]
"""Seconds of a step on devices in rank order, ``(world,)``."""


class ArrangedRanks(NamedTuple):
    """Devices of ranks.

    Attributes:
        devices: in rank order, ``(world,)``.
        step_s: of the layout on them.
        num_priced: arrangements that were priced.
    """

    devices: NDArray[np.int64]
    step_s: float
    num_priced: int


def arrange_ranks(
    step_s: StepOf, hosts: NDArray[np.int64], starts: Iterable[NDArray[np.int64]], num_trials: int, seed: int = 0
) -> ArrangedRanks:
    """The best order of hosts that is found for a layout.

    Args:
        step_s: prices a layout on devices.
        hosts: devices of each host, ``(h, d)``.
        starts: orders of hosts to begin with, ``(h,)`` each; the hosts in order are always among them.
        num_trials: orders to price after these.
        seed: of what is drawn.
    """
    count = len(hosts)
    known: dict[bytes, float] = {}

    def priced(order: NDArray[np.int64]) -> float:
        key = order.tobytes()
        if key not in known:
            known[key] = step_s(hosts[order].reshape(-1))
        return known[key]

    first = [np.arange(count), *(np.asarray(one, np.int64) for one in starts)]
    best = min(first, key=priced)
    best_s = priced(best)
    random = np.random.default_rng(seed)
    for _ in range(num_trials if count > 1 else 0):
        trial = best.copy()
        one, other = sorted(random.choice(count, 2, replace=False).tolist())
        kind = random.random()
        if kind < 0.8:
            trial[[one, other]] = trial[[other, one]]
        elif kind < 0.9:
            trial[one : other + 1] = trial[one : other + 1][::-1]
        else:
            trial = np.insert(np.delete(trial, one), other, trial[one])
        found_s = priced(trial)
        if found_s <= best_s:
            best, best_s = trial, found_s
    return ArrangedRanks(hosts[best].reshape(-1), best_s, len(known))
