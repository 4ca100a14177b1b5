"""Times of the passes of a model chunk: sums over its blocks; of a bidirectional schedule also those of pairs of passes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import zip_longest
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..training_step.passes import PassTime
from ..work.model_chunks import ChunkWork, Parts
from ..work.work import LayoutWork
from .block_times import BlockTimes


class Done(NamedTuple):
    """A pass that a stage does in a step.

    Attributes:
        times: how often.
        name: of its kernels in a breakdown.
        time: of one.
    """

    times: int
    name: str
    time: PassTime


def chunk_times(blocks: Mapping[str, BlockTimes], held: Parts) -> BlockTimes:
    """Return the sum of the blocks that a chunk holds."""
    parts = [(blocks[name], number) for name, number in held]
    sums = [_total([(part.passes[kind], number) for part, number in parts]) for kind in range(5)]
    return BlockTimes(sums[0], sums[1], sums[2], sums[3], sums[4])


def chunk_task_s(blocks: Mapping[str, BlockTimes], held: Parts) -> tuple[float, float, float]:
    """Return the seconds of the tasks of a chunk, those of its blocks one after the other."""
    forward_s = backward_s = weight_s = 0.0
    for name, number in held:
        of_block = blocks[name].task_s
        forward_s += number * of_block[0]
        backward_s += number * of_block[1]
        weight_s += number * of_block[2]
    return forward_s, backward_s, weight_s


def done(blocks: Mapping[str, BlockTimes], held: Parts, num_micro_batches: int) -> Iterator[Done]:
    """Yield the passes of a chunk in one step of a schedule that goes one way."""
    times = chunk_times(blocks, held)
    for name, one in zip(("compute", "recompute", "compute", "compute"), times.passes[:4], strict=True):
        yield Done(num_micro_batches, name, one)


def both_ways_s(blocks: Mapping[str, BlockTimes], chunk: ChunkWork, other: ChunkWork) -> tuple[float, ...]:
    """Return seconds of the tasks of a chunk under a bidirectional schedule, ``(5,)`` as in `pipelines.bidirectional`.

    Args:
        blocks: times of blocks, by name.
        chunk: which.
        other: the other chunk of its rank.
    """
    held = [(blocks[name], number) for name, number in chunk.parts]
    seconds = [[count * one for one in part.both_ways_s()] for part, count in held]
    pair_s = sum(number * time.seconds for time, number in _pair(blocks, paired_blocks(chunk, other)))
    return (*map(sum, zip(*seconds, strict=True)), pair_s)


def done_both_ways(
    work: LayoutWork, chunk: ChunkWork, blocks: Mapping[str, BlockTimes], numbers: NDArray[np.int64]
) -> list[Done]:
    """List the passes of a step."""
    times, other = chunk_times(blocks, chunk.parts), work.other_chunk(chunk)
    assert other is not None, "two chunks of a rank"
    pair = _total(_pair(blocks, paired_blocks(chunk, other)))
    again = PassTime(kernels_s=sum(number * blocks[name].recompute.kernels_s for name, number in other.parts))
    ahead, whole, weight, inputs, pairs = numbers.tolist()
    return [
        Done(ahead, "compute", times.forward),
        Done(whole + inputs, "recompute", times.recompute),
        Done(whole, "compute", times.backward),
        Done(inputs, "compute", times.inputs),
        Done(weight, "compute", times.weight),
        Done(pairs, "recompute", again),
        Done(pairs, "compute", replace(pair, kernels_s=pair.kernels_s - again.kernels_s)),
    ]


def paired_blocks(forward: ChunkWork, backward: ChunkWork) -> Counter[tuple[str, str]]:
    """Count pairs of a block in a forward pass and a block of another chunk in a backward pass.

    Layers are paired one by one, in the order of their passes. Blocks that remain, the embedding and the head have no partner:
    its name is empty.
    """
    ahead = [name for name, number in forward.runs for _ in range(number)]
    backward_names = [name for name, number in reversed(backward.runs) for _ in range(number)]
    pairs = Counter(zip_longest(ahead, backward_names, fillvalue=""))
    for name, *held in (
        ("embedding", forward.has_embedding, backward.has_embedding),
        ("head", forward.has_head, backward.has_head),
    ):
        pairs[name, ""] += held[0]
        pairs["", name] += held[1]
    return +pairs


def _pair(blocks: Mapping[str, BlockTimes], pairs: Mapping[tuple[str, str], int]) -> list[tuple[PassTime, int]]:
    """Return the times of a pair of passes, part by part, and how often each."""
    result = []
    for (forward, backward), number in pairs.items():
        if forward and backward:
            result.append((blocks[forward].concurrent[backward], number))
        else:
            result.append(
                (blocks[forward].forward if forward else blocks[backward].recompute + blocks[backward].backward, number)
            )
    return result


def _total(parts: list[tuple[PassTime, int]]) -> PassTime:
    total = PassTime()
    for part, times in parts:
        total = total + (part if times == 1 else part * times)
    return total
