"""Ops placed in a chosen order and placements refined, by plain Python: everything is worked out anew from what was chosen."""

from __future__ import annotations

import numpy as np

from meshwright.simulation.operators.instance import OperatorInstance
from meshwright.simulation.operators.placement import OperatorObjective, port_s, value
from meshwright.simulation.operators.schedules import upward_order


class PlainChoices:
    """One episode; ops are told by the first of their group in the order of upward ranks."""

    def __init__(self, instance: OperatorInstance, objective: OperatorObjective, refine_steps: int = 0) -> None:
        self.instance, self.objective, self.left = instance, objective, refine_steps
        self.order = upward_order(instance).tolist()
        self.lead: dict[int, int] = {}
        for op in self.order:
            self.lead.setdefault(int(instance.group[op]), op)
        self.device: dict[int, int] = {}
        self.when: dict[int, tuple[float, float]] = {}
        self.packing: dict[int, int] = self.packed({}) or {}
        self.value_s = 0.0

    @property
    def is_placed(self) -> bool:
        return len(self.device) == self.instance.num_groups

    def on(self, op: int) -> int:
        return self.device.get(int(self.instance.group[op]), -1)

    def inputs(self, op: int) -> list[tuple[int, float]]:
        edges = self.instance.edges.tolist()
        return [(source, self.instance.edge_bytes[at]) for at, (source, reader) in enumerate(edges) if reader == op]

    def possible(self) -> set[tuple[int, int]]:
        """Pairs of an op and a device."""
        found = set()
        if self.is_placed:
            if not self.left:
                return set()
            for group, own in self.device.items():
                for device in range(self.instance.num_devices):
                    moved = {**self.device, group: device}
                    if device == own or (self.runs(group, device) and self.holds(moved, device)):
                        found.add((self.lead[group], device))
            return found
        for group, op in self.lead.items():
            if group in self.device or any(source not in self.when for source, _ in self.inputs(op)):
                continue
            if not self.has_plenty(group) and group not in self.packing:
                self.packing = self.packed(self.device) or {}
            for device in range(self.instance.num_devices):
                given = {**self.device, group: device}
                if self.runs(group, device) and self.holds(given, device):
                    is_known = self.has_plenty(group) or self.packing.get(group, device) == device
                    if is_known or self.packed(given) is not None:
                        found.add((op, device))
        return found

    def choose(self, op: int, device: int) -> float:
        """What the value falls."""
        before, group = self.value_s, int(self.instance.group[op])
        if self.is_placed:
            self.left -= 1
            if self.device[group] != device:
                self.device[group] = device
                self.value_s = value(self.instance, self.device_of(), self.objective)
            return before - self.value_s
        if self.packing.get(group) != device:
            packed = None if self.has_plenty(group) else self.packed({**self.device, group: device})
            self.packing = {**packed, group: device} if packed is not None else {}
        self.device[group] = device
        for each in self.order:
            if self.on(each) < 0 or each in self.when:
                continue
            if self.objective == "throughput":  # loads have no order
                self.when[each] = (0.0, 0.0)
            elif all(source in self.when for source, _ in self.inputs(each)):
                self.when[each] = self.inserted(each)
        if self.objective == "throughput":
            self.value_s = self.largest_load()
        else:
            self.value_s = max(end for _, end in self.when.values())
        if self.is_placed:
            self.value_s = min(self.value_s, value(self.instance, self.device_of(), self.objective))
        return before - self.value_s

    def device_of(self) -> np.ndarray:
        return np.array([self.on(op) for op in range(self.instance.num_ops)])

    def inserted(self, op: int) -> tuple[float, float]:
        """The earliest gap of its device that is long enough."""
        made, on = self.instance, self.on(op)
        ready = 0.0
        for source, size in self.inputs(op):
            there = self.when[source][1]
            if self.on(source) != on:
                there += made.latency_s[self.on(source), on] + size / made.bandwidth_bytes_per_s[self.on(source), on]
            ready = max(ready, there)
        length, start = made.times_s[op, on], ready
        for begin, end in sorted(self.when[other] for other in self.when if self.on(other) == on):
            if start + length <= begin:
                break
            start = max(start, end)
        return start, start + length

    def largest_load(self) -> float:
        """Of the ops that run: their times, and each tensor once on its own device and once on each other that reads it."""
        made, loads = self.instance, np.zeros(self.instance.num_devices)
        for op in self.when:
            loads[self.on(op)] += made.times_s[op, self.on(op)]
        for tensor, size in enumerate(made.tensor_bytes):
            edges = made.edges[made.edge_tensor == tensor].tolist()
            home = {self.on(source) for source, _ in edges if source in self.when}
            away = {self.on(reader) for _, reader in edges if reader in self.when} - home
            for device in away | home if away and home else ():
                if not made.is_host[device]:
                    loads[device] += port_s(made, np.array([size]))[0, device]
        return float(loads.max())

    def runs(self, group: int, device: int) -> bool:
        return all(np.isfinite(self.instance.times_s[op, device]) for op in self.members(group))

    def members(self, group: int) -> list[int]:
        return np.flatnonzero(self.instance.group == group).tolist()

    def sizes(self, group: int) -> tuple[float, float]:
        ops = self.members(group)
        return self.instance.resident_bytes[ops].sum(), self.instance.workspace_bytes[ops].max()

    def needs(self, given: dict[int, int], device: int) -> float:
        sizes = [self.sizes(group) for group, on in given.items() if on == device]
        return sum(size for size, _ in sizes) + max((space for _, space in sizes), default=0.0)

    def holds(self, given: dict[int, int], device: int) -> bool:
        return self.needs(given, device) <= self.instance.memory_bytes[device] * (1 + 1e-12)

    def packed(self, given: dict[int, int]) -> dict[int, int] | None:
        """A device for each other group: largest first, each where most is left; None where one finds no room."""
        made, found = dict(given), {}
        for group in sorted(self.lead, key=lambda each: (-self.sizes(each)[0], each)):
            if group in given:
                continue
            left = {}
            for device in range(self.instance.num_devices):
                if self.runs(group, device):
                    left[device] = self.instance.memory_bytes[device] - self.needs({**made, group: device}, device)
            device = max(left, key=lambda each: (left[each], -each), default=-1)
            if device < 0 or left[device] < 0:
                return None
            made[group] = found[group] = device
        return found

    def has_plenty(self, group: int) -> bool:
        """Whether packing what is left cannot fail: even with less than the largest left on all but one, all room suffices."""
        made = self.instance
        groups = range(made.num_groups)
        if not all(self.runs(each, device) for each in groups for device in range(made.num_devices)):
            return False
        room = sum(made.memory_bytes) - made.num_devices * max(self.sizes(each)[1] for each in groups)
        largest = max((self.sizes(each)[0] for each in groups if each != group and each not in self.device), default=0.0)
        return room - sum(self.sizes(each)[0] for each in groups) >= (made.num_devices - 1) * largest
