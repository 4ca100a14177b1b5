"""Messages in pieces: gradients that go as soon as they are there, merged into buckets, large ones cut into chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...costs.settings import CostSettings
from ...costs.tasks import merged, num_chunks
from ...costs.work.operations import Message


@dataclass(frozen=True)
class Piece:
    """A part of a message.

    Attributes:
        message: that is priced: the whole, or this part as a message of its own.
        share: of the message's time and bytes.
        blocks: which it carries, as numbers in the order in which they are done.
    """

    message: Message
    share: float
    blocks: tuple[int, ...]


def pieces(message: Message, weights: Sequence[float], costs: CostSettings) -> list[Piece]:
    """Return a message of several blocks, in the order in which these are done.

    Without buckets each block has its share of the message, and of its time: latency is paid once. With
    ``gradient_bucket_bytes`` blocks are merged, and each bucket pays its own. A piece longer than ``message_chunk_bytes``
    goes in chunks, one after the other, each with its own latency. See `costs.tasks`.

    Args:
        message: what all blocks send together.
        weights: bytes of each block, in any unit; a block of none sends nothing.
        costs: says how they are merged and cut.
    """
    total = sum(weights)
    if total <= 0:
        return [Piece(message, 1.0, tuple(range(len(weights))))]
    buckets = merged([message.payload_bytes * weight / total for weight in weights], costs.gradient_bucket_bytes)
    result = []
    for blocks in buckets:
        share = sum(weights[block] for block in blocks) / total
        size = share * message.payload_bytes
        chunks = num_chunks(size, costs)
        if costs.gradient_bucket_bytes is None and chunks == 1:
            result.append(Piece(message, share, blocks))
        else:
            result += [Piece(replace(message, payload_bytes=size / chunks), 1.0, blocks)] * chunks
    return result
