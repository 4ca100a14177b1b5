"""Seconds of a synchronous step whose gradients are coded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...plans.compression import AnyCompression
from ..compression import Coded, Matrix, coded, coded_tail_s
from ..process_groups.group_network import whole_lane
from ..training_step.gradient_overlap import stage_spans
from ..training_step.step_time import Pricer
from ..work.graph_work import GraphWork
from ..work.operations import Message
from ..work.work import LayoutWork
from .replicas import SUMMED, Replicas
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
    return coded_tail_s(_blocks(replicas, stage), messages_s, encode_s, decode_s, replicas.pricer.slowdown)


def coding(replicas: Replicas, stage: int, message: Message, code: AnyCompression) -> Coded:
    """What takes the place of a message that sums gradients."""
    width = replicas.layout.gradient_bytes if isinstance(replicas.work, LayoutWork) else 4
    return coded(
        code,
        message,
        replicas.num_summing,
        replicas.pricer.device,
        number_bytes=width,
        matrices=matrices(replicas.work, stage, message),
    )


def coded_messages(
    replicas: Replicas, code: AnyCompression
) -> tuple[Callable[[int], tuple[Message, ...]], dict[int, tuple[float, float]]]:
    """For the event path: the coded messages of a stage, and the seconds of encoding and decoding of each stage."""
    codecs, sent = {}, {}
    for stage in range(replicas.layout.pp):
        made = [coding(replicas, stage, message, code) for message in _summed(replicas, stage)]
        codecs[stage] = sum(one.encode_s for one in made), sum(one.decode_s for one in made)
        kept = (
            ()
            if isinstance(replicas.work, GraphWork)
            else tuple(m for m in replicas.work.stages[stage].sync if m.axis not in SUMMED)
        )
        sent[stage] = (*(message for one in made for message in one.messages), *kept)
    return sent.__getitem__, codecs


def compression_bytes(replicas: Replicas, code: AnyCompression) -> float:
    """Bytes that a rank of the fullest stage holds in addition."""
    found = []
    for stage in range(replicas.layout.pp):
        found.append(sum(coding(replicas, stage, message, code).extra_bytes for message in _summed(replicas, stage)))
    return max(found)


def matrices(work: Any, stage: int, message: Message) -> tuple[Matrix, ...]:
    """The matrices of a rank's weights: of a transformer's layers, cut by ``tp``; of any other op a square one, an assumption."""
    if isinstance(work, GraphWork):
        sizes = work.gradient_bytes[work.ops_of(stage)] / 4
        return tuple(Matrix(float(size) ** 0.5, float(size) ** 0.5) for size in sizes if size >= 1)
    shape, tp, count = work.shape, work.layout.tp, work.stages[stage].num_layers
    if message.axis != "dp_cp":
        return ()
    hidden, queries = shape.hidden, shape.num_heads * shape.head_dim
    keys = shape.num_key_value_heads * (shape.head_dim + shape.value_head_dim)
    found = [Matrix(hidden, queries / tp, count), Matrix(hidden, keys / tp, count), Matrix(queries / tp, hidden, count)]
    if shape.num_experts <= 1:
        found += [Matrix(hidden, shape.feed_forward / tp, count * (3 if shape.is_gated else 2))]
    return tuple(found)


def _summed(replicas: Replicas, stage: int) -> tuple[Message, ...]:
    if replicas.num_summing == 1:
        return ()
    work = replicas.work
    if isinstance(work, GraphWork):
        return work.sync(stage)
    return tuple(message for message in work.stages[stage].sync if message.axis in SUMMED)


def _blocks(replicas: Replicas, stage: int) -> list[tuple[float, float]]:
    """Seconds and share of the gradients of each block of the last backward pass, in its order."""
    work, pricer = replicas.work, replicas.pricer
    if isinstance(work, GraphWork):
        ops = work.ops_of(stage)[::-1]
        total = float(work.gradient_bytes[ops].sum()) or 1.0
        return list(zip(work.backward_s[ops].tolist(), (work.gradient_bytes[ops] / total).tolist(), strict=True))
    assert isinstance(pricer, Pricer)
    lane = whole_lane(pricer.wires, work.layout, pricer.order)
    kind = 2 if work.layout.parts_gradients else 1
    seconds = {name: times.task_s()[kind] for name, times in pricer.blocks_of(work, lane)[stage].items()}
    spans = stage_spans(work, stage, seconds, is_backward=True)
    return [(span.seconds, span.dense) for span in spans for _ in range(span.num_blocks)]
