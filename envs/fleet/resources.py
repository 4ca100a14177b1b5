"""Resources that a cluster has for all jobs together, and each menu entry's share of them while a job runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...errors import ConfigError
from ...planners.menu.entries import MenuEntry, SplitEntry
from ...planners.menu.settings import JobTypeSettings
from .settings import FleetSettings

NO_LIMIT = 2**62
"""Trees of a cluster that does not count them."""


def resource_capacity(settings: FleetSettings) -> NDArray[np.int64]:
    """Return the cluster's capacity, by `Resource`."""
    return np.array([NO_LIMIT if settings.in_network_trees is None else settings.in_network_trees, settings.parameter_servers])


def resource_demand(entry: MenuEntry | SplitEntry, devices_per_host: int) -> tuple[int, int]:
    """Return a job's demand by its entry, by `Resource`: a tree for each group that sums gradients between hosts, and servers."""
    if entry.named is None:
        return 0, 0
    layout = entry.layout
    has_trees = entry.named.collectives == "in-network" and layout.dp * layout.cp > 1 and layout.world > devices_per_host
    return layout.world // (layout.dp * layout.cp) if has_trees else 0, entry.named.num_servers


def check_servers(settings: FleetSettings, types: Sequence[JobTypeSettings]) -> None:
    """Refuse job types and entries whose parameter servers need more hosts than there are.

    Raises:
        ConfigError: something wants more of them than there are.
    """
    own = [(f"the job type {one.name}", one.own) for one in types if one.own is not None]
    for whose, named in [*((f"the entry {entry.name}", entry) for entry in settings.menu.entries), *own]:
        if named.num_servers > settings.parameter_servers:
            message = f"{whose} is trained by kind={named.training.kind}, whose parameters are on hosts of their own"
            raise ConfigError(
                f"{message}: give {named.num_servers}",
                field="fleet.parameter_servers",
                value=settings.parameter_servers,
            )
