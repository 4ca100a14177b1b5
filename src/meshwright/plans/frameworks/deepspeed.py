"""The layouts that DeepSpeed runs, and how it runs them.

The training script makes the groups, so it also checks the requirements of a layout on the model (heads, sequence length).

Sources, read in November 2026 (DeepSpeed 0.19.8):
    ``runtime/pipe/engine.py`` (``PipelineEngine``): ZeRO below 2, 1F1B, blocking transfers.

    ``runtime/engine.py``: ``_configure_zero_optimizer`` (no ``overlap_comm`` in a pipeline), ``_do_optimizer_sanity_check``,
    ``_configure_tensor_parallel_states``, ``_validate_zero3_moe_compatibility``. The second allows float32 gradients of bf16 not
    without ZeRO; the optimizer of ZeRO-1 reduces them at the end.

    Its tutorials on automatic tensor parallelism in training, Ulysses and mixture of experts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..partition import Layout
from .limits import Framework, LayoutOfModel, Limit
from .numbering import as_layout
from .shared_limits import (
    LAYERWISE,
    Values,
    is_pipelined,
    no_other_zero_1,
    one_grid,
    priced_as,
    schedules,
    without,
)

_UNWRITTEN: Values = {
    **{"recompute": ("none", "selective", "full"), "precision": ("bf16", "fp16", "fp32"), "compile": (None,)},
    **{"loss_chunks": (1,), "first_stage_less_layers": (0,), "last_stage_less_layers": (0,)},
}


def hides_gradients(zero: int, pp: int, precision: str, *, fp32_gradients: bool) -> bool:
    """Return whether ``overlap_comm`` takes effect.

    Args:
        zero: ZeRO stage.
        pp: stages.
        precision: of the layout.
        fp32_gradients: whether gradients are summed in four bytes.
    """
    is_of_bf16 = zero == 1 and precision == "bf16" and fp32_gradients
    return zero > 0 and pp == 1 and not is_of_bf16


def _hides(layout: Layout) -> bool:
    return hides_gradients(layout.zero, layout.pp, layout.precision, fp32_gradients=layout.fp32_gradients)


def _hidden_gradients(case: LayoutOfModel) -> str:
    layout = case.layout
    if layout.pp > 1:
        return "DeepSpeed's pipeline reduces gradients at its end"
    if layout.zero == 0:
        return "DeepSpeed without ZeRO reduces gradients after the backward pass"
    return "DeepSpeed's ZeRO-1 hides them with fp32_gradients=false only: its optimizer for bf16 reduces float32 sums at the end"


def as_cut(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Count memory as DeepSpeed holds it, and cut sequences as Ulysses does."""
    return {"framework": "deepspeed"} | ({"context_parallel": "ulysses"} if keys["cp"] > 1 else {})


def as_run(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return the gradients hide where ``overlap_comm`` takes effect."""
    hides = hides_gradients(keys["zero"], keys["pp"], keys["precision"], fp32_gradients=keys["fp32_gradients"])
    return {"overlap_dp": hides and keys["overlap_dp"], "overlap_pp": False}


DEEPSPEED = Framework(
    name="deepspeed",
    title="DeepSpeed",
    default="zero-3",
    numbering=as_layout,
    as_cut=as_cut,
    as_run=as_run,
    limits=(
        *one_grid("DeepSpeed"),
        Limit(
            "stage_layers",
            "it takes no layers of each stage, as megatron and torchtitan do; the nearest plan leaves stage_layers out",
            (None,),
        ),
        priced_as("DeepSpeed", "deepspeed"),
        no_other_zero_1("DeepSpeed"),
        *without("DeepSpeed's keys", _UNWRITTEN | LAYERWISE),
        schedules("DeepSpeed's pipeline runs 1f1b", "1f1b"),
        Limit("zero", "DeepSpeed's pipeline goes with ZeRO stage 1 at most", (0, 1), is_pipelined),
        Limit("optimizer_bytes", "DeepSpeed's keys keep moments in float32", (4,)),
        Limit("offload", "DeepSpeed offloads what ZeRO shards", ("none",), lambda case: case.layout.zero == 0),
        Limit("trainable", "DeepSpeed's keys train all parameters; scripts for fsdp2 may do otherwise", ("all",)),
        Limit("etp", "DeepSpeed cuts experts as dense layers", (None,)),
        Limit("zero", "DeepSpeed's experts go with ZeRO stage 2 at most", (0, 1, 2), lambda case: case.layout.ep > 1),
        Limit(
            "overlap_dp",
            _hidden_gradients,
            (False,),
            lambda case: case.layout.copies > 1 and not _hides(case.layout),
            of_figures=True,
        ),
        Limit("overlap_pp", "DeepSpeed waits for transfers between stages", (False,), is_pipelined, of_figures=True),
        Limit("overlap_tp", "DeepSpeed has no key for it", (False,), lambda case: case.layout.tp > 1, of_figures=True),
        Limit("context_parallel", "DeepSpeed cuts sequences as Ulysses does", ("ulysses",), lambda case: case.layout.cp > 1),
        Limit(
            "sequence_parallel",
            "Ulysses does not go with Megatron's sequence parallelism",
            (False,),
            lambda case: case.layout.cp > 1 and case.layout.tp > 1,
        ),
        Limit("shard_group", "DeepSpeed's ZeRO shards over all replicas; its MiCS and hpZ are not known here", (None,)),
    ),
)
