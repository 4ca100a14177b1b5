"""Execution graphs, clusters and jobs side by side, made to measure or drawn from a seed."""

import numpy as np

from meshwright.costs.phases import Flow, Phase
from meshwright.simulation.contention.placed_job import PlacedJob
from meshwright.simulation.step.execution import ExecutionGraph
from meshwright.simulation.step.messages import Messages

from ..samples import sample_clusters
from ..samples.sample_clusters import cluster_of, matrix, torus

SWITCH = {"kind": "single-host", "fabric": "switch", "num_devices": 8, "bandwidth_gbytes_per_s": 4.0, "latency_us": 0.0}


def execution_of(
    durations_s, edges=(), *, num_ranks=2, streams=None, ranks=None, members=None, phases=None, priority=None, kind=None
):
    """Tasks that hold the compute stream of their rank, or those given; a task with members or phases is a message."""
    t = len(durations_s)
    ranks = [0] * t if ranks is None else ranks
    members = [()] * t if members is None else members
    phases = [()] * t if phases is None else phases
    is_message = [bool(members[i] or phases[i]) for i in range(t)]
    if streams is None:
        streams = [[] if is_message[i] else [ranks[i]] for i in range(t)]
    messages = Messages.from_members(members, phases)
    return ExecutionGraph(
        num_ranks=num_ranks,
        kind=np.array(is_message if kind is None else kind, np.int8),
        duration_s=np.array(durations_s, np.float64),
        priority=np.zeros(t) if priority is None else np.array(priority, np.float64),
        stream_start=np.cumsum([0, *map(len, streams)]),
        streams=np.array([s for uses in streams for s in uses], np.int64),
        edges=np.array(edges, np.int64).reshape(-1, 2),
        op=np.zeros(t, np.int64),
        rank=np.array(ranks, np.int64),
        is_backward=np.zeros(t, np.bool_),
        payload_bytes=np.zeros(t),
        describe_messages=lambda: messages,
    )


def sent(sender, receiver, payload_bytes, latency_s=0.0):
    """One phase of one flow."""
    return (Phase(latency_s, (Flow(sender, receiver, payload_bytes),)),)


def clos(**changes):
    """Four hosts of one device, two to a leaf, one spine: 4 GB/s into a leaf and 2 GB/s out of it unless changed."""
    described = sample_clusters.clos(4, 1, inside=(8.0, 0.0), card=(2.0, 0.0), oversubscription=2.0, spine_latency_us=0.0)
    return cluster_of({**described, **changes})


def drawn_cluster(rng):
    """One of five kinds with eight devices and bandwidths of few different values."""
    kind = int(rng.integers(5))
    if kind == 0:
        return cluster_of({**SWITCH, "fabric": str(rng.choice(["switch", "bus"]))})
    if kind == 1:
        return cluster_of(matrix(rng.choice([1.0, 2.0, 3.0], (8, 8))))
    if kind == 2:
        return clos(num_hosts=8, num_spines=int(rng.integers(1, 3)), oversubscription=float(rng.choice([1.0, 3.0])))
    if kind == 3:
        return cluster_of(torus(4, 2, link=(2.0, 0.0)))
    hosts = {"num_hosts": 4, "devices_per_host": 2, "hosts_per_leaf": 1}
    return clos(**hosts, oversubscription=float(rng.choice([1.0, 4.0])))


def drawn_execution(rng, num_tasks, num_ranks):
    """Many ties and zeros; messages of up to three phases, with and without flows, streams held and kept busy."""
    pairs = rng.integers(0, max(num_tasks, 1), (int(rng.integers(0, 2 * num_tasks + 1)), 2))
    pairs = np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1)
    edges = rng.permutation(num_tasks)[pairs] if num_tasks else pairs
    whole = rng.random() < 0.7
    seconds = rng.choice([0.0, 0.25, 1.0, 1.5], num_tasks) if whole else rng.choice([0.0, 1.0], num_tasks) * rng.random(num_tasks)
    streams, members, phases, ranks = [], [], [], []
    for _ in range(num_tasks):
        if rng.random() < 0.5:
            ranks.append(int(rng.integers(num_ranks)))
            streams.append([ranks[-1]])
            members.append([])
            phases.append(())
            continue
        taking_part = rng.permutation(num_ranks)[: rng.integers(1, num_ranks + 1)].tolist()
        ranks.append(taking_part[0])
        streams.append([num_ranks + rank for rank in taking_part] if rng.random() < 0.3 else [])
        members.append(taking_part)
        phases.append(tuple(_drawn_phase(rng, num_ranks, whole) for _ in range(rng.integers(0, 4))))
    return execution_of(
        seconds,
        edges,
        num_ranks=num_ranks,
        streams=streams,
        ranks=ranks,
        members=members,
        phases=phases,
        priority=rng.integers(-2, 3, num_tasks),
    )


def _drawn_phase(rng, num_ranks, whole):
    flows = []
    for _ in range(rng.integers(0, 4)):
        payload = float(rng.integers(0, 5)) * 1e9 if whole else float(rng.random()) * 3e9
        flows.append(Flow(int(rng.integers(num_ranks)), int(rng.integers(num_ranks)), payload))
    return Phase(float(rng.choice([0.0, 0.0, 0.125, 0.5])), tuple(flows))


def drawn_jobs(seed, *, max_tasks=8, modes=(True, False), slowdowns=(1.0, 1.25, 2.0, 1.126)):
    """One to three jobs on one cluster."""
    rng = np.random.default_rng(seed)
    cluster = drawn_cluster(rng)
    free = rng.permutation(8).tolist()
    jobs = []
    for _ in range(rng.integers(1, 4)):
        num_ranks = int(rng.integers(1, 4))
        if len(free) < num_ranks:
            break
        devices, free = free[:num_ranks], free[num_ranks:]
        execution = drawn_execution(rng, int(rng.integers(0, max_tasks + 1)), num_ranks)
        start_s = float(rng.choice([0.0, 0.0, 0.25, 1.0, 1.7]))
        jobs.append(
            PlacedJob(
                execution,
                np.array(devices),
                start_s=start_s,
                is_fair=bool(rng.choice(modes)),
                overlap_slowdown=float(rng.choice(slowdowns)),
            )
        )
    return jobs, cluster
