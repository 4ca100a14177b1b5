"""The layers of each pipeline stage, as Megatron's ``--pipeline-model-parallel-layout`` spells them.

``E`` is the embedding, ``t`` a transformer layer, ``L`` head and loss, ``|`` ends a stage, ``t*3`` is ``ttt``. Stages of an
interleaved schedule follow one another chunk by chunk. Megatron cuts between layers only, so an op belongs to the layer whose
number is in its name: ``layer7.mlp_up``, ``model.layers.7.mlp``, ``h.7.attn``.
"""

from __future__ import annotations

import re
from itertools import groupby, pairwise

from ...errors import ExportError
from ...plans.document import PlacementPlan, Stage

_LAYER = re.compile(r"(?:^|\.)(?:layers?|blocks?|h)[._]?([0-9]{1,6})(?:\.|$)")


def pipeline_layout(plan: PlacementPlan, num_stages: int) -> str | None:
    """Return the layout of the plan's stages.

    Args:
        plan: the plan.
        num_stages: pipeline-parallel degree.

    Returns:
        The text, or None where the plan does not say what its stages hold.

    Raises:
        ExportError: a stage that is missing, twice or does not name its ops, or a cut elsewhere than between two layers.
    """
    if not plan.stages:
        return None
    held = [(place, stage, [layer_of(op) for op in stage.ops]) for place, stage in _in_order(plan, num_stages)]
    flat = [(place, op, layer) for place, stage, layers in held for op, layer in zip(stage.ops, layers, strict=True)]
    numbered = [index for index, (_, _, layer) in enumerate(flat) if layer is not None]
    if not numbered:
        raise ExportError("no op is named after a transformer layer, so Megatron's layers are unknown", field="stages")
    first, last = numbered[0], numbered[-1]
    _check_layers(flat[first : last + 1])
    _check_ends(flat, first, last, held[0][0], held[-1][0])
    texts = []
    for number, (_, _, layers) in enumerate(held):
        count = sum(1 for layer, _ in groupby(layers) if layer is not None)
        text = "t" if count == 1 else f"t*{count}" if count else ""
        text = ("E" if number == 0 else "") + text + ("L" if number == len(held) - 1 else "")
        if not text:
            raise ExportError("holds no layer; Megatron refuses an empty stage", field=f"stages.{held[number][0]}")
        texts.append(text)
    return "|".join(texts)


def _in_order(plan: PlacementPlan, num_stages: int) -> list[tuple[int, Stage]]:
    """Return the stages with their places in the plan, chunk by chunk."""
    results: dict[tuple[int, int], tuple[int, Stage]] = {}
    for place, stage in enumerate(plan.stages):
        field = f"stages.{place}"
        if not stage.ops:
            raise ExportError("does not name its ops, so its layers are unknown", field=field)
        if (stage.chunk, stage.stage) in results:
            raise ExportError(f"stage {stage.stage} has chunk {stage.chunk} already", field=field)
        results[stage.chunk, stage.stage] = place, stage
    layout = plan.layout()
    num_chunks = 1 + max(chunk for chunk, _ in results) if layout is None else layout.virtual_stages
    for key in ((chunk, stage) for chunk in range(num_chunks) for stage in range(num_stages)):
        if key not in results:
            raise ExportError(f"chunk {key[0]} of stage {key[1]} is missing", field="stages")
    if len(results) != num_chunks * num_stages:
        raise ExportError(f"{num_stages} stages of {num_chunks} chunks are wanted", field="stages", value=len(results))
    return [results[key] for key in sorted(results)]


def layer_of(op: str) -> int | None:
    """Return the number of the transformer layer that an op is named after, or None."""
    match = _LAYER.search(op)
    return None if match is None else int(match[1])


def _check_layers(flat: list[tuple[int, str, int | None]]) -> None:
    """Check that layers follow one another, and that none is in two stages."""
    for (before, _, previous), (place, op, layer) in pairwise(flat):
        field = f"stages.{place}"
        if layer is None or previous is None:
            raise ExportError("Megatron has nothing between two layers", field=field, value=op)
        if layer not in (previous, previous + 1):
            raise ExportError(f"layer {layer} follows layer {previous}; Megatron runs them in order", field=field, value=op)
        if layer == previous and place != before:
            raise ExportError(f"begins inside layer {layer}; Megatron cuts between layers", field=field, value=op)


def _check_ends(flat: list[tuple[int, str, int | None]], first: int, last: int, first_place: int, last_place: int) -> None:
    """Check that ops before the layers are on the first stage, and ops after them on the last one."""
    for place, op, _ in flat[:first]:
        if place != first_place:
            raise ExportError("comes before the layers; Megatron has that on the first stage", field=f"stages.{place}", value=op)
    for place, op, _ in flat[last + 1 :]:
        if place != last_place:
            raise ExportError("comes after the layers; Megatron has that on the last stage", field=f"stages.{place}", value=op)
