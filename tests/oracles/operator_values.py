"""Values of placements of ops in plain Python, from their definitions, and all placements of a small instance.

Nothing of the planners or of the compiled schedules is used: loops over ops, edges and devices as the definitions read.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from meshwright.simulation.operators.instance import OperatorInstance

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
    return max(end.values())


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
    return max(loads)


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

    A backward op without a forward one in its group stands where its edges, reversed, let a forward one stand.
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
