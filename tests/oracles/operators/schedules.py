"""Schedules of placed ops and list schedulers in plain Python, from their definitions: loops over edges, no compiled code."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meshwright.simulation.operators.instance import OperatorInstance

Busy = list[tuple[float, float]]


def ready_s(instance: OperatorInstance, op: int, device: int, device_of: Sequence[int], end_s: dict[int, float]) -> float:
    """When all inputs of an op are on a device."""
    ready = 0.0
    for (source, target), size in zip(instance.edges.tolist(), instance.edge_bytes.tolist(), strict=True):
        if target == op:
            there = end_s[source]
            if device_of[source] != device:
                home = device_of[source]
                there += instance.latency_s[home, device] + size / instance.bandwidth_bytes_per_s[home, device]
            ready = max(ready, there)
    return ready


def appended_s(instance: OperatorInstance, device_of: Sequence[int], order: Sequence[int]) -> dict[int, float]:
    """End of each op where every device runs its ops in this order."""
    free = [0.0] * instance.num_devices
    end: dict[int, float] = {}
    for op in order:
        device = device_of[op]
        end[op] = max(free[device], ready_s(instance, op, device, device_of, end)) + instance.times_s[op, device]
        free[device] = end[op]
    return end


def first_gap(busy: Busy, ready: float, length: float) -> float:
    """The earliest start from ``ready`` on at which a device is free for so long."""
    starts = [ready, *(end for _, end in busy if end > ready)]
    return min(start for start in starts if all(start + length <= begin or start >= end for begin, end in busy))


def inserted_s(instance: OperatorInstance, device_of: Sequence[int], order: Sequence[int]) -> dict[int, float]:
    """End of each op where ops are taken in this order, each into the first gap of its device that is long enough."""
    busy: list[Busy] = [[] for _ in range(instance.num_devices)]
    end: dict[int, float] = {}
    for op in order:
        device = device_of[op]
        ready, length = ready_s(instance, op, device, device_of, end), float(instance.times_s[op, device])
        start = first_gap(busy[device], ready, length)
        end[op] = start + length
        busy[device].append((start, end[op]))
    return end


def upward_ranks(instance: OperatorInstance) -> dict[int, float]:
    """Longest way from each op to the end, with mean times and mean transfers between two devices."""
    m = instance.num_devices
    pairs = [(a, b) for a in range(m) for b in range(m) if a != b]
    ranks: dict[int, float] = {}
    for op in reversed(instance.topological.tolist()):
        mean = np.mean([each for each in instance.times_s[op] if np.isfinite(each)])
        after = 0.0
        for (source, target), size in zip(instance.edges.tolist(), instance.edge_bytes.tolist(), strict=True):
            if source == op:
                transfers = [instance.latency_s[pair] + size / instance.bandwidth_bytes_per_s[pair] for pair in pairs]
                after = max(after, (float(np.mean(transfers)) if transfers else 0.0) + ranks[target])
        ranks[op] = float(mean) + after
    return ranks


def heft_devices(instance: OperatorInstance, *, with_insertion: bool) -> list[int]:
    """HEFT without memory and without groups: by falling rank, each op where it ends first."""
    ranks = upward_ranks(instance)
    place = {op: number for number, op in enumerate(instance.topological.tolist())}
    busy: list[Busy] = [[] for _ in range(instance.num_devices)]
    device_of = [-1] * instance.num_ops
    end: dict[int, float] = {}
    for op in sorted(ranks, key=lambda op: (-ranks[op], place[op])):
        choices = []
        for device in range(instance.num_devices):
            length = float(instance.times_s[op, device])
            if np.isfinite(length):
                ready = ready_s(instance, op, device, device_of, end)
                last = max((end for _, end in busy[device]), default=0.0)
                start = first_gap(busy[device], ready, length) if with_insertion else max(ready, last)
                choices.append((start + length, device, start))
        end[op], device_of[op], start = min(choices)
        busy[device_of[op]].append((start, end[op]))
    return device_of


def earliest_start_devices(instance: OperatorInstance) -> list[int]:
    """Earliest start without memory and groups: of ready ops and devices the pair that starts first.

    Of equal ones the op of higher rank, then of lower number, and the device on which it ends first.
    """
    ranks = upward_ranks(instance)
    device_of = [-1] * instance.num_ops
    end: dict[int, float] = {}
    free = [0.0] * instance.num_devices
    while len(end) < instance.num_ops:
        pairs = []
        for op in range(instance.num_ops):
            producers = [source for source, target in instance.edges.tolist() if target == op]
            if op not in end and all(source in end for source in producers):
                for device in range(instance.num_devices):
                    if np.isfinite(instance.times_s[op, device]):
                        start = max(free[device], ready_s(instance, op, device, device_of, end))
                        pairs.append((start, -ranks[op], op, start + instance.times_s[op, device], device))
        _, _, op, end_s, device = min(pairs)
        device_of[op] = device
        end[op] = free[device] = float(end_s)
    return device_of


def contiguous_s(instance: OperatorInstance, device_of: Sequence[int]) -> float:
    """Latency where an accelerator runs its ops at once, with every input first and every output last; infinite in a circle."""
    boxes = {op: ("host", op) if instance.is_host[device_of[op]] else ("box", device_of[op]) for op in range(instance.num_ops)}
    edges = list(zip(instance.edges.tolist(), instance.edge_tensor.tolist(), strict=True))
    seconds = instance.tensor_bytes / instance.bandwidth_bytes_per_s[~np.eye(instance.num_devices, dtype=bool)].max()
    end: dict[tuple[str, int], float] = {}
    while len(end) < len(set(boxes.values())):
        for box in sorted(set(boxes.values()) - set(end)):
            before = {boxes[source] for (source, target), _ in edges if boxes[target] == box and boxes[source] != box}
            if before <= set(end):
                total = max((end[each] for each in before), default=0.0)
                total += sum(instance.times_s[op, device_of[op]] for op in boxes if boxes[op] == box)
                if box[0] == "box":
                    crossing = {tensor for (a, b), tensor in edges if (boxes[a] == box) != (boxes[b] == box)}
                    total += sum(seconds[tensor] for tensor in crossing)
                end[box] = float(total)
                break
        else:
            return float("inf")
    return max(end.values())
