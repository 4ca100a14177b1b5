"""Stages with meshes or numbers of layers of their own: how many ranks cut the layers of each, and how many replicas it has.

A stage has ``tp x cp x dp`` ranks of its own, which follow those of the stage before it. All stages work on the same samples in
the same turn: one with fewer replicas takes more samples of each micro-batch on each of them.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from ..settings import Count

if TYPE_CHECKING:
    from .partition import Layout

StageMesh = tuple[int, int]
"""``tp`` and ``dp`` of a stage."""


def read_meshes(value: Any) -> Any:
    """Return the meshes from a text such as ``4x2/2x4``: ``tp`` x ``dp`` of each stage; anything else as it is."""
    if not isinstance(value, str):
        return value
    parts = [part.strip().split("x") for part in value.split("/")]
    if any(len(part) != 2 or not all(number.strip().isdecimal() for number in part) for part in parts):
        raise PydanticCustomError("stage_meshes", "must read TPxDP of each stage with / between, as 4x2/2x4")
    return [[int(number) for number in part] for part in parts]


def read_layers(value: Any) -> Any:
    """Return the layers of each stage from a text such as ``14/10``; anything else as it is."""
    if isinstance(value, int) and not isinstance(value, bool):
        return [value]
    if not isinstance(value, str):
        return value
    parts = [part.strip() for part in value.split("/")]
    if not all(part.isdecimal() for part in parts):
        raise PydanticCustomError("stage_layers", "must read the layers of each stage with / between, as 14/10")
    return [int(part) for part in parts]


def value_text(value: Any) -> str:
    """Return the value of a layout's key as `Layout.parse` reads it: ``true``, layers ``14/10`` or meshes ``4x2/2x4``."""
    if isinstance(value, tuple | list):
        return "/".join("x".join(map(str, one)) if isinstance(one, tuple | list) else str(one) for one in value)
    return str(value).lower()


def check_layers(layout: Layout) -> None:
    """Refuse layers of stages that do not go together with the rest of a layout.

    Raises:
        ValueError: with what is in the way.
    """
    layers = layout.stage_layers
    if layers is None:
        return
    key_text = f"stage_layers={value_text(layers)}"
    if len(layers) != layout.pp:
        raise ValueError(f"{key_text} names {len(layers)} stages, pp is {layout.pp}")
    if layout.virtual_stages > 1:
        raise ValueError(f"{key_text} gives a stage one run of layers, virtual_stages={layout.virtual_stages} several")
    if layout.first_stage_less_layers or layout.last_stage_less_layers:
        raise ValueError(
            f"{key_text} says the layers of every stage; leave out first_stage_less_layers and last_stage_less_layers"
        )


def check(layout: Layout) -> None:
    """Refuse meshes that do not go together with the rest of a layout.

    Raises:
        ValueError: with what is in the way.
    """
    check_layers(layout)
    meshes = layout.stage_meshes
    if meshes is None:
        return
    key_text, samples = f"stage_meshes={value_text(meshes)}", layout.micro_batch * layout.dp
    if len(meshes) != layout.pp:
        raise ValueError(f"{key_text} names {len(meshes)} stages, pp is {layout.pp}")
    if layout.etp is not None:
        raise ValueError(f"{key_text} cuts experts as dense layers, and not by etp={layout.etp}")
    if layout.sp > 1:
        raise ValueError(f"{key_text} cuts layers, and sp_d, sp_h and sp_w cut volumes")
    if meshes[0] != (layout.tp, layout.dp):
        raise ValueError(f"{key_text}: tp={layout.tp} and dp={layout.dp} are those of the first stage, {value_text(meshes[:1])}")
    for tp, dp in meshes:
        for name, number, parts in (
            ("the samples of a micro-batch over all replicas", samples, dp),
            ("dp x cp", dp * layout.cp, layout.ep),
            ("dp x cp", dp * layout.cp, layout.shard_group or 1),
        ):
            if number % parts:
                raise ValueError(f"{key_text}: {name} of stage {tp}x{dp}, {number}, are not divided by {parts}")


def first_ranks(layout: Layout) -> tuple[int, ...]:
    """Return the first rank of each stage and, last, the number of ranks, ``(pp + 1,)``."""
    if layout.stage_meshes is None:
        width = layout.tp * layout.copies
        return tuple(range(0, width * (layout.pp + 1), width))
    return _first_ranks(layout.stage_meshes, layout.cp)


@lru_cache(maxsize=4096)
def _first_ranks(meshes: tuple[StageMesh, ...], cp: int) -> tuple[int, ...]:
    return (0, *accumulate(tp * cp * dp for tp, dp in meshes))


@lru_cache(maxsize=4096)
def of_stage(layout: Layout, stage: int) -> Layout:
    """Return the layout all of whose stages have the mesh of one of them; its micro-batches are as many."""
    if layout.stage_meshes is None:
        return layout
    tp, dp = layout.stage_meshes[stage]
    own = {"tp": tp, "dp": dp, "micro_batch": layout.micro_batch * layout.dp // dp, "stage_meshes": None}
    return layout.model_copy(update=own)


StageMeshes = Annotated[
    tuple[tuple[Count, Count], ...] | None,
    BeforeValidator(read_meshes),
    Field(
        description="tp and dp of each pipeline stage, as 4x2/2x4 in a text; absent: every stage has tp and dp",
        exclude_if=lambda value: value is None,
    ),
]
"""Meshes as a key of a layout."""

StageLayers = Annotated[
    tuple[Count, ...] | None,
    BeforeValidator(read_layers),
    Field(
        description="layers of each pipeline stage, as 14/10 in a text; absent: as equally many as can be",
        exclude_if=lambda value: value is None,
    ),
]
"""Layers of stages as a key of a layout."""
