"""Seconds of a synchronous step whose gradients are coded."""

from __future__ import annotations

from collections.abc import Callable

from ...plans.compression import AnyCompression
from ..compression import Coded, coded, coded_tail_s
from ..process_groups.group_network import whole_lane
from ..work.operations import Message
from .replicas import Replicas
from .stragglers import slowest_of


def compressed_s(replicas: Replicas, code: AnyCompression) -> float:
    """Seconds of a synchronous step with coded gradients.

    What is shown of a stage behind its last backward pass, see `compression.coded_tail_s`, in place of what is shown without
    coding; of all stages the one that gains least decides.
    """
    late_s = (slowest_of(replicas.num_replicas, replicas.straggler_sigma) - 1) * replicas.local_s
    changes = [tail_s(replicas, stage, code) - tail_s(replicas, stage, None) for stage in range(replicas.layout.pp)]
    return replicas.synchronous_s + late_s + max(changes)


def tail_s(replicas: Replicas, stage: int, code: AnyCompression | None) -> float:
    """Seconds behind the last backward pass of a stage until its gradients are summed, and decoded."""
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
    """What takes the place of a message that sums gradients; all wait for the slowest device that codes."""
    number_bytes, matrices = replicas.work.gradient_number_bytes, replicas.work.matrices(stage, message)
    made = (
        coded(code, message, replicas.num_summing, device, number_bytes=number_bytes, matrices=matrices)
        for device in replicas.pricer.coding_devices(replicas.work, stage)
    )
    return max(made, key=lambda one: one.encode_s + one.decode_s)


def coded_messages(
    replicas: Replicas, code: AnyCompression
) -> tuple[Callable[[int], tuple[Message, ...]], dict[int, tuple[float, float]]]:
    """The coded messages of each stage and its seconds of encoding and decoding, for the event path."""
    codecs, sent = {}, {}
    for stage in range(replicas.layout.pp):
        summed = replicas.work.summed(stage)
        made = [coding(replicas, stage, message, code) for message in _summed(replicas, stage)]
        codecs[stage] = sum(one.encode_s for one in made), sum(one.decode_s for one in made)
        kept = (message for message in replicas.work.sync(stage) if message not in summed)
        sent[stage] = (*(message for one in made for message in one.messages), *kept)
    return sent.__getitem__, codecs


def compression_bytes(replicas: Replicas, code: AnyCompression) -> float:
    """Bytes that a rank of the fullest stage holds in addition."""
    found = []
    for stage in range(replicas.layout.pp):
        found.append(sum(coding(replicas, stage, message, code).extra_bytes for message in _summed(replicas, stage)))
    return max(found)


def _summed(replicas: Replicas, stage: int) -> tuple[Message, ...]:
    return replicas.work.summed(stage) if replicas.num_summing > 1 else ()
