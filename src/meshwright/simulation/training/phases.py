"""Steps of a core and of the whole model in turn, by one plan for both, lowered to one execution graph."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ...clusters.cluster import Cluster
from ...costs.settings import CostSettings
from ...plans.strategies.masked import Masked
from ..layouts.running import LayoutRun, run_layout
from ..layouts.step_model import StepModel
from .trained_step import StepOver

MOST_STEPS = 3
"""Steps of a phase that are lowered; each further one takes what a step among others of its kind does."""


@dataclass(frozen=True, eq=False)
class PhasedStep(StepOver):
    """Cycles of steps of a core and then of the whole model, which is the base.

    Attributes:
        core: a step of the core.
        core_steps, full_steps: of a cycle.
    """

    core: StepModel | None = None
    core_steps: int = 1
    full_steps: int = 1

    @classmethod
    def over(cls, full: StepModel, core: StepModel, core_steps: int, full_steps: int) -> PhasedStep:
        """The steps of both phases."""
        return cls(full.work, full.pricer, base=full, core=core, core_steps=core_steps, full_steps=full_steps)

    def at(self, step: int) -> StepModel:
        """See `StepModel.at`."""
        assert self.core is not None
        return self.core if step % (self.core_steps + self.full_steps) < self.core_steps else self.under

    def on(self, devices: NDArray[np.int64]) -> Self:
        """See `StepModel.on`."""
        assert self.core is not None
        return replace(super().on(devices), core=self.core.on(devices))


def run_cycles(
    full: StepModel,
    core: StepModel,
    training: Masked,
    cluster: Cluster,
    devices: NDArray[np.int64],
    costs: CostSettings,
    *,
    num_cycles: int = 2,
) -> LayoutRun:
    """Simulate cycles of both phases, `MOST_STEPS` of each phase at most, one after the other.

    Args:
        full, core: a step of each.
        training: the cycle.
        cluster, devices, costs: as of `running.run_layout`.
        num_cycles: how many.
    """
    steps = [min(MOST_STEPS, number) for number in (training.core_steps, training.full_steps)]
    return run_layout(PhasedStep.over(full, core, *steps), cluster, devices, costs, num_steps=num_cycles * sum(steps))


def masked_step_s(
    full: StepModel, core: StepModel, training: Masked, cluster: Cluster, devices: NDArray[np.int64], costs: CostSettings
) -> float:
    """Mean seconds of a step by the event path; of two cycles the second one counts. Arguments are those of `run_cycles`."""
    run = run_cycles(full, core, training, cluster, devices, costs)
    ends = run.timeline.finish_s[run.lowered.optimizers].max(axis=1)
    cycle_s = float(ends[-1] - ends[len(ends) // 2 - 1])
    for step, number in ((core, training.core_steps), (full, training.full_steps)):
        if number > MOST_STEPS:
            cycle_s += (number - MOST_STEPS) * run_layout(step, cluster, devices, costs).step_s
    return cycle_s / training.num_steps
