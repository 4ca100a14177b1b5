"""What is measured over namespaces, and what is predicted for it: clusters, their jobs, and the flows of gloo's algorithms.

A scene's cluster is described once, at the rate of its shapers. The namespaces are built from it as it stands; the model
gets the same cluster with the share of the bandwidth that headers leave, `GOODPUT`, and a latency, see `modelled`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....clusters.cluster import Cluster
from ....costs import collectives
from ....costs.flows import transfer
from ....costs.network import RankNetwork
from ....costs.phases import Phases
from ....simulation.contention import concurrent_jobs
from ....simulation.contention.placed_job import PlacedJob
from ....simulation.step.execution import ExecutionGraph, TaskKind
from ....simulation.step.messages import Messages
from .gloo_jobs import Sending

FRAME_BYTES = 1514
"""A full Ethernet frame as a shaper counts it: MTU 1500 and the 14 bytes of the Ethernet header."""

PAYLOAD_BYTES = 1448
"""Of these, what TCP carries: 1500 less 20 of IPv4 and 32 of TCP with time stamps (RFC 7323)."""

GOODPUT = PAYLOAD_BYTES / FRAME_BYTES
"""Share of a shaper's rate that is payload. Acknowledgements the other way, one of 66 bytes for ten or more frames, take
less than 0.5 % and are left out."""

MIB = 2**20

TWO_JOBS, THREE_JOBS, CROSSING = "two jobs on one link", "three jobs on one link", "two jobs on crossing paths"
SHARED = (TWO_JOBS, THREE_JOBS, CROSSING)
"""The families of the cases in which jobs meet; the others are families by what is sent."""


@dataclass(frozen=True)
class Case:
    """What is sent at one time.

    Attributes:
        family: for the summary.
        sendings: of each job of the scene; None where it rests.
    """

    family: str
    sendings: tuple[Sending | None, ...]


@dataclass(frozen=True)
class Scene:
    """A cluster, its jobs and what they send.

    Attributes:
        cluster: at the rate of the shapers, without latency.
        jobs: hosts of each job, in rank order.
        cases: in the order in which they are measured.
    """

    cluster: Cluster
    jobs: tuple[tuple[int, ...], ...]
    cases: tuple[Case, ...]

    @property
    def name(self) -> str:
        """Name of the scene's cluster."""
        return self.cluster.name


def star(num_hosts: int, mbit_per_s: float) -> Cluster:
    """Hosts around one switch."""
    return _clos(f"star-{num_hosts}-{mbit_per_s:g}mbit", num_hosts, num_hosts, mbit_per_s)


def dumbbell(hosts_per_side: int, mbit_per_s: float) -> Cluster:
    """Two switches with hosts, joined by one link (over a third switch) of the rate of a single host."""
    name = f"dumbbell-{hosts_per_side}+{hosts_per_side}-{mbit_per_s:g}mbit"
    return _clos(name, 2 * hosts_per_side, hosts_per_side, mbit_per_s)


def row(num_switches: int, hosts_per_switch: int, mbit_per_s: float) -> Cluster:
    """Switches with hosts, each joined to a switch in the middle by a link of the rate of a single host."""
    name = f"row-{num_switches}x{hosts_per_switch}-{mbit_per_s:g}mbit"
    return _clos(name, num_switches * hosts_per_switch, hosts_per_switch, mbit_per_s)


def modelled(cluster: Cluster, latency_s: float) -> Cluster:
    """The cluster as the model gets it.

    Args:
        cluster: at the rate of the shapers.
        latency_s: of each message. It is the time of software at both ends, so half of it stands at each card.
    """
    data = cluster.to_data()
    topology: dict[str, Any] = data["topology"]
    topology["nic_bandwidth_gbytes_per_s"] *= GOODPUT
    topology["nic_latency_us"] = latency_s * 1e6 / 2
    return Cluster.from_data(data)


def gloo_phases(network: RankNetwork, sending: Sending) -> Phases:
    """The flows of one message by gloo's algorithms.

    An all-reduce is a ring in which each rank sends to the one before it, in segments of which two are under way; an
    all-gather is a ring the other way around.

    Source:
        gloo/allreduce.cc (``ring``, the default algorithm) and gloo/allgather.cc of github.com/pytorch/gloo.
    """
    ranks = np.arange(len(network.devices))
    ring = collectives.chosen("ring")
    if sending.kind == "all-reduce":
        return ring.phases(network, ranks[::-1], sending.payload_bytes, "all_reduce")
    if sending.kind == "all-gather":
        return ring.phases(network, ranks, sending.payload_bytes, "all_gather")
    return transfer(network, 0, 1, sending.payload_bytes)


def predicted_s(cluster: Cluster, jobs: Sequence[Sequence[int]], sendings: Sequence[Sending | None]) -> list[float]:
    """Seconds of each job from its own start, all of them side by side on one network; 0 where a job rests.

    Args:
        cluster: see `modelled`.
        jobs: devices of each job, in rank order.
        sendings: what each job sends.
    """
    placed = [
        PlacedJob(_execution(cluster, devices, sending), np.array(devices), sending.start_s)
        for devices, sending in zip(jobs, sendings, strict=True)
        if sending is not None
    ]
    finish_s = iter([float(finish_s.max()) for _, finish_s in concurrent_jobs.schedule(placed, cluster)])
    return [0.0 if sending is None else next(finish_s) for sending in sendings]


def _execution(cluster: Cluster, devices: Sequence[int], sending: Sending) -> ExecutionGraph:
    """The messages of a job, one after another."""
    network = RankNetwork(cluster, np.array(devices))
    phases = gloo_phases(network, sending)
    t = sending.times
    messages = Messages.of([range(len(devices))] * t, [phases] * t)
    return ExecutionGraph(
        num_ranks=len(devices),
        kind=np.full(t, TaskKind.COLLECTIVE, np.int8),
        duration_s=np.zeros(t),
        priority=np.arange(t, dtype=np.float64),
        stream_start=np.zeros(t + 1, np.int64),
        streams=np.zeros(0, np.int64),
        edges=np.stack([np.arange(t - 1), np.arange(1, t)], axis=1),
        op=np.zeros(t, np.int64),
        rank=np.zeros(t, np.int64),
        is_backward=np.zeros(t, np.bool_),
        payload_bytes=np.full(t, float(sending.payload_bytes)),
        describe_messages=lambda: messages,
    )


def scenes(*, quick: bool = False) -> tuple[Scene, ...]:
    """What is measured: stars of two, four and eight hosts, jobs that share one link, and jobs whose paths cross."""
    if quick:
        return (
            _alone(star(2, 1000), ("send/recv", "all-reduce"), (1, 4, 16)),
            _alone(star(4, 100), ("all-reduce", "all-gather"), (1, 4)),
            _shared(2, 100, [(_reduce(4), _reduce(4)), (_reduce(2), _reduce(8))]),
        )
    return (
        _alone(star(2, 1000), ("send/recv", "all-reduce", "all-gather"), (1, 4, 16, 64)),
        _alone(star(4, 1000), ("all-reduce", "all-gather"), (1, 4, 16, 64)),
        _alone(star(8, 1000), ("all-reduce", "all-gather"), (1, 4, 16, 64)),
        _alone(star(2, 100), ("send/recv", "all-reduce", "all-gather"), (1, 4, 16)),
        _alone(star(4, 100), ("send/recv", "all-reduce", "all-gather"), (1, 4, 16)),
        _alone(star(8, 100), ("all-reduce", "all-gather"), (1, 4, 16)),
        _shared(
            2,
            100,
            [
                (_reduce(8), _reduce(8)),
                (_reduce(4), _reduce(16)),
                (_reduce(16), Sending("send/recv", 4 * MIB)),
                (_reduce(12), _reduce(4, start_s=0.5)),
                (_reduce(1, times=8), _reduce(4, times=4)),
            ],
        ),
        _shared(4, 100, [(_reduce(8), _reduce(8)), (_gather(16), _reduce(8)), (_reduce(4), _reduce(8, start_s=0.3))]),
        _shared(2, 1000, [(_reduce(16), _reduce(16)), (_reduce(64), _reduce(64)), (_reduce(16), _reduce(64))]),
        _shared(
            3,
            100,
            [
                (_reduce(8), _reduce(8), _reduce(8)),
                (_reduce(2), _reduce(4), _reduce(8)),
                (_reduce(8), Sending("send/recv", 4 * MIB), _reduce(4, start_s=0.4)),
            ],
        ),
        _shared(3, 1000, [(_reduce(32), _reduce(32), _reduce(32)), (_reduce(16), _reduce(32), _reduce(64))]),
        _crossing(100, [(_reduce(8), _reduce(8)), (_reduce(4), _reduce(12)), (_reduce(8), _reduce(4, start_s=0.3))]),
        _crossing(1000, [(_reduce(32), _reduce(32)), (_reduce(16), _reduce(64))]),
    )


def _alone(cluster: Cluster, kinds: Sequence[str], sizes_mib: Sequence[int]) -> Scene:
    """One job on all hosts."""
    cases = tuple(Case(kind, (Sending(kind, size * MIB),)) for kind in kinds for size in sizes_mib)
    return Scene(cluster, (tuple(range(cluster.num_hosts)),), cases)


def _shared(hosts_per_side: int, mbit_per_s: float, cases: Sequence[tuple[Sending, ...]]) -> Scene:
    """Two or three jobs, each with as many of the hosts of either side."""
    cluster, num_jobs = dumbbell(hosts_per_side, mbit_per_s), len(cases[0])
    each = hosts_per_side // num_jobs
    first = [side * hosts_per_side + host for side in (0, 1) for host in range(each)]
    jobs = tuple(tuple(host + job * each for host in first) for job in range(num_jobs))
    return Scene(cluster, jobs, tuple(Case(THREE_JOBS if num_jobs == 3 else TWO_JOBS, sent) for sent in cases))


def _crossing(mbit_per_s: float, pairs: Sequence[tuple[Sending, Sending]]) -> Scene:
    """Two jobs of two hosts; one of each is at the switch in the middle of three, the others at the outer ones."""
    return Scene(row(3, 2, mbit_per_s), ((0, 2), (3, 4)), tuple(Case(CROSSING, pair) for pair in pairs))


def _reduce(size_mib: int, *, times: int = 1, start_s: float = 0.0) -> Sending:
    return Sending("all-reduce", size_mib * MIB, times, start_s)


def _gather(size_mib: int) -> Sending:
    return Sending("all-gather", size_mib * MIB)


def _clos(name: str, num_hosts: int, hosts_per_leaf: int, mbit_per_s: float) -> Cluster:
    """Leaves below one spine, each joined to it by a link of the rate of one host."""
    return Cluster.from_data(
        {
            "name": name.replace("+", "-"),
            "device": "a100",  # nothing is computed
            "topology": {
                "kind": "clos",
                "num_hosts": num_hosts,
                "hosts_per_leaf": hosts_per_leaf,
                "num_spines": 1,
                "oversubscription": float(hosts_per_leaf),
                "spine_latency_us": 0.0,
                "devices_per_host": 1,
                "intra_host_bandwidth_gbytes_per_s": 100.0,  # no message stays on a host
                "intra_host_latency_us": 0.0,
                "nics_per_host": 1,
                "nic_bandwidth_gbytes_per_s": mbit_per_s / 8000,
                "nic_latency_us": 0.0,
            },
        }
    )
