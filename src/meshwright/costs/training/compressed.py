"""Gradients that are coded: seconds of a synchronous step, and ZeRO-3 with coded parameters or gradients.

ZeRO-3's messages send less, and kernels encode and decode at the same time. A rank encodes its share of a block's parameters
before they are gathered, and decodes all. It encodes all of its gradients and decodes what it gets; they are exchanged all to
all and not reduced in transit. Coding is part of the passes, so both price paths read it as they read any kernel.

Source:
    Wang et al., "ZeRO++: extremely efficient collective communication for giant model training", 2023, sections 3.1 and 3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...errors import PlanError
from ...plans.compression import AnyCompression, Quantise
from ...plans.partition import Layout
from ..collectives.prices import Operation
from ..compression import PASSES, Coded, coded, coded_share, coded_tail_s
from ..process_groups.group_network import whole_lane
from ..work.layer import BlockWork
from ..work.operations import Item, Message, Pass, Sweep, joined
from ..work.step_work import StepWork
from ..work.work import LayoutWork, with_blocks
from .replicas import Replicas, slowest_of


def compressed_s(replicas: Replicas, code: AnyCompression) -> float:
    """Return seconds of a synchronous step with coded gradients.

    The exposed tail of a stage behind its last backward pass, see `compression.coded_tail_s`, replaces the tail without
    coding. Of all stages the one that gains least decides.
    """
    late_s = (slowest_of(replicas.num_replicas, replicas.straggler_sigma) - 1) * replicas.local_s
    changes = [tail_s(replicas, stage, code) - tail_s(replicas, stage, None) for stage in range(replicas.layout.pp)]
    return replicas.synchronous_s + late_s + max(changes)


def tail_s(replicas: Replicas, stage: int, code: AnyCompression | None) -> float:
    """Return the seconds behind the last backward pass of a stage until its gradients are summed, and decoded."""
    messages_s = encode_s = decode_s = 0.0
    lane = whole_lane(replicas.pricer.wires, replicas.layout, replicas.pricer.order).at(stage)
    for message in _summed(replicas, stage):
        made = coding(replicas, stage, message, code) if code is not None else Coded((message,), 0.0, 0.0, 0.0)
        messages_s += sum(replicas.pricer.message_s(one, replicas.layout, lane[one.axis]) for one in made.messages)
        encode_s += made.encode_s
        decode_s += made.decode_s
    if not replicas.layout.overlap_dp:
        return encode_s + messages_s + decode_s
    blocks = replicas.pricer.backward_blocks(replicas.work, stage)
    return coded_tail_s(blocks, messages_s, encode_s, decode_s, replicas.pricer.slowdown)


def coding(replicas: Replicas, stage: int, message: Message, code: AnyCompression) -> Coded:
    """Return the messages in place of one that sums gradients; all ranks wait for the slowest device that codes."""
    number_bytes, matrices = replicas.work.gradient_number_bytes, replicas.work.matrices(stage, message)
    made = (
        coded(code, message, replicas.num_summing, device, number_bytes=number_bytes, matrices=matrices)
        for device in replicas.pricer.coding_devices(replicas.work, stage)
    )
    return max(made, key=lambda one: one.encode_s + one.decode_s)


def coded_messages(
    replicas: Replicas, code: AnyCompression
) -> tuple[Callable[[int], tuple[Message, ...]], dict[int, tuple[float, float]]]:
    """Return the coded messages of each stage and its seconds of encoding and decoding, for the event path."""
    codecs, sent = {}, {}
    for stage in range(replicas.layout.pp):
        summed = replicas.work.summed(stage)
        made = [coding(replicas, stage, message, code) for message in _summed(replicas, stage)]
        codecs[stage] = sum(one.encode_s for one in made), sum(one.decode_s for one in made)
        uncoded = (message for message in replicas.work.sync(stage) if message not in summed)
        sent[stage] = (*(message for one in made for message in one.messages), *uncoded)
    return sent.__getitem__, codecs


def compression_bytes(replicas: Replicas, code: AnyCompression) -> float:
    """Return the bytes that a rank of the fullest stage holds in addition."""
    results = []
    for stage in range(replicas.layout.pp):
        results.append(sum(coding(replicas, stage, message, code).extra_bytes for message in _summed(replicas, stage)))
    return max(results)


def _summed(replicas: Replicas, stage: int) -> tuple[Message, ...]:
    return replicas.work.summed(stage) if replicas.num_summing > 1 else ()


AXES = ("shard", "expert_dp")
"""Of the messages that gather parameters and scatter gradients."""


def coded_shards(work: StepWork, code: Quantise) -> LayoutWork:
    """Return the work of a layout with ZeRO-3 that codes its gathered parameters, its scattered gradients, or both.

    Raises:
        PlanError: a job that is cut op by op.
    """
    if not isinstance(work, LayoutWork):
        raise PlanError("codes of ZeRO-3 are priced for transformers", field="layout.zero", value=3)
    layout = work.layout
    blocks = {name: _coded_block(block, layout, code) for name, block in work.blocks.items()}
    return with_blocks(work, blocks, ("coded", code.text))


def shard_bytes(work: LayoutWork, code: Quantise) -> float:
    """Return the bytes that a rank of the fullest stage holds in addition: what its gradients lost, in 4 bytes a number."""
    if not code.error_feedback or code.what == "parameters":
        return 0.0
    return 4.0 * max(stage.parameters for stage in work.stages)


def sent_share(work: LayoutWork, code: Quantise) -> float:
    """Return the bytes of the gradients that are sent, over those without coding."""
    return 1.0 if code.what == "parameters" else coded_share(code, work.layout.gradient_bytes)


def _coded_block(block: BlockWork, layout: Layout, code: Quantise) -> BlockWork:
    forward, recompute, backward = (_coded(items, layout, code) for items in (block.forward, block.recompute, block.backward))
    return replace(block, forward=forward, recompute=recompute, backward=backward)


def _coded(items: Pass, layout: Layout, code: Quantise) -> Pass:
    """Return a pass with coded messages, each behind the kernels that code it; messages overlap as they did."""
    return joined([_coded_items(item, layout, code) for item in items])


def _coded_items(item: Item, layout: Layout, code: Quantise) -> tuple[Item, ...]:
    if not isinstance(item, Message) or item.axis not in AXES or item.payload_bytes <= 0:
        return (item,)
    is_gather = item.operation == "all_gather"
    if code.what != "both" and is_gather != (code.what == "parameters"):
        return (item,)
    each = PASSES["quantise"] / 2 if code.codec_passes is None else code.codec_passes
    copies = layout.expert_copies if item.axis == "expert_dp" else layout.copies
    shards = max(1, layout.num_shards * copies // layout.copies)
    encoded = item.payload_bytes / shards if is_gather else item.payload_bytes
    moved = each * (encoded + item.payload_bytes)
    operation: Operation = item.operation if is_gather or code.summable else "all_to_all"
    width = layout.gradient_bytes if not is_gather and layout.is_fsdp2 else layout.number_bytes
    sent = replace(item, operation=operation, payload_bytes=coded_share(code, width) * item.payload_bytes)
    return (Sweep(f"code of {item.name}", moved, 2, is_weight=item.is_weight), sent) if moved else (sent,)
