"""Gradients and parameters that hide behind passes: closed forms against playing every block."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.costs.training_step.gradient_overlap import exposed_s

seconds = st.sampled_from([0.0, 0.25, 1.0, 3.0])
spans = st.lists(st.tuples(st.integers(1, 5), seconds, seconds, seconds), min_size=1, max_size=4).map(np.array)
messages = st.lists(st.tuples(st.sampled_from(["shard", "replica", "expert_dp"]), seconds), max_size=3)


def played_after(spans, messages):
    """Block by block: each part goes through the messages of its kind, and each message carries one part at a time."""
    free, clock = [0.0] * len(messages), 0.0
    for number, own_s, dense, experts in spans:
        for _ in range(int(number)):
            clock += own_s
            ready = {True: clock, False: clock}
            for place, (axis, whole_s) in enumerate(messages):
                is_expert = axis == "expert_dp"
                share = experts if is_expert else dense
                if share:
                    free[place] = ready[is_expert] = max(ready[is_expert], free[place]) + share * whole_s
    return max(0.0, max(free, default=0.0) - clock)


def played_before(spans, messages):
    """Block by block: each waits for its parts, which arrive message by message from the beginning on."""
    arrived, clock, waited = [0.0] * len(messages), 0.0, 0.0
    for number, own_s, dense, experts in spans:
        for _ in range(int(number)):
            expected = []
            for place, (axis, whole_s) in enumerate(messages):
                part = (experts if axis == "expert_dp" else dense) * whole_s
                arrived[place] += part
                expected += [arrived[place]] if part else []
            late = max(0.0, max(expected, default=0.0) - clock)
            waited, clock = waited + late, clock + late + own_s
    return waited


def test_worked_by_hand():
    # Four layers of 1 s, a quarter of 6 s each: 1-2.5, -4, -5.5, -7; the passes end at 4 s.
    assert exposed_s(np.array([(4, 1.0, 0.25, 0.0)]), [("dp_cp", 6.0)], is_backward=True) == pytest.approx(3.0, rel=1e-12)
    # and of 2 s: the last part of 0.5 s alone
    assert exposed_s(np.array([(4, 1.0, 0.25, 0.0)]), [("dp_cp", 2.0)], is_backward=True) == pytest.approx(0.5, rel=1e-12)
    # parameters of 6 s: the first layer waits until 1.5 s and runs to 2.5, the second until 3 s, the third 4.5, the last 6-7
    assert exposed_s(np.array([(4, 1.0, 0.25, 0.0)]), [("shard", 6.0)], is_backward=False) == pytest.approx(3.0, rel=1e-12)


@given(spans=spans, messages=messages)
def test_the_closed_form_after_is_what_playing_gives(spans, messages):
    assert exposed_s(spans, messages, is_backward=True) == pytest.approx(played_after(spans, messages), rel=1e-9, abs=1e-12)


@given(spans=spans, messages=messages)
def test_the_closed_form_before_is_what_playing_gives(spans, messages):
    assert exposed_s(spans, messages, is_backward=False) == pytest.approx(played_before(spans, messages), rel=1e-9, abs=1e-12)


@given(spans=spans, messages=messages)
def test_no_more_is_exposed_than_there_is(spans, messages):
    total = {kind: sum(number * (experts if kind else dense) for number, _, dense, experts in spans) for kind in (False, True)}
    whole = sum(seconds * total[axis == "expert_dp"] for axis, seconds in messages)
    assert 0 <= exposed_s(spans, messages, is_backward=True) <= whole * (1 + 1e-9) + 1e-12
    assert 0 <= exposed_s(spans, messages, is_backward=False) <= whole * (1 + 1e-9) + 1e-12
