"""Gradients and parameters that are sent block by block during passes, and the part of them that is exposed.

A span is a run of equal blocks (layers, embedding, head) in the last backward pass or the first forward one of a stage.
Each block adds its part to a message when it is done, or waits for its part before it begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from ..work.work import LayoutWork

Spans = NDArray[np.float64]
"""Spans one after the other, ``(k, 4)``: number of blocks, seconds of each, and its dense and its expert share in the stage's
parameters."""


def stage_spans(work: LayoutWork, stage: int, seconds: Mapping[str, float], *, is_backward: bool, way_s: float = 0.0) -> Spans:
    """Return the blocks of a stage in the order of their passes; between two chunks of it run those of ``p - 1`` micro-batches.

    Args:
        work: the layout.
        stage: which.
        seconds: of the pass of each kind of block; under a zero-bubble schedule the one of weight gradients is the last.
        is_backward: the last backward pass, else the first forward one.
    """
    layout, held = work.layout, work.stages[stage]
    shares = {name: dense / held.dense_parameters for name, dense in block_parameters(work, stage).items()}
    experts = {name: block.expert_parameters / (held.expert_parameters or 1.0) for name, block in work.block_weights.items()}
    spans: list[tuple[float, float, float, float]] = []
    num_runs = 0
    for chunk in (chunk for chunk in work.chunks if chunk.stage == stage):
        of_chunk = [("embedding", 1)] * chunk.has_embedding + [*chunk.runs] + [("head", 1)] * chunk.has_head
        made = [(n, seconds[b], shares[b], experts[b]) for b, n in of_chunk]
        if spans:
            first = made if not is_backward else spans[len(chunk.runs) - len(of_chunk) - num_runs :]
            spans.append((layout.pp - 1, way_s + sum(number * own_s for number, own_s, _, _ in first), 0.0, 0.0))
        spans += made
        num_runs = len(chunk.runs)
    return np.array(spans[::-1] if is_backward else spans, np.float64)


def block_parameters(work: LayoutWork, stage: int) -> dict[str, float]:
    """Return dense parameters of each kind of layer, embedding and head of a stage; a tied table counts where it is kept."""
    held, own = work.stages[stage], [chunk for chunk in work.chunks if chunk.stage == stage]
    dense = {name: block.dense_parameters for name, block in work.block_weights.items()}
    layers, table = sum(number * dense[name] for name, number in held.layers.items()), dense["embedding"]
    has_table = any(chunk.has_embedding for chunk in own)
    has_head = any(chunk.has_head for chunk in own)
    head = max(0.0, held.dense_parameters - layers - table * has_table) if has_head else 0.0
    return dense | {"head": head}


def exposed_s(spans: Spans, messages: Sequence[tuple[str, float]], *, is_backward: bool) -> float:
    """Return seconds of messages that blocks do not hide.

    Backward they are the seconds for which messages still run when the last block is done; each block has added its part to
    them. Forward they are those for which blocks wait for their parts; all messages begin when the first block might.

    Args:
        spans: the blocks.
        messages: axis and seconds of each, as a whole; backward the part of a block goes through those of its kind in turn.
        is_backward: whether messages follow the last backward pass, else the first forward pass waits for them.
    """
    columns = np.array([3 if axis == "expert_dp" else 2 for axis, _ in messages], np.int64)
    whole_s = np.array([seconds for _, seconds in messages], np.float64)
    return float(after_s(spans, columns, whole_s) if is_backward else before_s(spans, columns, whole_s))


@njit()
def after_s(spans, columns, whole_s):  # type: ignore[no-untyped-def]
    """Return `exposed_s` backward, by the column of the shares that each carries."""
    late_s = 0.0
    for column in (2, 3):
        own_s = whole_s[columns == column]
        free, clock = np.zeros(len(own_s)), 0.0
        for span in spans[: len(spans) if len(own_s) else 0]:
            n, seconds, share = span[0], span[1], span[column]
            if len(own_s) == 1:
                part_s = share * own_s[0]
                if share > 0.0:  # the last to be sent waits for the line, or the first or the last block for its pass
                    free[0] = max(free[0] + n * part_s, clock + seconds + n * part_s, clock + n * seconds + part_s)
                clock += n * seconds
                continue
            for _ in range(int(n)):
                clock += seconds
                arrived = clock
                for place in range(len(own_s) if share > 0.0 else 0):
                    free[place] = arrived = max(arrived, free[place]) + share * own_s[place]
        if len(own_s):
            late_s = max(late_s, free[-1] - clock)
    return late_s


@njit()
def before_s(spans, columns, whole_s):  # type: ignore[no-untyped-def]
    """Return `exposed_s` forward, by the column of the shares that each carries."""
    arrived, clock, waited = np.zeros(len(whole_s)), 0.0, 0.0
    for span in spans:
        n, seconds = span[0], span[1]
        ends = clock + n * seconds
        for place in range(len(whole_s)):
            part_s = span[columns[place]] * whole_s[place]
            if part_s > 0.0:  # the first or the last block is the one that waits longest
                ends = max(ends, arrived[place] + part_s + n * seconds, arrived[place] + n * part_s + seconds)
                arrived[place] += n * part_s
        waited += ends - clock - n * seconds
        clock = ends
    return waited


@njit()
def op_spans(seconds, sizes, total):  # type: ignore[no-untyped-def]
    """Return the spans of single ops, which hold ``sizes`` of the ``total`` bytes of a stage."""
    result = np.zeros((len(seconds), 4))
    result[:, 0], result[:, 1], result[:, 2] = 1.0, seconds, sizes / total
    return result
