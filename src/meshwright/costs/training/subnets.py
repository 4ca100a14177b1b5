"""Independent subnetwork training: hidden neurons are dealt, narrow networks are trained, slices are put together again.

Legend: ``d, h, o`` widths of input, hidden layers and output, ``L`` layers of weights, ``n`` workers. ``H`` local steps, ``S``
bytes of a subnet, ``C`` seconds of its step.

Source:
    Yuan et al., "Distributed learning of fully connected neural networks using independent subnet training", 2022.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import PlanError
from ...plans.training import IndependentSubnets
from ..work.graph_work import GraphWork
from .replicas import Replicas, slowest_of
from .synchronisation import local_sgd_s

DENSE = re.compile(r"(?i)(^|[^a-z])(dense|linear|fc|fully.?connected|mlp|gemm|addmm|classifier)")
"""Names of ops that are layers of neurons."""


def subnet_parameters(widths: tuple[int, ...], num_workers: int) -> float:
    """Return the weights of a subnet: ``d h / n + (L - 2) (h / n)^2 + (h / n) o`` for equal hidden widths.

    Args:
        widths: of input, hidden layers and output, ``(L + 1,)``.
        num_workers: ``n``.
    """
    last = len(widths) - 1
    own = [width / (1 if place in (0, last) else num_workers) for place, width in enumerate(widths)]
    return sum(before * after for before, after in pairwise(own))


def round_bytes(widths: tuple[int, ...], num_workers: int, number_bytes: float = 4.0) -> float:
    """Return the bytes of a round, out and back, of all workers: ``2 bytes (d h + (L - 2) h^2 / n + h o)``."""
    return 2 * number_bytes * num_workers * subnet_parameters(widths, num_workers)


def round_s(
    sub_s: float, every: int, subnet_bytes: float, num_workers: int, bytes_per_s: float, server: str, latency_s: float
) -> float:
    """Return the seconds of a round: ``H C + latency + max(server's way, worker's way)``.

    A central server sends and gets ``n S`` both ways over its one card; held by all workers together, each sends and gets ``S``.

    Args:
        sub_s: seconds of a step of a subnet.
        every: local steps, ``H``.
        subnet_bytes: ``S``.
        num_workers: ``n``.
        bytes_per_s: of a card.
        server: ``sharded`` or ``central``.
        latency_s: of a message.
    """
    ways = num_workers if server == "central" else 1
    return every * sub_s + latency_s + 2 * ways * subnet_bytes / bytes_per_s


class SubnetRound(NamedTuple):
    """A round of a job.

    Attributes:
        sub_s: seconds of a step of a subnet on a worker that is not late.
        way_s: of a subnet from a worker to a server of one card, or back.
        subnet_bytes: of its gradients, ``S``.
    """

    sub_s: float
    way_s: float
    subnet_bytes: float


def subnet_round(replicas: Replicas) -> SubnetRound:
    """Return a round of a job on several workers.

    Raises:
        PlanError: the job is no chain of layers of neurons, or is cut by ``pp``.
    """
    work = replicas.work
    shares = op_shares(work, replicas.num_replicas)
    assert isinstance(work, GraphWork)
    size = float((work.gradient_bytes * shares).sum())
    passes_s = work.forward_s + work.backward_s
    part = float((passes_s * shares).sum() / passes_s.sum())
    group = replicas.regular()._replace(size=2, per_host=1, side_by_side=1)
    return SubnetRound(part * replicas.local_s, replicas.group_s("send_recv", size, group), size)


def subnets_s(replicas: Replicas, training: IndependentSubnets) -> tuple[float, float]:
    """Return the mean seconds of a step, and bytes that a worker sends for each step.

    Raises:
        PlanError: the job is no chain of layers of neurons, or is cut by ``pp``.
    """
    n = replicas.num_replicas
    if n == 1:
        return local_sgd_s(replicas, training.every), 0.0
    result = subnet_round(replicas)
    sub_s = result.sub_s * slowest_of(n, replicas.straggler_sigma, training.every)
    ways = n if training.server == "central" else 1
    return sub_s + 2 * ways * result.way_s / training.every, 2 * result.subnet_bytes / training.every


def op_shares(work: object, num_workers: int) -> NDArray[np.float64]:
    """Return the share of each op that a subnet has: ``1 / n^2`` between hidden layers, else ``1 / n``.

    Raises:
        PlanError: the job is no chain of layers of neurons, or is cut by ``pp``.
    """
    if not isinstance(work, GraphWork):
        raise PlanError("deals the neurons of chains of dense layers; a transformer is none", field="training.kind", value="ist")
    if work.layout.pp > 1:
        raise PlanError("trains whole subnets on each replica", field="layout.pp", value=work.layout.pp)
    weights = np.flatnonzero(work.gradient_bytes > 0)
    for op in weights.tolist():
        if not DENSE.search(work.graph.op_names[op]):
            problem = f"deals the neurons of chains of dense layers; {work.graph.name} has the op {work.graph.op_names[op]}"
            raise PlanError(problem, field="training.kind", value="ist")
    shares = np.full(work.graph.num_ops, 1.0 / num_workers)
    shares[weights[1:-1]] = 1.0 / num_workers**2
    return shares
