"""The RAMP network's own collectives, over circuits that are switched for them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ...clusters.topologies.ramp import RampTopology
from ...errors import ConfigError
from .. import formulas
from ..network import RankNetwork
from ..phases import Phases
from .algorithm import Algorithm, Pricer, Ranks
from .direct import RING
from .prices import Operation


class Ramp(Algorithm):
    """One exchange per dimension, each between all nodes of a subgroup at once.

    An all-reduce's payload is reduce-scattered over the communication groups, then the racks, then the servers of the ranks.
    It is gathered the same way back, so the time is twice the sum of the steps. In an all-to-all every step passes the whole
    payload on, in as many parts as there are nodes in the subgroup.

    Source:
        Ottino, Benjamin and Zervas, 2023 (see `formulas.ramp_step_s`).
    """

    name = "ramp"

    def runs_on(self, network: RankNetwork) -> bool:
        """Return whether the cluster is a RAMP cluster."""
        return isinstance(network.cluster.topology, RampTopology)

    def offers(self, operation: Operation) -> bool:
        """Return whether the operation is any but a broadcast or a send, which go hop by hop."""
        return operation not in ("broadcast", "send_recv")

    def pricer(self, network: RankNetwork, ranks: Ranks, operation: Operation) -> Pricer:
        """Return seconds; the ranks' spread over groups, racks and servers decides, not their order."""
        topology = network.cluster.topology
        if not isinstance(topology, RampTopology):
            raise ConfigError("the RAMP all-reduce needs a RAMP cluster", field="collectives", value=self.name)
        if not self.offers(operation):
            return RING.pricer(network, ranks, operation)
        sizes = _subgroup_sizes(network.cluster.coordinates[network.devices[ranks]])
        transceivers, node_bandwidth = topology.num_groups, topology.node_bandwidth_bytes_per_s
        latency_s = topology.propagation_s + 2 * topology.io_s

        def seconds(payload_bytes: float) -> float:
            one_way_s = 0.0
            message_bytes = payload_bytes
            for size in sizes:
                message_bytes = math.ceil((payload_bytes if operation == "all_to_all" else message_bytes) / size)
                one_way_s += formulas.ramp_step_s(message_bytes, size, transceivers, node_bandwidth, latency_s)
            return 2 * one_way_s if operation == "all_reduce" else one_way_s

        return seconds

    def phases(self, network: RankNetwork, ranks: Ranks, payload_bytes: float, operation: Operation = "all_reduce") -> Phases:
        """Return no flows: circuits are switched for the collective, so that it takes its own time whatever else is sent."""
        return () if self.offers(operation) else RING.phases(network, ranks, payload_bytes, operation)


def _subgroup_sizes(coordinates: NDArray[np.int64]) -> tuple[int, int, int]:
    """Return distinct groups, most racks within a group, most servers within a rack."""
    groups = np.unique(coordinates[:, 0])
    racks = np.unique(coordinates[:, :2], axis=0)
    per_group = np.unique(racks[:, 0], return_counts=True)[1]
    per_rack = np.unique(coordinates[:, :2], axis=0, return_counts=True)[1]
    return len(groups), int(per_group.max()), int(per_rack.max())
