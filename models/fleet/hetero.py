"""Convert observations of a fleet to `HeteroData`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...envs.fleet.features import HostColumn, OfferColumn, RunningColumn, link_bandwidths, trunk_members
from ...envs.fleet.fleet import Fleet

if TYPE_CHECKING:
    from torch_geometric.data import HeteroData


def hetero_data(fleet: Fleet, seen: Mapping[str, NDArray[Any]]) -> HeteroData:
    """Convert an observation of a `FleetEnv` to `HeteroData`, without padding rows.

    Nodes are ``host``, ``trunk``, ``running`` and ``offer`` (jobs on offer; ``row`` is their place among actions). Features in
    ``x`` are as in the observation; the jobs' ``type`` numbers `FleetEnv.graphs`. Edges, each with ``edge_attr``:

    - ``(host, below, trunk)``: bandwidth of the host's card and of the trunk, as shares of the fastest link's. Load out of and
      into the host, ``(e, 4)``. Where links form no tree each host has a trunk of its own, and bandwidths are 1;
    - ``(running, holds, host)``: share of the host, ``(e, 1)``;
    - ``(running, loads, trunk)``: how much of the trunk the job uses, ``(e, 1)``.

    No edge joins jobs on offer to anything: a waiting job holds no host yet. ``context`` and ``action_mask`` are as observed, and
    ``candidates`` where there are any.

    Args:
        fleet: whose observation it is.
        seen: of one environment.
    """
    from torch_geometric.data import HeteroData  # takes as long to load as PyTorch itself

    data = HeteroData()
    is_running, is_offer = seen["running"][:, RunningColumn.IS_THERE] > 0, seen["offers"][:, OfferColumn.IS_THERE] > 0
    data["host"].x, data["trunk"].x = _tensor(seen["hosts"]), _tensor(seen["trunks"])
    data["running"].x, data["offer"].x = _tensor(seen["running"][is_running]), _tensor(seen["offers"][is_offer])
    data["running"].type, data["offer"].type = _tensor(seen["running_type"][is_running]), _tensor(seen["offer_type"][is_offer])
    data["offer"].row = _tensor(np.flatnonzero(is_offer))
    trunk, host = np.nonzero(trunk_members(fleet.problem.network))
    data["host", "below", "trunk"].edge_index = _tensor(np.stack([host, trunk]))
    loads = seen["hosts"][host][:, [HostColumn.LOAD_OUT, HostColumn.LOAD_IN]]
    below = np.concatenate([link_bandwidths(fleet.problem.network)[trunk, host], loads], axis=1)
    data["host", "below", "trunk"].edge_attr = _tensor(below)
    for kind, share in (("host", seen["host_of"]), ("trunk", seen["trunk_of"])):
        of_running = share[is_running]
        verb = "holds" if kind == "host" else "loads"
        data["running", verb, kind].edge_index = _tensor(np.stack(np.nonzero(of_running)))
        data["running", verb, kind].edge_attr = _tensor(of_running[np.nonzero(of_running)][:, None])
    for name in ("context", "action_mask", "candidates"):
        if seen[name].size:
            data[name] = _tensor(seen[name])
    return data


def _tensor(values: NDArray[Any]) -> torch.Tensor:
    return torch.from_numpy(np.array(values))
