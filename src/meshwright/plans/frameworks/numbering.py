"""Whether a framework starts the ranks of a layout that are numbered in an order on the devices where the order puts them.

A launcher lists the hosts as it likes, so what counts is that the framework's own ranks come host by host.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..partition import Layout
from ..rank_order import numbers
from .megatron_groups import MAPPED_ORDER, allows

Numbering = Callable[[Layout, str, int], bool]
"""Layout, rank order and devices of a host to whether the framework starts it."""


def in_any_order(layout: Layout, order: str, devices_per_host: int) -> bool:
    """Keep the ranks: the script makes its groups of them as they are."""
    return True


def as_layout(layout: Layout, order: str, devices_per_host: int) -> bool:
    """Order ranks as the layout's own are: tp fastest, then cp, dp and pp."""
    return bool((numbers(layout, order) == np.arange(layout.world)).all())


def by_hosts(layout: Layout, order: str, devices_per_host: int) -> bool:
    """Order ranks as the layout does, and list hosts in that order."""
    return _are_runs(layout, order, devices_per_host, np.arange(layout.world))


def as_megatron(layout: Layout, order: str, devices_per_host: int) -> bool:
    """Return whether Megatron numbers ranks so: as `by_hosts`, or with ``--use-tp-pp-dp-mapping`` where it allows that."""
    if by_hosts(layout, order, devices_per_host):
        return True
    return allows(layout, MAPPED_ORDER) and _are_runs(layout, order, devices_per_host, numbers(layout, "tp-cp-pp-dp"))


def _are_runs(layout: Layout, order: str, devices_per_host: int, own: np.ndarray) -> bool:
    """Return whether the ranks of each host follow one another in the framework's numbering ``own``, ``(world,)``."""
    per_host = min(devices_per_host, layout.world)
    hosts = np.empty(layout.world, np.int64)
    hosts[own] = numbers(layout, order) // per_host
    whole = hosts[: layout.world // per_host * per_host].reshape(-1, per_host)
    return bool((whole == whole[:, :1]).all())
