"""Parts of a model that are trained for epochs of their own by synthetic labels, in turn or all at once.

A part is a pipeline of the stages between two cuts. All but the last learn to turn each class into its synthetic label; the last
one learns the real labels, from what the part before it sends or from its synthetic labels.

Legend: ``N`` samples of an epoch, ``h`` bytes of a sample at a cut, ``C`` classes, ``E_L`` epochs of the parts with synthetic
labels, ``E_R`` of the one with real ones, ``f, b`` seconds of a sample forward and backward through a part.

Source:
    Synthetic intermediate labels, 2024, arXiv 2403.11204.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...errors import PlanError
from ...plans.partition import Layout
from ...plans.strategies.local_update import LocalUpdate
from ..pipelines.steady_steps import PlayedPipeline, step_s
from .local_update import activation_sends_s, output_of, sent_s
from .replicas import Replicas

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
        """Seconds in which micro-batches go forward through the part and over the cut, one at a time on each stage."""
        spans_s = [*self.forward_s, *self.send_s, self.crossing_s]
        return sum(spans_s) + (num_micro_batches - 1) * max(spans_s)


class PartsTraining(NamedTuple):
    """A training of all parts.

    Attributes:
        step_s: mean seconds of a step, of which there are those of `LocalUpdate.num_epochs` epochs.
        cut_bytes: over each cut in the whole training.
        pipeline_bytes: over each cut in as many epochs of a pipeline.
        stored_bytes: of activations that are kept beside the devices, until the next part has learned from them.
        label_bytes: that a device beside a cut holds.
    """

    step_s: float
    cut_bytes: tuple[float, ...]
    pipeline_bytes: tuple[float, ...]
    stored_bytes: float
    label_bytes: float

    def remarks(self) -> tuple[str, ...]:
        """What goes over the cuts, and is kept, for people."""
        sent, against = (sum(one) / 1e9 for one in (self.cut_bytes, self.pipeline_bytes))
        told = [
            f"{sent:,.4g} GB go over the cuts in the whole training, against {against:,.4g} GB in as many epochs of a pipeline"
        ]
        if self.stored_bytes:
            told.append(f"{self.stored_bytes / 1e9:,.4g} GB of activations are kept beside the devices between the parts")
        return tuple(told)


def epochs_s(
    training: LocalUpdate,
    part_epoch_s: Sequence[float],
    sending_s: Sequence[float],
    labels_s: Sequence[float] = (),
    recovery_epoch_s: float = 0.0,
) -> float:
    """Seconds of the whole training.

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
    """Bytes over a cut in the whole training: ``C h``, in turn ``N h``, and ``2 N h`` in an epoch of recovery.

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
) -> PartsTraining:
    """A training of all parts.

    Args:
        training: its schedule and epochs.
        parts: in model order, see `trained_parts`.
        layout: how the job is cut.
        recovery_s: of a step of the whole model.
    """
    assert training.num_samples is not None
    assert training.num_classes is not None
    num_steps = training.num_samples / layout.global_batch
    widths = [one.width_bytes for one in parts[:-1]]
    whole_s = epochs_s(
        training,
        [num_steps * one.step_s for one in parts],
        [one.sending_s(num_steps * layout.num_micro_batches) for one in parts[:-1]],
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
    """The parts of a job, each by itself.

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
    """Seconds of a step of a part: of a pipeline of its stages, and of the slowest optimizer behind its passes."""
    k = len(part.forward_s)
    layout = replicas.layout.model_copy(update={"pp": k})
    task_s = np.zeros((k, 1, 3))
    task_s[:, 0, 0], task_s[:, 0, 1] = part.forward_s, part.backward_s
    played = PlayedPipeline.of(layout, task_s, np.array([*part.send_s, 0.0]))
    return float(step_s(played, dict(enumerate(part.update_s)))[0])
