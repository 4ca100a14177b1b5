"""Blocks on devices of their own that are updated by local targets: no gradient of activations goes back.

Legend: ``f, t, u`` seconds of a block's forward pass, target and update, ``p`` blocks, ``D`` blocks that an error goes through.

Source:
    Synthetic intermediate labels, 2024, arXiv 2403.11204; Ororbia et al., "Large-scale gradient-free deep learning with recursive
    local representation alignment", 2020, arXiv 2002.03911.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ...errors import PlanError
from ...plans.strategies.local_update import LocalUpdate
from ..process_groups.group_network import whole_lane
from ..work.operations import Message
from ..work.step_work import StepWork
from .replicas import Replicas

UPDATE_SHARE = 0.5
"""Time of a local update over that of a backward pass: the gradients of the weights alone. An assumption."""


def one_batch_s(forward_s: Sequence[float], target_s: Sequence[float], update_s: Sequence[float], depth: int) -> float:
    """Seconds of one batch by itself: ``sum f + D max t + max u``."""
    return sum(forward_s) + depth * max(target_s) + max(update_s)


def streaming_s(forward_s: Sequence[float], target_s: Sequence[float], update_s: Sequence[float]) -> float:
    """Seconds of each of many batches in a row: ``max (f + t + u)``; no device ever waits."""
    return max(f + t + u for f, t, u in zip(forward_s, target_s, update_s, strict=True))


class LocalBlocks(NamedTuple):
    """The blocks of a job.

    Attributes:
        forward_s, target_s, update_s: of a micro-batch in each block, ``(p,)``.
        send_s: of its activations from each block to the next one, ``(p - 1,)``.
        error_s: of the error from which each block but the last makes its target, ``alpha + e_j beta``, ``(p - 1,)``.
        error_bytes: of it, ``e_j``, ``(p - 1,)``.
    """

    forward_s: tuple[float, ...]
    target_s: tuple[float, ...]
    update_s: tuple[float, ...]
    send_s: tuple[float, ...]
    error_s: tuple[float, ...]
    error_bytes: tuple[float, ...]

    def streaming_s(self, stride: int) -> float:
        """Seconds of each of many micro-batches: of the busiest block, or of the one that sends longest, errors too."""
        sent_s = [*self.send_s, 0.0]
        for block, seconds in enumerate(self.error_s):
            sent_s[error_sender(block, stride, len(self.forward_s))] += seconds
        return max(streaming_s(self.forward_s, self.target_s, self.update_s), *sent_s)


def error_sender(block: int, stride: int, num_blocks: int) -> int:
    """The block whose error a block gets: the one ``stride`` behind it, or the last one."""
    return min(block + stride, num_blocks - 1)


def makes_own_targets(training: LocalUpdate) -> bool:
    """Whether targets are labels that each block has, so that it gets no error."""
    return training.preset in ("sil", "greedy")


def local_update_s(replicas: Replicas, training: LocalUpdate) -> float:
    """Seconds of a step whose micro-batches stream through the stages, which send activations and errors behind computation.

    Raises:
        PlanError: replicas, which would have to be summed, or a stage of several chunks.
    """
    blocks, layout = local_blocks(replicas, training), replicas.layout
    return layout.num_micro_batches * blocks.streaming_s(training.error_stride(layout.pp))


def local_blocks(replicas: Replicas, training: LocalUpdate) -> LocalBlocks:
    """The blocks of a job: a pipeline stage each.

    Raises:
        PlanError: replicas, which would have to be summed, or a stage of several chunks.
    """
    layout = replicas.layout
    sends_s = activation_sends_s(replicas)
    forward, backward = replicas.pricer.passes_s(replicas.work)
    targets, updates = training.target_share * backward, UPDATE_SHARE * backward
    targets[:-1] += training.aux_share * (forward + backward)[:-1]
    of_blocks = [tuple(one.tolist()) for one in (forward, targets, updates)]
    outputs = [output_of(replicas, stage) for stage in range(layout.pp)]
    stride, errors = training.error_stride(layout.pp), []
    for block in range(layout.pp - 1):
        errors.append(() if makes_own_targets(training) else outputs[error_sender(block, stride, layout.pp)])
    errors_s = tuple(sent_s(replicas, block, error) for block, error in enumerate(errors))
    error_bytes = tuple(sum(one.payload_bytes for one in error) for error in errors)
    return LocalBlocks(of_blocks[0], of_blocks[1], of_blocks[2], sends_s, errors_s, error_bytes)


def activation_sends_s(replicas: Replicas) -> tuple[float, ...]:
    """Seconds of a micro-batch's activations from each stage to the next one, ``(p - 1,)``.

    Raises:
        PlanError: replicas, which would have to be summed, or a stage of several chunks.
    """
    layout = replicas.layout
    if layout.dp > 1:
        raise PlanError("updates blocks by local targets; set dp=1", field="layout.dp", value=layout.dp)
    if layout.virtual_stages > 1:
        raise PlanError("has one block on each device", field="layout.virtual_stages", value=layout.virtual_stages)
    return tuple(sent_s(replicas, stage, output_of(replicas, stage)) for stage in range(layout.pp - 1))


def held_more_bytes(work: StepWork, training: LocalUpdate) -> float:
    """Bytes that the fullest rank of the blocks holds and that of the pipeline does not; below 0 where it holds less.

    A block is updated before the next micro-batch comes, so that it keeps the activations of one, however many blocks there are;
    a part of several stages those of as many as it has stages. In epochs of recovery there is a pipeline.
    """
    layout, most = work.layout, 1
    if training.has_epochs:
        most = max(end - first for first, end in training.part_bounds(layout.pp))
    _, peak = work.peak_memory()
    if training.recovery_epochs or (most > 1 and layout.schedule != "1f1b"):
        return 0.0
    batch = min(most * layout.micro_batch, layout.global_batch)
    at_once = layout.model_copy(update={"global_batch": batch, "schedule": "1f1b"})
    _, found = replace(work, layout=at_once).peak_memory()  # type: ignore[type-var]
    aux = training.aux_share * found.model_state if layout.pp > 1 else 0.0
    return found.total + aux - peak.total


def output_of(replicas: Replicas, stage: int) -> tuple[Message, ...]:
    """A micro-batch's activations behind a stage."""
    work = replicas.work
    return work.sent(stage) if stage < replicas.layout.pp - 1 else work.last_output


def sent_s(replicas: Replicas, stage: int, messages: tuple[Message, ...]) -> float:
    """Seconds of messages between a stage and the next one; errors from farther away are priced as from there."""
    pricer, layout = replicas.pricer, replicas.layout
    lane = whole_lane(pricer.wires, layout, pricer.order)
    groups = {**lane.at(stage + 1), "pp": lane.boundary[stage]}
    return sum(pricer.message_s(item, layout, groups[item.axis]) for item in messages if item.payload_bytes > 0)
