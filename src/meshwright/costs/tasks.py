"""The task layer: which messages are merged, into what they are cut, and which goes first.

Three choices of `CostSettings` are read here and by the code that lowers a job. ``gradient_bucket_bytes`` merges gradients,
``message_chunk_bytes`` cuts long messages, ``priority`` orders messages that wait for the same stream. A message is not
interrupted, so an urgent one waits for the current one: for a chunk of it, where messages are cut.
"""

from __future__ import annotations

from collections.abc import Sequence

from .settings import CostSettings


def merged(sizes_bytes: Sequence[float], bucket_bytes: float | None) -> list[tuple[int, ...]]:
    """Return places of the gradients that go together, in the order in which they are ready.

    A bucket is closed once it holds ``bucket_bytes``; the last one may hold less. Empty gradients are left out.

    Args:
        sizes_bytes: of each op's or layer's gradients, in the order in which the backward pass makes them.
        bucket_bytes: None leaves each by itself.

    Source:
        Li et al., "PyTorch distributed: experiences on accelerating data parallel training", 2020, section 3.2.
    """
    results: list[tuple[int, ...]] = []
    held: list[int] = []
    held_bytes = 0.0
    for place, size in enumerate(sizes_bytes):
        if size <= 0:
            continue
        held.append(place)
        held_bytes += size
        if bucket_bytes is None or held_bytes >= bucket_bytes:
            results.append(tuple(held))
            held, held_bytes = [], 0.0
    return [*results, tuple(held)] if held else results


def num_chunks(size_bytes: float, costs: CostSettings) -> int:
    """Return into how many equal chunks a message is cut.

    Source:
        Peng et al., "A generic communication scheduler for distributed DNN training acceleration", 2019, section 4.
    """
    if costs.message_chunk_bytes is None or size_bytes <= costs.message_chunk_bytes:
        return 1
    return int(-(-size_bytes // costs.message_chunk_bytes))


def gradient_order(made: float, limit: float, costs: CostSettings) -> float:
    """Place of gradients among the messages of a stream, the smallest first.

    Args:
        made: place of the backward pass that makes them.
        limit: place of the forward pass that wants them, in the next step.
        costs: ``first-consumer`` goes by the second, all others by the first.

    Source:
        Jayarajan et al., "Priority-based parameter propagation for distributed DNN training", 2019, section 4.
    """
    return limit if costs.priority == "first-consumer" else made
