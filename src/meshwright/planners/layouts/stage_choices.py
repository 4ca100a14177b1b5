"""Which meshes the stages of a pipeline may have, and what a step takes at least under each choice.

A stage is busy with its passes of every micro-batch as in the layout all of whose stages have its mesh; a pipeline takes at least
what its busiest stage does, and before and behind that one pass each way through the stages in front of it.

Legend: ``c`` choices, ``o`` meshes that a stage may have, ``p`` stages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

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
    """What the stages of a layout may have.

    Attributes:
        found: by rising bound.
        are_all: whether there are no others, on as many devices.
    """

    found: tuple[StageChoice, ...]
    are_all: bool


def stage_choices(
    layout: Layout,
    describe: Callable[[Layout], LayoutWork],
    pricer: Pricer,
    *,
    tp: Sequence[int] | None = None,
    dp: Sequence[int] | None = None,
) -> StageChoices:
    """All meshes of the stages of a layout, on as many devices.

    Where stages have unequally many ranks, layers are spread so that the pipeline is filled, works and is drained fastest.

    Args:
        layout: a pipeline.
        describe: makes the work of a layout.
        pricer: prices it.
        tp, dp: degrees that may be taken; by default all.
    """
    pp, total, samples = layout.pp, layout.tp * layout.dp * layout.pp, layout.micro_batch * layout.dp
    works = _works(layout, describe, pricer, total - pp + 1, tp, dp)
    even = [one for one in works if one[0] * one[1] == layout.tp * layout.dp]
    can_spread = layout.virtual_stages == 1 and works and next(iter(works.values())).shape.other_layers is None
    is_whole = bool(can_spread) and len(works) ** pp <= MOST_CHOICES
    if not is_whole:
        works = {one: works[one] for one in even}
    if not works or len(works) ** pp > MOST_CHOICES:
        return StageChoices((), False)
    options = list(works)
    picks = np.array(list(product(range(len(options)), repeat=pp)))
    widths = np.array([tp * dp for tp, dp in options])
    picks = picks[widths[picks].sum(axis=1) == total]
    busy_s = np.array(
        [pricer.task_s(work, pricer.blocks_of(work, pricer.lanes(work)[0])).sum(axis=(1, 2)) for work in works.values()]
    )
    bounds_s = _bounds_s(layout, busy_s[picks, np.arange(pp)])
    seconds = [layer_seconds(work, pricer) for work in works.values()] if can_spread else []
    found = []
    for pick, bound_s in zip(picks.tolist(), bounds_s.tolist(), strict=True):
        meshes, layers = tuple(options[one] for one in pick), layout.stage_layers
        if len(set(widths[pick])) > 1:
            each, other = (np.array([seconds[one][part][stage] for stage, one in enumerate(pick)]) for part in (0, 1))
            num_layers = next(iter(works.values())).shape.num_layers
            layers = best_load(num_layers, each.tolist(), other.tolist(), [num_layers] * pp, layout.num_micro_batches)
            if layers is None:
                continue
            bound_s = float(_bounds_s(layout, np.array(layers) * each + other))
        found.append(StageChoice(bound_s, meshes, layers))
    assert all(samples % dp == 0 for _, dp in options)
    return StageChoices(tuple(sorted(found, key=lambda one: one.bound_s)), is_whole)


def _works(
    layout: Layout,
    describe: Callable[[Layout], LayoutWork],
    pricer: Pricer,
    most_ranks: int,
    tp: Sequence[int] | None,
    dp: Sequence[int] | None,
) -> dict[StageMesh, LayoutWork]:
    """By mesh, the work of the layout all of whose stages have it; legal ones alone."""
    samples, found = layout.micro_batch * layout.dp, {}
    replicas = [one for one in divisors(samples) if dp is None or one in dp]
    for one in replicas:
        for cut in range(1, most_ranks // one + 1) if tp is None else [cut for cut in tp if cut * one <= most_ranks]:
            keys = {"tp": cut, "dp": one, "micro_batch": samples // one, "stage_meshes": None}
            try:
                found[cut, one] = describe(Layout(**(layout.model_dump() | keys)))
                pricer.lanes(found[cut, one])
            except (PlanError, ValueError):
                found.pop((cut, one), None)
    return found


def _bounds_s(layout: Layout, busy_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """What a step takes at least, ``(...,)``, where stages are so long busy with a micro-batch, ``(..., p)``."""
    whole = layout.num_micro_batches * busy_s
    if layout.virtual_stages == 1 and not layout.parts_gradients:
        whole[..., 1:] += np.cumsum(busy_s, axis=-1)[..., :-1]
    found: NDArray[np.float64] = whole.max(axis=-1)
    return found
