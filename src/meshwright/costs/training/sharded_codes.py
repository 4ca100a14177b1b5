"""ZeRO-3 with coded parameters or gradients: messages send less, and kernels encode and decode at the same time.

A rank encodes its share of a block's parameters before they are gathered, and decodes all; it encodes all of its gradients, which
are exchanged all to all and not reduced in transit, and decodes what it gets. Coding is part of the passes, so that both price
paths read it as they read any kernel.

Source:
    Wang et al., "ZeRO++: extremely efficient collective communication for giant model training", 2023, sections 3.1 and 3.3.
"""

from __future__ import annotations

from dataclasses import replace

from ...errors import PlanError
from ...plans.compression import Quantise
from ...plans.partition import Layout
from ..collectives.prices import Operation
from ..compression import PASSES, coded_share
from ..work.layer import BlockWork
from ..work.operations import Item, Message, Pass, Sweep
from ..work.step_work import StepWork
from ..work.work import LayoutWork, with_blocks

AXES = ("shard", "expert_dp")
"""Of the messages that gather parameters and scatter gradients."""


def coded_shards(work: StepWork, code: Quantise) -> LayoutWork:
    """What every rank of a layout with ZeRO-3 does where it codes what it gathers, what it scatters, or both.

    Raises:
        PlanError: a job that is cut op by op.
    """
    if not isinstance(work, LayoutWork):
        raise PlanError("codes of ZeRO-3 are priced for transformers", field="layout.zero", value=3)
    layout = work.layout
    blocks = {name: _coded_block(block, layout, code) for name, block in work.blocks.items()}
    return with_blocks(work, blocks, ("coded", code.text))


def shard_bytes(work: LayoutWork, code: Quantise) -> float:
    """Bytes that a rank of the fullest stage holds in addition: what its gradients lost, in 4 bytes a number."""
    if not code.error_feedback or code.what == "parameters":
        return 0.0
    return 4.0 * max(one.parameters for one in work.stages)


def sent_share(work: LayoutWork, code: Quantise) -> float:
    """Bytes of the gradients that are sent, over those without coding."""
    return 1.0 if code.what == "parameters" else coded_share(code, work.layout.gradient_bytes)


def _coded_block(block: BlockWork, layout: Layout, code: Quantise) -> BlockWork:
    forward, recompute, backward = (_coded(items, layout, code) for items in (block.forward, block.recompute, block.backward))
    return replace(block, forward=forward, recompute=recompute, backward=backward)


def _coded(items: Pass, layout: Layout, code: Quantise) -> Pass:
    """A pass with coded messages, each behind the kernels that code it; messages run beside what they ran beside."""
    made = [_coded_items(item, layout, code) for item in items]
    found: list[Item] = []
    for place, instead in enumerate(made):
        *before, last = instead
        if isinstance(last, Message) and last.beside:
            last = replace(last, beside=sum(map(len, made[place + 1 : place + 1 + last.beside])))
        found += [*before, last]
    return tuple(found)


def _coded_items(item: Item, layout: Layout, code: Quantise) -> tuple[Item, ...]:
    if not isinstance(item, Message) or item.axis not in AXES or item.payload_bytes <= 0:
        return (item,)
    is_gather = item.operation == "all_gather"
    if code.what != "both" and is_gather != (code.what == "parameters"):
        return (item,)
    each = PASSES["quantise"] / 2 if code.codec_passes is None else code.codec_passes
    shards = max(1, layout.num_shards // (layout.ep if item.axis == "expert_dp" else 1))
    encoded = item.payload_bytes / shards if is_gather else item.payload_bytes
    moved = each * (encoded + item.payload_bytes)
    operation: Operation = item.operation if is_gather or code.summable else "all_to_all"
    width = layout.gradient_bytes if not is_gather and layout.is_fsdp2 else layout.number_bytes
    sent = replace(item, operation=operation, payload_bytes=coded_share(code, width) * item.payload_bytes)
    return (Sweep(f"code of {item.name}", moved, 2, is_weight=item.is_weight), sent) if moved else (sent,)
