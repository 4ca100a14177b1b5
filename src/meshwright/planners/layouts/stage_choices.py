"""The meshes that the stages of a pipeline may have, and the least time of a step under each choice.

A stage is busy with its passes of every micro-batch as in the layout whose stages all have its mesh. A pipeline takes at least
the time of its busiest stage, and one pass each way through the stages in front of it.

Legend: ``c`` choices, ``o`` meshes that a stage may have, ``p`` stages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from ...costs.process_groups.lanes import Lane
from ...costs.training_step.step_time import Pricer
from ...costs.work.work import LayoutWork
from ...errors import PlanError
from ...plans.partition import Layout
from ...plans.stage_meshes import StageMesh
from .space import divisors
from .stage_devices import best_load, layer_seconds

MOST_CHOICES = 200_000
"""Choices that are bounded at once; of pipelines with more, stages keep equally many ranks, or are left as they are."""


@dataclass(frozen=True)
class StageChoice:
    """Meshes of all stages.

    Attributes:
        bound_s: a step takes no less.
        meshes: ``tp`` and ``dp`` of each stage.
        layers: of each stage; None: as equally many as can be.
    """

    bound_s: float
    meshes: tuple[StageMesh, ...]
    layers: tuple[int, ...] | None


@dataclass(frozen=True)
class StageChoices:
    """The choices of meshes for the stages of a layout.

    Attributes:
        layouts: by rising bound.
        are_all: whether there are no others, on as many devices.
    """

    layouts: tuple[StageChoice, ...]
    are_all: bool


def stage_choices(
    layout: Layout,
    describe: Callable[[Layout], LayoutWork],
    pricer: Pricer,
    *,
    tp: Sequence[int] | None = None,
    dp: Sequence[int] | None = None,
) -> StageChoices:
    """Return all meshes of the stages of a layout, on as many devices.

    Where stages have unequally many ranks, or devices of different types, layers are spread so that the pipeline is filled, works
    and is drained fastest.

    Args:
        layout: a pipeline.
        describe: makes the work of a layout.
        pricer: prices it.
        tp, dp: degrees that may be taken; by default all.
    """
    pp, total = layout.pp, layout.tp * layout.dp * layout.pp
    plain = replace(pricer, kinds=None)  # layouts of one mesh may have more ranks than there are devices
    works = _works(layout, describe, plain, total - pp + 1, tp, dp)
    can_spread = bool(works) and layout.virtual_stages == 1 and next(iter(works.values())).shape.other_layers is None
    is_whole = can_spread and len(works) ** pp <= MOST_CHOICES
    if not is_whole:
        works = {one: work for one, work in works.items() if one[0] * one[1] == layout.tp * layout.dp}
    if not works or len(works) ** pp > MOST_CHOICES:
        return StageChoices((), False)
    options, picks = list(works), np.array(list(product(range(len(works)), repeat=pp)))
    widths = np.array([tp * dp * layout.cp for tp, dp in options])
    picks = picks[widths[picks].sum(axis=1) == total * layout.cp]
    stages = _StageSeconds(plain, tuple(works.values()), pricer)
    results = []
    for pick in picks.tolist():
        kinds, layers = stages.kinds(widths[pick]), layout.stage_layers
        if can_spread and (len(set(widths[pick])) > 1 or len(set(kinds)) > 1):
            each, other = np.array([stages.layer_s(one, kinds[stage])[:, stage] for stage, one in enumerate(pick)]).T
            num_layers = next(iter(works.values())).shape.num_layers
            layers = best_load(num_layers, each.tolist(), other.tolist(), [num_layers] * pp, layout.num_micro_batches)
            if layers is None:
                continue
            busy_s = np.array(layers) * each + other
        else:
            busy_s = np.array([stages.busy_s(one, kinds[stage])[stage] for stage, one in enumerate(pick)])
        results.append(StageChoice(_bound_s(layout, busy_s), tuple(options[one] for one in pick), layers))
    return StageChoices(tuple(sorted(results, key=lambda one: one.bound_s)), is_whole)


@dataclass
class _StageSeconds:
    """Return the seconds of stages of each mesh on each kind of devices, in all passes of a micro-batch.

    Attributes:
        plain: prices layouts all of whose stages have one mesh.
        works: of these layouts.
        pricer: knows the kinds of devices.
    """

    plain: Pricer
    works: tuple[LayoutWork, ...]
    pricer: Pricer
    _known: dict[tuple[str, int, tuple[int, ...]], NDArray[np.float64]] = field(default_factory=dict)

    def kinds(self, widths: NDArray[np.int64]) -> list[tuple[int, ...]]:
        """Return the kinds of devices of each stage, of so many ranks each."""
        ends = np.cumsum(widths).tolist()
        known = self.pricer.kinds
        return [
            (0,) if known is None else known.among(end - width, end) for end, width in zip(ends, widths.tolist(), strict=True)
        ]

    def busy_s(self, option: int, kinds: tuple[int, ...]) -> NDArray[np.float64]:
        """Return the seconds of each stage with the layers that the work gives it, ``(p,)``."""
        work = self.works[option]
        return self._of("busy", option, kinds, lambda lane: self._task_s(work, lane))

    def layer_s(self, option: int, kinds: tuple[int, ...]) -> NDArray[np.float64]:
        """Return the seconds of a layer, and of what else there is, on each stage, ``(2, p)``."""
        work = self.works[option]
        return self._of("layer", option, kinds, lambda lane: layer_seconds(work, self.plain, lane))

    def _task_s(self, work: LayoutWork, lane: Lane) -> NDArray[np.float64]:
        result: NDArray[np.float64] = self.plain.task_s(work, self.plain.blocks_of(work, lane)).sum(axis=(1, 2))
        return result

    def _of(
        self, what: str, option: int, kinds: tuple[int, ...], made: Callable[[Lane], NDArray[np.float64]]
    ) -> NDArray[np.float64]:
        key = what, option, kinds
        if key not in self._known:
            work = self.works[option]
            lane, pp = self.plain.lanes(work)[0], work.layout.pp
            if kinds != (0,):
                stages = lane.stages * pp if lane.are_stages_equal else lane.stages
                lane = replace(lane, stages=stages, kinds=(kinds,) * pp)
            self._known[key] = made(lane)
        return self._known[key]


def _works(
    layout: Layout,
    describe: Callable[[Layout], LayoutWork],
    pricer: Pricer,
    most_ranks: int,
    tp: Sequence[int] | None,
    dp: Sequence[int] | None,
) -> dict[StageMesh, LayoutWork]:
    """Return by mesh the work of the layout all of whose stages have it; legal ones alone."""
    samples, result = layout.micro_batch * layout.dp, {}
    replicas = [one for one in divisors(samples) if dp is None or one in dp]
    for replica in replicas:
        for cut in range(1, most_ranks // replica + 1) if tp is None else [cut for cut in tp if cut * replica <= most_ranks]:
            keys = {"tp": cut, "dp": replica, "micro_batch": samples // replica, "stage_meshes": None}
            try:
                result[cut, replica] = describe(Layout(**(layout.model_dump() | keys)))
                pricer.lanes(result[cut, replica])
            except (PlanError, ValueError):
                result.pop((cut, replica), None)
    return result


def _bound_s(layout: Layout, busy_s: NDArray[np.float64]) -> float:
    """Return the least time of a step whose stages are busy with a micro-batch for so long, ``(p,)``."""
    whole = layout.num_micro_batches * busy_s
    if layout.virtual_stages == 1 and not layout.parts_gradients:
        whole[1:] += np.cumsum(busy_s)[:-1]
    return float(whole.max())
