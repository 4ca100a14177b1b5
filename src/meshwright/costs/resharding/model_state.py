"""A model's weights and optimizer brought from the ranks of one layout to those of another on the same devices.

All weights lie one behind the other in rows, cut into columns by tensor parallelism. A rank holds the rows of its stages,
replicas hold the same; a sharded optimizer has its rows shared out among the replicas. Every part in which a tile of the one
layout and one of the other overlap is a unit task (`tiles`). If a device of the same host holds a part, it is copied over the
links of the host. Other parts are broadcast to the device, the largest first, each by the least loaded host that holds it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import lcm

from ...errors import PlanError
from ...plans.partition import Coordinates, Layout
from .prices import broadcast_chain_s
from .sender_order import chosen_senders, makespan_s
from .tiles import Replica, Tile, UnitTask, unit_tasks


@dataclass(frozen=True)
class ModelPlace:
    """The places of the parts of a model under a layout.

    Attributes:
        layout: how the model is cut.
        units: number of parameters of each part, in model order.
        chunk_units: of each model chunk the first part and the one behind its last, ``(pp v,)``; chunk ``k`` is on stage
            ``k mod pp``.
        places: coordinates of the rank on each device, ``(world,)``.
        hosts: host of each device, ``(world,)``.
        weight_bytes: of a parameter as the optimizer leaves it.
        optimizer_bytes: that the optimizer keeps of it.
    """

    layout: Layout
    units: tuple[float, ...]
    chunk_units: tuple[tuple[int, int], ...]
    places: tuple[Coordinates, ...]
    hosts: tuple[int, ...]
    weight_bytes: float
    optimizer_bytes: float


@dataclass(frozen=True)
class ModelRows:
    """One kind of a model's state on devices, see `tiles.Tiled`.

    Attributes:
        shape: rows and columns.
        element_bytes: of an element; 1, for rows count bytes.
        pieces: tiles, each with the numbers of the devices that hold it.
        hosts: of each device.
    """

    shape: tuple[int, int]
    pieces: tuple[tuple[Tile, tuple[int, ...]], ...]
    hosts: tuple[int, ...]
    element_bytes: int = 1

    @property
    def devices(self) -> list[Replica]:
        """All devices in their order."""
        return [Replica(host, place) for place, host in enumerate(self.hosts)]

    def replicas(self) -> dict[Tile, list[Replica]]:
        """Return the devices that hold each tile."""
        return {tile: [Replica(self.hosts[place], place) for place in held] for tile, held in self.pieces}


def state_tasks(source: ModelPlace, target: ModelPlace) -> tuple[UnitTask, ...]:
    """List the parts of weights and optimizer that move; none between equal places.

    Raises:
        PlanError: layouts of unequal numbers of ranks, or one with experts cut, adapters, unequal meshes, or parts of volumes.
    """
    if source == target:
        return ()
    if len(source.hosts) != len(target.hosts):
        raise PlanError("both phases run on the same devices", field="phases", value=len(target.hosts))
    for one in (source.layout, target.layout):
        options = {"ep": one.ep > 1, "etp": one.etp is not None, "trainable": one.lora_rank is not None}
        options |= {"stage_meshes": one.is_meshed, "sp_d": one.sp > 1}
        if key := next((key for key, is_given in options.items() if is_given), None):
            raise PlanError("of a phase that has another plan than the other one is not priced", field=f"layout.{key}")
    columns = lcm(source.layout.tp, target.layout.tp)
    shared = [_rows(one, columns, one.weight_bytes, is_shared=one.layout.zero >= 3) for one in (source, target)]
    moments = [_rows(one, columns, one.optimizer_bytes, is_shared=one.layout.shards_optimizer) for one in (source, target)]
    return (*unit_tasks(*shared, is_same_mesh=True), *unit_tasks(*moments, is_same_mesh=True))


def moved_s(
    tasks: Sequence[UnitTask],
    between_s: Callable[[float], float],
    inside_s: Callable[[float], float],
) -> float:
    """Return the seconds until all tasks are done; transfers inside hosts run at the same time as those between hosts.

    Args:
        tasks: from `state_tasks`.
        between_s: seconds of some bytes from one host to another.
        inside_s: seconds of some bytes from a device to another one of its host.
    """
    inside: dict[int, float] = defaultdict(float)
    between: list[UnitTask] = []
    for task in tasks:
        held = set(task.sender_hosts)
        for device in task.receivers:
            if device.host in held:
                inside[device.place] += inside_s(task.task_bytes)
        far = tuple(device for device in task.receivers if device.host not in held)
        if far:
            between.append(UnitTask(task.task_bytes, task.senders, far))
    lasts_s = [
        broadcast_chain_s(task.task_bytes, [device.host for device in task.receivers], between_s, inside_s) for task in between
    ]
    across_s = makespan_s(between, lasts_s, chosen_senders(between, lasts_s, "size"))
    return max(across_s, max(inside.values(), default=0.0))


def _rows(place: ModelPlace, columns: int, number_bytes: float, *, is_shared: bool) -> ModelRows:
    layout = place.layout
    ends = [0]
    for parameters in place.units:
        ends.append(ends[-1] + max(1, round(parameters * number_bytes / columns)))
    width, shards = columns // layout.tp, layout.num_shards if is_shared else 1
    held: dict[Tile, list[int]] = {}
    for number, at in enumerate(place.places):
        for chunk in (one for one in range(len(place.chunk_units)) if layout.stage_of(one) == at.pp):
            first, last = place.chunk_units[chunk]
            begin, end = ends[first], ends[last]
            if shards > 1:
                own = (at.dp * layout.cp + at.cp) % shards
                begin, end = begin + (end - begin) * own // shards, begin + (end - begin) * (own + 1) // shards
            if end > begin:
                held.setdefault(((begin, end), (at.tp * width, (at.tp + 1) * width)), []).append(number)
    return ModelRows((ends[-1], columns), tuple((tile, tuple(on)) for tile, on in held.items()), place.hosts)
