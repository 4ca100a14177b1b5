"""The devices of the ranks of one layout, by the exact time of its step: the slowest group of every message counts.

Whole hosts change places with each other and with hosts that the job leaves free. Devices within a host do so where they differ.
The ranks of a host stay together, so that every launcher can start them. The search begins with the hosts in order and with the
result of the published surrogate. Each trial exchanges two hosts or two devices, reverses a part of the order or moves a host. It
is kept if the step takes no longer. Groups that a trial leaves unchanged keep their prices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

StepOf = Callable[[NDArray[np.int64]], float]
"""Seconds of a step on devices in rank order, ``(world,)``."""

WITHIN = 0.4
"""Share of the trials that exchange devices within a host, where that matters and there are several hosts."""


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


class _Arrangement(NamedTuple):
    """Hosts in an order, and the devices of each in an order.

    Attributes:
        order: numbers of the hosts; the job has the first ones.
        devices: of each host by its number; the job has the first ones.
    """

    order: NDArray[np.int64]
    devices: tuple[NDArray[np.int64], ...]

    def of_ranks(self, count: int, width: int) -> NDArray[np.int64]:
        """Return the devices of the ranks, on so many hosts and so many on each."""
        return np.concatenate([self.devices[host][:width] for host in self.order[:count].tolist()])


def arrange_ranks(
    step_s: StepOf,
    hosts: Sequence[NDArray[np.int64]] | NDArray[np.int64],
    starts: Iterable[NDArray[np.int64]],
    num_trials: int,
    *,
    count: int | None = None,
    width: int | None = None,
    within: bool = False,
) -> ArrangedRanks:
    """Search the best arrangement of a layout.

    Args:
        step_s: prices a layout on devices.
        hosts: devices of each host, those of the job first.
        starts: orders of the job's hosts to begin with; the hosts in order are always among them.
        num_trials: arrangements to price after these.
        count: hosts that the job has; by default all.
        width: devices that it has on each; by default all.
        within: whether the devices of a host differ, so that they change places too.
    """
    every = tuple(np.asarray(host, np.int64) for host in hosts)
    count = len(every) if count is None else count
    width = len(every[0]) if width is None else width
    known: dict[bytes, float] = {}

    def priced(arrangement: _Arrangement) -> float:
        devices = arrangement.of_ranks(count, width)
        key = devices.tobytes()
        if key not in known:
            known[key] = step_s(devices)
        return known[key]

    left = np.arange(count, len(every))
    first = [np.arange(count), *(np.asarray(start, np.int64) for start in starts)]
    best = min((_Arrangement(np.concatenate([one, left]), every) for one in first), key=priced)
    best_s = priced(best)
    random = np.random.default_rng(0)
    for _ in range(num_trials if len(every) > 1 or within else 0):
        if within and (len(every) == 1 or random.random() < WITHIN):
            trial = _devices_exchanged(best, count, width, random)
        else:
            trial = best._replace(order=_hosts_moved(best.order, random))
        found_s = priced(trial)
        if found_s <= best_s:
            best, best_s = trial, found_s
    return ArrangedRanks(best.of_ranks(count, width), best_s, len(known))


def _hosts_moved(order: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
    """Return two hosts exchanged, a part of the order turned round, or a host moved."""
    trial = order.copy()
    one, other = sorted(random.choice(len(order), 2, replace=False).tolist())
    kind = random.random()
    if kind < 0.8:
        trial[[one, other]] = trial[[other, one]]
    elif kind < 0.9:
        trial[one : other + 1] = trial[one : other + 1][::-1]
    else:
        trial = np.insert(np.delete(trial, one), other, trial[one])
    return trial


def _devices_exchanged(best: _Arrangement, count: int, width: int, random: np.random.Generator) -> _Arrangement:
    """Return two devices of a host of the job exchanged, one of them the job's."""
    host = int(best.order[random.integers(count)])
    own = best.devices[host].copy()
    if len(own) > 1:
        one, step = random.integers(width), random.integers(1, len(own))
        other = (one + step) % len(own)
        own[[one, other]] = own[[other, one]]
    return best._replace(devices=(*best.devices[:host], own, *best.devices[host + 1 :]))
