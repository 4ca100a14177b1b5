"""A step of many micro-batches, extrapolated from two steps of fewer, and many steps from a lowering of a few.

In its steady state a schedule repeats itself round by round (`costs.pipelines.schedules`). So a step of ``m`` micro-batches takes
``(m - f) / n`` rounds of ``n`` longer than a step of ``f``. Both have the same rest after their last whole round. So warm-up,
last round, gradients and all work once a step are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...costs.pipelines.schedules import STEADY_ROUNDS, in_flight, round_size, steady_round
from ...errors import PlanError
from ...plans.partition import Layout
from ..step.execution import ExecutionGraph
from .lowering import LAST, Lowered


class SteadyRounds(NamedTuple):
    """The steps that are simulated in place of one of many micro-batches.

    Attributes:
        all: micro-batches of the step that is wanted.
        fewer: of the shorter step.
        size: by how many the longer step has more, ``n``.
    """

    all: int
    fewer: int
    size: int

    @property
    def longer(self) -> int:
        """Micro-batches of the longer step."""
        return self.fewer + self.size

    def step_s(self, simulated_s: Callable[[int], float]) -> float:
        """Return the seconds of the step of many micro-batches.

        Args:
            simulated_s: seconds of a step of so many micro-batches.
        """
        fewer_s = simulated_s(self.fewer)
        return fewer_s + (self.all - self.fewer) / self.size * (simulated_s(self.longer) - fewer_s)


def rounds(layout: Layout, most: float) -> SteadyRounds | None:
    """Return the longest two steps with at most a number of micro-batches together; None where there are none.

    The shorter one has at least a whole round and the micro-batches that a stage keeps at once, so that its steady state is
    reached. It has at most `STEADY_ROUNDS`; more change nothing.

    Args:
        layout: of the job.
        most: micro-batches of the two steps together.
    """
    p, m = layout.pp, layout.num_micro_batches
    v, schedule = layout.virtual_stages, layout.schedule
    size = steady_round(schedule, p, v, m) if p > 1 else p
    least = in_flight(schedule, p, v, m, 0) if p > 1 and schedule != "gpipe" else 1  # gpipe keeps all of any number
    least = 2 * p if layout.is_bidirectional else least
    for whole in range(STEADY_ROUNDS, 0, -1):
        result = SteadyRounds(m, whole * size + m % size, size)
        is_alike = v == 1 or layout.is_bidirectional or size == round_size(p, result.fewer) == round_size(p, result.longer)
        if is_alike and least <= result.fewer and result.longer < m and result.fewer + result.longer <= most:
            return result
    return None


def with_micro_batches(layout: Layout, number: int) -> Layout:
    """Return the layout with another number of micro-batches in a step."""
    return layout.model_copy(update={"global_batch": number * layout.micro_batch * layout.dp})


FEWEST = 3
"""Steps that have to be lowered: the first one, one behind it, and the one that is repeated."""


def extended(lowered: Lowered, num_steps: int) -> Lowered:
    """Return the execution graph of more steps; ``passes``, ``flops`` and ``moved_bytes`` stay the first steps'.

    To lower a step takes longer than to run it. The first step waits for no parameters, so that its tasks may differ. Of three
    steps the last one is repeated.

    Args:
        lowered: of at least `FEWEST` steps.
        num_steps: steps one after another.

    Raises:
        PlanError: fewer steps than were lowered, or fewer were than is needed.
    """
    present = len(lowered.optimizers)
    if present < FEWEST or num_steps < present:
        raise PlanError(
            f"must be at least {max(present, FEWEST)}, the steps that were lowered", field="num_steps", value=num_steps
        )
    if num_steps == present:
        return lowered
    execution, times = lowered.execution, num_steps - present
    end, size = execution.num_tasks, int((lowered.optimizers[-1] - lowered.optimizers[-2])[0])
    last, later = execution.part(end - size, end), size * np.arange(1, times + 1)
    late = execution.edges[execution.edges.max(axis=1) >= end - size]
    steps = [replace(last, priority=LAST * step + last.priority) for step in range(1, times + 1)]
    made = ExecutionGraph.joined([execution, *steps], np.concatenate([execution.edges, *(late + shift for shift in later)]))
    optimizers = np.concatenate([lowered.optimizers, lowered.optimizers[-1] + later[:, None]])
    return replace(lowered, execution=made, optimizers=optimizers)
