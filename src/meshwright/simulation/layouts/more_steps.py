"""Many steps of a layout from a lowering of a few: from the second one on every step has the same tasks.

To lower a step takes longer than to run it. The first step waits for no parameters, so that its tasks may differ. Of three steps
the last one is repeated.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...errors import PlanError
from ..step.execution import ExecutionGraph
from .lowering import LAST, Lowered

FEWEST = 3
"""Steps that have to be lowered: the first one, one behind it, and the one that is repeated."""


def extended(lowered: Lowered, num_steps: int) -> Lowered:
    """The execution graph of more steps; ``passes``, ``flops`` and ``moved_bytes`` stay those of the steps that were lowered.

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
