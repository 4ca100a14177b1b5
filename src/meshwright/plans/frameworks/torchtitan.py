"""The layouts that torchtitan runs, and how it runs them.

Sources, read in November 2026 (torchtitan 0.2.2, the last release that is configured by a file, PyTorch 2.13):
    ``config/job_config.py``: schedules, recomputation, async tensor parallelism, precisions, experts' tensor parallelism.
    ``distributed/parallel_dims.py``: meshes, and the tokens that a sequence is a multiple of (``seq_len_divisor``).
    ``distributed/utils.py`` (``maybe_enable_amp``): 16 bits under tensor or pipeline parallelism need FSDP.
    ``parallelize.py`` of Llama 3 and Llama 4: DDP alone, sequence parallelism, ``apply_moe_ep_tp``.
    ``distributed/tensor_parallel.py``: async tensor parallelism is the compiler's.
    ``components/quantization/float8.py``: linear layers, which experts are not.
    ``distributed/dual_pipe_v.py`` of 0.2.2 and ``distributed/pipeline_parallel.py`` of 0.3.0: DualPipeV.
    ``torch/distributed/pipelining/schedules.py``: numbers of micro-batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .limits import Framework, LayoutOfModel, Limit
from .numbering import by_hosts
from .shared_limits import (
    LAYERWISE,
    always,
    has_experts,
    is_interleaved,
    key_value_heads,
    no_other_zero_1,
    one_grid,
    priced_as,
    schedules,
    without,
)


def _has_uneven_rounds(case: LayoutOfModel) -> bool:
    """Return whether the micro-batches of an interleaved schedule are no multiple of its rounds, as PyTorch counts them."""
    number = case.layout.num_micro_batches
    return is_interleaved(case) and number % max(1, number // case.layout.pp) > 0


def _tears_experts(case: LayoutOfModel) -> bool:
    """Return whether groups of experts do not divide the ranks that share one copy, those of tp too for whole experts."""
    layout = case.layout
    return layout.ep > 1 and layout.num_shards * layout.tp % (layout.ep * layout.expert_tp) > 0


def _has_uneven_pieces(case: LayoutOfModel) -> bool:
    """Return whether a sequence is no multiple of two pieces of each rank that shares it."""
    length = case.sequence_length
    return length is not None and length % (2 * case.layout.tp * case.layout.cp) > 0


def _is_whole(case: LayoutOfModel) -> bool:
    """Return whether every rank holds whole parameters of its part of the model, so that FSDP wraps nothing."""
    layout = case.layout
    return layout.num_shards == 1 and layout.cp == 1 and layout.tp * layout.pp > 1


def as_cut(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return FSDP2's parameters and sums, products of PyTorch's own, and the compiler, which the configuration turns on."""
    return {"framework": "fsdp2", "async_gradients": False, "fused_accumulation": False, "compile": True}


TORCHTITAN = Framework(
    name="torchtitan",
    title="torchtitan",
    default="fsdp",
    numbering=by_hosts,
    needs_layers=True,
    zero_stages=(0, 2, 3),
    as_cut=as_cut,
    limits=(
        *one_grid("torchtitan"),
        priced_as("torchtitan", "fsdp2"),
        no_other_zero_1("torchtitan"),
        Limit(
            "recompute",
            "torchtitan keeps attention and every second product (selective-ops), or recomputes all of a layer or nothing",
            ("none", "selective-ops", "full"),
        ),
        Limit(
            "recompute",
            "torchtitan hides experts' exchange under DualPipeV only where nothing is recomputed",
            ("none",),
            lambda case: case.layout.is_bidirectional and case.layout.ep > 1,
        ),
        *without("torchtitan's keys", LAYERWISE),
        Limit("loss_chunks", "torchtitan computes the loss in one piece", (1,)),
        schedules("torchtitan runs 1f1b, gpipe, interleaved and dualpipev", "1f1b", "gpipe", "interleaved", "dualpipev"),
        Limit(
            "schedule",
            lambda case: (
                f"PyTorch's 1F1B wants no fewer micro-batches than stages, here {case.layout.num_micro_batches} of "
                f"{case.layout.pp}"
            ),
            ("gpipe", "interleaved", "dualpipev"),
            lambda case: case.layout.num_micro_batches < case.layout.pp,
        ),
        Limit(
            "virtual_stages",
            lambda case: (
                "PyTorch interleaves a multiple of "
                f"{max(1, case.layout.num_micro_batches // case.layout.pp)} micro-batches, here "
                f"{case.layout.num_micro_batches}"
            ),
            when=_has_uneven_rounds,
        ),
        Limit("zero", "torchtitan shards by FSDP2, which is ZeRO stage 3, or 2 without resharding after a pass", (0, 2, 3)),
        Limit(
            "zero",
            "torchtitan keeps whole copies (DDP) only where there is no other axis than dp",
            (2, 3),
            lambda case: case.layout.copies > 1 and case.layout.tp * case.layout.cp * case.layout.pp > 1,
        ),
        Limit(
            "shard_group",
            "torchtitan keeps whole copies (DDP) only where there is no other axis than dp",
            when=lambda case: case.layout.shard_group == 1 and _is_whole(case),
        ),
        Limit(
            "sequence_parallel",
            "torchtitan's tensor parallelism cuts activations by sequence too",
            (True,),
            lambda case: case.layout.tp > 1,
        ),
        Limit(
            "overlap_tp",
            "torchtitan hides it by the compiler: compile=true",
            (False,),
            lambda case: case.layout.tp > 1 and case.layout.compile is not True,
        ),
        Limit(
            "context_parallel",
            "torchtitan passes keys and values round or gathers them",
            ("ring", "all-gather"),
            lambda case: case.layout.cp > 1,
        ),
        Limit(
            "shard_group",
            lambda case: f"torchtitan shards over whole groups of cp, here {case.layout.cp} ranks",
            when=lambda case: bool(case.layout.shard_group and case.layout.shard_group % case.layout.cp),
        ),
        Limit("ep", "torchtitan wants ep to divide the ranks that share one copy (FSDP)", when=_tears_experts),
        Limit("offload", "torchtitan offloads parameters with the optimizer (enable_cpu_offload), which has no price", ("none",)),
        Limit("optimizer_bytes", "torchtitan's keys keep moments in float32", (4,)),
        Limit("trainable", "torchtitan's keys train all parameters; scripts for fsdp2 may do otherwise", ("all",)),
        Limit("etp", "torchtitan cuts an expert by tp or not at all", (None, 1)),
        Limit("etp", "torchtitan leaves experts whole only with ep above 1", (None,), lambda case: case.layout.ep == 1),
        Limit("precision", "torchtitan computes in bf16, fp32 or, products of layers, in fp8", ("bf16", "fp32", "fp8")),
        Limit(
            "precision",
            "torchtitan computes tensor and pipeline parallel layers in 16 bits only where FSDP shards: dp or cp above 1",
            ("fp32",),
            _is_whole,
        ),
        Limit("precision", "torchtitan's fp8 is of linear layers, and experts are none", ("bf16", "fp32"), has_experts),
        Limit(
            "attention",
            "torchtitan's attention stores no scores",
            ("fused",),
            lambda case: case.layout.precision != "fp32",
            of_figures=True,
        ),
        *always("torchtitan", async_gradients=False, fused_accumulation=False, fp32_gradients=True),
        key_value_heads("torchtitan wants tp to divide the {} key-value heads"),
        Limit(
            "cp",
            lambda case: f"torchtitan wants 2 tp cp to divide the sequence of {case.sequence_length} tokens",
            when=_has_uneven_pieces,
        ),
    ),
)
