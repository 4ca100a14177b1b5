"""Tiles of a tensor on devices, and the unit tasks that bring it from some devices to others.

Source: Zhuang et al., "On optimizing the communication of model parallelism", 2022, section 3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import NamedTuple, Protocol

from ...errors import PlanError

Interval = tuple[int, int]
Tile = tuple[Interval, ...]
"""From which element to which, by dimension."""


class Replica(NamedTuple):
    """A device.

    Attributes:
        host: where it is.
        place: its number.
    """

    host: int
    place: int


class Tiled(Protocol):
    """A tensor on some devices."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements of each dimension."""
        ...

    @property
    def element_bytes(self) -> int:
        """Bytes of an element."""
        ...

    @property
    def devices(self) -> list[Replica]:
        """All devices in their order."""
        ...

    def replicas(self) -> dict[Tile, list[Replica]]:
        """Return the devices that hold each tile."""
        ...


@dataclass(frozen=True)
class UnitTask:
    """A part of a tensor that some devices hold and others need.

    Attributes:
        task_bytes: of the part, ``D``.
        senders: devices that hold it.
        receivers: devices that want it.
    """

    task_bytes: float
    senders: tuple[Replica, ...]
    receivers: tuple[Replica, ...]

    @property
    def sender_hosts(self) -> tuple[int, ...]:
        """Hosts of the senders, ``N``."""
        return tuple(dict.fromkeys(device.host for device in self.senders))

    @property
    def receiver_hosts(self) -> tuple[int, ...]:
        """Hosts of the receivers, ``M``."""
        return tuple(dict.fromkeys(device.host for device in self.receivers))


def unit_tasks(source: Tiled, target: Tiled, *, is_same_mesh: bool = False) -> tuple[UnitTask, ...]:
    """Return every part in which a tile of the source and one of the target overlap, by target tile and then by source tile.

    Args:
        source: who holds the tensor.
        target: who wants it.
        is_same_mesh: whether both are on the same devices; a device then lacks only what it does not hold itself.

    Raises:
        PlanError: two tensors of unequal shape or element, or two meshes of unequal size that are said to be one.
    """
    if (source.shape, source.element_bytes) != (target.shape, target.element_bytes):
        raise PlanError("source and target are not the same tensor", field="shape", value=str(target.shape))
    if is_same_mesh and source.devices != target.devices:
        raise PlanError("one mesh has one size", field="devices", value=len(target.devices))
    results = []
    for required, receivers in target.replicas().items():
        for held, senders in source.replicas().items():
            sent_bytes = part_bytes(required, held, source.element_bytes)
            lacking = tuple(device for device in receivers if not (is_same_mesh and device in senders))
            if sent_bytes > 0 and lacking:
                results.append(UnitTask(sent_bytes, tuple(senders), lacking))
    return tuple(results)


def scattered(target: Tiled) -> Iterator[tuple[Replica, Tile]]:
    """Yield the part of each device of a target if the devices of a host that need the same tile divide it among them.

    Each tile is cut along its first dimension that this many devices divide.

    Raises:
        PlanError: no dimension of a tile is divided so.
    """
    for tile, receivers in target.replicas().items():
        for host in dict.fromkeys(device.host for device in receivers):
            local_receivers = [device for device in receivers if device.host == host]
            lengths = [end - begin for begin, end in tile]
            cut = next((place for place, length in enumerate(lengths) if length % len(local_receivers) == 0), None)
            if cut is None:
                raise PlanError(f"no dimension is divided by the {len(local_receivers)} devices that share a tile", field="shape")
            size = lengths[cut] // len(local_receivers)
            for number, device in enumerate(local_receivers):
                begin = tile[cut][0] + number * size
                yield device, (*tile[:cut], (begin, begin + size), *tile[cut + 1 :])


def part_bytes(tile: Tile, other: Tile, element_bytes: int) -> float:
    """Return the bytes in which two tiles overlap."""
    both = zip(tile, other, strict=True)
    return float(element_bytes * prod(max(0, min(one[1], two[1]) - max(one[0], two[0])) for one, two in both))
