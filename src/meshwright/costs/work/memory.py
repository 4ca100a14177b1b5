"""Memory of every pipeline stage of a transformer under a layout: what a rank holds at its worst moment, and its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...plans.partition import Layout
from .activations.stage_activations import Passing, computes_again, logits_bytes, message_buffers, passing_bytes
from .model_chunks import end_stages
from .stage_work import expert_shards, once, optimizer_bytes, slice_buffer_bytes, stored_bytes

if TYPE_CHECKING:
    from .work import LayoutWork

FRAGMENTATION = 0.04
"""Share of what changes size during a step that a caching allocator cannot reuse. An assumption."""

RUNTIME_BYTES = 1.5e9
"""Context of the driver and its libraries on a device, and NCCL's own buffers. An assumption."""


class StageMemory(NamedTuple):
    """Bytes on a rank of one stage.

    Attributes:
        parameters: weights in the working precision.
        gradients: as they are summed.
        optimizer: master weights in float32, and both moments.
        activations: of all micro-batches that the schedule keeps, with the block that is being recomputed.
        buffers: of communication, and the logits.
        runtime: the reserve: context of the driver and libraries, NCCL's buffers, and fragmentation.
        idle: bytes of these parts that are never held at one time, as one stream's memory is not another's.
    """

    parameters: float
    gradients: float
    optimizer: float
    activations: float
    buffers: float
    runtime: float
    idle: float = 0.0

    @property
    def model_state(self) -> float:
        """Parameters, gradients and optimizer."""
        return self.parameters + self.gradients + self.optimizer

    @property
    def total(self) -> float:
        """Bytes of all parts together: what the driver reports once PyTorch's allocator holds all that it needed."""
        return self.model_state + self.activations + self.buffers + self.runtime

    @property
    def allocated(self) -> float:
        """Bytes of tensors at one time, as PyTorch's allocator counts what it gave out."""
        return self.model_state + self.activations + self.buffers - self.idle


BUCKET_PARAMETERS = 5e8
"""Parameters or gradients of one bucket of ZeRO (DeepSpeed's default ``reduce_bucket_size``)."""

LIVE_PARAMETERS = 1e9
"""Parameters that ZeRO-3 keeps whole at a time, where a single weight is not larger. DeepSpeed's defaults
``stage3_max_live_parameters``, and ``sub_group_size`` for its update."""


def has_zero_of_deepspeed(layout: Layout) -> bool:
    """Return whether a layout runs with DeepSpeed's ZeRO, and not with its bf16 optimizer, which is counted as others are.

    Nothing is held twice at initialisation: weights are made flat on the device where it has room for both, else in the host's
    memory (``available_memory >= flat_buffer_bytes``). That optimizer sums float32 of all parameters.

    Source:
        deepspeedai/DeepSpeed 0.19.8, runtime/zero/stage_1_and_2.py (``DeepSpeedZeroOptimizer``: ``__init__``, ``setup_buckets``,
        ``extra_large_param_to_reduce``, ``allreduce_bucket``, ``step``), runtime/zero/stage3.py
        (``_prepare_fp32_grad_for_sub_group``) and runtime/bf16_optimizer.py.
    """
    sums_all = layout.zero == 1 and layout.precision == "bf16" and layout.fp32_gradients and layout.offload == "none"
    return layout.framework == "deepspeed" and layout.zero >= 1 and not sums_all


def updated_bytes(layout: Layout, shard: float) -> float:
    """Return bytes of gradients at an update's start: a rank's part, a flat copy, and a float32 one; 0 where the host updates.

    Args:
        layout: how the job is cut.
        shard: parameters that a rank updates.
    """
    if layout.offload == "optimizer":
        return 0.0
    copies = 4 if layout.gradient_bytes == 4 else layout.gradient_bytes + 4
    return layout.gradient_bytes * shard + copies * (min(shard, LIVE_PARAMETERS) if layout.zero == 3 else shard)


def bucket_bytes(layout: Layout, parameters: float, weight: float) -> float:
    """Return the bytes of the buckets of ZeRO-1 and 2, of full size whatever the model's, and of the flat copy that is summed.

    There are two buckets where sums overlap the backward pass. A weight larger than a bucket goes by itself: its gradient and
    a copy. Sums in the host's memory come back to a buffer of one weight (``temp_grad_buffer_for_gpu_offload``).

    Args:
        layout: how the job is cut.
        parameters: those that a rank holds.
        weight: those of the largest weight.
    """
    width = layout.gradient_bytes if layout.zero == 1 else layout.number_bytes
    buckets = (2 if layout.overlap_dp else 1) * BUCKET_PARAMETERS
    of_host = layout.number_bytes * weight if layout.offload == "optimizer" else 0.0
    return of_host + width * (buckets + (2 * weight if weight > BUCKET_PARAMETERS else min(parameters, BUCKET_PARAMETERS)))


_State = tuple[float, float, float, float]
"""Parameters, optimizer, gradients and buffers of sharding, whatever the size of a micro-batch."""

_Moment = tuple[float, float, float]
"""Gradients, activations and buffers."""


def stage_memory(work: LayoutWork, stage: int) -> StageMemory:
    """Return memory of a rank of one stage.

    ZeRO-1 (or the distributed optimizer) shards the optimizer. ZeRO-2 also shards the gradients where they are reduced for
    every micro-batch (without a pipeline). ZeRO-3 shards the weights, some of them whole at a time. FSDP2 shards float32
    weights.
    """
    own, layout = work.at(stage), work.layout
    key = stage, layout.schedule, layout.virtual_stages, layout.recompute_num_layers
    state: _State = once(own.of_weights, stage, lambda: _state(own, stage))
    passing: Passing = once(own.of_passes, key, lambda: passing_bytes(own, stage))
    held = _memory(own, stage, state, passing)
    if not work.meshes:
        return held
    slices = slice_buffer_bytes(work, stage)
    return held._replace(buffers=held.buffers + slices, runtime=held.runtime + FRAGMENTATION * slices)


def peak_memory(work: LayoutWork) -> tuple[int, StageMemory]:
    """Return the stage whose ranks need most, and what they hold."""
    layout = work.layout
    if work.meshes:
        return max(((stage, stage_memory(work, stage)) for stage in range(layout.pp)), key=lambda pair: pair[1].total)
    known = "peak", layout.schedule, layout.virtual_stages, layout.recompute_num_layers
    result: tuple[int, StageMemory] = work.once(known, lambda: _peak(work))
    return result


def _peak(work: LayoutWork) -> tuple[int, StageMemory]:
    layout = work.layout
    several = computes_again(layout), layout.recompute_num_layers > 1
    stages, states = once(work.of_weights, several, lambda: _fullest_stages(work))
    key = layout.schedule, layout.virtual_stages, layout.recompute_num_layers
    passing: list[Passing] = once(work.of_passes, key, lambda: [passing_bytes(work, stage) for stage in stages])
    held = [_memory(work, *one) for one in zip(stages, states, passing, strict=True)]
    totals = [one.total for one in held]
    fullest = totals.index(max(totals))
    return stages[fullest], held[fullest]


def _fullest_stages(work: LayoutWork) -> tuple[list[int], list[_State]]:
    """Return stages that include the fullest one, and their bytes of weights."""
    layout, pp = work.layout, work.layout.pp
    layers = [held.num_layers for held in work.stages]
    least = min(layers)
    stages = {0, pp // 2, pp - 1} | {stage for stage, number in enumerate(layers) if number > least}
    if work.shape.other_layers or layout.keeps_some_layers or layout.is_bidirectional:
        stages = set(range(pp))
    is_grouped = layout.recompute_num_layers > 1 and not layout.keeps_some_layers
    if not (computes_again(layout) or is_grouped or work.shape.long_skips):
        # Of equal stages the first one keeps the most micro-batches.
        stages = set({id(work.stages[stage]): stage for stage in sorted(stages, reverse=True)}.values())
    return sorted(stages), [_state(work, stage) for stage in sorted(stages)]


def _memory(work: LayoutWork, stage: int, state: _State, passing: Passing) -> StageMemory:
    """Return the memory of a rank of one stage, of a layout whose stages have one mesh."""
    parameters, optimizer, gradients, sharding = state
    held_bytes, again, buffers = passing
    if work.layout.is_fsdp2:
        moments, apart = _moments(work, stage, gradients, held_bytes, again)
        held = max((_held(parameters, optimizer, *moment) for moment in moments), key=lambda one: one.total)
        return held._replace(idle=held.allocated - parameters - optimizer - max(map(sum, apart)))
    in_passes = _held(parameters, optimizer, gradients, held_bytes + again, buffers + sharding)
    if not has_zero_of_deepspeed(work.layout):
        return in_passes
    updated = updated_bytes(work.layout, work.stages[stage].optimizer_parameters)
    return max(in_passes, _held(parameters, optimizer, updated, 0.0, 0.0), key=lambda one: one.total)


def _state(work: LayoutWork, stage: int) -> _State:
    layout, held = work.layout, work.stages[stage]
    width, gradient_width = layout.number_bytes, layout.gradient_bytes
    shards = layout.num_shards
    of_experts = expert_shards(layout)
    shared = held.dense_parameters / shards + held.expert_parameters / of_experts
    gradients = gradient_width * (shared if layout.reduces_in_passes else held.parameters)
    if layout.offload != "none" and layout.reduces_in_passes and has_zero_of_deepspeed(layout):
        gradients = 0.0  # sums of shards are in the host's memory
    frozen_shards = held.frozen_bytes / shards + held.frozen_expert_bytes / of_experts
    frozen = frozen_shards if layout.zero >= 3 else held.frozen_bytes + held.frozen_expert_bytes
    widened = width * _largest_weight(work, stage) if layout.frozen_bits < 16 else 0.0
    optimizer = optimizer_bytes(layout) * held.optimizer_parameters if layout.offload == "none" else 0.0
    if layout.is_fsdp2:  # the shards of the weights are float32, and no copy of them is kept
        if layout.zero >= 2 and not layout.reduces_in_passes:
            # A chunk's are reduced after its run of micro-batches, while those of the next one are computed.
            part = min(1.0, 2 / layout.virtual_stages)
            gradients = gradient_width * (shared + part * (held.parameters - shared))
        parameters = 4.0 * shared + frozen + (0.0 if layout.zero >= 3 else width * held.parameters + frozen_shards)
        return parameters, optimizer, gradients, widened
    # Autocast keeps the copies that it casts for the forward pass until the backward pass is over.
    each = stored_bytes(layout) + (width if layout.precision == "autocast" else 0)
    parameters = each * (shared if layout.zero >= 3 else held.parameters) + frozen
    return parameters, optimizer, gradients, _sharding_buffers(work, stage) + widened


def _held(parameters: float, optimizer: float, gradients: float, activations: float, buffers: float) -> StageMemory:
    runtime = RUNTIME_BYTES + FRAGMENTATION * (activations + buffers)
    return StageMemory(parameters, gradients, optimizer, activations, buffers, runtime)


def _moments(work: LayoutWork, stage: int, gradients: float, held_bytes: float, again: float) -> list[list[_Moment]]:
    """Return the moments of FSDP2 that may be the worst, for what PyTorch's allocator holds and for what is given out.

    - The loss: logits.
    - The backward pass of a layer: its recomputed activations, and the gradients of the largest unit whole. With them the
      buffer from which they are reduced.

    At both, tables of the root module are whole, from the forward to the backward pass. So are a layer that computes and the
    next one, which is gathered in addition to the weights that it is copied into. In a pipeline all weights are, and count as
    parameters.

    Reduced gradients are of the stream that reduces, and the allocator gives no memory of one stream to another. It therefore
    holds them all in addition. Allocated at the loss are those of earlier micro-batches alone, for a gradient exists once it was
    computed. Of a single micro-batch the last layer finds all activations and no gradients, the first one all gradients and its
    own activations. Between two layers of one kind these change evenly.

    Source:
        pytorch/pytorch, torch/distributed/fsdp/_fully_shard/_fsdp_state.py (``_lazy_init`` keeps the root's parameters),
        _fsdp_param_group.py and _fsdp_collectives.py (``foreach_reduce``); pytorch/torchtitan, torchtitan/train.py
        (``zero_grad`` frees gradients).
    """
    layout, held = work.layout, [work.block_weights[name] for name in work.stages[stage].layers]
    layer, frozen = max(block.trained for block in held), max(block.all_frozen_bytes for block in held)
    with_embedding, with_head = end_stages(layout)
    is_last = stage in with_head
    of_ends = [work.block_weights["embedding"]] * (stage in with_embedding) + [work.block_weights["head"]] * is_last
    ends, frozen_ends = sum(one.trained for one in of_ends), sum(one.all_frozen_bytes for one in of_ends)
    whole = layout.number_bytes * (ends + 3 * layer) + frozen_ends + 3 * frozen if layout.zero >= 3 else 0.0
    buffers = message_buffers(work, stage) + whole
    each = layout.number_bytes + layout.gradient_bytes
    in_backward = buffers + max(each * layer + frozen, each * ends + frozen_ends)
    passes = [(held_bytes + again, in_backward), (held_bytes, buffers + logits_bytes(work))][: 1 + is_last]
    earlier = gradients if layout.num_micro_batches > 1 else 0.0
    apart = [(earlier, *one) for one in passes]
    apart.append((gradients, held_bytes / work.stages[stage].num_layers + again, in_backward))
    return [[(gradients, *one) for one in passes], apart]


def _largest_weight(work: LayoutWork, stage: int) -> float:
    """Return the parameters of the largest weight of the layers of a stage."""
    return max(work.block_weights[name].largest_weight for name in work.stages[stage].layers)


def _sharding_buffers(work: LayoutWork, stage: int) -> float:
    """Return the weights that are whole for a time, and buckets of gradients."""
    layout, parameters = work.layout, work.stages[stage].parameters
    width, gradient_width = layout.number_bytes, layout.gradient_bytes
    ends = [work.block_weights["embedding"]] * any(stage in one for one in end_stages(layout))
    table = sum(one.dense_parameters for one in ends)
    weight = max(table, _largest_weight(work, stage))
    if layout.zero < 3 and has_zero_of_deepspeed(layout):
        return bucket_bytes(layout, parameters, weight)
    if layout.zero >= 3:
        held = [work.block_weights[name] for name in work.stages[stage].layers]
        layer, frozen = max(block.trained for block in held), max(block.all_frozen_bytes for block in held)
        whole = min(max(2 * layer, table), max(LIVE_PARAMETERS, weight))
        whole_frozen = min(max(2 * frozen, *(one.frozen_bytes for one in ends), 0.0), width * max(LIVE_PARAMETERS, weight))
        return width * whole + whole_frozen + gradient_width * min(layer, BUCKET_PARAMETERS)
    if layout.shards_optimizer and layout.num_shards > 1:
        return gradient_width * min(parameters, BUCKET_PARAMETERS)
    return 0.0
