"""A layout's steps whose gradients are summed now and then, or coded before they are sent, as the lowering reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ...clusters.cluster import Cluster
from ...costs.resharding.crossings import Crossing
from ...costs.settings import CostSettings
from ...costs.training.replicas import shown
from ...costs.work.operations import Message
from ..layouts.pass_segments import Template
from ..layouts.running import run_layout
from ..layouts.step_model import StepModel

Sync = Callable[[int, int], tuple[Message, ...]]
"""The messages behind the last backward pass of a stage in a step."""

FEWEST_STEPS = 3
"""Steps of a period that are lowered; what a longer one has in addition are steps without sums, which take as long each."""


@dataclass(frozen=True, eq=False)
class StepOver(StepModel):
    """A step that asks another one for all that it does not change.

    Attributes:
        base: the other one.
    """

    base: StepModel | None = None

    @property
    def under(self) -> StepModel:
        """The other one, which every such step has."""
        assert self.base is not None
        return self.base

    def on(self, devices: NDArray[np.int64]) -> Self:
        """See `StepModel.on`."""
        base = self.under.on(devices)
        return self if base is self.base else replace(self, work=base.work, pricer=base.pricer, base=base, _templates={})

    def sync(self, stage: int) -> tuple[Message, ...]:
        """See `StepModel.sync`."""
        return self.under.sync(stage)

    def boundary(self, chunk: int, kind: int) -> tuple[Message, ...]:
        """See `StepModel.boundary`."""
        return self.under.boundary(chunk, kind)

    def crossing(self, chunk: int, kind: int) -> Crossing | None:
        """See `StepModel.crossing`."""
        return self.under.crossing(chunk, kind)

    def gather(self, stage: int) -> tuple[Message, ...]:
        """See `StepModel.gather`."""
        return self.under.gather(stage)

    def rank_seconds(self, chunk: int, kind: int, *, cut: bool) -> NDArray[np.float64] | None:
        """See `StepModel.rank_seconds`."""
        return self.under.rank_seconds(chunk, kind, cut=cut)

    def rank_optimizer_s(self, stage: int) -> NDArray[np.float64] | None:
        """See `StepModel.rank_optimizer_s`."""
        return self.under.rank_optimizer_s(stage)

    def optimizer_s(self, stage: int) -> float:
        """See `StepModel.optimizer_s`."""
        return self.under.optimizer_s(stage)

    def _made(self, chunk: int, kind: int, cut: bool) -> Template:
        return self.under.template(chunk, kind, cut=cut)


@dataclass(frozen=True, eq=False)
class TrainedStep(StepOver):
    """The steps of a layout with other messages in place of those that sum gradients; the base's gradients are hidden or not as
    ``work`` says.

    Attributes:
        synced: messages by stage and step.
        codecs: seconds of encoding and decoding, by stage.
    """

    synced: Sync = lambda stage, step: ()
    codecs: Mapping[int, tuple[float, float]] | None = None

    @classmethod
    def over(cls, base: StepModel, synced: Sync, codecs: Mapping[int, tuple[float, float]] | None = None) -> TrainedStep:
        """Steps like those of a synchronous one."""
        return cls(base.work, base.pricer, base=base, synced=synced, codecs=codecs)

    def sync(self, stage: int) -> tuple[Message, ...]:
        """The messages that sum gradients in the first step."""
        return self.synced(stage, 0)

    def sync_at(self, stage: int, step: int) -> tuple[Message, ...]:
        """See `StepModel.sync_at`."""
        return self.synced(stage, step)

    def codec_s(self, stage: int) -> tuple[float, float]:
        """See `StepModel.codec_s`."""
        return (0.0, 0.0) if self.codecs is None else self.codecs[stage]


def local_period(step: StepModel, every: int, share: float = 1.0) -> TrainedStep:
    """Steps of which only the last of a period averages over the replicas, with nothing hidden.

    Args:
        step: of the layout.
        every: steps of a period.
        share: of the gradients' bytes that is averaged.
    """
    silent, averaged = (type(step)(shown(step.work).with_gradient_share(part), step.pricer) for part in (0.0, share))
    return TrainedStep.over(
        silent, lambda stage, number: averaged.sync(stage) if (number + 1) % every == 0 else silent.sync(stage)
    )


def periodic_step_s(
    local: StepModel,
    averaged: StepModel,
    every: int,
    cluster: Cluster,
    devices: NDArray[np.int64],
    costs: CostSettings,
) -> float:
    """Mean seconds of a step by the event path: ``every`` steps in one execution graph, behind the last of them one average.

    Two periods are run, and the second one counts. Of a period of more than `FEWEST_STEPS` steps so many are lowered, and the
    others take what a step without sums takes among others.

    Args:
        local: a step whose gradients nobody sums.
        averaged: the same with the average of the parameters behind its last backward pass.
        every: steps of a period.
        cluster, devices, costs: as of `running.run_layout`.
    """
    lowered = min(every, FEWEST_STEPS)

    def synced(stage: int, step: int) -> tuple[Message, ...]:
        return averaged.sync(stage) if (step + 1) % lowered == 0 else local.sync(stage)

    run = run_layout(TrainedStep.over(local, synced), cluster, devices, costs, num_steps=2 * lowered)
    ends = run.timeline.finish_s[run.lowered.optimizers].max(axis=1)
    period_s = float(ends[2 * lowered - 1] - ends[lowered - 1])
    if every > lowered:
        period_s += (every - lowered) * run_layout(local, cluster, devices, costs).step_s
    return period_s / every
