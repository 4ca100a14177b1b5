"""Pipeline schedules: exact play against closed forms, orders that are complete, and what they keep."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.costs.pipelines import schedules
from meshwright.costs.pipelines.kept import kept_together
from meshwright.costs.pipelines.schedules import in_flight, orders, play_schedule, round_size
from meshwright.costs.pipelines.tasks import BACKWARD, FORWARD, WEIGHT
from meshwright.plans.partition import Layout

from .closed_forms import closed_form_s

EVERY = [("gpipe", 1), ("1f1b", 1), ("eager-1f1b", 1), ("interleaved", 2), ("interleaved", 3), ("zb-h1", 1), ("zb-2p", 1)]


def tasks(schedule, p, v, forward=1.0, backward=1.0, weight=1.0):
    is_parted = schedule.startswith("zb")
    one = (forward, backward, weight) if is_parted else (forward, backward + weight, 0.0)
    return np.tile(np.array(one) / v, (p, v, 1))


def test_two_stages_and_two_micro_batches_worked_by_hand():
    # 1F1B with forward 1 and backward 2: stage 0 does F F . . . B . B, stage 1 . F B F B: 0-1, 1-2, 1-2, 2-4, 4-5, 5-7 on
    # stage 1; on stage 0 the gradients come at 4 and 7: 4-6 and 7-9
    played = play_schedule("1f1b", 1, 2, tasks("1f1b", 2, 1), 0.0)
    assert played.period_s == pytest.approx(9.0)
    assert played.busy_s.tolist() == pytest.approx([6.0, 6.0])


@pytest.mark.parametrize(("schedule", "v"), EVERY)
@given(p=st.integers(2, 6), groups=st.integers(2, 4))
def test_equal_stages_take_what_the_closed_form_says(schedule, v, p, groups):
    m = p * groups
    played = play_schedule(schedule, v, m, tasks(schedule, p, v), 0.0)
    assert played.period_s == pytest.approx(closed_form_s(schedule, p, v, m, (1.0, 1.0, 1.0)))


@pytest.mark.parametrize(("schedule", "v"), EVERY)
@given(p=st.integers(2, 5), m=st.integers(1, 16))
def test_every_stage_does_every_pass_of_every_micro_batch_once(schedule, v, p, m):
    kinds = (FORWARD, BACKWARD, WEIGHT) if schedule.startswith("zb") else (FORWARD, BACKWARD)
    expected = sorted((kind, place, micro) for kind in kinds for place in range(v) for micro in range(m))
    for row in orders(schedule, p, v, m).tolist():
        assert sorted(map(tuple, row)) == expected


@pytest.mark.parametrize(("schedule", "v"), EVERY)
@given(p=st.integers(2, 4), data=st.data(), m=st.integers(1, 12), send=st.floats(0, 0.5))
def test_no_stage_ends_before_its_own_work_is_done(schedule, v, p, data, m, send):
    seconds = data.draw(st.lists(st.floats(0.1, 2.0), min_size=p * v * 3, max_size=p * v * 3))
    played = play_schedule(schedule, v, m, np.array(seconds).reshape(p, v, 3), send)
    assert (played.span_s >= played.busy_s * (1 - 1e-12)).all()
    assert played.period_s >= played.span_s.max() * (1 - 1e-12)


@pytest.mark.parametrize(("schedule", "v"), EVERY)
def test_sends_that_overlap_never_take_longer(schedule, v):
    held = play_schedule(schedule, v, 8, tasks(schedule, 4, v), 0.05).period_s
    assert play_schedule(schedule, v, 8, tasks(schedule, 4, v), 0.05, overlaps_sends=True).period_s <= held


@pytest.mark.parametrize(("schedule", "v"), [("1f1b", 1), ("interleaved", 2), ("zb-h1", 1), ("zb-2p", 1), ("gpipe", 1)])
def test_many_micro_batches_continue_the_steady_state(schedule, v, monkeypatch):
    seconds, counts = tasks(schedule, 4, v), (96, 97, 99, 102)
    seconds[0] *= 1.1
    seconds[3] *= 1.3
    whole = [play_schedule(schedule, v, m, seconds, 0.01).period_s for m in counts]
    monkeypatch.setattr(schedules, "MAX_TASKS", 4)
    assert [play_schedule(schedule, v, m, seconds, 0.01).period_s for m in counts] == pytest.approx(whole)


def test_rounds_of_an_interleaved_schedule_worked_by_hand():
    # four stages: as many as divide, else the least that leaves none or at least four over; fewer micro-batches are one round
    assert [round_size(4, m) for m in (1, 3, 4, 8)] == [1, 3, 4, 4]
    assert [round_size(4, m) for m in (5, 6, 7)] == [5, 6, 7]
    assert [round_size(4, m) for m in (9, 10, 11, 13)] == [5, 5, 6, 7]  # 5+4, 5+5, 6+5, 7+6


@given(p=st.integers(1, 16), m=st.integers(1, 300))
def test_the_last_round_has_as_many_micro_batches_as_stages_if_there_are_so_many(p, m):
    size = round_size(p, m)
    assert 1 <= size <= m
    assert (size == p) == (m % p == 0 or m == p)
    if m >= p:
        assert size >= p
        assert m % size == 0 or m % size >= p


def test_an_uneven_interleaved_schedule_worked_by_hand():
    # Two stages, two chunks of F = B = 1 each, three micro-batches, one round: stage 0 forwards chunk 0 of all, then chunk 1;
    # stage 1 begins a second later and does its first gradient after all of chunk 0 and one of chunk 1
    rows = orders("interleaved", 2, 2, 3).tolist()
    assert [kind for kind, _, _ in rows[0]] == [0] * 5 + [0, 1] + [1] * 5
    assert [kind for kind, _, _ in rows[1]] == [0] * 3 + [0, 1] * 3 + [1] * 3
    assert [(place, micro) for kind, place, micro in rows[1] if kind == 0] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert [(place, micro) for kind, place, micro in rows[1] if kind == 1] == [(1, 0), (1, 1), (1, 2), (0, 0), (0, 1), (0, 2)]
    # stage 1: F 1-4, then F 4-5, B 5-6, F 6-7 (chunk 1 of the second came at 5), B 7-8, F 8-9, B 9-10; gradients of chunk 0
    # come from stage 0: B of chunk 1 there 6-7, 8-9, 10-11, so 10-11, 11-12 and 12-13 here; back on stage 0 -14
    assert play_schedule("interleaved", 2, 3, np.ones((2, 2, 3)), 0.0).span_s.tolist() == pytest.approx([14.0, 12.0])


@pytest.mark.parametrize("p", [2, 4, 5])
def test_uneven_micro_batches_cost_an_interleaved_schedule_no_more_than_1f1b(p):
    for m in range(1, 5 * p):
        plain, cut = (play_schedule(s, v, m, tasks(s, p, v), 0.0).period_s for s, v in (("1f1b", 1), ("interleaved", 2)))
        assert cut <= plain * (1 + 1e-12)


@pytest.mark.parametrize(("schedule", "v"), EVERY)
def test_a_stage_keeps_as_many_activations_as_told(schedule, v):
    ends = WEIGHT if schedule.startswith("zb") else BACKWARD
    for p, extra in product((2, 4), (0, 1, 3)):
        for stage, row in enumerate(orders(schedule, p, v, 4 * p + extra).tolist()):
            held = most = 0
            for kind, _, _ in row:
                held += (kind == FORWARD) - (kind == ends)
                most = max(most, held)
            assert most / v <= in_flight(schedule, p, v, 4 * p + extra, stage) + 1e-12


@pytest.mark.parametrize("p", [2, 4])
def test_activations_of_the_first_stage_are_those_published(p):
    assert in_flight("1f1b", p, 1, 4 * p, 0) == p
    # Interleaved: 1 + (p - 1) / (p v) times the layers of the model, p times a stage's
    assert in_flight("interleaved", p, 3, 4 * p, 0) == pytest.approx(p * (1 + (p - 1) / (p * 3)))


def test_transfers_take_what_their_own_boundary_says_worked_by_hand():
    # three stages, one micro-batch, F = B = 1 s; 0.5 s between the first two, 2 s between the last two, each way and held
    seconds = np.ones((3, 1, 3))
    assert play_schedule("1f1b", 1, 1, seconds, np.array([0.5, 2.0, 0.0])).period_s == pytest.approx(6 + 2 * 2.5)
    assert play_schedule("gpipe", 1, 1, seconds, np.array([0.5, 2.0, 9.0])).period_s == pytest.approx(6 + 2 * 2.5)


def test_stages_start_when_the_first_micro_batch_comes_worked_by_hand():
    # F 1 s and a transfer of 0.5 s on the way
    assert play_schedule("1f1b", 1, 4, np.ones((3, 1, 3)), 0.5).first_s.tolist() == [0.0, 1.5, 3.0]


@pytest.mark.parametrize("p", [2, 4])
def test_as_many_micro_batches_as_stages_all_stay_in_an_interleaved_schedule(p):
    # Megatron-LM then does all forward passes first
    for stage, row in enumerate(orders("interleaved", p, 2, p).tolist()):
        assert [kind for kind, _, _ in row] == [FORWARD] * (2 * p) + [BACKWARD] * (2 * p)
        assert in_flight("interleaved", p, 2, p, stage) == p


def test_what_waits_in_a_zero_bubble_schedule_worked_by_hand():
    # ZB-H1, two stages: the first keeps two micro-batches before the first gradient comes, then one of which only the weight
    # gradient is left beside one that waits; the last puts off two weight gradients
    layout = Layout(pp=2, schedule="zb-h1", micro_batch=1, global_batch=8)
    assert kept_together(layout, 0) == ((1, 1), (2, 0))
    assert kept_together(layout, 1) == ((0, 2), (1, 1))


@pytest.mark.parametrize("schedule", ["zb-h1", "zb-2p"])
@given(p=st.integers(2, 6), m=st.integers(1, 40), data=st.data())
def test_what_waits_is_what_is_in_flight_and_no_less_than_1f1b_keeps(schedule, p, m, data):
    stage = data.draw(st.integers(0, p - 1))
    pairs = kept_together(Layout(pp=p, schedule=schedule, micro_batch=1, global_batch=m), stage)
    assert max(before + after for before, after in pairs) <= in_flight(schedule, p, 1, m, stage)
    assert max(before for before, _ in pairs) >= in_flight("1f1b", p, 1, m, stage)
    kinds = orders(schedule, p, 1, m)[stage, :, 0]  # all of it, however long
    f, b, w = (np.cumsum(kinds == kind) for kind in (FORWARD, BACKWARD, WEIGHT))
    for before, after in zip((f - b).tolist(), (b - w).tolist(), strict=True):
        assert any(before <= x and after <= y for x, y in pairs)


@pytest.mark.parametrize(
    ("p", "m", "send_s", "ideal_s", "blocking_s", "overlapped_s", "eager_s"),
    [
        (2, 8, 0.25, 27, 29.25, 29.0, 27.5),
        (2, 8, 1.0, 27, 36, 35, 29),
        (4, 8, 0.25, 33, 37.75, 37.0, 34.5),
        (4, 8, 1.0, 33, 52, 49, 39),
        (4, 16, 0.25, 57, 65.75, 64.0, 58.5),
    ],
)
def test_eager_pipelines_pay_transfers_while_they_fill_and_drain(p, m, send_s, ideal_s, blocking_s, overlapped_s, eager_s):
    # forward 1, backward 2: (m + p - 1) (1 + 2) + 2 (p - 1) c
    seconds = np.tile([1.0, 2.0, 0.0], (p, 1, 1))

    def step_s(schedule, way_s, overlaps):
        return play_schedule(schedule, 1, m, seconds, way_s, overlaps_sends=overlaps).period_s

    assert eager_s == (m + p - 1) * 3 + 2 * (p - 1) * send_s
    assert step_s("eager-1f1b", send_s, True) == pytest.approx(eager_s, rel=1e-9)
    assert step_s("1f1b", send_s, True) == pytest.approx(overlapped_s, rel=1e-9)
    assert step_s("1f1b", send_s, False) == pytest.approx(blocking_s, rel=1e-9)
    assert step_s("eager-1f1b", 0.0, True) == step_s("1f1b", 0.0, True) == pytest.approx(ideal_s, rel=1e-9)


@given(p=st.integers(1, 6), m=st.integers(1, 20))
def test_an_eager_stage_keeps_what_its_order_says(p, m):
    for stage, row in enumerate(orders("eager-1f1b", p, 1, m)):
        stored = np.cumsum(np.where(row[:, 0] == FORWARD, 1, -1)).max()
        assert stored == in_flight("eager-1f1b", p, 1, m, stage) == min(m, 2 * (p - stage) - 1)
