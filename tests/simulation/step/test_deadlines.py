"""Deadlines of messages: the start of what wants them without contention."""

import numpy as np

from meshwright.simulation.step import kernel
from meshwright.simulation.step.deadlines import by_deadline, deadlines_s

from ..execution_samples import execution_of

# An expert all-to-all that the next pass wants, and gradients that were ready first and are wanted at the end.
# 0 computes 1 s; 1 gradients 3 s and 2 all-to-all 1 s follow it on the one communication stream; 3 computes 2 s after the
# all-to-all; 4 is the update, after the gradients and 3.
STEP = {
    "durations_s": [1.0, 3.0, 1.0, 2.0, 0.0],
    "edges": [(0, 1), (0, 2), (2, 3), (1, 4), (3, 4)],
    "streams": [[0], [2], [2], [0], [0]],
    "members": [(), (0,), (0,), (), ()],
    "priority": [0.0, 1.0, 2.0, 3.0, 4.0],
}


def test_deadlines_worked_by_hand():
    # Uncontended the all-to-all is done at 2, 3 starts then; gradients are done at 4, and so is 3, when the update starts.
    assert deadlines_s(execution_of(**STEP)).tolist() == [1.0, 4.0, 2.0, 4.0, 4.0]


def test_an_expert_all_to_all_goes_before_gradients():
    # In order of readiness the all-to-all waits for the gradients until 4 and ends at 5, 3 at 7. By deadline: 2, then 5.
    execution = execution_of(**STEP)
    assert kernel.schedule(execution)[1].max() == 7.0
    assert kernel.schedule(by_deadline(execution))[1].max() == 5.0


def test_messages_that_one_task_waits_for_count_as_one():
    execution = execution_of([1.0, 5.0, 1.0], [(0, 2), (1, 2)], members=[(0,), (0,), ()])
    assert deadlines_s(execution)[:2].tolist() == [5.0, 5.0]


def test_computations_keep_their_order():
    execution = execution_of(**STEP)
    assert np.array_equal(by_deadline(execution).priority[[0, 3, 4]], execution.priority[[0, 3, 4]])
