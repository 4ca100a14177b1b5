"""The kind of device of each rank of a layout, where a cluster has several, and so of each stage of a lane.

Legend: ``n`` devices, ``p`` stages, ``w`` ranks of a stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ...plans.partition import Layout
from ...plans.rank_order import numbers
from .lanes import Lane, StageKinds
from .rank_groups import lane_width, stage_width


@dataclass(frozen=True, eq=False)
class DeviceKinds:
    """Kinds of devices, by a number each.

    Attributes:
        of_device: of each device of the cluster, ``(n,)``.
        devices: the device of each rank; None: the first ones.
        are_in_rank_order: whether ``devices`` follow the rank order that is asked about, else the layout's own numbering.
    """

    of_device: NDArray[np.int64]
    devices: NDArray[np.int64] | None = None
    are_in_rank_order: bool = True
    _known: dict[tuple[object, ...], tuple[Lane, ...]] = field(default_factory=dict, repr=False)

    def on(self, devices: NDArray[np.int64], *, are_in_rank_order: bool = True) -> DeviceKinds:
        """Return the kinds of device of ranks that are on other devices."""
        return DeviceKinds(self.of_device, devices, are_in_rank_order)

    def of_ranks(self, layout: Layout, order: str) -> list[NDArray[np.int64]]:
        """Return the kind of each rank of each stage in the layout's own numbering, ``p`` arrays ``(w,)``."""
        places = numbers(layout, order) if self.are_in_rank_order else np.arange(layout.world)
        result = self.of_device[places if self.devices is None else self.devices[places]]
        return np.split(result, [layout.first_rank(stage) for stage in range(1, layout.pp)])

    def among(self, first: int, end: int) -> tuple[int, ...]:
        """Return the kinds of the ranks from one to another, in the default order."""
        return tuple(sorted(set(self.of_device[slice(first, end) if self.devices is None else self.devices[first:end]].tolist())))

    def of_replica(self, layout: Layout, order: str, replica: int) -> DeviceKinds:
        """Return the kinds of device if every replica had those of one of them, stage by stage."""
        of_stages = (np.split(kinds, layout.dp)[replica] for kinds in self.of_ranks(layout, order))
        return DeviceKinds(np.concatenate([np.tile(own, layout.dp) for own in of_stages]), None, are_in_rank_order=False)

    def whole(self, lane: Lane, layout: Layout, order: str) -> Lane:
        """Return a lane that represents all, each of its stages on the kinds of all ranks of the stage."""
        stages = lane.stages * layout.pp if lane.are_stages_equal else lane.stages
        kinds = tuple(tuple(sorted(set(own.tolist()))) for own in self.of_ranks(layout, order))
        return replace(lane, stages=stages, kinds=kinds)

    def lanes(self, lanes: Sequence[Lane], layout: Layout, order: str, pass_axes: frozenset[str]) -> tuple[Lane, ...]:
        """Return lanes with the kinds of their stages; one where all are equal, and where stages have meshes of their own.

        Args:
            lanes: one that represents all, or all of them.
            layout: how a job is cut.
            order: the rank order.
            pass_axes: axes of the messages of passes.
        """
        key = layout, order, pass_axes
        if key in self._known:
            return self._known[key]
        kinds = self.of_ranks(layout, order)
        if layout.is_meshed:  # replicas of one stage meet in every micro-batch of the next one
            (lane,) = lanes
            self._known[key] = (self.whole(lane, layout, order),)
            return self._known[key]
        per = lane_width(layout, pass_axes)
        firsts = range(0, stage_width(layout), per)
        bases = [lanes[0] if len(lanes) == 1 else lanes[first // per] for first in firsts]
        made: dict[tuple[int, StageKinds], Lane] = {}
        results = []
        for base, first in zip(bases, firsts, strict=True):
            own = tuple(tuple(sorted(set(of_stage[first : first + per].tolist()))) for of_stage in kinds)
            if (id(base), own) not in made:
                stages = base.stages * layout.pp if base.are_stages_equal else base.stages
                made[id(base), own] = replace(base, stages=stages, kinds=own)
            results.append(made[id(base), own])
        self._known[key] = tuple(results[:1] if len(lanes) == 1 and len(made) == 1 else results)
        return self._known[key]
