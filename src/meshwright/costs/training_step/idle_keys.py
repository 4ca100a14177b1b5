"""Keys of a layout that were given and change neither the time nor the memory of a step, and why."""

from __future__ import annotations

from collections.abc import Iterable

from ...plans.partition import Layout
from ...plans.stage_meshes import value_text

LAYERS_ONLY = (
    "sequence_parallel",
    "overlap_tp",
    "async_gradients",
    "context_parallel",
    "precision",
    "fp32_gradients",
    "attention",
    "fused_accumulation",
    "framework",
    "compile",
    "loss_chunks",
    "first_stage_less_layers",
    "last_stage_less_layers",
    "recompute_method",
    "recompute_num_layers",
    "stage_layers",
)
"""Keys about layers, which a graph of ops does not have (see `graph_work.describe_graph`)."""


def idle_keys(layout: Layout, *, has_layers: bool) -> dict[str, str]:
    """Return the keys that are not at their defaults and change nothing, each with the reason.

    Args:
        layout: how a job is cut.
        has_layers: whether the job is a transformer; else it is a graph of ops.
    """
    stages = range(layout.pp)
    widest, copies = max(layout.at(stage).tp for stage in stages), max(layout.at(stage).copies for stage in stages)
    counted = "dp x sp" if layout.sp > 1 else "dp x cp"
    of_pipelines = ("overlap_pp", "schedule", "first_stage_less_layers", "last_stage_less_layers", "stage_layers")
    reasons = {
        **dict.fromkeys(("sequence_parallel", "overlap_tp"), (widest == 1, "tp is 1")),
        "async_gradients": (
            widest == 1 or layout.overlap_tp,
            "tp is 1" if widest == 1 else "overlap_tp hides them already",
        ),
        **dict.fromkeys(of_pipelines, (layout.pp == 1, "pp is 1")),
        "overlap_dp": (copies == 1, f"{counted} is 1"),
        "context_parallel": (layout.cp == 1, "cp is 1"),
        "shard_group": (layout.shard_group == copies, f"it is all of {counted}"),
        "distributed_optimizer": (
            layout.zero >= 1 or (copies == 1 and layout.shard_group is None),
            "zero shards it" if layout.zero else f"{counted} is 1",
        ),
        "stage_meshes": (not layout.is_meshed, "all stages have one mesh"),
        "recompute": (
            layout.recompute == "selective" and layout.attention == "fused",
            "fused attention keeps no scores, so there is nothing to compute again",
        ),
    }
    if not has_layers:
        reasons |= dict.fromkeys(LAYERS_ONLY, (True, "a graph of ops has no layers"))
    changed = {name for name, spec in Layout.model_fields.items() if getattr(layout, name) != spec.get_default()}
    return {name: why for name, (is_idle, why) in reasons.items() if is_idle and name in changed}


def remarks(layout: Layout, *, has_layers: bool, request: Iterable[str] | None = None) -> tuple[str, ...]:
    """Return the keys that change nothing, in words, one remark a key.

    Args:
        layout, has_layers: as of `idle_keys`.
        request: keys that were given, where the others were not chosen by the user; by default all.
    """
    result = idle_keys(layout, has_layers=has_layers)
    keys = set(result if request is None else request)
    return tuple(
        f"{name}={value_text(getattr(layout, name))} changes nothing: {why}" for name, why in result.items() if name in keys
    )
