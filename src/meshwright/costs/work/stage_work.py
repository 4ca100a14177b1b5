"""Weights of a rank of each stage of a transformer, its work once a step, and tensors between stages of meshes of their own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ...jobs.transformer import TransformerShape
from ...plans.partition import Layout
from ...plans.strategies.trained_state import MOMENT_BYTES
from ..collectives.prices import Operation
from ..resharding.stage_tensors import StageTensor, largest_slice_bytes
from .latent_attention import narrow_parameters
from .model_chunks import end_stages, has_table_copy
from .operations import Axis, Message

if TYPE_CHECKING:
    from .work import LayoutWork


@dataclass(frozen=True, kw_only=True)
class BlockWeights:
    """Parameters of one block on a rank.

    Attributes:
        dense_parameters: those whose gradients are summed over ``dp_cp``.
        expert_parameters: those whose gradients are summed over ``expert_dp``.
        frozen_bytes: of parameters that are not trained, those of experts apart.
        frozen_expert_bytes: of those of experts.
        largest_weight: parameters of the largest weight.
    """

    dense_parameters: float
    expert_parameters: float = 0.0
    frozen_bytes: float = 0.0
    frozen_expert_bytes: float = 0.0
    largest_weight: float = 0.0

    @property
    def trained(self) -> float:
        """All parameters that are trained."""
        return self.dense_parameters + self.expert_parameters

    @property
    def all_frozen_bytes(self) -> float:
        """Bytes of all that are not."""
        return self.frozen_bytes + self.frozen_expert_bytes


@dataclass(frozen=True)
class StageWork:
    """Weights of a rank of one pipeline stage, and its work once a step.

    Attributes:
        dense_parameters: parameters whose gradients are summed over ``dp_cp``, before sharding.
        expert_parameters: those of experts.
        frozen_bytes: of parameters that are not trained, before sharding; those of experts apart.
        frozen_expert_bytes: of those of experts.
        optimizer_parameters: parameters that this rank updates.
        sync: messages after the last backward pass, one after the other.
        gather: messages after the optimizer.
        layers: transformer layers on the stage by the name of their block.
    """

    dense_parameters: float
    expert_parameters: float
    optimizer_parameters: float
    sync: tuple[Message, ...]
    gather: tuple[Message, ...]
    layers: Mapping[str, int]
    frozen_bytes: float = 0.0
    frozen_expert_bytes: float = 0.0

    @property
    def num_layers(self) -> int:
        """Transformer layers on the stage."""
        return sum(self.layers.values())

    @property
    def parameters(self) -> float:
        """All parameters on the rank, before sharding."""
        return self.dense_parameters + self.expert_parameters


def stages_of(
    shape: TransformerShape, layout: Layout, layers: Sequence[Mapping[str, int]], blocks: Mapping[str, BlockWeights]
) -> tuple[StageWork, ...]:
    """Return the weights and work of every stage, of equal ones the same object.

    Args:
        shape: the model.
        layout: how it is cut.
        layers: of each stage the layers by the name of their block, of equal ones the same object.
        blocks: parameters of blocks.
    """
    embedding, head = blocks["embedding"], blocks["head"]
    has_copy, (with_embedding, with_head) = shape.is_head_tied and has_table_copy(layout), end_stages(layout)
    made: dict[tuple[int, bool, bool], StageWork] = {}
    stages = []
    for stage in range(layout.pp):
        key = (id(layers[stage]), stage in with_embedding, stage in with_head)  # of equal ones the same object
        if key not in made:
            dense = sum(number * blocks[name].dense_parameters for name, number in layers[stage].items())
            experts = sum(number * blocks[name].expert_parameters for name, number in layers[stage].items())
            dense += embedding.dense_parameters if stage in with_embedding else 0.0
            if stage in with_head:
                # A tied table is on the first stage; where that is another, the last one keeps a copy.
                has_own = has_copy or not shape.is_head_tied or layout.lora_rank is not None
                dense += head.dense_parameters if has_own else shape.norm_vectors * shape.hidden
            is_tied_end = has_copy and stage in (0, layout.pp - 1) and layout.lora_rank is None
            table = shape.vocabulary / layout.tp * shape.hidden if is_tied_end else 0.0
            narrow = 0 if shape.latent is None else narrow_parameters(shape) * sum(layers[stage].values())
            made[key] = _stage(layout, dense, experts, table, narrow, layers[stage])
            if layout.lora_rank is not None:
                of_ends = [embedding] * key[1] + [head] * (key[2] and (has_copy or not shape.is_head_tied))
                held = [block for name, number in layers[stage].items() for block in [blocks[name]] * number] + of_ends
                frozen = math.fsum(one.frozen_bytes for one in held), math.fsum(one.frozen_expert_bytes for one in held)
                made[key] = replace(made[key], frozen_bytes=frozen[0], frozen_expert_bytes=frozen[1])
        stages.append(made[key])
    return tuple(stages)


def once(known: dict[object, Any], key: object, make: Callable[[], Any]) -> Any:
    """Return the value of a key; make it where it is not known."""
    if key not in known:
        known[key] = make()
    return known[key]


def expert_shards(layout: Layout) -> int:
    """Return the ranks that share one copy of an expert's optimizer; 1 where nothing is sharded."""
    if not layout.shards_optimizer:
        return 1
    return layout.expert_copies if layout.num_shards == layout.copies else min(layout.num_shards, layout.expert_copies)


def stored_bytes(layout: Layout) -> int:
    """Return the bytes of a weight as the optimizer leaves it."""
    return 4 if layout.precision == "autocast" else layout.number_bytes


def optimizer_bytes(layout: Layout) -> float:
    """Return bytes that the optimizer keeps of a parameter: a master weight, unless the weight itself is one, and moments.

    Megatron-LM's precision-aware optimizer keeps of a master weight what the weight of 16 bits lacks.

    Source:
        NVIDIA/Megatron-LM, megatron/core/optimizer/optimizer_config.py (``store_param_remainders``).
    """
    if layout.is_fsdp2 or stored_bytes(layout) == 4:
        master = 0.0
    else:
        master = 2.0 if layout.framework == "megatron" and layout.optimizer_bytes < MOMENT_BYTES else 4.0
    return master + 2.0 * layout.optimizer_bytes


def _stage(layout: Layout, dense: float, experts: float, tied_table: float, narrow: int, layers: Mapping[str, int]) -> StageWork:
    weight_bytes, gradient_bytes = stored_bytes(layout), layout.gradient_bytes
    shards, expert_same = layout.num_shards, layout.expert_copies
    sync: list[Message] = []
    gather: list[Message] = []
    if tied_table:
        held = shards if layout.zero >= 3 else 1  # by then a rank has its shard of the gradients only
        sync.append(Message("tied table", "all_reduce", "ends", tied_table * gradient_bytes / held))
    if narrow and layout.tp > 1 and layout.sequence_parallel:  # each rank has those of its own tokens
        held = shards if layout.reduces_in_passes else 1
        sync.append(Message("latent gradients", "all_reduce", "tp", float(narrow * gradient_bytes / held)))
    of_dense = messages_of(sync_parts, layout, dense * gradient_bytes)
    sync += [item for item in of_dense if item.axis != "shard" or not layout.reduces_in_passes]
    gather += messages_of(gather_parts, layout, dense * weight_bytes) if layout.zero < 3 else ()
    if experts and expert_same > 1:
        if not layout.reduces_in_passes:
            operation: Operation = "reduce_scatter" if layout.shards_optimizer else "all_reduce"
            sync.append(Message("expert gradients", operation, "expert_dp", experts * gradient_bytes))
        if layout.shards_optimizer and layout.zero < 3:
            gather.append(Message("expert parameters", "all_gather", "expert_dp", experts * weight_bytes))
    updated = dense / shards + experts / expert_shards(layout)
    if layout.has_mirrored_stages:
        sync.append(Message("gradients of the other copy", "all_reduce", "mirror", updated * gradient_bytes))
    return StageWork(dense, experts, updated, tuple(sync), tuple(gather), layers)


class MessagePart(NamedTuple):
    """A message whose size is a part of what a stage holds.

    Attributes:
        name, operation, axis: as of `Message`.
        divisor: what the stage holds, over the payload.
    """

    name: str
    operation: Operation
    axis: Axis
    divisor: int = 1


Parts = Callable[[Layout], tuple[MessagePart, ...]]


def sync_parts(layout: Layout) -> tuple[MessagePart, ...]:
    """Return the gradients of a stage, over the replicas."""
    if layout.copies == 1:
        return ()
    if not layout.shards_optimizer:
        return (MessagePart("gradients", "all_reduce", "dp_cp"),)
    shards = layout.num_shards
    scattered = (MessagePart("gradients", "reduce_scatter", "shard"),) if shards > 1 else ()
    copies = (MessagePart("gradients of copies", "all_reduce", "replica", shards),) if shards < layout.copies else ()
    return (*scattered, *copies)


def gather_parts(layout: Layout) -> tuple[MessagePart, ...]:
    """Return the parameters of a stage, where the replicas update a part each."""
    return (MessagePart("parameters", "all_gather", "shard"),) if layout.num_shards > 1 else ()


def messages_of(parts: Parts, layout: Layout, held_bytes: float) -> tuple[Message, ...]:
    """Return the messages of a stage that holds a number of bytes; none where it holds nothing."""
    result = parts(layout) if held_bytes > 0 else ()
    return tuple(Message(part.name, part.operation, part.axis, held_bytes / part.divisor) for part in result)


def stage_tensor(work: LayoutWork, stage: int, carried: int, devices_per_host: int) -> StageTensor:
    """Return some residual streams of a micro-batch of all replicas on a stage, whose ranks have consecutive devices."""
    layout, mesh = work.layout, work.at(stage).layout
    return StageTensor(
        samples=layout.micro_batch * layout.dp,
        tokens=work.sequence_length,
        element_bytes=carried * layout.number_bytes * work.shape.hidden,
        tp=mesh.tp,
        cp=mesh.cp,
        dp=mesh.dp,
        cuts_tokens=mesh.sequence_parallel and mesh.tp > 1,
        hosts=tuple(rank // devices_per_host for rank in range(layout.first_rank(stage), layout.first_rank(stage + 1))),
    )


def slice_buffer_bytes(work: LayoutWork, stage: int) -> float:
    """Return the largest slice that a rank of a stage receives from a rank of another mesh, as a buffer."""
    pp, last, most = work.layout.pp, len(work.chunks) - 1, 0.0
    for chunk in (one for one in range(last + 1) if one % pp == stage):
        for sender, boundary in ((chunk - 1, chunk - 1), (chunk + 1, chunk)):
            if 0 <= sender <= last and work.at(sender % pp) is not work.at(stage):
                ends = [stage_tensor(work, one, work.carried(boundary), 1) for one in (sender % pp, stage)]
                most = max(most, largest_slice_bytes(ends[0], ends[1]))
    return most
