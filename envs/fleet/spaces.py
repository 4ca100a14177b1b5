"""The links by which hosts hang below the trunks of a fleet, as observations show them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...simulation.fleet.network import FleetNetwork
from .features import HostColumn, LinkColumn
from .fleet import Fleet


def observed_links(fleet: Fleet) -> NDArray[np.float32] | None:
    """Return the bandwidths of a fleet's links for observations, `link_bandwidths`; None where the settings leave them out."""
    return link_bandwidths(fleet.problem.network) if fleet.settings.observes_links else None


def with_links(bandwidths: NDArray[np.float32] | None, seen: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Observations of episodes, with `LINK` of each trunk and host where there are `observed_links`, ``(e, r, m, 4)``."""
    if bandwidths is None:
        return dict(seen)
    is_below = bandwidths[..., 0] > 0
    hosts = seen["hosts"][:, None]
    columns = {
        LinkColumn.CARD: np.broadcast_to(bandwidths[..., 0], (len(hosts), *bandwidths.shape[:2])),
        LinkColumn.TRUNK: np.broadcast_to(bandwidths[..., 1], (len(hosts), *bandwidths.shape[:2])),
        LinkColumn.LOAD_OUT: hosts[..., HostColumn.LOAD_OUT] * is_below,
        LinkColumn.LOAD_IN: hosts[..., HostColumn.LOAD_IN] * is_below,
    }
    return {**seen, "links": np.stack([columns[column] for column in LinkColumn], axis=3)}


def link_bandwidths(network: FleetNetwork) -> NDArray[np.float32]:
    """Bandwidths of each host's card and of each trunk above it, as shares of the fastest link's, ``(r, m, 2)``.

    Zeros where a host is not below a trunk; ones of each host where there are no trunks.
    """
    member, num_hosts = trunk_members(network)[:, :, None], len(network.host_group)
    if network.num_trunks == 0:
        return np.repeat(member, 2, axis=2)
    share = network.capacity_bytes_per_s / network.capacity_bytes_per_s.max()
    cards, trunks = share[: 2 * num_hosts : 2], share[2 * num_hosts : 2 * (num_hosts + network.num_trunks) : 2]
    return (np.stack(np.broadcast_arrays(cards, trunks[:, None]), axis=2) * member).astype(np.float32)


def trunk_members(network: FleetNetwork) -> NDArray[np.float32]:
    """Whether each host is below each trunk, ``(r, m)``; without trunks each host has one of its own."""
    num_trunks, group = network.num_trunks, network.host_group
    if num_trunks == 0:
        return np.eye(len(group), dtype=np.float32)
    result = np.zeros((num_trunks, len(group)), np.float32)
    result[group, np.arange(len(group))] = 1.0
    if num_trunks > network.num_groups:
        result[network.num_groups + network.group_site[group], np.arange(len(group))] = 1.0
    return result
