"""The layouts that Megatron-LM runs.

Sources, read in November 2026 (megatron-core 0.16.1):
    ``validate_args`` of ``megatron/training/arguments.py``: hidden transfers, length of a sequence, fp16 with experts,
    ``CUDA_DEVICE_MAX_CONNECTIONS``, arguments that are ignored.
    ``TransformerConfig.__post_init__`` and ``ModelParallelConfig``: heads, biases of experts, sequence parallelism.
    ``pipeline_parallel/schedules.py``: micro-batches of an interleaved round.
    ``TransformerBlock._checkpointed_forward``: a group of layers that are computed again reaches past the end of a chunk where
    it does not divide it.
    ``parallel_state.py``: instances of the distributed optimizer divide the replicas of dense layers and of experts.
    Transformer Engine 2, ``get_attention_backend``: attention that stores its scores cuts no sequence.
"""

from __future__ import annotations

from ..pipelines.layers import layers_of_chunks
from .limits import Framework, LayoutOfModel, Limit
from .numbering import as_megatron
from .shared_limits import (
    Values,
    always,
    has_experts,
    is_interleaved,
    is_pipelined,
    key_value_heads,
    one_grid,
    priced_as,
    schedules,
    without,
)

_UNWRITTEN: Values = {
    **{"recompute": ("none", "selective", "full"), "precision": ("bf16", "fp16", "fp32", "fp8"), "compile": (None,)},
    "loss_chunks": (1,),
}


def _groups_of_layers(case: LayoutOfModel) -> bool:
    """Return whether some chunk of the model is no whole number of the groups of layers that are computed again together."""
    layout, size = case.layout, case.layout.recompute_num_layers
    if size == 1 or layout.recompute_method == "block" or case.shape is None:
        return False
    return any(number % size for number in layers_of_chunks(case.shape.num_layers, layout))


def _biased_experts(case: LayoutOfModel) -> bool:
    shape = case.shape
    return shape is not None and shape.num_experts > 1 and (shape.mlp_bias or shape.output_bias)


def _instances(case: LayoutOfModel) -> bool:
    """Return whether the copies of the optimizer do not divide the replicas of experts."""
    layout = case.layout
    is_partly_sharded = 1 < layout.num_shards < layout.copies
    return layout.ep > 1 and is_partly_sharded and layout.expert_copies % (layout.copies // layout.num_shards) > 0


def _halves(case: LayoutOfModel) -> bool:
    """Return whether each rank of a ring has a piece of both halves of the sequence: a causal mask costs all the same."""
    cp, length = case.layout.cp, case.sequence_length
    return cp > 1 and length is not None and length % (2 * cp) > 0


def _slices(case: LayoutOfModel) -> bool:
    layout, length = case.layout, case.sequence_length
    return layout.sequence_parallel and length is not None and length // layout.cp % layout.tp > 0


MEGATRON = Framework(
    name="megatron",
    title="Megatron-LM",
    default=None,
    numbering=as_megatron,
    needs_layers=True,
    zero_stages=(0, 1),
    as_cut=lambda keys: {"framework": "megatron"},
    limits=(
        *one_grid("Megatron-LM"),
        priced_as("Megatron-LM", "megatron"),
        *without("Megatron's arguments", _UNWRITTEN),
        schedules("Megatron runs 1f1b, and interleaved with virtual stages", "1f1b", "interleaved"),
        Limit("zero", "Megatron's distributed optimizer is ZeRO stage 1", (0, 1)),
        Limit(
            "overlap_tp",
            "Megatron hides it with sequence_parallel only",
            (False,),
            lambda case: not case.layout.sequence_parallel,
        ),
        Limit(
            "sequence_parallel",
            "Megatron wants it where there are both experts and tp",
            (True,),
            lambda case: has_experts(case) and case.layout.tp > 1,
        ),
        Limit(
            "sequence_parallel",
            lambda case: f"Megatron wants tp to divide the {case.sequence_length} tokens of a sequence over cp",
            when=_slices,
        ),
        *always("Megatron", async_gradients=True),
        Limit(
            "overlap_pp",
            "Megatron hides pipeline transfers in the interleaved schedule only",
            (False,),
            lambda case: is_pipelined(case) and case.layout.virtual_stages == 1,
        ),
        Limit(
            "overlap_pp",
            "Megatron interleaves two stages with hidden transfers only",
            (True,),
            lambda case: is_interleaved(case) and case.layout.virtual_stages > 1 and case.layout.pp == 2,
        ),
        Limit(
            "virtual_stages",
            lambda case: (
                "Megatron interleaves no fewer micro-batches than stages, here "
                f"{case.layout.num_micro_batches} of {case.layout.pp}"
            ),
            (1,),
            lambda case: case.layout.num_micro_batches < case.layout.pp,
        ),
        Limit(
            "recompute_num_layers",
            "Megatron computes groups of layers again that divide every model chunk",
            when=_groups_of_layers,
        ),
        Limit(
            "precision",
            "Megatron cuts experts in bf16 or fp32, not in fp16",
            ("bf16", "fp32", "fp8"),
            lambda case: case.layout.ep > 1,
        ),
        Limit("attention", "attention that stores its scores cuts no sequence", ("fused",), lambda case: case.layout.cp > 1),
        Limit("trainable", "Megatron's keys train all parameters; scripts for fsdp2 may do otherwise", ("all",)),
        Limit(
            "optimizer_bytes",
            "Megatron keeps moments in fewer bytes with its distributed optimizer",
            (4,),
            lambda case: not case.layout.shards_optimizer,
        ),
        Limit(
            "offload",
            "Megatron offloads its distributed optimizer: zero=1",
            ("none",),
            lambda case: not case.layout.shards_optimizer,
        ),
        Limit("shard_group", "Megatron wants as many replicas of experts in every shard group", when=_instances),
        Limit("tp", "Megatron's experts have biases without tensor parallelism only", (1,), _biased_experts),
        key_value_heads(
            "Megatron gathers queries, keys and values where tp does not divide the {} key-value heads, which is not priced"
        ),
        Limit(
            "cp",
            lambda case: f"Megatron wants 2 cp to divide the sequence of {case.sequence_length} tokens",
            when=_halves,
        ),
    ),
)
