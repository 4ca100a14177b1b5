"""Steps that differ from the ones before.

Steps of a core and of the whole model alternate by one plan for both, lowered to one execution graph. In a period only the last
step averages over the replicas.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ...clusters.cluster import Cluster
from ...costs.settings import CostSettings
from ...costs.training.replicas import shown
from ...plans.training import Masked
from ..layouts.running import LayoutRun, run_layout
from ..layouts.step_model import StepModel

MOST_STEPS = 3
"""Steps of a phase that are lowered; each further one takes what a step among others of its kind does."""


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
    cycles = replace(full, core=core, cycle=(steps[0], steps[1]))
    return run_layout(cycles, cluster, devices, costs, num_steps=num_cycles * sum(steps))


def masked_step_s(
    full: StepModel, core: StepModel, training: Masked, cluster: Cluster, devices: NDArray[np.int64], costs: CostSettings
) -> float:
    """Return mean step seconds by the event path; of two cycles the second counts. Arguments are those of `run_cycles`."""
    run = run_cycles(full, core, training, cluster, devices, costs)
    ends = run.timeline.finish_s[run.lowered.optimizers].max(axis=1)
    cycle_s = float(ends[-1] - ends[len(ends) // 2 - 1])
    for step, number in ((core, training.core_steps), (full, training.full_steps)):
        if number > MOST_STEPS:
            cycle_s += (number - MOST_STEPS) * run_layout(step, cluster, devices, costs).step_s
    return cycle_s / training.num_steps


def local_period(step: StepModel, every: int, share: float = 1.0) -> StepModel:
    """Return steps whose period averages over the replicas in its last step alone, with nothing hidden.

    Args:
        step: of the layout.
        every: steps of a period.
        share: of the gradients' bytes that is averaged.
    """
    silent, averaged = (type(step)(shown(step.work).with_gradient_share(part), step.pricer) for part in (0.0, share))
    return silent.over(lambda stage, number: averaged.sync(stage) if (number + 1) % every == 0 else silent.sync(stage))


def periodic_step_s(
    step: StepModel, every: int, share: float, cluster: Cluster, devices: NDArray[np.int64], costs: CostSettings
) -> float:
    """Return mean step seconds by the event path: ``every`` steps in one execution graph, behind the last one average.

    Two periods are run, and the second one counts. Of a period of more than `MOST_STEPS` steps so many are lowered; each of the
    others takes as long as a step without sums.

    Args:
        step, every, share: as of `local_period`.
        cluster, devices, costs: as of `running.run_layout`.
    """
    lowered = min(every, MOST_STEPS)
    run = run_layout(local_period(step, lowered, share), cluster, devices, costs, num_steps=2 * lowered)
    ends = run.timeline.finish_s[run.lowered.optimizers].max(axis=1)
    period_s = float(ends[2 * lowered - 1] - ends[lowered - 1])
    if every > lowered:
        silent = type(step)(shown(step.work).with_gradient_share(0.0), step.pricer)
        period_s += (every - lowered) * run_layout(silent, cluster, devices, costs).step_s
    return period_s / every
