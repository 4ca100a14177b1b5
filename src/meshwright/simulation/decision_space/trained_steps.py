"""Jobs of a scenario that are not trained synchronously: the change against a synchronous step.

Under the split rule ``uniform`` each device holds a whole replica. The closed forms of `costs.training` give the ratio of a step
to a synchronous one, and the simulated synchronous step is multiplied by it. No replica is late. Blocks whose devices gossip
cannot pair are not on offer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...clusters.cluster import Cluster
from ...costs.collectives.groups import Fabric, Group
from ...costs.process_groups.group_network import FabricNetwork, PlacedNetwork
from ...costs.settings import CostSettings
from ...costs.training.gossip import can_pair
from ...costs.training.masked import core_replicas, cycle_s
from ...costs.training.replicas import Replicas
from ...costs.training.strategy_step import check_strategy, strategy_step
from ...costs.training.subnets import subnet_round
from ...costs.training_step.graph_step_time import GraphPricer
from ...costs.work.graph_work import describe_graph
from ...errors import PlanError
from ...jobs.graph import JobGraph
from ...plans.compression import AnyCompression, steps_multiplier
from ...plans.partition import Layout
from ...plans.training import AnyTraining, Asynchronous, Gossip, IndependentSubnets, Masked, StaleSynchronous, Synchronous

KINDS = ("synchronous", "local-sgd", "post-local-sgd", "diloco", "ssp", "asp", "gossip", "ist", "masked")
"""Those by which devices with whole replicas train a job; the blocks of local updates are stages of a pipeline."""

BETWEEN_HOSTS = (StaleSynchronous, Asynchronous, IndependentSubnets)
"""Kinds whose messages go from each host to another one."""


class GivenTraining(NamedTuple):
    """How the jobs of a scenario are trained.

    Attributes:
        training: how replicas agree on their parameters.
        compression: how gradients are coded.
    """

    training: AnyTraining = Synchronous()
    compression: AnyCompression | None = None

    @property
    def is_plain(self) -> bool:
        """Whether training is synchronous, and gradients go as they are."""
        return self.training.kind == "synchronous" and self.compression is None

    @property
    def multiplier(self) -> float:
        """Steps of this training that equal one step of the job; 1 where none was declared."""
        declared = steps_multiplier(self.training, self.compression)
        return 1.0 if declared is None else declared


PLAIN = GivenTraining()
"""Synchronous training, whose gradients go as they are."""


class StepChange(NamedTuple):
    """A step against a synchronous one.

    Attributes:
        times: as long, with the multiplier.
        computed: times the computation of a device, with the multiplier.
        extra_bytes: that a device holds in addition.
    """

    times: float
    computed: float
    extra_bytes: float


def step_change(
    graph: JobGraph, cluster: Cluster, devices: NDArray[np.int64], costs: CostSettings, training: GivenTraining
) -> StepChange | None:
    """Return the change that a training makes to a job with a replica on each device, by the slowest device type.

    It is None where gossip cannot pair so many, or hosts have unequal numbers of devices and messages go between hosts.

    Args:
        graph: the job.
        cluster, devices: where, in rank order.
        costs: choices of the cost model.
        training: the training.

    Raises:
        PlanError: the job cannot be trained so, or hosts differ where messages go between them.
        GraphError: it cannot be timed on a device.
    """
    if training.is_plain or (len(devices) == 1 and training.training.kind != "masked"):
        return StepChange(training.multiplier, training.multiplier, 0.0)
    n = len(devices)
    layout = Layout(dp=n, micro_batch=1, global_batch=n, overlap_dp=True)
    wires = PlacedNetwork(Fabric.from_settings(cluster, costs), devices)
    results = []
    for kind in np.unique(cluster.device_type[devices]).tolist():
        device = cluster.device_types[kind]
        work = describe_graph(replace(graph, samples_per_step=n), layout, device, costs)
        replicas = Replicas(work, GraphPricer(device=device, wires=wires, slowdown=costs.overlap_slowdown))
        if isinstance(training.training, Gossip) and not can_pair(replicas, training.training.topology):
            return None
        check_strategy(graph.name, layout, training.training, training.compression)
        over = replicas
        if isinstance(training.training, BETWEEN_HOSTS):
            per_host = np.bincount(cluster.device_host[devices])
            if len(set(per_host[per_host > 0].tolist())) > 1:
                return None
            over = _between_hosts(replicas, cluster, costs, int(per_host.max()), training.training.kind)
        step = strategy_step(over, training.training, training.compression)
        computed = 1.0
        if isinstance(training.training, IndependentSubnets):
            computed = subnet_round(over).sub_s / over.local_s
        if isinstance(training.training, Masked):
            core_s = core_replicas(replicas, training.training).local_s
            computed = cycle_s(core_s, replicas.local_s, training.training) / training.training.num_steps / replicas.local_s
        times = training.multiplier * step.step_s / replicas.synchronous_s
        change = StepChange(times, training.multiplier * computed, step.extra_bytes)
        results.append((replicas.synchronous_s, change))
    return max(results)[1]


def _between_hosts(replicas: Replicas, cluster: Cluster, costs: CostSettings, per_host: int, kind: str) -> Replicas:
    """Return the same replicas, whose messages to another host are those between any two hosts of the cluster."""
    if cluster.num_hosts == 1:
        raise PlanError("sends to a host outside the job's, and the cluster has one", field="training.kind", value=kind)
    if not cluster.hosts_are_equal:
        return replicas  # refused where the way to a server is asked for
    wires = FabricNetwork(Fabric.from_settings(cluster, costs), cluster.num_devices // cluster.num_hosts)
    group = Group(size=replicas.num_replicas, per_host=per_host, stride=1, side_by_side=1)
    return replace(replicas, pricer=replicas.pricer.in_order(replicas.pricer.order, wires), placed=group)
