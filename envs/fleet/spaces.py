"""The observation of a fleet as a Gymnasium space, and which hosts are below which of its trunks."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ...simulation.fleet.network import FleetNetwork
from .fleet import Fleet
from .observation import new_observations


def observation_space(fleet: Fleet) -> spaces.Dict:
    """A `Dict` of boxes: features in [0, 1], types below their number, the mask 0 or 1."""
    found: dict[str, spaces.Space[object]] = {}
    for name, values in new_observations(fleet, 1)._asdict().items():
        shape = values.shape[1:]
        if name.endswith("_type"):
            found[name] = spaces.Box(0, max(1, fleet.num_types - 1), shape, np.int64)
        elif name == "action_mask":
            found[name] = spaces.Box(0, 1, shape, np.int8)
        else:
            found[name] = spaces.Box(0.0, 1.0, shape, np.float32)
    return spaces.Dict(found)


def trunk_members(network: FleetNetwork) -> NDArray[np.float32]:
    """Which hosts are below each trunk, ``(r, m)``; without trunks each host by itself."""
    num_trunks, group = network.num_trunks, network.host_group
    if num_trunks == 0:
        return np.eye(len(group), dtype=np.float32)
    found = np.zeros((num_trunks, len(group)), np.float32)
    found[group, np.arange(len(group))] = 1.0
    if num_trunks > network.num_groups:
        found[network.num_groups + network.group_site[group], np.arange(len(group))] = 1.0
    return found
