"""Pipeline schedules: exact play against closed forms, orders that are complete, and what they keep."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.costs.layouts import schedules
from meshwright.costs.layouts.schedules import BACKWARD, FORWARD, WEIGHT, closed_form_s, in_flight, orders, play

EVERY = [("gpipe", 1), ("1f1b", 1), ("interleaved", 2), ("interleaved", 3), ("zb-h1", 1), ("zb-2p", 1)]


def tasks(schedule, p, v, forward=1.0, backward=1.0, weight=1.0):
    is_parted = schedule.startswith("zb")
    one = (forward, backward, weight) if is_parted else (forward, backward + weight, 0.0)
    return np.tile(np.array(one) / v, (p, v, 1))


def test_two_stages_and_two_micro_batches_worked_by_hand():
    # 1F1B with forward 1 and backward 2: stage 0 does F F . . . B . B, stage 1 . F B F B: 0-1, 1-2, 1-2, 2-4, 4-5, 5-7 on
    # stage 1; on stage 0 the gradients come at 4 and 7: 4-6 and 7-9
    played = play("1f1b", 1, 2, tasks("1f1b", 2, 1), 0.0)
    assert played.period_s == pytest.approx(9.0)
    assert played.busy_s.tolist() == pytest.approx([6.0, 6.0])


@pytest.mark.parametrize(("schedule", "v"), EVERY)
@given(p=st.integers(2, 6), groups=st.integers(2, 4))
def test_equal_stages_take_what_the_closed_form_says(schedule, v, p, groups):
    m = p * groups
    played = play(schedule, v, m, tasks(schedule, p, v), 0.0)
    assert played.period_s == pytest.approx(closed_form_s(schedule, p, v, m, (1.0, 1.0, 1.0)))


@pytest.mark.parametrize(("schedule", "v"), EVERY)
@given(p=st.integers(2, 5), groups=st.integers(1, 3))
def test_every_stage_does_every_pass_of_every_micro_batch_once(schedule, v, p, groups):
    m = p * groups
    kinds = (FORWARD, BACKWARD, WEIGHT) if schedule.startswith("zb") else (FORWARD, BACKWARD)
    wanted = sorted((kind, place, micro) for kind in kinds for place in range(v) for micro in range(m))
    for row in orders(schedule, p, v, m).tolist():
        assert sorted(map(tuple, row)) == wanted


@pytest.mark.parametrize(("schedule", "v"), EVERY)
@given(
    p=st.integers(2, 4),
    data=st.data(),
    send=st.floats(0, 0.5),
)
def test_no_stage_ends_before_its_own_work_is_done(schedule, v, p, data, send):
    seconds = data.draw(st.lists(st.floats(0.1, 2.0), min_size=p * v * 3, max_size=p * v * 3))
    played = play(schedule, v, 2 * p, np.array(seconds).reshape(p, v, 3), send)
    assert (played.span_s >= played.busy_s * (1 - 1e-12)).all()
    assert played.period_s >= played.span_s.max() * (1 - 1e-12)


@pytest.mark.parametrize(("schedule", "v"), EVERY)
def test_sends_that_overlap_never_take_longer(schedule, v):
    held = play(schedule, v, 8, tasks(schedule, 4, v), 0.05).period_s
    assert play(schedule, v, 8, tasks(schedule, 4, v), 0.05, overlaps_sends=True).period_s <= held


@pytest.mark.parametrize(("schedule", "v"), [("1f1b", 1), ("interleaved", 2), ("zb-h1", 1), ("zb-2p", 1), ("gpipe", 1)])
def test_many_micro_batches_continue_the_steady_state(schedule, v, monkeypatch):
    seconds = tasks(schedule, 4, v)
    seconds[0] *= 1.1
    seconds[3] *= 1.3
    whole = play(schedule, v, 96, seconds, 0.01)
    monkeypatch.setattr(schedules, "MAX_TASKS", 4)
    assert play(schedule, v, 96, seconds, 0.01).period_s == pytest.approx(whole.period_s)


@pytest.mark.parametrize(("schedule", "v"), EVERY)
@pytest.mark.parametrize("p", [2, 4])
def test_a_stage_keeps_as_many_activations_as_told(schedule, v, p):
    m = 4 * p
    ends = WEIGHT if schedule.startswith("zb") else BACKWARD
    for stage, row in enumerate(orders(schedule, p, v, m).tolist()):
        held = most = 0
        for kind, _, _ in row:
            held += (kind == FORWARD) - (kind == ends)
            most = max(most, held)
        assert most / v <= in_flight(schedule, p, v, m, stage) + 1e-12
    assert in_flight("1f1b", p, 1, m, 0) == p
    # Interleaved, first stage: 1 + (p - 1) / (p v) times the layers of the model, p times a stage's
    assert in_flight("interleaved", p, 3, m, 0) == pytest.approx(p * (1 + (p - 1) / (p * 3)))


def test_transfers_take_what_their_own_boundary_says_worked_by_hand():
    # three stages, one micro-batch, F = B = 1 s; 0.5 s between the first two, 2 s between the last two, each way and held
    seconds = np.ones((3, 1, 3))
    assert play("1f1b", 1, 1, seconds, np.array([0.5, 2.0, 0.0])).period_s == pytest.approx(6 + 2 * 2.5)
    assert play("gpipe", 1, 1, seconds, np.array([0.5, 2.0, 9.0])).period_s == pytest.approx(6 + 2 * 2.5)


@pytest.mark.parametrize(("schedule", "v"), EVERY)
def test_equal_boundaries_are_one_number(schedule, v):
    played = [play(schedule, v, 8, tasks(schedule, 4, v), send) for send in (0.25, np.full(4 * v, 0.25))]
    assert played[0].period_s == played[1].period_s
    assert played[0].first_s.tolist() == played[1].first_s.tolist()


def test_stages_start_when_the_first_micro_batch_comes_worked_by_hand():
    # F 1 s and a transfer of 0.5 s on the way
    assert play("1f1b", 1, 4, np.ones((3, 1, 3)), 0.5).first_s.tolist() == [0.0, 1.5, 3.0]


@pytest.mark.parametrize("p", [2, 4])
def test_as_many_micro_batches_as_stages_all_stay_in_an_interleaved_schedule(p):
    # Megatron-LM then does all forward passes first
    for stage, row in enumerate(orders("interleaved", p, 2, p).tolist()):
        assert [kind for kind, _, _ in row] == [FORWARD] * (2 * p) + [BACKWARD] * (2 * p)
        assert in_flight("interleaved", p, 2, p, stage) == p
