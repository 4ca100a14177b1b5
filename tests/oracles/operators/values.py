"""Values of placements of ops in plain Python, from their definitions, and all placements of a small instance.

Nothing of the planners or of the compiled schedules is used: loops over ops, edges and devices as the definitions read.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from meshwright.jobs.graph import JobGraph
from meshwright.simulation.operators.instance import OperatorInstance
from meshwright.simulation.operators.piper_files import PiperInstance

Devices = Sequence[int]


def latency_s(instance: OperatorInstance, device_of: Devices, order: Sequence[int]) -> float:
    """End of the last op where every device runs its ops in this order."""
    free = [0.0] * instance.num_devices
    end: dict[int, float] = {}
    for op in order:
        device = device_of[op]
        start = free[device]
        for (source, target), size in zip(instance.edges.tolist(), instance.edge_bytes.tolist(), strict=True):
            if target == op:
                there = end[source]
                if device_of[source] != device:
                    there += instance.latency_s[device_of[source], device]
                    there += size / instance.bandwidth_bytes_per_s[device_of[source], device]
                start = max(start, there)
        end[op] = free[device] = start + instance.times_s[op, device]
    return float(max(end.values()))


def max_load_s(instance: OperatorInstance, device_of: Devices) -> float:
    """The largest sum of times, of own outputs that are read elsewhere, and of outputs of others that are read here."""
    loads = []
    edges = list(zip(instance.edges.tolist(), instance.edge_tensor.tolist(), strict=True))
    for device in range(instance.num_devices):
        load = sum(instance.times_s[op, device] for op in range(instance.num_ops) if device_of[op] == device)
        others = [each for each in range(instance.num_devices) if each != device]
        if others and not instance.is_host[device]:
            widths = [instance.bandwidth_bytes_per_s[device, each] for each in others]
            widths += [instance.bandwidth_bytes_per_s[each, device] for each in others]
            paid = {tensor for (a, b), tensor in edges if (device_of[a] == device) != (device_of[b] == device)}
            load += sum(instance.tensor_bytes[tensor] / max(widths) for tensor in paid)
        loads.append(load)
    return float(max(loads))


def topological_orders(instance: OperatorInstance) -> Iterator[tuple[int, ...]]:
    """All of them."""
    edges = instance.edges.tolist()

    def longer(begun: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(begun) == instance.num_ops:
            yield begun
        for op in range(instance.num_ops):
            if op not in begun and all(a in begun for a, b in edges if b == op):
                yield from longer((*begun, op))

    yield from longer(())


def legal_placements(instance: OperatorInstance) -> Iterator[tuple[int, ...]]:
    """All placements that keep groups together, run ops only where they can run, and fit the devices' memory."""
    n, m = instance.num_ops, instance.num_devices
    for by_group in itertools.product(range(m), repeat=instance.num_groups):
        device_of = tuple(by_group[instance.group[op]] for op in range(n))
        if not all(np.isfinite(instance.times_s[op, device_of[op]]) for op in range(n)):
            continue
        fits = True
        for device in range(m):
            here = [op for op in range(n) if device_of[op] == device]
            held = sum(instance.resident_bytes[op] for op in here) + max((instance.workspace_bytes[op] for op in here), default=0)
            fits = fits and held <= instance.memory_bytes[device]
        if fits:
            yield device_of


def is_pipeline(instance: OperatorInstance, device_of: Devices) -> bool:
    """Whether devices can be numbered so that no forward edge leads to an earlier one.

    The reversed edges of a backward op without a forward op in its group count as those of a forward op.
    """
    forward = {instance.group[op] for op in range(instance.num_ops) if not instance.is_backward[op]}
    behind = set()
    for a, b in instance.edges.tolist():
        if not instance.is_backward[b]:
            behind.add((device_of[a], device_of[b]))
        elif instance.is_backward[a] and not (instance.group[a] in forward and instance.group[b] in forward):
            behind.add((device_of[b], device_of[a]))
    behind = {(a, b) for a, b in behind if a != b}
    for numbering in itertools.permutations(range(instance.num_devices)):
        if all(numbering[a] < numbering[b] for a, b in behind):
            return True
    return False


def is_contiguous(instance: OperatorInstance, device_of: Devices) -> bool:
    """Whether no way along forward edges leads out of a device and back in; ops of a group are one place on it."""
    g = instance.num_groups
    forward = {instance.group[op] for op in range(instance.num_ops) if not instance.is_backward[op]}
    leads = [[False] * g for _ in range(g)]
    for a, b in instance.edges.tolist():
        first, second = instance.group[a], instance.group[b]
        if not instance.is_backward[b]:
            leads[first][second] = True
        elif instance.is_backward[a] and not (first in forward and second in forward):
            leads[second][first] = True
    for over, a, b in itertools.product(range(g), repeat=3):
        leads[a][b] = leads[a][b] or (leads[a][over] and leads[over][b])
    home = {instance.group[op]: device_of[op] for op in range(instance.num_ops)}
    return not any(
        leads[a][b] and leads[b][c] and home[a] == home[c] != home[b] for a, b, c in itertools.product(range(g), repeat=3)
    )


def stages_in_order(instance: OperatorInstance, device_of: Devices) -> Iterator[tuple[int, ...]]:
    """All orders of the devices that have ops in which no forward edge leads to an earlier one."""
    forward = {instance.group[op] for op in range(instance.num_ops) if not instance.is_backward[op]}
    for order in itertools.permutations(sorted(set(device_of))):
        place = {device: number for number, device in enumerate(order)}
        good = True
        for a, b in instance.edges.tolist():
            if not instance.is_backward[b]:
                good = good and place[device_of[a]] <= place[device_of[b]]
            elif instance.is_backward[a] and not (instance.group[a] in forward and instance.group[b] in forward):
                good = good and place[device_of[b]] <= place[device_of[a]]
        if good:
            yield order


def pipedream_placed_s(instance: OperatorInstance, device_of: Devices, bandwidth: float) -> float:
    """The least over orders of the devices of the largest of their times and of twice what one hands on; infinite if none."""
    best = float("inf")
    for order in stages_in_order(instance, device_of):
        value, done = 0.0, set()
        for device in order:
            value = max(value, sum(instance.times_s[op, device] for op in range(instance.num_ops) if device_of[op] == device))
            done.add(device)
            read = set()
            for (a, b), tensor in zip(instance.edges.tolist(), instance.edge_tensor.tolist(), strict=True):
                is_forward = not instance.is_backward[a] and not instance.is_backward[b]
                if is_forward and device_of[a] in done and device_of[b] not in done:
                    read.add(tensor)
            value = max(value, 2 * sum(instance.tensor_bytes[tensor] for tensor in read) / bandwidth)
        best = min(best, value)
    return best


def stage_lists(num_ops: int, edges: Sequence[Sequence[int]]) -> Iterator[tuple[tuple[int, ...], ...]]:
    """All ways to cut ops into stages in order, none of them empty and no edge leading back."""
    for number in range(1, num_ops + 1):
        for stage_of in itertools.product(range(number), repeat=num_ops):
            if len(set(stage_of)) == number and all(stage_of[a] <= stage_of[b] for a, b in edges):
                yield tuple(tuple(op for op in range(num_ops) if stage_of[op] == stage) for stage in range(number))


def parts(total: int, number: int) -> Iterator[tuple[int, ...]]:
    """All ways to share a total among some, one or more each."""
    for cuts in itertools.combinations(range(1, total), number - 1):
        yield tuple(b - a for a, b in itertools.pairwise((0, *cuts, total)))


def pipedream_s(graph: JobGraph, machines: int, bandwidth: float) -> float:
    """The least time of a pipeline on all machines of one level, over all cuts and replicas; only what is read is handed on."""
    edges = graph.edges.tolist()
    best = float("inf")
    for stages in stage_lists(graph.num_ops, edges):
        for replicas in parts(machines, len(stages)):
            value, done = 0.0, set()
            for number, (ops, m) in enumerate(zip(stages, replicas, strict=True)):
                work = sum(graph.forward_s[op] + graph.backward_s[op] for op in ops)
                parameters = sum(graph.parameter_bytes[op] for op in ops)
                value = max(value, (work + 4 * (m - 1) * parameters / (bandwidth * m)) / m)
                before = sum(graph.activation_bytes[op] for op in {a for a, b in edges if a in done and b not in done})
                done |= set(ops)
                after = sum(graph.activation_bytes[op] for op in {a for a, b in edges if a in done and b not in done})
                if number:
                    value = max(value, 2 * before / (bandwidth * m), 2 * after / (bandwidth * m))
            best = min(best, value)
    return best


def piper_s(instance: PiperInstance) -> float:
    """The least value over all cuts, degrees and options; infinite where nothing fits."""
    edges = instance.edges.tolist()
    degrees = instance.degrees.tolist()
    best = float("inf")
    batches = instance.num_micro_batches
    for stages in stage_lists(len(instance.op_names), edges):
        most = instance.num_devices
        allowed = [d for d in range(1, most + 1) if batches % d == 0]
        for copies in itertools.product(allowed, repeat=len(stages)):
            if sum(copies) > min(most, batches):
                continue
            for choice in itertools.product(range(len(degrees)), repeat=len(stages)):
                if sum(d * degrees[t] for d, t in zip(copies, choice, strict=True)) > most:
                    continue
                value = 0.0
                for number, (ops, d, t) in enumerate(zip(stages, copies, choice, strict=True)):
                    in_flight = -(-sum(copies[number:]) // d)
                    value = max(value, _stage_s(instance, ops, d, t, in_flight, edges))
                best = min(best, value)
    return best


def _stage_s(
    instance: PiperInstance, ops: Sequence[int], d: int, t: int, in_flight: int, edges: Sequence[Sequence[int]]
) -> float:
    best = float("inf")
    for options in itertools.product(range(len(instance.option_ids)), repeat=len(ops)):
        held = seconds = sent = 0.0
        for op, o in zip(ops, options, strict=True):
            held += instance.bytes_each[op, t, o] * in_flight + instance.bytes_once[op, t, o]
            seconds += instance.times_s[op, t, o] / d
            sent += 4 * (d - 1) / d * instance.parameter_bytes[op, t, o] / instance.num_micro_batches
            for edge, (a, b) in enumerate(edges):
                if a == op and b not in ops:
                    sent += 2 * (instance.edge_bytes[edge] + instance.tail_sync_bytes[edge, t, o]) / d
                if b == op and a not in ops:
                    sent += 2 * (instance.edge_bytes[edge] + instance.head_sync_bytes[edge, t, o]) / d
        if held <= instance.memory_bytes:
            best = min(best, seconds + sent / instance.bandwidth_bytes_per_s)
    return best
