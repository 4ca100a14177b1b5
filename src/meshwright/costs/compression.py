"""Gradients that are coded before they are sent: the messages in place of one that sums them, and the time of coding.

Legend: ``S`` bytes of a message, ``n`` ranks, ``M`` bytes a second of a device's memory, ``r`` coded bytes over ``S``. ``a x
b`` is a matrix, ``q`` a rank.

Source:
    Tang et al., "Communication-efficient distributed deep learning: a comprehensive survey", 2024, arXiv 2404.06114.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..devices import DeviceType
from ..plans.compression import AnyCompression, LowRank, Quantise, RandomK, Sign, TopK
from .work.operations import Message

PASSES = {"quantise": 6.0, "sign": 2.0, "top-k": 6.0, "random-k": 2.0}
"""Passes over the gradients that encoding and decoding take together, half of them each. Quantising takes three each way;
random places take those that are sent alone. Assumptions, until measured.
"""

PLACE_BYTES_PER_NUMBER_BYTE = 1.0
"""Bytes of the place of a number over those of the number, in messages that send the largest."""


class Matrix(NamedTuple):
    """Equal matrices of a rank's weights.

    Attributes:
        rows, columns: numbers.
        number: how many of them.
    """

    rows: float
    columns: float
    number: float = 1.0


@dataclass(frozen=True)
class Coded:
    """Replacement of one message that sums gradients.

    Attributes:
        messages: one after the other.
        encode_s, decode_s: seconds on the device before and behind them.
        extra_bytes: held in addition.
    """

    messages: tuple[Message, ...]
    encode_s: float
    decode_s: float
    extra_bytes: float


def coded_share(code: AnyCompression, number_bytes: float = 4.0) -> float:
    """Return coded bytes over bytes, ``r``, of a replica's own gradients; those of low rank depend on the matrices.

    Numbers of 4 bytes with a scale of 2 bytes for ``g`` of them: ``k / 32 + 1 / (2 g)``. Signs: 1/32. Values and places: ``2
    phi``. Values alone: ``phi``.

    Args:
        code: the code.
        number_bytes: of a number of the gradients.
    """
    if isinstance(code, Quantise):
        return code.bits / (8 * number_bytes) + (2 / (code.group * number_bytes) if code.group else 0.0)
    if isinstance(code, Sign):
        return 1 / (8 * number_bytes)
    if isinstance(code, TopK):
        return (1 + PLACE_BYTES_PER_NUMBER_BYTE) * code.fraction
    assert isinstance(code, RandomK)
    return code.fraction


def coded(
    code: AnyCompression,
    message: Message,
    num_ranks: int,
    device: DeviceType,
    *,
    number_bytes: float = 4.0,
    matrices: Sequence[Matrix] = (),
) -> Coded:
    """Return the messages in place of an all-reduce of gradients.

    Numbers that can be summed in transit are reduced as before, of fewer bytes. Others are exchanged all to all, summed, and
    gathered, ``2 (n - 1) / n r S`` over the busiest link. The largest numbers of all ranks are gathered, ``(n - 1) 2 phi S``.

    Args:
        code: the code.
        message: the all-reduce.
        num_ranks: ranks that sum.
        device: its memory bandwidth and peak bound the coding.
        number_bytes: of a number of the gradients.
        matrices: the matrices that the gradients are of, for low rank; the rest are vectors, which go whole.
    """
    size = message.payload_bytes
    held = 4.0 * size / number_bytes if code.error_feedback else 0.0
    if isinstance(code, LowRank):
        return _low_rank(code, message, device, number_bytes, matrices, held)
    sent = coded_share(code, number_bytes) * size
    passes = PASSES[code.kind] * (code.fraction if isinstance(code, RandomK) else 1.0)
    if code.codec_passes is not None:
        passes = 2 * code.codec_passes
    half_s = passes / 2 * size / device.memory_bandwidth_bytes_per_s
    if isinstance(code, TopK):
        messages: tuple[Message, ...] = (replace(message, operation="all_gather", payload_bytes=num_ranks * sent),)
    elif isinstance(code, RandomK) or (isinstance(code, Quantise) and code.summable):
        messages = (replace(message, payload_bytes=sent),)
    else:
        exchange = replace(message, name=f"coded {message.name}", operation="all_to_all", payload_bytes=sent)
        messages = (exchange, replace(message, name=f"sums of {message.name}", operation="all_gather", payload_bytes=sent))
    return Coded(messages, half_s, half_s, held)


def _low_rank(
    code: LowRank, message: Message, device: DeviceType, number_bytes: float, matrices: Sequence[Matrix], held: float
) -> Coded:
    """Return two sums, of ``q a`` and ``q b`` numbers of each matrix, with the vectors; ``4 a b q + 2 a q^2`` operations."""
    rank = float(code.rank)
    left = sum(matrice.number * matrice.rows for matrice in matrices) * rank * number_bytes
    right = sum(matrice.number * matrice.columns for matrice in matrices) * rank * number_bytes
    whole = max(
        0.0, message.payload_bytes - number_bytes * sum(matrice.number * matrice.rows * matrice.columns for matrice in matrices)
    )
    flops = sum(matrice.number * (4 * matrice.rows * matrice.columns * rank + 2 * matrice.rows * rank**2) for matrice in matrices)
    half_s = flops / device.peak_flops_per_s / 2
    if code.codec_passes is not None:
        half_s = code.codec_passes * message.payload_bytes / device.memory_bandwidth_bytes_per_s
    parts = ("left factors", left + whole), ("right factors", right)
    messages = tuple(replace(message, name=f"{name} of {message.name}", payload_bytes=size) for name, size in parts if size > 0)
    return Coded(messages, half_s, half_s, held + left + right)


def coded_tail_s(
    blocks: Sequence[tuple[float, float]], messages_s: float, encode_s: float, decode_s: float, slowdown: float = 1.0
) -> float:
    """Return seconds from the end of the last backward pass, without coding, until the last sum is decoded.

    Backward passes of blocks follow each other. Each block is coded on the device behind its pass, which delays the next one.
    Its part of the messages then goes over the line. Received parts are decoded when all passes are done.

    Args:
        blocks: seconds and share of the gradients of each block, in the order of the backward pass.
        messages_s: of all that is sent.
        encode_s, decode_s: of all gradients.
        slowdown: factor on computing and sending that run side by side.
    """
    clock = free = passes_s = 0.0
    arrivals = []
    for seconds, share in blocks:
        passes_s += seconds
        clock += seconds + share * encode_s
        if share:
            free = max(free, clock) + share * messages_s
            arrivals.append((free, share))
    hidden_s = max(0.0, messages_s - max(0.0, free - clock))
    end = clock
    for arrival, share in arrivals:
        end = max(end, arrival) + share * decode_s
    return end - passes_s + (slowdown - 1) * hidden_s
