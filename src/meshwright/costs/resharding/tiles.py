"""Tiles of a tensor on a mesh, and the unit tasks that bring it from one mesh to another.

A mesh has ``a`` hosts of ``b`` devices; its axis 0 goes over the hosts, its axis 1 over the devices of a host. A layout of a
tensor says for each dimension which axes cut it: ``R`` none, ``S0`` and ``S1`` one, ``S01`` both.

Source: Zhuang et al., "On optimizing the communication of model parallelism", 2022, section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import NamedTuple, Protocol

from ...errors import PlanError

CUTS = ("R", "S0", "S1", "S01")

Interval = tuple[int, int]
Tile = tuple[Interval, ...]
"""From which element to which, by dimension."""


class Replica(NamedTuple):
    """A device of a mesh.

    Attributes:
        host: of the mesh.
        place: on its host.
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
        """The devices that hold each tile."""
        ...


@dataclass(frozen=True)
class MeshTensor:
    """A tensor on a mesh.

    Attributes:
        shape: elements of each dimension.
        element_bytes: bytes of an element.
        hosts: hosts of the mesh, ``a``.
        devices_per_host: ``b``.
        cuts: one of `CUTS` for each dimension.

    Raises:
        PlanError: an unknown cut, an axis that cuts two dimensions, or a dimension that is not cut evenly.
    """

    shape: tuple[int, ...]
    element_bytes: int
    hosts: int
    devices_per_host: int
    cuts: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.cuts) != len(self.shape):
            raise PlanError(f"{len(self.shape)} dimensions want as many", field="cuts", value=" ".join(self.cuts))
        axes = "".join(cut[1:] for cut in self.cuts)
        for cut, elements in zip(self.cuts, self.shape, strict=True):
            if cut not in CUTS:
                raise PlanError("no such cut", field="cuts", value=cut, choices=CUTS)
            if elements % self._parts(cut):
                raise PlanError(f"{elements} elements are not cut evenly into {self._parts(cut)}", field="cuts", value=cut)
        if len(set(axes)) < len(axes):
            raise PlanError("an axis of the mesh cuts one dimension at most", field="cuts", value=" ".join(self.cuts))

    def _parts(self, cut: str) -> int:
        return {"R": 1, "S0": self.hosts, "S1": self.devices_per_host, "S01": self.hosts * self.devices_per_host}[cut]

    @property
    def devices(self) -> list[Replica]:
        """All devices, host by host."""
        return [Replica(host, place) for host, place in product(range(self.hosts), range(self.devices_per_host))]

    def tile(self, device: Replica) -> Tile:
        """What a device holds."""
        of_axes = {"R": 0, "S0": device.host, "S1": device.place, "S01": device.host * self.devices_per_host + device.place}
        found = []
        for cut, elements in zip(self.cuts, self.shape, strict=True):
            size = elements // self._parts(cut)
            found.append((of_axes[cut] * size, (of_axes[cut] + 1) * size))
        return tuple(found)

    def replicas(self) -> dict[Tile, list[Replica]]:
        """The devices that hold each tile."""
        return by_tile(self.devices, self.tile)


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


def by_tile(devices: Sequence[Replica], tile: Callable[[Replica], Tile]) -> dict[Tile, list[Replica]]:
    """The devices that hold each tile."""
    found: dict[Tile, list[Replica]] = {}
    for device in devices:
        found.setdefault(tile(device), []).append(device)
    return found


def unit_tasks(source: Tiled, target: Tiled, *, is_same_mesh: bool = False) -> tuple[UnitTask, ...]:
    """Every part in which a tile of the source and one of the target overlap, by target tile and then by source tile.

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
    found = []
    for wanted, receivers in target.replicas().items():
        for held, senders in source.replicas().items():
            part_bytes = source.element_bytes * prod(_overlap(one, other) for one, other in zip(wanted, held, strict=True))
            lacking = tuple(device for device in receivers if not (is_same_mesh and device in senders))
            if part_bytes > 0 and lacking:
                found.append(UnitTask(float(part_bytes), tuple(senders), lacking))
    return tuple(found)


def scattered(target: Tiled) -> Iterator[tuple[Replica, Tile]]:
    """What each device of a target gets if the devices of a host that need the same tile divide it among them.

    Each tile is cut along its first dimension that this many devices divide.

    Raises:
        PlanError: no dimension of a tile is divided so.
    """
    for tile, receivers in target.replicas().items():
        for host in dict.fromkeys(device.host for device in receivers):
            there = [device for device in receivers if device.host == host]
            lengths = [end - begin for begin, end in tile]
            cut = next((place for place, length in enumerate(lengths) if length % len(there) == 0), None)
            if cut is None:
                raise PlanError(f"no dimension is divided by the {len(there)} devices that share a tile", field="shape")
            size = lengths[cut] // len(there)
            for number, device in enumerate(there):
                begin = tile[cut][0] + number * size
                yield device, (*tile[:cut], (begin, begin + size), *tile[cut + 1 :])


def part_bytes(one: Tile, other: Tile, element_bytes: int) -> float:
    """Bytes in which two tiles overlap."""
    return float(element_bytes * prod(_overlap(first, second) for first, second in zip(one, other, strict=True)))


def _overlap(one: Interval, other: Interval) -> int:
    return max(0, min(one[1], other[1]) - max(one[0], other[0]))


def cuts_of(text: str) -> tuple[str, ...]:
    """Cuts from a text such as ``S0 R R``."""
    found: Sequence[str] = text.split()
    return tuple(found)
