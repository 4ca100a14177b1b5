"""Switches of the five layers in the case that each is made for: flows, deadlines, trees, split messages, jobs that take turns.

Sources:
    Co-designs: Wei et al., "Communication optimization for distributed training: architecture, advances, and opportunities",
    2024.
    Two equal jobs that send half of the time: Rajasekaran et al., "CASSINI: network-aware job scheduling in machine learning
    clusters", 2024.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ....clusters.cluster import Cluster, load_cluster
from ....costs.collectives.circuits import Circuits
from ....costs.collectives.direct import RING
from ....costs.collectives.joint_split import JointSplit
from ....costs.collectives.synthesised import Synthesised
from ....costs.network import RankNetwork
from ....costs.phases import Flow, Phase
from ....simulation.contention.concurrent_jobs import schedule
from ....simulation.contention.placed_job import PlacedJob
from ....simulation.fleet.sharing import CONSTANTS, step_times
from ....simulation.fleet.state import SharingMode
from ....simulation.step import kernel
from ....simulation.step.deadlines import by_deadline
from ....simulation.step.execution import ExecutionGraph, TaskKind
from ....simulation.step.messages import Messages
from ....simulation.training.rounds import Task, WorkerRounds
from ..published_figures import PublishedFigure
from .uneven_networks import matrix_cluster

STEPS = 40
LINK_BYTES_PER_S = 4e9

DOUBLE = ((0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (2, 6), (3, 7), (4, 7), (5, 6), (6, 7))
SINGLE = ((0, 1), (0, 2), (1, 3), (4, 5), (4, 6), (5, 7))
"""Pairs of a DGX-1V with two NVLinks of 25 GB/s a direction, and with one; the others, over PCIe, take 1 GB/s here."""


def figures() -> Iterator[PublishedFigure]:
    """Yield each switch in its home case."""
    yield from _turns()
    yield from _orders()
    yield from _trees()
    yield from _two_ways()
    yield from _circuits()


def _turns() -> Iterator[PublishedFigure]:
    """Yield two jobs of 0.5 s of computation and 0.5 s on a link that they share, by flows and as a fleet sees them."""
    case = "two jobs, half of the time on a link"
    cluster = _cluster({"kind": "single-host", "num_devices": 4, "fabric": "bus", **_LINK})
    for name, second_s, meets in (("bursts meet", 0.0, True), ("in turns", 0.5, False)):
        jobs = [PlacedJob(_half_sending(), np.array(devices), at) for devices, at in (([0, 1], 0.0), ([2, 3], second_s))]
        ended_s = max(float(finish_s.max()) for _, finish_s in schedule(jobs, cluster))
        yield _bound(case, f"{name}, by flows", STEPS / ended_s, meets)
        step_s = np.zeros(2)
        loads = np.array([0, 1, 2]), np.zeros(2, np.int64), np.full(2, 0.5), np.ones(2)
        mode = SharingMode.FAIR if meets else SharingMode.INTERLEAVED
        step_times(2, np.ones(2), np.zeros(2), *loads, CONSTANTS, int(mode), step_s)
        yield _bound(case, f"{name}, in a fleet", 1.0 / float(step_s.max()), meets)


def _bound(case: str, name: str, speed: float, meets: bool) -> PublishedFigure:
    """Require of the speed alone at most 80 % where bursts meet, at least 95 % where they do not."""
    figure = f"{name}, of the speed alone"
    if meets:
        return PublishedFigure(case, figure, speed, "0.80", 1e-9, is_limit=True)
    return PublishedFigure(case, figure, speed, "0.95", 1e-9, is_floor=True)


def _orders() -> Iterator[PublishedFigure]:
    """Yield the gradients of 3 s that are ready first, and an expert all-to-all of 1 s that a pass of 4 s wants."""
    for sharing, first, then in (("one message at a time", "fifo", "deadline"), ("flows", "fair", "edf")):
        step_s = []
        for choice in (first, then):
            execution = _experts(holds=sharing != "flows")
            if sharing == "flows":
                cluster = _cluster({"kind": "single-host", "num_devices": 2, "fabric": "switch", **_LINK})
                priority: Literal["fair", "edf"] = "edf" if choice == "edf" else "fair"
                ((_, finish_s),) = schedule([PlacedJob(execution, np.arange(2), flows_priority=priority)], cluster)
            else:
                _, finish_s = kernel.schedule(by_deadline(execution) if choice == "deadline" else execution)
            step_s.append(float(finish_s.max()))
        case = f"expert all-to-all and gradients, {sharing}"
        yield PublishedFigure(case, f"step by {then} over step by {first}", step_s[1] / step_s[0], "1.0", 1e-9, is_limit=True)


def _trees() -> Iterator[PublishedFigure]:
    """Yield an all-reduce of 1 GB on the NVLink cube mesh of a DGX-1V, against a ring along its double links."""
    speed = cube_mesh()
    network = RankNetwork(matrix_cluster(speed, 8, "v100"), np.arange(8))
    along = np.array([0, 3, 2, 1, 5, 6, 7, 4])
    trees, ring = (one.time_s(network, along, 1e9) for one in (Synthesised(), RING))
    cut = float((speed.sum(axis=1) - 1.0).min())  # of one device from all others, GB/s
    yield PublishedFigure("cube mesh", "rate of trees over a ring's", ring / trees, "1.0", 1e-9, is_floor=True)
    yield PublishedFigure("cube mesh", "rate of trees over the least cut", 1.0 / trees / cut, "1.0", 1e-9, is_limit=True)


def cube_mesh() -> NDArray[np.float64]:
    """Return the bandwidth of each pair of a DGX-1V, GB/s."""
    speed = np.full((8, 8), 1.0)
    for bandwidth, pairs in ((50.0, DOUBLE), (25.0, SINGLE)):
        for a, b in pairs:
            speed[a, b] = speed[b, a] = bandwidth
    return speed


def _two_ways() -> Iterator[PublishedFigure]:
    """Send 100 MB from one A100 host to another: by its own card alone, and by the seven that idle as well, at the balance."""
    size, pair, ranks = 1e8, RankNetwork(load_cluster("preset:dgx-a100-8x8"), np.array([0, 8])), np.arange(2)
    split = JointSplit()
    own, both = (one.time_s(pair, ranks, size, "send_recv") for one in (RING, split))
    yield PublishedFigure("message by two ways", "seconds over the own card's", both / own, "1.0", 1e-9, is_limit=True)
    # 2.7 us + x S / 25 GB/s = 3.9 us + (1 - x) S / 175 GB/s
    balance = (1.2e-6 + size / 175e9) / (size / 25e9 + size / 175e9)
    ways = split.split(pair, ranks, "send_recv")
    result = 1.0 if ways is None else ways.share(size)
    yield PublishedFigure("message by two ways", "share on the own card", result, f"{balance:.6f}", 1e-5)


def _circuits() -> Iterator[PublishedFigure]:
    """Send 100 MB of an all-to-all over eight hosts of four ports of 12.5 GB/s, by circuits set up once or per phase."""
    ports = {"ports_per_host": 4, "port_bandwidth_gbytes_per_s": 12.5, "circuit_latency_us": 5.0}
    inside = {"devices_per_host": 1, "intra_host_bandwidth_gbytes_per_s": 300.0, "intra_host_latency_us": 0.0}
    for turn_us, phase_us in ((20.0, 275.0), (300.0, None)):
        topology = {"kind": "optical", "num_hosts": 8, "reconfiguration_us": turn_us, **ports, **inside}
        network, ranks = RankNetwork(_cluster(topology), np.arange(8)), np.arange(8)
        once, changing = (Circuits(one).time_s(network, ranks, 1e8, "all_to_all") for one in ("once", "per-phase"))
        if phase_us is not None:  # 12.5 MB at 50 GB/s, a latency and a turn, seven times
            yield PublishedFigure("circuits that turn in 20 us", "seven shifts, us", changing * 1e6, f"{7 * phase_us}", 1e-9)
            name = "all-to-all by shifts over one along a ring"
        else:  # half of the ports carry what the others' turn takes: 500 us a phase, and the first turn
            name = "all-to-all by halves of the ports over one along a ring"
        case = f"circuits that turn in {turn_us:g} us"
        yield PublishedFigure(case, name, changing / once, "1.0", 1e-9, is_limit=True)


_LINK = {"bandwidth_gbytes_per_s": LINK_BYTES_PER_S / 1e9, "latency_us": 0.0}


def _cluster(topology: dict[str, object]) -> Cluster:
    return Cluster.from_data({"name": "home-case", "device": "v100", "topology": topology})


def _half_sending() -> ExecutionGraph:
    """Return the steps of 0.5 s of computation and 0.5 s on the link."""
    return _graph([(0.5, number % 2 == 1, [number - 1] if number else []) for number in range(2 * STEPS)], holds=False)


def _experts(*, holds: bool) -> ExecutionGraph:
    """Return a computation of 1 s; gradients and all-to-all behind it; a pass behind the all-to-all; the update behind all."""
    return _graph([(1.0, False, []), (3.0, True, [0]), (1.0, True, [0]), (4.0, False, [2]), (0.0, False, [1, 3])], holds=holds)


def _graph(tasks: Sequence[tuple[float, bool, Sequence[int]]], *, holds: bool) -> ExecutionGraph:
    """Return the tasks of rank 0 in their order: seconds, whether it is a message, and tasks before it.

    Messages go to rank 1 and hold the communication stream or not.
    """
    rounds = WorkerRounds(2)
    for seconds, is_message, after in tasks:
        kind = TaskKind.COLLECTIVE if is_message else TaskKind.COMPUTE
        rounds.put(Task(kind, seconds, [0, 1] if is_message else [0], [2] * holds if is_message else [0]), after)
    sent = [(Phase(0.0, (Flow(0, 1, seconds * LINK_BYTES_PER_S),)),) if sends else () for seconds, sends, _ in tasks]
    messages = Messages.from_members([(0, 1) if sends else () for _, sends, _ in tasks], sent)
    return replace(rounds.execution(), describe_messages=lambda: messages)
