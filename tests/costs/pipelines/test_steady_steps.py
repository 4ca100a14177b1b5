"""Closed forms are what schedules take as played, and no step grows when a task or a transfer shrinks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.costs.pipelines import schedules
from meshwright.costs.pipelines.plain_schedules import plain_spans_s
from meshwright.costs.pipelines.steady_steps import ChunkTails, PlayedPipeline, chunk_step_s, ends_s, largest_mean, step_s
from meshwright.costs.training_step.trailing_collectives import chunk_gaps_s
from meshwright.plans.partition import Layout

from ...draws import draws


def test_three_stages_of_1f1b_worked_by_hand():
    # F = 1, 3, 1 and B = 1, 3, 1, three micro-batches: T = 2, 6, 2. Stage 1 stays busy: F at 1-4, 4-7, its first B waits for
    # F and B of stage 2 (4-5, 5-6) until 7-10, then F 10-13, B 13-16, and the last F's way over stage 2 is done by 15: B 16-19,
    # and stage 0 ends at 20. Stage 1 is busy for 18 of its 18 seconds.
    spans = plain_spans_s(False, 3, np.array([1.0, 3.0, 1.0]), np.array([1.0, 3.0, 1.0]), np.zeros(3))
    assert spans.tolist() == pytest.approx([20.0, 18.0, 11.0])


@draws(38)
@given(
    st.sampled_from([("1f1b", False), ("gpipe", False), ("gpipe", True)]),
    st.integers(2, 8),
    st.integers(1, 20),
    st.integers(0, 10**6),
    st.sampled_from([0.0, 0.1, 2.0]),
)
def test_closed_forms_are_the_schedule_as_played(kind, p, m, seed, way):
    schedule, overlaps = kind
    rng = np.random.default_rng(seed)
    task_s, send_s = rng.lognormal(0.0, rng.choice([0.0, 0.3, 1.5]), (p, 1, 3)), way * rng.lognormal(0.0, 1.0, p)
    formula = schedules.play_schedule(schedule, 1, m, task_s, send_s, overlaps_sends=overlaps)
    none_s = np.zeros((p, 1))
    ends, busy, _, first = schedules.played_from(schedule, m, task_s, send_s, none_s[:, 0], none_s, overlaps_sends=overlaps)
    for ours, theirs in zip(formula, ((ends - first).max(), ends - first, busy, first), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-12)


def test_the_largest_mean_worked_by_hand():
    # alone 3 and 1, there and back 2 + 6 over two steps: 4
    assert largest_mean(np.array([[3.0, 2.0], [6.0, 1.0]])) == pytest.approx(4.0)
    assert largest_mean(np.array([[3.0, -np.inf], [6.0, 1.0]])) == pytest.approx(3.0)


def test_a_late_stage_of_gpipe_worked_by_hand():
    # F = 4, 1 and B = 4, 1, three micro-batches, 30 s behind stage 1. From the beginning stage 1 waits for stage 0 (F at 4, 8,
    # 12) and takes 13 + 3 - 4 = 12 s to its end; in later steps its micro-batches are there: 3 F + 3 B + 30 = 36 s. Stage 0
    # alone takes 12 + 1 + 1 + 12 = 26 s.
    layout = Layout(pp=2, schedule="gpipe", micro_batch=1, global_batch=3)
    task_s = np.array([[[4.0, 4.0, 0.0]], [[1.0, 1.0, 0.0]]])
    pipeline = PlayedPipeline.play(layout, task_s, np.zeros(2))
    assert pipeline.played.span_s.tolist() == pytest.approx([26.0, 12.0])
    assert step_s(pipeline, {0: 0.0, 1: 30.0}) == (pytest.approx(36.0), 1)


def test_layouts_that_share_their_passes_play_one_pipeline():
    one = Layout(pp=2, dp=2, schedule="1f1b", micro_batch=1, global_batch=6)
    other, fewer = one.model_copy(update={"zero": 1}), one.model_copy(update={"global_batch": 4})
    task_s, send_s = np.ones((2, 1, 3)), np.zeros(2)
    first, same, short = (PlayedPipeline.play(layout, task_s.copy(), send_s).played for layout in (one, other, fewer))
    assert same is first
    assert short.period_s < first.period_s < PlayedPipeline.play(one, 2 * task_s, send_s).played.period_s


@draws(60)
@given(st.integers(2, 6), st.integers(1, 14), st.booleans(), st.integers(0, 10**6))
def test_a_step_of_gpipe_is_the_largest_mean_over_the_cycles_of_its_stages(p, m, overlaps, seed):
    rng = np.random.default_rng(seed)
    layout = Layout(pp=p, schedule="gpipe", micro_batch=1, global_batch=m, overlap_pp=overlaps)
    task_s, send_s = rng.lognormal(0.0, 0.7, (p, 1, 3)), rng.lognormal(0.0, 0.5, p) * rng.choice([0.0, 0.3, 3.0])
    tails_s = rng.lognormal(0.0, 1.0, p) * m * rng.choice([0.0, 0.3, 3.0])
    pipeline = PlayedPipeline.play(layout, task_s, send_s)
    between = pipeline.chunk_ends_s(schedules.alone_s(p, range(p)), np.zeros((p, 1)))[0]
    assert step_s(pipeline, dict(enumerate(tails_s)))[0] == pytest.approx(largest_mean(between + tails_s), rel=1e-9)


@draws(75)
@given(st.data())
def test_no_step_grows_when_a_task_or_a_transfer_shrinks(data):
    schedule = data.draw(st.sampled_from(["1f1b", "gpipe", "interleaved", "interleaved", "zb-h1", "zb-2p"]))
    p, m = data.draw(st.integers(2, 5)), data.draw(st.integers(1, 13))
    v = data.draw(st.integers(2, 3)) if schedule == "interleaved" else 1
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    overlaps, partners = bool(rng.integers(2)), {0: p - 1, p - 1: 0} if rng.integers(2) else {}
    layout = Layout(pp=p, virtual_stages=v, schedule=schedule, micro_batch=1, global_batch=m, overlap_pp=overlaps)
    task_s, send_s = rng.lognormal(0.0, 0.7, (p, v, 3)), rng.lognormal(0.0, 0.5, p * v) * rng.choice([0.1, 1.0, 3.0])
    tails_s = dict(enumerate(rng.lognormal(0.0, 1.0, p) * rng.choice([0.0, 1.0, 10.0])))
    shrunk = [task_s.copy(), send_s.copy()]
    part = shrunk[int(rng.integers(2))]
    part[rng.random(part.shape) < rng.choice([0.1, 0.5, 1.0])] *= rng.choice([0.0, 0.5, 0.9])
    before = PlayedPipeline.play(layout, task_s, send_s)
    after = PlayedPipeline.play(layout, *shrunk)
    seconds = step_s(before, tails_s, partners)[0]
    assert step_s(after, tails_s, partners)[0] <= seconds * (1 + 1e-12)
    # never shorter than a stage needs by itself, never longer than in lockstep
    assert seconds >= max(before.played.busy_s + np.array(list(tails_s.values()))) * (1 - 1e-12)
    assert seconds <= max(ends_s(before.played, tails_s, partners).values()) * (1 + 1e-12)


@draws(40)
@given(st.data())
def test_no_step_whose_messages_hide_between_chunks_grows_when_anything_shrinks(data):
    p, v, m = data.draw(st.integers(2, 4)), data.draw(st.integers(2, 3)), data.draw(st.integers(1, 9))
    slowdown = data.draw(st.sampled_from([1.0, 1.126, 2.0, 3.0]))
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    layout = Layout(
        pp=p, dp=2, virtual_stages=v, schedule="interleaved", micro_batch=1, global_batch=2 * m, overlap_pp=bool(rng.integers(2))
    )
    sizes = rng.choice([0.0, 1.0, 5.0], (p, v, 3))
    passes_s, send_s = rng.lognormal(0.0, 0.7, (2, p, v, 3)), rng.lognormal(0.0, 0.5, p * v) * rng.choice([0.1, 1.0])
    messages_s = rng.lognormal(0.0, 0.7, (2, p)) * rng.choice([1.0, 5.0, 30.0])

    def seconds(passes_s, send_s, messages_s):
        gaps_s = np.array(
            [
                [
                    chunk_gaps_s(
                        [(passes_s[kind, s, c], sizes[s, c]) for c in range(v)], messages_s[kind, s : s + 1], has_ended=kind == 0
                    )
                    for s in range(p)
                ]
                for kind in range(2)
            ]
        )
        task_s = np.stack([passes_s[1].sum(axis=2), passes_s[0].sum(axis=2), np.zeros((p, v))], axis=2)
        whole_s = np.where(sizes.sum(axis=(1, 2)) > 0, messages_s, 0.0)
        return chunk_step_s(PlayedPipeline.play(layout, task_s, send_s), ChunkTails(*gaps_s, *whole_s, slowdown))[0]

    shrunk = [passes_s.copy(), send_s.copy(), messages_s.copy()]
    part = shrunk[int(rng.integers(3))]
    part[rng.random(part.shape) < rng.choice([0.1, 0.5, 1.0])] *= rng.choice([0.0, 0.5, 0.99])
    assert seconds(*shrunk) <= seconds(passes_s, send_s, messages_s) * (1 + 1e-12)
