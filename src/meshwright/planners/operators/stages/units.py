"""Units of ops that a pipeline of stages cannot separate, their order and their cost.

A stage is a set of units between two downsets: sets that hold, with a unit, all units before it. Ops of a group are one unit,
and units that wait for each other in a cycle are one. Only forward ops order units: in training the backward ops of a stage
come along with their forward ones, whose stages they pass in reverse. Where a unit has backward ops alone, its edges to other
backward ops order it, reversed (Tarnawski et al. 2020, "Efficient algorithms for device placement of DNN graph operators"). A
unit without time and counted memory that has only one neighbour joins it, since it cannot do better elsewhere.

A tensor costs a stage its seconds in the stage's port if it leaves or enters the stage, once. So some of its ops (its maker and
its readers) are in the stage and some are not.

Legend of shapes: ``n`` ops, ``u`` units, ``c`` classes of devices, ``k`` tensors between units.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from ....errors import PlanError
from ....simulation.operators.instance import OperatorInstance, bytes_by_part, numbered
from ....simulation.operators.placement import OperatorObjective, port_s


@dataclass(frozen=True, eq=False)
class Units:
    """Units of an instance, numbered in a topological order.

    Attributes:
        of_op: unit of each op, ``(n,)``.
        before: units that must not be in a later stage than each unit, ``u`` sorted tuples.
        times_s: seconds of each unit on a device of each class, infinite where it cannot run, ``(u, c)``.
        resident_bytes: ``(u,)``.
        workspace_bytes: ``(u,)``.
        memory_bytes: of a device of each class, ``(c,)``.
        num_devices: of each class, ``(c,)``.
        device_class: class of each device, ``(m,)``.
        members: units of each tensor that more than one unit makes or reads, ``k`` tuples.
        tensor_s: seconds of each such tensor in the port of a device of each class, ``(k, c)``.
    """

    of_op: NDArray[np.int64]
    before: tuple[tuple[int, ...], ...]
    times_s: NDArray[np.float64]
    resident_bytes: NDArray[np.float64]
    workspace_bytes: NDArray[np.float64]
    memory_bytes: NDArray[np.float64]
    num_devices: NDArray[np.int64]
    device_class: NDArray[np.int64]
    members: tuple[tuple[int, ...], ...]
    tensor_s: NDArray[np.float64]

    @property
    def num_units(self) -> int:
        """Number of units, ``u``."""
        return len(self.before)

    @classmethod
    def from_instance(cls, instance: OperatorInstance) -> Units:
        """Return the units of an instance.

        Raises:
            PlanError: a backward op feeds a forward one, or no device runs and holds all ops of a unit.
        """
        classes = device_classes(instance, "throughput")
        first = np.array([int(np.flatnonzero(classes == each)[0]) for each in range(int(classes.max()) + 1)])
        unit = numbered(_strong(instance.group, _order(instance, instance.group)))
        unit = _folded(instance, unit)
        unit, before = _topological(unit, _order(instance, unit))
        u = len(before)
        times_s = np.zeros((u, len(first)))
        np.add.at(times_s, unit, instance.times_s[:, first])
        resident, workspace = bytes_by_part(unit, u, instance.resident_bytes, instance.workspace_bytes)
        memory = instance.memory_bytes[first]
        nowhere = ~(np.isfinite(times_s) & ((resident + workspace)[:, None] <= memory)).any(axis=1)
        if nowhere.any():
            op = instance.op_names[int(np.flatnonzero(unit == np.flatnonzero(nowhere)[0])[0])]
            raise PlanError("no device can run and hold this op with those that it cannot be in different stages from", value=op)
        tensors, members = tensor_units(instance, unit)
        seconds = np.where(instance.is_host, 0.0, port_s(instance, instance.tensor_bytes[tensors]))[:, first]
        return cls(
            unit, before, times_s, resident, workspace, memory, np.bincount(classes), classes, members, np.asarray(seconds)
        )

    def devices(self, stages: Iterable[tuple[int, NDArray[np.bool_]]]) -> NDArray[np.int64]:
        """Return the device of each op, ``(n,)``, from the class of each stage and its units ``(u,)``."""
        left = [list(np.flatnonzero(self.device_class == each)) for each in range(len(self.num_devices))]
        device_of = np.full(len(self.of_op), -1, np.int64)
        for each, units in stages:
            device_of[units[self.of_op]] = left[each].pop(0)
        return device_of


def _order(instance: OperatorInstance, unit: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return pairs of different units whose first must not be behind the second, ``(p, 2)``, each once."""
    source, target = instance.edges[:, 0], instance.edges[:, 1]
    is_backward = instance.is_backward
    wrong = np.flatnonzero(is_backward[source] & ~is_backward[target])
    if wrong.size:
        name = instance.op_names[source[wrong[0]]]
        raise PlanError("a backward op feeds a forward one, so no stages are in order", value=name)
    has_forward = np.zeros(int(unit.max()) + 1, np.bool_)
    np.logical_or.at(has_forward, unit, ~is_backward)
    forward = ~is_backward[target]
    reverse = is_backward[source] & ~(has_forward[unit[source]] & has_forward[unit[target]])
    pairs = np.concatenate([unit[instance.edges[forward]], unit[instance.edges[reverse]][:, ::-1]])
    return np.asarray(np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0))


def _strong(unit: NDArray[np.int64], order: NDArray[np.int64]) -> NDArray[np.int64]:
    u = int(unit.max()) + 1
    graph = coo_matrix((np.ones(len(order)), (order[:, 0], order[:, 1])), shape=(u, u))
    _, component = connected_components(graph, connection="strong")
    return np.asarray(component.astype(np.int64)[unit])


def _folded(instance: OperatorInstance, unit: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the units with those joined to their only neighbour that cannot do better elsewhere."""
    u = int(unit.max()) + 1
    neighbours: list[set[int]] = [set() for _ in range(u)]
    for first, second in _order(instance, unit).tolist():
        neighbours[first].add(second)
        neighbours[second].add(first)
    _, members = tensor_units(instance, unit)
    touching: list[list[int]] = [[] for _ in range(u)]
    sets = [set(each) for each in members]
    for tensor, each in enumerate(sets):
        for one in each:
            touching[one].append(tensor)
    times_s = np.zeros((u, instance.num_devices))
    np.add.at(times_s, unit, instance.times_s)
    resident, workspace = bytes_by_part(unit, u, instance.resident_bytes, instance.workspace_bytes)
    is_ample = resident.sum() + workspace.max() <= instance.memory_bytes.min()
    is_free = (times_s == 0).all(axis=1) & (is_ample | (resident + workspace == 0))
    joined = np.arange(u)
    waiting = [one for one in range(u) if is_free[one]]
    while waiting:
        one = waiting.pop()
        if joined[one] != one or len(neighbours[one]) != 1:
            continue
        (other,) = neighbours[one]
        if not all(other in sets[tensor] for tensor in touching[one]):
            continue
        joined[one] = other
        neighbours[other].discard(one)
        for tensor in touching[one]:
            sets[tensor].discard(one)
        if is_free[other]:
            waiting.append(other)
    while (joined != joined[joined]).any():
        joined = joined[joined]
    return numbered(joined[unit])


def tensor_units(instance: OperatorInstance, unit: NDArray[np.int64]) -> tuple[NDArray[np.int64], tuple[tuple[int, ...], ...]]:
    """Return the tensors that more than one unit makes or reads, and the units of each."""
    result: list[set[int]] = [set() for _ in range(len(instance.tensor_bytes))]
    for tensor, (source, target) in zip(instance.edge_tensor.tolist(), unit[instance.edges].tolist(), strict=True):
        result[tensor].update((source, target))
    shared = [tensor for tensor, each in enumerate(result) if len(each) > 1]
    return np.array(shared, np.int64), tuple(tuple(sorted(result[tensor])) for tensor in shared)


def _topological(unit: NDArray[np.int64], order: NDArray[np.int64]) -> tuple[NDArray[np.int64], tuple[tuple[int, ...], ...]]:
    """Return the units renumbered in a topological order, and the units before each."""
    u = int(unit.max()) + 1
    after: list[list[int]] = [[] for _ in range(u)]
    waits = np.zeros(u, np.int64)
    for first, second in order.tolist():
        after[first].append(second)
        waits[second] += 1
    # Last in, first out: what is begun is ended first, so that few words of a downset's bits differ from the next one's.
    ready, sequence = [one for one in range(u - 1, -1, -1) if waits[one] == 0], []
    while ready:
        one = ready.pop()
        sequence.append(one)
        for other in after[one]:
            waits[other] -= 1
            if waits[other] == 0:
                ready.append(other)
    place = np.argsort(sequence)
    before: list[list[int]] = [[] for _ in range(u)]
    for first, second in place[order].tolist():
        before[second].append(first)
    return place[unit], tuple(tuple(sorted(each)) for each in before)


def device_classes(instance: OperatorInstance, objective: OperatorObjective) -> NDArray[np.int64]:
    """Return the class of each device, numbered from 0 in order of their first device, ``(m,)``.

    Two devices are of one class if exchanging them changes no placement's value or legality. They have the same times, memory
    and kind. For ``latency`` they also have the same links to all others and both ways between themselves, for ``throughput``
    the same port.
    """
    m = instance.num_devices
    classes = np.full(m, -1, np.int64)
    first: list[int] = []
    port = port_s(instance, np.ones(1))[0]
    for device in range(m):
        for number, other in enumerate(first):
            if _same_work(instance, device, other) and (
                port[device] == port[other] if objective == "throughput" else _same_links(instance, device, other)
            ):
                classes[device] = number
                break
        else:
            classes[device] = len(first)
            first.append(device)
    return classes


def _same_work(instance: OperatorInstance, a: int, b: int) -> bool:
    return (
        bool((instance.times_s[:, a] == instance.times_s[:, b]).all())
        and instance.memory_bytes[a] == instance.memory_bytes[b]
        and bool(instance.is_host[a] == instance.is_host[b])
    )


def _same_links(instance: OperatorInstance, a: int, b: int) -> bool:
    others = np.ones(instance.num_devices, np.bool_)
    others[[a, b]] = False
    return all(
        bool(matrix[a, b] == matrix[b, a])
        and bool((matrix[a, others] == matrix[b, others]).all())
        and bool((matrix[others, a] == matrix[others, b]).all())
        for matrix in (instance.latency_s, instance.bandwidth_bytes_per_s)
    )
