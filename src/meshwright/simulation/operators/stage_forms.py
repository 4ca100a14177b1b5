"""The published forms of throughput that are of stages: PipeDream's and Piper's, of given stages and of a placement.

A placement is stages of one replica each: its devices, in the order in which a micro-batch passes them. Then PipeDream's form
counts the ops of a stage and twice what it gets and hands on (there and back), each by itself, whichever is largest; Piper's
counts them together, and a tensor as often as edges that carry it are cut. Neither has latencies, and both have one bandwidth.

Source:
    Narayanan et al., "PipeDream: generalized pipeline parallelism for DNN training", SOSP 2019, section 3.1; Tarnawski,
    Narayanan, Phanishayee, "Piper: multidimensional planner for DNN parallelization", NeurIPS 2021, section 3.

Legend of shapes: ``n`` ops, ``m`` devices, ``e`` edges.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...errors import PlanError
from ...jobs.graph import JobGraph
from .instance import OperatorInstance

MOST_SETS = 5_000
"""Sets of devices that are looked at for the best order of stages; all of those of twelve devices."""
StageOps = tuple[NDArray[np.bool_], int]
"""Whether each op is in a stage, ``(n,)``, and its replicas."""


def pipedream_form_s(instance: OperatorInstance, device_of: NDArray[np.int64]) -> float:
    """Seconds between two minibatches of a placement by PipeDream's form; devices are stages of one replica, in their best order.

    Args:
        instance: what is placed.
        device_of: device of each op, ``(n,)``.

    Raises:
        PlanError: the devices are no stages in order, their links are not alike, one of them is a host's processor, or more than
            `MOST_SETS` sets of them would be looked at for their best order.
    """
    bandwidth = shared_bandwidth(instance, np.unique(device_of))
    computed_s = max(_computed_s(instance, device_of, ops) for ops, _ in stages_of(instance, device_of))
    return max(computed_s, 2.0 * _least_handed_bytes(instance, device_of) / bandwidth)


def piper_form_s(instance: OperatorInstance, device_of: NDArray[np.int64]) -> float:
    """Seconds for each micro-batch of a placement by Piper's form; devices are stages of one replica of one device.

    Args:
        instance: what is placed.
        device_of: device of each op, ``(n,)``.

    Raises:
        PlanError: as `pipedream_form_s`, but for the last.
    """
    stages, bandwidth = stages_of(instance, device_of), shared_bandwidth(instance, np.unique(device_of))
    edges = forward_edges(instance)
    value_s = 0.0
    for ops, _ in stages:
        cut = ops[instance.edges[edges, 0]] != ops[instance.edges[edges, 1]]
        sent = 2.0 * float(instance.edge_bytes[edges][cut].sum()) / bandwidth
        value_s = max(value_s, _computed_s(instance, device_of, ops) + sent)
    return value_s


def pipedream_stages_s(graph: JobGraph, stages: Sequence[StageOps], bandwidth_bytes_per_s: float) -> float:
    """Seconds between two minibatches of given stages of a profile, on machines of one level, by PipeDream's form.

    With c seconds of a stage's ops, p bytes of their parameters, m replicas, and o bytes read later than where it begins and
    ends, a stage takes the largest of ``(c + 4 (m - 1) p / (B m)) / m`` and, unless it is the first, ``2 o / (B m)`` of both
    its ends.

    Args:
        graph: the profile.
        stages: in order.
        bandwidth_bytes_per_s: B, between machines.

    Raises:
        PlanError: the stages do not hold each op once, or an edge leads back.
    """
    stage_of = _stage_of(stages, graph.num_ops)
    check_stages(stages, graph.edges, graph.op_names)
    value_s, last = 0.0, len(stages) - 1
    for number, (ops, replicas) in enumerate(stages):
        seconds = float((graph.forward_s + graph.backward_s)[ops].sum())
        parameters = float(graph.parameter_bytes[ops].sum())
        exchanged_s = 4.0 * (replicas - 1) * parameters / (bandwidth_bytes_per_s * replicas)
        value_s = max(value_s, (seconds + exchanged_s) / replicas)
        for at in (number, number + 1) if 0 < number < last else (number,) if number else ():
            crossing = (stage_of[graph.edges[:, 0]] < at) & (stage_of[graph.edges[:, 1]] >= at)
            sent = float(graph.activation_bytes[np.unique(graph.edges[crossing, 0])].sum())
            value_s = max(value_s, 2.0 * sent / (bandwidth_bytes_per_s * replicas))
    return value_s


def check_stages(stages: Sequence[StageOps], edges: NDArray[np.int64], op_names: Sequence[str]) -> None:
    """Refuse stages that lack an op or have one twice, or between which an edge ``(e, 2)`` leads backwards.

    Raises:
        PlanError: with the first op for which it does not hold.
    """
    times = np.array([ops for ops, _ in stages]).sum(axis=0)
    if (times != 1).any():
        op = int(np.flatnonzero(times != 1)[0])
        raise PlanError("each op is in one stage", field="stages", value=f"{op_names[op]} is in {times[op]}")
    stage_of = _stage_of(stages, len(op_names))
    back = np.flatnonzero(stage_of[edges[:, 0]] > stage_of[edges[:, 1]]) if len(edges) else np.zeros(0, np.int64)
    if back.size:
        source, reader = (op_names[op] for op in edges[back[0]].tolist())
        raise PlanError(f"{reader} is in an earlier stage than {source}, whose output it reads", field="stages")


def stages_of(instance: OperatorInstance, device_of: NDArray[np.int64]) -> list[StageOps]:
    """Devices that have ops as stages of one replica, in the order in which a micro-batch passes them.

    Raises:
        PlanError: two of them wait for each other.
    """
    links = _links(instance, device_of)
    left = list(dict.fromkeys(device_of[instance.topological].tolist()))
    found = []
    while left:
        free = next((one for one in left if not any((other, one) in links for other in left)), None)
        if free is None:
            names = " and ".join(instance.device_names[each] for each in left[:2])
            more = f" and {len(left) - 2} more" if len(left) > 2 else ""
            raise PlanError(f"{names}{more} wait for each other, so they are no stages in order", field="device_of")
        found.append((device_of == free, 1))
        left.remove(free)
    return found


def shared_bandwidth(instance: OperatorInstance, devices: NDArray[np.int64]) -> float:
    """Bytes a second between any two of some devices; infinite if there is only one.

    Raises:
        PlanError: links differ, or a device is a host's processor, whose side costs nothing.
    """
    hosts = devices[instance.is_host[devices]]
    if hosts.size:
        raise PlanError("is a host's processor, and this form has none", field=instance.device_names[int(hosts[0])])
    apart = ~np.eye(len(devices), dtype=np.bool_)
    found = instance.bandwidth_bytes_per_s[np.ix_(devices, devices)][apart]
    if found.size and (found != found[0]).any():
        told = f"{found.min() / 1e9:.3g} to {found.max() / 1e9:.3g} GB/s"
        raise PlanError("this form has one bandwidth between all devices", field="bandwidth_bytes_per_s", value=told)
    return float(found[0]) if found.size else float("inf")


def forward_edges(instance: OperatorInstance) -> NDArray[np.int64]:
    """Numbers of the edges from forward op to forward op; backward ops pass the stages of theirs in reverse."""
    return np.flatnonzero(~instance.is_backward[instance.edges].any(axis=1))


def _links(instance: OperatorInstance, device_of: NDArray[np.int64]) -> set[tuple[int, int]]:
    """Pairs of devices of which the first must be an earlier stage."""
    source, target, back = instance.edges[:, 0], instance.edges[:, 1], instance.is_backward
    has_forward = np.zeros(instance.num_groups, np.bool_)
    has_forward[instance.group[~back]] = True
    has_both = has_forward[instance.group[source]] & has_forward[instance.group[target]]
    # Backward ops that have no forward one to go with pass the stages in reverse.
    forward, reverse = ~back[target], back[source] & back[target] & ~has_both
    ends = np.concatenate([device_of[instance.edges[forward]], device_of[instance.edges[reverse]][:, ::-1]])
    return {(a, b) for a, b in ends.tolist() if a != b}


def _least_handed_bytes(instance: OperatorInstance, device_of: NDArray[np.int64]) -> float:
    """The most bytes that are handed on between two stages, in the order of the stages in which that is least.

    From the empty set of devices to all of them, each step one that has nothing left before it: first the way whose most is
    least so far, of those the longest. Just before and just behind each device, whatever the order, all is handed on that goes
    from devices that must be earlier to such that must be later. The most is at least that, and ways below it count as equal.

    Raises:
        PlanError: that many sets of devices were looked at.
    """
    edges, links = forward_edges(instance), _links(instance, device_of)
    bit = {one: 1 << place for place, one in enumerate(np.unique(device_of).tolist())}
    readers: dict[tuple[int, int], int] = {}
    ends = device_of[instance.edges[edges]].tolist()
    for (source, reader), tensor in zip(ends, instance.edge_tensor[edges].tolist(), strict=True):
        readers[source, tensor] = readers.get((source, tensor), 0) | bit[reader]
    sizes: dict[tuple[int, int], float] = {}
    for (source, tensor), read in readers.items():
        sizes[bit[source], read] = sizes.get((bit[source], read), 0.0) + float(instance.tensor_bytes[tensor])
    tensors = [(source, read, size) for (source, read), size in sizes.items() if read != source]
    before = dict.fromkeys(bit.values(), 0)
    for ops, _ in stages_of(instance, device_of):
        one = int(device_of[ops][0])
        for other in (a for a, b in links if b == one):
            before[bit[one]] |= bit[other] | before[bit[other]]
    everything, least = (1 << len(bit)) - 1, 0.0
    for one, earlier in before.items():
        later = sum(other for other, its in before.items() if its & one)
        for first, then in ((earlier, one | later), (earlier | one, later)):
            least = max(least, sum(size for source, read, size in tensors if source & first and read & then))
    queue, seen = [(least, 0, 0)], set[int]()
    while True:
        most, _, done = heapq.heappop(queue)
        if done == everything:
            return most
        if done in seen:
            continue
        seen.add(done)
        if len(seen) > MOST_SETS:
            raise PlanError(f"{len(bit)} devices side by side are stages in too many orders", field="device_of")
        for one, earlier in before.items():
            if not done & one and not earlier & ~done:
                after = done | one
                handed = sum(size for source, read, size in tensors if source & after and read & ~after)
                heapq.heappush(queue, (max(most, handed), -after.bit_count(), after))


def _computed_s(instance: OperatorInstance, device_of: NDArray[np.int64], ops: NDArray[np.bool_]) -> float:
    members = np.flatnonzero(ops)
    return float(instance.times_s[members, device_of[members]].sum())


def _stage_of(stages: Sequence[StageOps], n: int) -> NDArray[np.int64]:
    stage_of = np.full(n, -1, np.int64)
    for number, (ops, _) in enumerate(stages):
        stage_of[ops] = number
    return stage_of
