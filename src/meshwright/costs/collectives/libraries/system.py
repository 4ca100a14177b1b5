"""A system's measured collectives: curves and fitted lines by operation, group size and data type, as data.

Between group sizes the parameters are interpolated and not the times. The latency grows with the steps, so linearly in ``n``.
The seconds of a byte on the busiest link, which show how well the library uses it, grow linearly in ``1 / n``. Among PCIe
cards of a host, where larger groups cross more of its bridges and processors, they grow by a constant factor for each
doubling.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from ... import nccl
from ..prices import Operation, Price, wire_factor
from .curves import Curve, Reading

UNCERTAINTY = {"measured": 0.03, "interpolated": 0.05, "between groups": 0.10, "between groups on PCIe": 0.20, "estimated": 0.25}
"""Relative standard deviations of prices: repeated runs differ by some 3 %, and the rest is what `meshwright dev validate
collectives` finds on sizes and groups left out."""


class TableKey(NamedTuple):
    """The subject of a table.

    Attributes:
        operation: which collective.
        num_ranks: group size.
        num_hosts: hosts among which the group is divided evenly.
        data_type: ``half`` and so on; empty where the figure holds for all.
    """

    operation: Operation
    num_ranks: int
    num_hosts: int = 1
    data_type: str = ""


class FittedLine(NamedTuple):
    """Latency and bus bandwidth fitted to measurements that are not here.

    Attributes:
        latency_s: at size zero.
        bus_bytes_per_s: bytes that cross the busiest link in a second.
        from_bytes: least size of the fit.
        to_bytes: largest size of the fit.
        factor: bytes on the busiest link for each byte of the payload.
    """

    latency_s: float
    bus_bytes_per_s: float
    from_bytes: float
    to_bytes: float
    factor: float

    @property
    def floor_s(self) -> float:
        """The latency in seconds; no payload takes less."""
        return self.latency_s

    def at(self, payload_bytes: float) -> Reading:
        """Return the line, also beyond the sizes that it was fitted to."""
        seconds = self.latency_s + self.factor * payload_bytes / self.bus_bytes_per_s
        return Reading(seconds, "interpolated" if self.from_bytes <= payload_bytes <= self.to_bytes else "estimated")


@dataclass(frozen=True, eq=False)
class System:
    """Measured collectives of one kind of host, or of a cluster of them.

    Attributes:
        name: of the system.
        device: the devices' name, from which the library's tuner follows.
        inside_bytes_per_s: nominal, of one device into or out of its host's switch.
        curves: what is known.
    """

    name: str
    device: str
    inside_bytes_per_s: float
    curves: dict[TableKey, Curve | FittedLine]
    _ways: dict[tuple[Operation, int, int, str], GroupCurves | None] = field(default_factory=dict, repr=False)

    def way(self, operation: Operation, num_ranks: int, *, num_hosts: int = 1, data_type: str = "") -> GroupCurves | None:
        """Return the times of a group's collectives, or None where nothing is known of them.

        Args:
            operation: which one.
            num_ranks: group size, at least two.
            num_hosts: hosts of the group; only groups on as many hosts are compared with each other.
            data_type: preferred; another one is taken where it is absent.
        """
        question = operation, num_ranks, num_hosts, data_type
        if question not in self._ways:
            self._ways[question] = self._way(*question)
        return self._ways[question]

    @cached_property
    def data_types(self) -> list[str]:
        """Data types of the tables."""
        return sorted({key.data_type for key in self.curves})

    def _way(self, operation: Operation, num_ranks: int, num_hosts: int, data_type: str) -> GroupCurves | None:
        known: dict[int, Curve | FittedLine] = {}
        for target in [data_type, "", "half", *self.data_types]:
            for key, curve in self.curves.items():
                if (key.operation, key.num_hosts, key.data_type) == (operation, num_hosts, target):
                    known.setdefault(key.num_ranks, curve)
            if target == data_type and num_ranks in known:
                break
        if not known:
            return None
        best = tuner(operation, num_ranks, num_hosts, self.device, self.inside_bytes_per_s)
        if num_ranks in known:
            return GroupCurves(operation, num_ranks, (num_ranks,), (known[num_ranks],), best)
        sizes = sorted(known)
        below, above = [n for n in sizes if n < num_ranks], [n for n in sizes if n > num_ranks]
        near = (below[-1], above[0]) if below and above else tuple(sizes[:2]) if above else tuple(sizes[-2:])
        is_tree = num_hosts == 1 and nccl.is_pcie(self.device)
        return GroupCurves(operation, num_ranks, near, tuple(known[n] for n in near), best, is_tree)


class GroupCurves(NamedTuple):
    """The known curves from which the times of a group are interpolated.

    Attributes:
        operation: which collective.
        num_ranks: of the group.
        near: the group itself, or one or two others.
        curves: theirs.
        best: the tuner's line at a size; None for what it does not know.
        is_tree: whether switches, bridges and processors connect the group in levels, as PCIe cards of a host. Each doubling
            of a group then climbs a level and makes a byte slower by a factor.
    """

    operation: Operation
    num_ranks: int
    near: tuple[int, ...]
    curves: tuple[Curve | FittedLine, ...]
    best: Callable[[float], nccl.Line]
    is_tree: bool = False

    def price(self, payload_bytes: float) -> Price:
        """Return the time of a size, and where it comes from."""
        line = self.best(payload_bytes)
        if self.near == (self.num_ranks,):
            seconds, provenance = self.curves[0].at(payload_bytes)
            return Price(seconds, provenance, UNCERTAINTY[provenance], line.algorithm, line.protocol)
        seconds, is_inside = self._between(payload_bytes)
        between = "between groups on PCIe" if self.is_tree else "between groups"
        uncertainty = UNCERTAINTY[between if is_inside else "estimated"]
        return Price(seconds, "interpolated" if is_inside else "estimated", uncertainty, line.algorithm, line.protocol)

    def seconds(self, payload_bytes: float) -> float:
        """Return the time of a size."""
        if self.near == (self.num_ranks,):
            return self.curves[0].at(payload_bytes).seconds
        return self._between(payload_bytes)[0]

    def _between(self, payload_bytes: float) -> tuple[float, bool]:
        """Return the time from that of other groups, and whether all of it lies between what was measured."""
        readings = [curve.at(payload_bytes) for curve in self.curves]
        latencies = [min(curve.floor_s, reading.seconds) for curve, reading in zip(self.curves, readings, strict=True)]
        bytes_s = [
            (reading.seconds - latency_s) / (wire_factor(self.operation, n) * payload_bytes)
            for n, latency_s, reading in zip(self.near, latencies, readings, strict=True)
        ]
        if len(self.near) == 1:
            return self._total_s(payload_bytes, latencies[0] * self.num_ranks / self.near[0], bytes_s[0]), False
        low, high = self.near
        by_steps = (self.num_ranks - low) / (high - low)
        by_share = (1 / self.num_ranks - 1 / low) / (1 / high - 1 / low)
        latency_s = latencies[0] + by_steps * (latencies[1] - latencies[0])
        byte_s = bytes_s[0] + by_share * (bytes_s[1] - bytes_s[0])
        if self.is_tree and min(bytes_s) > 0:
            byte_s = bytes_s[0] * (bytes_s[1] / bytes_s[0]) ** (math.log(self.num_ranks / low) / math.log(high / low))
        is_inside = low < self.num_ranks < high and all(reading.provenance != "estimated" for reading in readings)
        return self._total_s(payload_bytes, max(latency_s, min(latencies)), max(byte_s, 0.0)), is_inside

    def _total_s(self, payload_bytes: float, latency_s: float, s_per_bus_byte: float) -> float:
        return latency_s + wire_factor(self.operation, self.num_ranks) * payload_bytes * s_per_bus_byte


def tuner(
    operation: Operation, num_ranks: int, num_hosts: int, device: str, inside_bytes_per_s: float
) -> Callable[[float], nccl.Line]:
    """Return the line that the library's tuner chooses at each size."""
    wires = nccl.GroupLinks(num_ranks, num_hosts, inside_bytes_per_s, inside_bytes_per_s, nccl.generation(device))
    known = nccl.lines(operation, wires)
    return lambda payload_bytes: nccl.best(known, payload_bytes)


def curve_of(key: TableKey, points: Sequence[tuple[float, float]], device: str, inside_bytes_per_s: float) -> Curve:
    """Return measured sizes and seconds as a curve that knows what the library's tuner says of such a group."""
    best = tuner(key.operation, key.num_ranks, key.num_hosts, device, inside_bytes_per_s)
    return Curve(points, protocol_of(key, device, inside_bytes_per_s), lambda size: best(size).time_s(size))


def protocol_of(key: TableKey, device: str, inside_bytes_per_s: float) -> Callable[[float], str] | None:
    """Return the protocol that the library takes at a size, for `Curve`; None where its tuner has no say: between pairs."""
    if key.operation in ("all_to_all", "send_recv") or key.num_ranks < 2:
        return None
    best = tuner(key.operation, key.num_ranks, key.num_hosts, device, inside_bytes_per_s)
    return lambda payload_bytes: best(payload_bytes).protocol
