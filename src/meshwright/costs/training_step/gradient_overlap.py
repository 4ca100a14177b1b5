"""Gradients and parameters that are sent block by block during passes, and the part of them that is exposed.

A span is a run of equal blocks (layers, embedding, head) in the last backward pass or the first forward one of a stage.
Each block adds its part to a message when it is done, or waits for its part before it begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..work.work import LayoutWork


class Span(NamedTuple):
    """Blocks of a kind, one after the other, in the last backward or the first forward pass.

    Attributes:
        num_blocks: blocks.
        seconds: of each.
        dense, experts: share of each in the stage's parameters.
    """

    num_blocks: int
    seconds: float
    dense: float
    experts: float


def stage_spans(
    work: LayoutWork, stage: int, seconds: Mapping[str, float], *, is_backward: bool, way_s: float = 0.0
) -> list[Span]:
    """The blocks of a stage in the order of their passes; between two chunks of it run those of ``p - 1`` micro-batches.

    Args:
        work: the layout.
        stage: which.
        seconds: of the pass of each kind of block; under a zero-bubble schedule the one of weight gradients is the last.
        is_backward: the last backward pass, else the first forward one.
    """
    layout, held = work.layout, work.stages[stage]
    shares = {name: dense / held.dense_parameters for name, dense in block_parameters(work, stage).items()}
    experts = {name: block.expert_parameters / (held.expert_parameters or 1.0) for name, block in work.block_weights.items()}
    spans: list[Span] = []
    num_runs = 0
    for chunk in (chunk for chunk in work.chunks if chunk.stage == stage):
        of_chunk = [("embedding", 1)] * chunk.has_embedding + [*chunk.runs] + [("head", 1)] * chunk.has_head
        made = [Span(n, seconds[b], shares[b], experts[b]) for b, n in of_chunk]
        if spans:
            first = made if not is_backward else spans[len(chunk.runs) - len(of_chunk) - num_runs :]
            spans.append(Span(layout.pp - 1, way_s + sum(span.num_blocks * span.seconds for span in first), 0.0, 0.0))
        spans += made
        num_runs = len(chunk.runs)
    return spans[::-1] if is_backward else spans


def block_parameters(work: LayoutWork, stage: int) -> dict[str, float]:
    """Dense parameters of each kind of layer, embedding and head of a stage; a tied table counts where it is kept."""
    held, own = work.stages[stage], [chunk for chunk in work.chunks if chunk.stage == stage]
    dense = {name: block.dense_parameters for name, block in work.block_weights.items()}
    layers, table = sum(number * dense[name] for name, number in held.layers.items()), dense["embedding"]
    has_table = any(chunk.has_embedding for chunk in own)
    has_head = any(chunk.has_head for chunk in own)
    head = max(0.0, held.dense_parameters - layers - table * has_table) if has_head else 0.0
    return dense | {"head": head}


def exposed_after(spans: list[Span], messages: list[tuple[str, float]]) -> float:
    """Seconds for which messages still run when the last block is done, each of which has added its part to them.

    Args:
        spans: the blocks.
        messages: axis and seconds of each, as a whole; the part of a block goes through those of its kind in turn.
    """
    late_s = 0.0
    for is_expert in (False, True):
        whole_s = [seconds for axis, seconds in messages if (axis == "expert_dp") == is_expert]
        parts = [(n, seconds, experts if is_expert else dense) for n, seconds, dense, experts in spans]
        if len(whole_s) > 1:
            late_s = max(late_s, _in_turn(parts, whole_s))
        elif whole_s:
            free = clock = 0.0
            for n, seconds, share in parts:
                part_s = share * whole_s[0]
                if share:  # the last to be sent waits for the line, or the first or the last block for its pass
                    free = max(free + n * part_s, clock + seconds + n * part_s, clock + n * seconds + part_s)
                clock += n * seconds
            late_s = max(late_s, free - clock)
    return late_s


def exposed_before(spans: list[Span], messages: list[tuple[str, float]]) -> float:
    """Seconds for which blocks wait for their parts of messages, all of which begin when the first block might.

    Args:
        spans: the blocks.
        messages: axis and seconds of each, as a whole.
    """
    arrived = [0.0] * len(messages)
    clock = waited = 0.0
    for n, seconds, dense, experts in spans:
        ends = clock + n * seconds
        for place, (axis, whole_s) in enumerate(messages):
            part_s = (experts if axis == "expert_dp" else dense) * whole_s
            if part_s:  # the first or the last block is the one that waits longest
                ends = max(ends, arrived[place] + part_s + n * seconds, arrived[place] + n * part_s + seconds)
                arrived[place] += n * part_s
        waited += ends - clock - n * seconds
        clock = ends
    return waited


def _in_turn(parts: list[tuple[int, float, float]], whole_s: list[float]) -> float:
    """`exposed_after` of messages that follow each other, block by block."""
    free = [0.0] * len(whole_s)
    clock = 0.0
    for n, seconds, share in parts:
        for _ in range(n):
            clock += seconds
            arrived = clock
            for place, whole in enumerate(whole_s if share else ()):
                free[place] = arrived = max(arrived, free[place]) + share * whole
    return max(0.0, free[-1] - clock)
