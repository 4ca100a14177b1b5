"""Lanes: ranks of a layout whose passes wait for each other, and on which hosts the groups of a lane are, stage by stage.

Between two synchronisations of gradients each lane goes through the pipeline by itself. Without context and expert parallelism
it is one replica. On equal hosts all lanes and all stages take the same time, so one represents all. Where hosts differ, a
message of a pass takes as long as over the slowest of the lane's groups on that stage. A message after the passes takes as
long as over the slowest group of the whole stage, and the slowest lane determines the step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...clusters.cluster import Cluster
from ...clusters.topologies.matrix import MatrixTopology
from ...errors import PlanError
from ...plans.partition import Layout
from ...plans.rank_order import DEFAULT_ORDER
from ...plans.stage_meshes import value_text
from .. import formulas
from ..collectives.groups import Fabric, Group, PlacedGroup, placed
from ..collectives.prices import Operation
from ..network import RankNetwork
from ..routing import Routing
from ..work.operations import BETWEEN_STAGES
from .rank_groups import IN_PASSES, group_size, lane_width, stage_groups, stage_pairs, stage_width
from .regular_groups import boundary_groups, degrees_of, groups_of, starts_evenly


class PlacedGroups(NamedTuple):
    """Groups of one axis on their own devices; a message over all of them takes as long as over the slowest.

    Attributes:
        size: ranks of each.
        groups: groups whose times may differ.
        are_pairs: whether each is a rank of a stage and its counterpart on another one, to which it sends.
    """

    size: int
    groups: tuple[PlacedGroup, ...]
    are_pairs: bool = False


ProcessGroup = Group | PlacedGroups
"""The ranks of a message: the form of their group on equal hosts, else their devices."""

StageKinds = tuple[tuple[int, ...], ...]
"""Numbers of the kinds of devices on which the ranks of each stage run."""

ALONE = Group(1, 1, 1, 1)
"""A group of one rank, which sends no message."""


@dataclass(frozen=True, eq=False)
class Lane:
    """The groups of a lane on their hosts.

    Attributes:
        stages: groups of each stage, by axis; a single entry where all stages are equal.
        boundary: groups of a transfer from each stage to the next one and, last, between the last stage and the first.
        backward_boundary: the same in the other direction; none where both directions are equal.
        kinds: of the devices of each stage, see `device_kinds`; empty where all devices are of one.
    """

    stages: tuple[Mapping[str, ProcessGroup], ...]
    boundary: tuple[ProcessGroup, ...]
    kinds: StageKinds = ()
    backward_boundary: tuple[ProcessGroup, ...] = ()

    @cached_property
    def transfers(self) -> frozenset[ProcessGroup]:
        """The different ones of `boundary`."""
        return frozenset(self.boundary)

    @property
    def ways(self) -> tuple[tuple[ProcessGroup, ...], ...]:
        """Groups of transfers forward and, where they are others, back."""
        return (self.boundary, self.backward_boundary) if self.backward_boundary else (self.boundary,)

    @property
    def are_stages_equal(self) -> bool:
        """Whether one entry describes all stages."""
        return len(self.stages) == 1 and not self.kinds

    def at(self, stage: int) -> Mapping[str, ProcessGroup]:
        """Return the groups of a stage, by axis."""
        return self.stages[0 if len(self.stages) == 1 else stage]

    def kinds_at(self, stage: int) -> tuple[int, ...]:
        """Return the kinds of the devices of a stage."""
        return self.kinds[stage] if self.kinds else (0,)


MOST_LANES = 65_536
"""Lanes that are kept."""

_LANES: dict[object, Lane] = {}


def regular_lane(layout: Layout, devices_per_host: int, order: str = DEFAULT_ORDER) -> Lane:
    """Return the lane that describes all lanes of equal hosts, made once for all layouts of the same groups.

    Raises:
        PlanError: stages have unequal numbers of ranks, and a stage begins or ends within a host that it does not divide.
    """
    cut = degrees_of(layout) if layout.stage_meshes is None else layout
    key = cut, devices_per_host, order
    if key not in _LANES:
        if len(_LANES) >= MOST_LANES:
            _LANES.clear()
        _LANES[key] = _made_lane(layout, devices_per_host, order)
    return _LANES[key]


def _made_lane(layout: Layout, devices_per_host: int, order: str) -> Lane:
    if not layout.has_equal_stages and not starts_evenly(layout, devices_per_host):
        problem = (
            f"each stage must fill whole hosts of {devices_per_host} devices, or begin within one at a multiple of its ranks"
        )
        raise PlanError(problem, field="layout.stage_meshes", value=value_text(layout.stage_meshes or ()))
    meshes = [layout.at(stage) for stage in range(layout.pp if layout.is_meshed else 1)]
    return Lane(
        tuple(groups_of(mesh, devices_per_host, order) for mesh in meshes), boundary_groups(layout, devices_per_host, order)
    )


@dataclass(frozen=True)
class RegularLayout:
    """The groups of a layout on equal hosts: each has the form of the others along its axis.

    Attributes:
        layout: how a job is cut.
        devices_per_host: devices of a host.
        order: how ranks are numbered.
    """

    layout: Layout
    devices_per_host: int
    order: str = DEFAULT_ORDER

    def singles(self, axis: str, stage: int) -> list[ProcessGroup]:
        """Return each group of a stage along an axis, or each pair of ``ends`` or ``mirror``, by itself."""
        count = stage_width(self.layout) // (1 if axis in BETWEEN_STAGES else group_size(self.layout, axis))
        return [regular_lane(self.layout, self.devices_per_host, self.order).at(stage)[axis]] * count


@dataclass(frozen=True, eq=False)
class PlacedLayout:
    """The groups of a layout on their devices, where hosts differ.

    Attributes:
        layout: how a job is cut; its degrees alone are read.
        cluster: whose devices the ranks have.
        devices: the device of each rank in the layout's own numbering, ``(world,)``.
        routing: which paths messages take.
        pass_axes: axes of the messages of passes; ranks of one such group are in the same lane.
    """

    layout: Layout
    cluster: Cluster
    devices: NDArray[np.int64]
    routing: Routing
    pass_axes: frozenset[str] = IN_PASSES
    _groups: dict[str, list[list[PlacedGroup]]] = field(default_factory=dict, repr=False)
    _pairs: dict[tuple[int, int], list[PlacedGroup]] = field(default_factory=dict, repr=False)
    _process_groups: dict[tuple[str, int], ProcessGroup] = field(default_factory=dict, repr=False)
    _numbers: dict[str, dict[int, int]] = field(default_factory=dict, repr=False)

    def group(self, axis: str, ranks: NDArray[np.int64]) -> PlacedGroups:
        """Return one group, by its ranks in the layout's own numbering."""
        stage, place = divmod(int(ranks[0]), stage_width(self.layout))
        target = int(ranks[-1]) // stage_width(self.layout)
        if stage != target:
            return PlacedGroups(2, (self.pairs(stage, target)[place],), are_pairs=True)
        if axis not in self._numbers:
            firsts = stage_groups(self.layout, axis)[:, 0].tolist()
            self._numbers[axis] = {first: number for number, first in enumerate(firsts)}
        return PlacedGroups(len(ranks), (self.groups(axis)[stage][self._numbers[axis][place]],))

    def groups(self, axis: str) -> list[list[PlacedGroup]]:
        """Return all groups along an axis other than ``pp`` and ``ends``, by stage."""
        if axis not in self._groups:
            pp, rows = self.layout.pp, stage_groups(self.layout, axis)
            starts = stage_width(self.layout) * np.arange(pp)
            every = self._placed((rows + starts[:, None, None]).reshape(-1, rows.shape[1]))
            self._groups[axis] = [every[stage * len(rows) : (stage + 1) * len(rows)] for stage in range(pp)]
        return self._groups[axis]

    def pairs(self, source: int, target: int) -> list[PlacedGroup]:
        """Return each rank of a stage with its counterpart on another one."""
        if (source, target) not in self._pairs:
            self._pairs[source, target] = self._placed(stage_pairs(self.layout, source, target))
        return self._pairs[source, target]

    def of_replicas(self, replicas: NDArray[np.int64], *, are_pairs: bool) -> PlacedGroups:
        """Return the groups of ranks that hold the same weights in some replicas, on all stages.

        Args:
            replicas: numbers of the replicas of each group, ``(groups, size)``.
            are_pairs: whether each group is one that sends and one that gets.
        """
        width = stage_width(self.layout)
        own = np.arange(width // self.layout.dp)
        firsts = (width * np.arange(self.layout.pp)[:, None] + own).reshape(-1, 1, 1)
        rows = (firsts + len(own) * replicas).reshape(-1, replicas.shape[1])
        return _several(replicas.shape[1], self._placed(rows))._replace(are_pairs=are_pairs)

    @property
    def hosts_of_replicas(self) -> list[int]:
        """The host on which each replica begins."""
        per = stage_width(self.layout) // self.layout.dp
        result: list[int] = self.cluster.device_host[self.devices[: per * self.layout.dp : per]].tolist()
        return result

    def process_group(self, axis: str, stage: int) -> ProcessGroup:
        """Return all groups of a stage along an axis; ``pp``: transfers to the next stage, ``ends``: those between both ends."""
        key = axis, stage
        if key not in self._process_groups:
            ends = self._ends_of_pairs(axis, stage)
            if group_size(self.layout, axis) == 1:
                self._process_groups[key] = ALONE
            elif ends is not None:
                self._process_groups[key] = _pairs(self.pairs(*ends))
            else:
                self._process_groups[key] = _several(group_size(self.layout, axis), self.groups(axis)[stage])
        return self._process_groups[key]

    def _ends_of_pairs(self, axis: str, stage: int) -> tuple[int, int] | None:
        """Return the two stages whose ranks meet in pairs along an axis; None where its groups are within a stage."""
        last = self.layout.pp - 1
        mirrored = min(stage, last - stage)
        return {"pp": (stage, (stage + 1) % (last + 1)), "ends": (0, last), "mirror": (mirrored, last - mirrored)}.get(axis)

    def every(self, axis: str) -> ProcessGroup:
        """Return all groups of all stages along an axis other than ``pp`` and ``ends``."""
        if group_size(self.layout, axis) == 1:
            return ALONE
        return _several(group_size(self.layout, axis), [group for of_stage in self.groups(axis) for group in of_stage])

    def singles(self, axis: str, stage: int) -> list[ProcessGroup]:
        """Return each group of a stage along an axis, or each pair of ``ends`` or ``mirror``, by itself."""
        ends = self._ends_of_pairs(axis, stage)
        groups = self.groups(axis)[stage] if ends is None else self.pairs(*ends)
        return [PlacedGroups(group_size(self.layout, axis), (group,)) for group in groups]

    @cached_property
    def whole(self) -> Lane:
        """One lane for all: every message takes as long as over the slowest group of its stage."""
        return self._lane(0, stage_width(self.layout))

    @cached_property
    def lanes(self) -> tuple[Lane, ...]:
        """All lanes; lanes whose groups of passes and transfers are equal are one object."""
        width = stage_width(self.layout)
        per = lane_width(self.layout, self.pass_axes)
        known: dict[tuple[ProcessGroup, ...], Lane] = {}
        results = []
        for first in range(0, width, per):
            lane = self._lane(first, per)
            members = (*(at[axis] for at in lane.stages for axis in sorted(self.pass_axes)), *lane.boundary)
            results.append(known.setdefault(members, lane))
        return tuple(results)

    def _lane(self, first: int, per: int) -> Lane:
        """Return the lane of ``per`` ranks of each stage, from rank ``first`` of the stage on."""
        pp = self.layout.pp
        stages = tuple(_AtStage(self, stage, first, per) for stage in range(pp))
        ends = [(stage, (stage + 1) % pp) for stage in range(pp)] if pp > 1 else []
        boundary, backward_boundary = (
            tuple(_pairs(self.pairs(*pair[::way])[first : first + per]) for pair in ends) for way in (1, -1)
        )
        are_alike = not has_ways(self.cluster)
        return Lane(stages, boundary or (ALONE,), backward_boundary=() if are_alike else backward_boundary)

    def _placed(self, ranks: NDArray[np.int64]) -> list[PlacedGroup]:
        """Return groups, a row of ranks each, together with the other groups that share a host with them."""
        devices = self.devices[ranks]
        neighbours = self._neighbours(devices)
        groups: list[PlacedGroup | None] = [None] * len(devices)
        for count in set(map(len, neighbours)):
            of_count = [number for number, others in enumerate(neighbours) if len(others) == count]
            rows = np.array([[number, *neighbours[number]] for number in of_count])
            for number, one in zip(of_count, placed(self.cluster, devices[rows], self.routing), strict=True):
                groups[number] = one
        return [one for one in groups if one is not None]

    def _neighbours(self, devices: NDArray[np.int64]) -> list[list[int]]:
        """Return for each group the other groups on its hosts; none where each pair of devices has links of its own."""
        if isinstance(self.cluster.topology, MatrixTopology):
            return [[] for _ in devices]
        hosts = [set(row) for row in self.cluster.device_host[devices].tolist()]
        on_host: dict[int, list[int]] = {}
        for number, used in enumerate(hosts):
            for host in used:
                on_host.setdefault(host, []).append(number)
        return [sorted({other for host in used for other in on_host[host]} - {n}) for n, used in enumerate(hosts)]


class _AtStage(dict[str, ProcessGroup]):
    """The groups of a lane on one stage, by axis; computed on first use."""

    def __init__(self, placed_layout: PlacedLayout, stage: int, first: int, per: int) -> None:
        super().__init__()
        self._of, self._stage, self._first, self._per = placed_layout, stage, first, per

    def __missing__(self, axis: str) -> ProcessGroup:
        of, layout = self._of, self._of.layout
        is_part = axis in of.pass_axes | {"pp"} and self._per < stage_width(layout) and group_size(layout, axis) > 1
        if not is_part:
            group = of.process_group(axis, self._stage)
        elif axis == "pp":
            every = of.pairs(self._stage, (self._stage + 1) % layout.pp)
            group = _pairs(every[self._first : self._first + self._per])
        else:
            size = group_size(layout, axis)
            share = slice(self._first // size, (self._first + self._per) // size)
            group = _several(size, of.groups(axis)[self._stage][share])
        self[axis] = group
        return group


def has_ways(cluster: Cluster) -> bool:
    """Return whether the directions of a link between two devices may differ."""
    topology = cluster.topology
    return isinstance(topology, MatrixTopology) and not topology.is_symmetric


def slowest_s(fabric: Fabric, operation: Operation, payload_bytes: float, groups: PlacedGroups) -> float:
    """Return seconds of a message over the slowest of some groups; a pair's goes one way over a link of its own."""
    if operation == "send_recv" and groups.are_pairs and has_ways(fabric.cluster):
        return max(_one_way_s(*fabric.network(group), payload_bytes) for group in groups.groups)
    return max(fabric.seconds(operation, group)(payload_bytes) for group in groups.groups)


def _one_way_s(network: RankNetwork, pair: NDArray[np.int64], payload_bytes: float) -> float:
    sender, receiver = pair.tolist()
    rate = float(network.bandwidth_bytes_per_s[sender, receiver])
    return formulas.message_s(payload_bytes, 2, rate, float(network.latency_s[sender, receiver]))


def _pairs(groups: list[PlacedGroup]) -> PlacedGroups:
    return _several(2, groups)._replace(are_pairs=True)


def _several(size: int, groups: list[PlacedGroup]) -> PlacedGroups:
    return PlacedGroups(size, tuple(dict.fromkeys(groups)))
