"""Blocks on devices of their own that are updated by local targets, and parts of a model that train for epochs of their own.

No gradient of activations is sent back between blocks. A part is a pipeline of the stages between two cuts. All parts but the
last learn to turn each class into its synthetic label, in turn or all at once. The last one learns the real labels, from the
outputs of the part before it or from its synthetic labels.

Legend: ``f, t, u`` seconds of a block's forward pass, target and update, ``p`` blocks, ``D`` blocks that an error passes
through. ``N`` samples of an epoch, ``h`` bytes of a sample at a cut, ``C`` classes, ``E_L`` epochs of the parts with synthetic
labels. ``E_R`` epochs of the one with real labels, ``f, b`` seconds of a sample forward and backward through a part.

Source:
    Synthetic intermediate labels, 2024, arXiv 2403.11204. Ororbia et al., "Large-scale gradient-free deep learning with
    recursive local representation alignment", 2020, arXiv 2002.03911.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...errors import PlanError
from ...plans.partition import Layout
from ...plans.strategies.local_update import LocalUpdate
from ..pipelines.steady_steps import PlayedPipeline, step_s
from ..process_groups.group_network import whole_lane
from ..work.operations import Message
from ..work.step_work import StepWork
from .replicas import Replicas

UPDATE_SHARE = 0.5
"""Time of a local update over that of a backward pass: the gradients of the weights alone. An assumption."""


def one_batch_s(forward_s: Sequence[float], target_s: Sequence[float], update_s: Sequence[float], depth: int) -> float:
    """Return the seconds of one batch by itself: ``sum f + D max t + max u``."""
    return sum(forward_s) + depth * max(target_s) + max(update_s)


def streaming_s(forward_s: Sequence[float], target_s: Sequence[float], update_s: Sequence[float]) -> float:
    """Return the seconds of each of many batches in a row: ``max (f + t + u)``; no device ever waits."""
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
        """Return seconds of each of many micro-batches: of the busiest block, or of the one that sends longest, errors too."""
        sent_s = [*self.send_s, 0.0]
        for block, seconds in enumerate(self.error_s):
            sent_s[error_sender(block, stride, len(self.forward_s))] += seconds
        return max(streaming_s(self.forward_s, self.target_s, self.update_s), *sent_s)


def error_sender(block: int, stride: int, num_blocks: int) -> int:
    """Return the block whose error a block gets: the one ``stride`` behind it, or the last one."""
    return min(block + stride, num_blocks - 1)


def makes_own_targets(training: LocalUpdate) -> bool:
    """Return whether targets are labels that each block has, so that it gets no error."""
    return training.preset in ("sil", "greedy")


def local_blocks(replicas: Replicas, training: LocalUpdate) -> LocalBlocks:
    """Return the blocks of a job: a pipeline stage each.

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
    """Return the seconds of a micro-batch's activations from each stage to the next one, ``(p - 1,)``.

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
    """Return bytes that the fullest rank of the blocks holds and that of the pipeline does not; below 0 where it holds less.

    A block is updated before the next micro-batch comes, so it keeps the activations of one, however many blocks there are. A
    part of several stages keeps those of as many as it has stages. In epochs of recovery there is a pipeline.
    """
    layout, most = work.layout, 1
    if training.has_epochs:
        most = max(end - first for first, end in training.part_bounds(layout.pp))
    _, peak = work.peak_memory()
    if training.recovery_epochs or (most > 1 and layout.schedule != "1f1b"):
        return 0.0
    batch = min(most * layout.micro_batch, layout.global_batch)
    at_once = layout.model_copy(update={"global_batch": batch, "schedule": "1f1b"})
    _, result = replace(work, layout=at_once).peak_memory()  # type: ignore[type-var]
    aux = training.aux_share * result.model_state if layout.pp > 1 else 0.0
    return result.total + aux - peak.total


def output_of(replicas: Replicas, stage: int) -> tuple[Message, ...]:
    """Return a micro-batch's activations behind a stage."""
    work = replicas.work
    return work.sent(stage) if stage < replicas.layout.pp - 1 else work.last_output


def sent_s(replicas: Replicas, stage: int, messages: tuple[Message, ...]) -> float:
    """Return the seconds of messages between a stage and the next one; errors from farther away are priced as from there."""
    pricer, layout = replicas.pricer, replicas.layout
    lane = whole_lane(pricer.wires, layout, pricer.order)
    groups = {**lane.at(stage + 1), "pp": lane.boundary[stage]}
    return sum(pricer.message_s(item, layout, groups[item.axis]) for item in messages if item.payload_bytes > 0)


PLAIN = ("1f1b", "gpipe", "eager-1f1b")
"""Schedules by which a part of several stages is trained."""


class TrainedPart(NamedTuple):
    """A part of a model.

    Attributes:
        forward_s, backward_s: of a micro-batch through each stage, ``(k,)``.
        send_s: of its activations between each stage and the next one of the part, ``(k - 1,)``.
        update_s: of the optimizer of each stage, ``(k,)``.
        step_s: of a step of the part by itself.
        crossing_s: of a micro-batch's activations over the cut behind the part; 0 behind the last one.
        labels_s: of the synthetic labels of all classes over it.
        width_bytes: of a sample's activations there, ``h``.
    """

    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    send_s: tuple[float, ...]
    update_s: tuple[float, ...]
    step_s: float
    crossing_s: float = 0.0
    labels_s: float = 0.0
    width_bytes: float = 0.0

    def sending_s(self, num_micro_batches: float) -> float:
        """Return the seconds in which micro-batches go forward through the part and over the cut, one at a time on each stage."""
        spans_s = [*self.forward_s, *self.send_s, self.crossing_s]
        return sum(spans_s) + (num_micro_batches - 1) * max(spans_s)


class PartsTraining(NamedTuple):
    """A training of all parts.

    Attributes:
        step_s: mean seconds of a step over all steps of `LocalUpdate.num_epochs` epochs.
        cut_bytes: over each cut in the whole training.
        pipeline_bytes: over each cut in as many epochs of a pipeline.
        stored_bytes: of activations that are kept outside the devices, until the next part has learned from them.
        label_bytes: that a device next to a cut holds.
    """

    step_s: float
    cut_bytes: tuple[float, ...]
    pipeline_bytes: tuple[float, ...]
    stored_bytes: float
    label_bytes: float

    def remarks(self) -> tuple[str, ...]:
        """Return sentences about the bytes that cross the cuts, and those that are kept."""
        sent, against = (sum(one) / 1e9 for one in (self.cut_bytes, self.pipeline_bytes))
        sentences = [
            f"{sent:,.4g} GB go over the cuts in the whole training, against {against:,.4g} GB in as many epochs of a pipeline"
        ]
        if self.stored_bytes:
            sentences.append(f"{self.stored_bytes / 1e9:,.4g} GB of activations are kept outside the devices between the parts")
        return tuple(sentences)


def epochs_s(
    training: LocalUpdate,
    part_epoch_s: Sequence[float],
    sending_s: Sequence[float],
    labels_s: Sequence[float] = (),
    recovery_epoch_s: float = 0.0,
) -> float:
    """Return the seconds of the whole training.

    ``E_L N (f_L + b_L) + N f_L + E_R N (f_R + b_R)`` one behind the other, the longest of them all at once; then an epoch of the
    whole model for each epoch of recovery. Synthetic labels are sent once, before anything.

    Args:
        training: its schedule and epochs.
        part_epoch_s: of an epoch of each part, ``N (f + b)``, ``(P,)``.
        sending_s: in which all samples go forward through each part but the last, ``N f``, ``(P - 1,)``.
        labels_s: of the synthetic labels over each cut, ``(P - 1,)``.
        recovery_epoch_s: of the whole model.
    """
    assert training.left_epochs is not None
    assert training.right_epochs is not None
    spans_s = [training.left_epochs * one for one in part_epoch_s[:-1]] + [training.right_epochs * part_epoch_s[-1]]
    parts_s = max(spans_s) if training.schedule == "parallel" else sum(spans_s) + sum(sending_s)
    return sum(labels_s) + parts_s + training.recovery_epochs * recovery_epoch_s


def cut_bytes(training: LocalUpdate, width_bytes: float) -> float:
    """Return the bytes over a cut in the whole training: ``C h``, in turn ``N h``, and ``2 N h`` in an epoch of recovery.

    Args:
        training: its schedule, samples and classes.
        width_bytes: of a sample's activations at the cut, ``h``.
    """
    assert training.num_samples is not None
    assert training.num_classes is not None
    times = (training.schedule == "sequential") + 2 * training.recovery_epochs
    return (training.num_classes + times * training.num_samples) * width_bytes


def parts_training(
    training: LocalUpdate,
    parts: Sequence[TrainedPart],
    layout: Layout,
    recovery_s: float,
    sending_s: Callable[[TrainedPart, float], float] = TrainedPart.sending_s,
) -> PartsTraining:
    """Return a training of all parts.

    Args:
        training: its schedule and epochs.
        parts: in model order, see `trained_parts`.
        layout: how the job is cut.
        recovery_s: of a step of the whole model.
        sending_s: seconds in which so many micro-batches go through a part; the closed form by default.
    """
    assert training.num_samples is not None
    assert training.num_classes is not None
    num_steps = training.num_samples / layout.global_batch
    widths = [one.width_bytes for one in parts[:-1]]
    whole_s = epochs_s(
        training,
        [num_steps * part.step_s for part in parts],
        [sending_s(one, num_steps * layout.num_micro_batches) for one in parts[:-1]],
        [one.labels_s for one in parts[:-1]],
        num_steps * recovery_s,
    )
    return PartsTraining(
        whole_s / (training.num_epochs * num_steps),
        tuple(cut_bytes(training, width) for width in widths),
        tuple(2 * training.num_samples * width * training.num_epochs for width in widths),
        training.num_samples * max(widths, default=0.0) if training.schedule == "sequential" else 0.0,
        training.num_classes * max(widths, default=0.0),
    )


def trained_parts(replicas: Replicas, training: LocalUpdate) -> tuple[TrainedPart, ...]:
    """Return the parts of a job, each by itself.

    Raises:
        PlanError: replicas, which would have to be summed, a stage of several chunks, or a schedule of other passes.
    """
    layout, work = replicas.layout, replicas.work
    if layout.schedule not in PLAIN and layout.pp > 1:
        raise PlanError(f"trains its parts by {', '.join(PLAIN)}", field="layout.schedule", value=layout.schedule, choices=PLAIN)
    sends_s = activation_sends_s(replicas)
    forward, backward = (one.tolist() for one in replicas.pricer.passes_s(work))
    updates = [replicas.pricer.update_s(work, stage) for stage in range(layout.pp)]
    parts = []
    for first, end in training.part_bounds(layout.pp):
        inside = slice(first, end)
        spans = tuple(tuple(one[inside]) for one in (forward, backward, updates))
        part = TrainedPart(spans[0], spans[1], tuple(sends_s[first : end - 1]), spans[2], 0.0)
        part = part._replace(step_s=part_step_s(replicas, part))
        if end < layout.pp:
            output = output_of(replicas, end - 1)
            width = sum(one.payload_bytes for one in output) / layout.micro_batch
            share = (training.num_classes or 0) / layout.micro_batch
            labels = tuple(replace(one, payload_bytes=share * one.payload_bytes) for one in output)
            part = part._replace(crossing_s=sends_s[end - 1], labels_s=sent_s(replicas, end - 1, labels), width_bytes=width)
        parts.append(part)
    return tuple(parts)


def part_step_s(replicas: Replicas, part: TrainedPart) -> float:
    """Return the seconds of a step of a part: of a pipeline of its stages, and of the slowest optimizer behind its passes."""
    k = len(part.forward_s)
    layout = replicas.layout.model_copy(update={"pp": k})
    task_s = np.zeros((k, 1, 3))
    task_s[:, 0, 0], task_s[:, 0, 1] = part.forward_s, part.backward_s
    played = PlayedPipeline.play(layout, task_s, np.array([*part.send_s, 0.0]))
    return float(step_s(played, dict(enumerate(part.update_s)))[0])
