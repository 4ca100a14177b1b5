"""DualPipe and DualPipeV: held against the published figure, PyTorch's own table, and a plain player of tasks."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.costs.pipelines import tasks as both
from meshwright.costs.pipelines.bidirectional import num_tasks
from meshwright.costs.pipelines.kept import kept_together
from meshwright.costs.pipelines.schedules import in_flight, orders, play_schedule
from meshwright.plans.partition import Layout

from ...draws import draws

KINDS = ("F", "B", "W", "I", "pair")
SHAPES = [
    ("dualpipe", 2, 4),
    ("dualpipe", 4, 16),
    ("dualpipe", 8, 20),
    ("dualpipev", 2, 4),
    ("dualpipev", 4, 10),
    ("dualpipev", 8, 30),
]


def equal(p, **seconds):
    """The same times for every rank and chunk, ``(p, 2, 5)``."""
    seconds.setdefault("I", seconds["B"] - seconds["W"])
    return np.broadcast_to(np.array([float(seconds[kind]) for kind in KINDS]), (p, 2, 5)).copy()


def idle_s(schedule, m, task_s):
    """Seconds of each rank without a task from the first task of all to the last one, with free transfers."""
    played = play_schedule(schedule, 2, m, task_s, 0.0, overlaps_sends=True)
    return (played.first_s + played.span_s).max() - played.busy_s


def rows(schedule, p, m):
    return [[tuple(task) for task in row if task[0] != both.NONE] for row in orders(schedule, p, 2, m).tolist()]


def plainly_played(schedule, m, task_s, send_s):
    """When each rank ends: one task after another, wherever one can go on."""
    p = len(task_s)
    table, made = rows(schedule, p, m), {}
    clock, at = [0.0] * p, [0] * p
    edge = {2 * p - 1} | ({p - 1} if schedule == "dualpipe" else set())

    def ready_s(kind, chunk, micro):
        if kind in (both.FORWARD, both.AHEAD):
            if chunk == 0 or chunk - 1 in edge:
                return 0.0
            before = made.get((both.FORWARD, chunk - 1, micro))
            return None if before is None else before + send_s[chunk - 1]
        if chunk in edge:
            return made.get((both.FORWARD, chunk, micro))
        before = made.get((both.BACKWARD, chunk + 1, micro))
        return None if before is None else before + send_s[chunk]

    while any(at[stage] < len(table[stage]) for stage in range(p)):
        moved = False
        for stage in range(p):
            if at[stage] == len(table[stage]):
                continue
            kind, place, _ = table[stage][at[stage]]
            parts = table[stage][at[stage] : at[stage] + (2 if kind == both.AHEAD else 1)]
            expected = [(k, stage if where == 0 else 2 * p - 1 - stage, micro) for k, where, micro in parts]
            times = [] if kind == both.WEIGHT else [ready_s(*one) for one in expected]
            if None in times:
                continue
            clock[stage] = max([clock[stage], *times]) + task_s[stage, place, kind]
            for k, chunk, micro in expected if kind != both.WEIGHT else ():
                made[both.FORWARD if k in (both.FORWARD, both.AHEAD) else both.BACKWARD, chunk, micro] = clock[stage]
            at[stage] += len(parts)
            moved = True
        assert moved
    return clock


@pytest.mark.parametrize("pair", [2.0, 2.4, 3.0])
def test_the_published_example_is_idle_as_published(pair):
    # DeepSeek-V3, table 2 and figure 5: 8 ranks, 20 micro-batches, (PP / 2 - 1)(F&B + B - 3 W) with F 1, B 2 of which W 1
    published = (8 / 2 - 1) * (pair + 2 - 3)
    idle = idle_s("dualpipe", 20, equal(8, F=1, B=2, W=1, pair=pair))
    assert idle[[3, 4]] == pytest.approx([published] * 2, abs=1e-9)
    assert idle.max() <= published + 1e-9
    # the same cut in half: 4 ranks of two chunks each, 10 micro-batches
    assert idle_s("dualpipev", 10, equal(4, F=1, B=2, W=1, pair=pair)) == pytest.approx(idle[:4], abs=1e-9)


def test_without_overlap_every_rank_is_idle_alike():
    # 16 passes of each direction: a rank is busy for 16 (1 + 2) seconds, and idle for (8 / 2 - 1)(3 + 2 - 3)
    assert idle_s("dualpipe", 32, equal(8, F=1, B=2, W=1, pair=3)) == pytest.approx([6.0] * 8, abs=1e-9)


@draws(40)
@given(st.sampled_from(SHAPES), st.floats(0.1, 3.0), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_no_rank_is_idle_for_longer_than_published(shape, forward, share, hidden):
    schedule, p, m = shape
    backward = 2 * forward
    weight = forward * share
    pair = backward + (1 - hidden) * forward
    half = p // 2 if schedule == "dualpipe" else p
    published = (half - 1) * (pair + backward - 3 * weight)
    idle = idle_s(schedule, m, equal(p, F=forward, B=backward, W=weight, pair=pair))
    assert idle.max() <= published + 1e-9


@pytest.mark.parametrize(("schedule", "p", "m"), SHAPES)
def test_every_pass_is_done_once_and_in_order(schedule, p, m):
    n = m // 2 if schedule == "dualpipe" else m
    for row in rows(schedule, p, m):
        for place in (0, 1):
            for kinds in ((both.FORWARD, both.AHEAD), (both.BACKWARD, both.INPUT, both.BACK)):
                assert [micro for kind, where, micro in row if where == place and kind in kinds] == list(range(n))
            parted = [micro for kind, where, micro in row if where == place and kind == both.INPUT]
            assert [micro for kind, where, micro in row if where == place and kind == both.WEIGHT] == parted
        behind = {one[0] for one, other in pairwise(row) if other[0] == both.BACK}
        assert behind == {both.AHEAD}


@pytest.mark.parametrize(("schedule", "p", "m"), SHAPES)
def test_no_rank_keeps_more_than_published(schedule, p, m):
    # PP + 1 chunks, where DualPipeV has two stages of PP on each rank
    stages = p if schedule == "dualpipe" else 2 * p
    keys = {"pp": p, "virtual_stages": 1 if schedule == "dualpipe" else 2, "schedule": schedule, "overlap_pp": True}
    few, many = (Layout(**keys, micro_batch=1, global_batch=batch) for batch in (m, 64 * p))
    stored = [max(map(sum, kept_together(few, stage))) for stage in range(p)]
    assert stored == [stages + 1] * p
    assert in_flight(schedule, p, 2, m, 0) == (stages + 1) / 2
    # what is counted of few micro-batches holds for many
    assert kept_together(few, 0) == kept_together(many, 0)


def test_dualpipev_is_pytorchs_own():
    torch_ops = pytest.importorskip("torch.distributed.pipelining._schedule_visualizer").get_schedule_ops
    names = {both.FORWARD: "F", both.BACKWARD: "B", both.WEIGHT: "W", both.INPUT: "I"}
    for p, m in ((2, 4), (4, 10), (4, 8), (3, 7)):
        theirs = torch_ops("DualPipeV", p, m, 2)
        for stage, (row, ops) in enumerate(zip(rows("dualpipev", p, m), theirs, strict=True)):
            messages = []
            for kind, place, micro in row:
                chunk = stage if place == 0 else 2 * p - 1 - stage
                if kind == both.BACK:
                    messages[-1] = f"({messages[-1]};{chunk}B{micro})OVERLAP_F_B"
                else:
                    messages.append(f"{chunk}{names.get(kind, 'F')}{micro}")
            assert messages == [str(one) for one in ops if one is not None], (p, m, stage)


@draws(30)
@given(st.sampled_from(SHAPES), st.integers(0, 10**6), st.sampled_from([0.0, 0.1, 2.0]))
def test_the_compiled_loop_plays_as_a_plain_one(shape, seed, way):
    schedule, p, m = shape
    rng = np.random.default_rng(seed)
    task_s, send_s = rng.lognormal(0.0, 0.8, (p, 2, 5)), way * rng.lognormal(0.0, 1.0, 2 * p)
    send_s[p - 1] = 0.0
    played = play_schedule(schedule, 2, m, task_s, send_s, overlaps_sends=True)
    assert played.first_s + played.span_s == pytest.approx(plainly_played(schedule, m, task_s, send_s), rel=1e-9)
    numbers = num_tasks(orders(schedule, p, 2, m))
    assert played.busy_s == pytest.approx((numbers * task_s).sum(axis=(1, 2)), rel=1e-9)


def test_many_micro_batches_are_continued_by_the_steady_state(monkeypatch):
    from meshwright.costs.pipelines import schedules

    rng = np.random.default_rng(3)
    for schedule, p, m in (("dualpipe", 4, 402), ("dualpipev", 3, 201)):
        task_s = rng.lognormal(0.0, 0.3, (p, 2, 5))
        whole = play_schedule(schedule, 2, m, task_s, 0.1, overlaps_sends=True)
        monkeypatch.setattr(schedules, "MAX_TASKS", 1)
        short = play_schedule(schedule, 2, m, task_s, 0.1, overlaps_sends=True)
        monkeypatch.undo()
        assert short.period_s == pytest.approx(whole.period_s, rel=1e-9)
        assert short.busy_s == pytest.approx(whole.busy_s, rel=1e-9)
