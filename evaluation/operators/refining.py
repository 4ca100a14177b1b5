"""A rule that plays the steps of refinement (``placement.refine_steps``): the move that helps most, while one does."""

from __future__ import annotations

import numpy as np

from ...envs.operators.batch import PlacementBatch
from ...errors import PlanError
from ...simulation.operators.decisions.candidates import CANDIDATE_FEATURES
from ...simulation.operators.instance import OperatorInstance
from ...simulation.operators.placement import OperatorObjective, OperatorPlacement, value

BEST_MOVE = "refine:best-move"
DEFAULT_STEPS = 20
_END = CANDIDATE_FEATURES.index("end_beyond_best")


def best_moves(instance: OperatorInstance, objective: OperatorObjective, steps: int) -> OperatorPlacement:
    """Place each op where it ends first, in HEFT's order, then move groups one after another.

    Each step values every move that memory allows, devices in the best order known, and takes the best; where none is better
    than staying the placement is a local optimum and the rule stops.

    Args:
        instance: that is placed.
        objective: what counts.
        steps: moves at most.

    Raises:
        PlanError: memory leaves no device for some op.
    """
    batch = PlacementBatch([instance], objective, 1, refine_steps=steps)
    batch.begin(np.zeros(1, np.int64))
    state = batch.state
    while state.num_decided[0] < instance.num_groups:
        if batch.is_dead[0]:
            raise PlanError("memory leaves no device for some op", field=BEST_MOVE, value=instance.name)
        op = batch.lead[0]
        ends = np.where(state.op_can[0, op], state.op_candidates[0, op, :, _END], np.inf)
        batch.step(np.array([ends.argmin()]))
    while batch.is_live[0]:
        device_of, best, best_s = batch.device_of(0), (-1, -1), float(state.value_s[0]) * (1.0 - 1e-12)
        for op, device in np.argwhere(state.op_can[0]).tolist():
            if device_of[op] == device:
                continue
            moved = np.where(instance.group == instance.group[op], device, device_of)
            moved_s = value(instance, moved, objective)
            if moved_s < best_s:
                best, best_s = (op, device), moved_s
        if best[0] < 0:
            break
        batch.step(np.array([best[1]]), np.array([best[0]]))
    return batch.placement(0, BEST_MOVE)
