"""Lowering of layouts: steps worked by hand, and what holds of every lowered layout."""

import numpy as np
import pytest

from meshwright.costs.network import RankNetwork
from meshwright.costs.settings import CostSettings
from meshwright.costs.work.memory import stage_memory
from meshwright.costs.work.operations import Message
from meshwright.costs.work.work import describe
from meshwright.errors import PlanError
from meshwright.simulation.layouts.lowering import lower
from meshwright.simulation.layouts.running import layout_step, run_layout
from meshwright.simulation.step.execution import TaskKind

from ...draws import cases
from ...oracles.layout_views import held_bytes, kept_bytes, layout_memory, put_off_bytes, simulated_step_s
from .grid import cluster, layouts, shapes
from .stub import StubStep, layout

HOST = cluster("host-8")
INDEPENDENT = CostSettings(contention="independent")
CASES = [case for case in layouts(120, seed=7) if case[2].world <= 16]


def step_s(step, costs=INDEPENDENT, **rest):
    return run_layout(step, HOST, costs=costs, **rest).step_s


def finish_s(step, costs=INDEPENDENT):
    """Of one step alone."""
    return run_layout(step, HOST, costs=costs, num_steps=1).timeline.step_s


def priced(name, place, chosen, costs=INDEPENDENT):
    shape, length = shapes()[name]
    return layout_step(describe(shape, chosen, length), cluster(place), costs)


def test_two_stages_with_transfers_worked_by_hand():
    # 1F1B, two micro-batches, F 1 s, B 2 s, transfers of 0.5 s that hold the sender:
    # stage 0: F 0-1, sends -1.5, F -2.5, sends -3; stage 1: F 1.5-2.5, B -4.5, sends -5, F 5-6, B -8, sends -8.5;
    # stage 0: B 5-7 and 8.5-10.5
    step = StubStep(layout(pp=2, num_micro_batches=2), send_bytes=0.5)
    assert finish_s(step) == pytest.approx(10.5, rel=1e-12)
    # sent beside: stage 0 F 0-1, 1-2; stage 1 F 1.5-2.5, B -4.5, F 4.5-5.5, B -7.5; stage 0 B 5-7, 8-10
    assert finish_s(StubStep(layout(pp=2, num_micro_batches=2, overlap_pp=True), send_bytes=0.5)) == pytest.approx(
        10.0, rel=1e-12
    )


def test_gradients_go_while_the_backward_pass_runs_on_worked_by_hand():
    # Two blocks, one micro-batch: F 0-1; B of block 1 1-2, of block 0 2-3. Gradients of 3 s, a half each: 2-3.5 and 3.5-5;
    # then the update of 1 s. Without overlap 3-6 and the update.
    alone = StubStep(layout(dp=2), num_blocks=2, gradient_bytes=3.0, update_s=1.0)
    beside = StubStep(layout(dp=2, overlap_dp=True), num_blocks=2, gradient_bytes=3.0, update_s=1.0)
    assert finish_s(alone) == pytest.approx(7.0, rel=1e-12)
    assert finish_s(beside) == pytest.approx(6.0, rel=1e-12)


def test_gathered_parameters_are_wanted_block_by_block_worked_by_hand():
    # Two blocks: F 1 s, B 2 s, then parameters of 3 s, a half each. Alone: steps of 6 s. Beside: the first half 1.5 s, F of
    # block 0 0.5 s, but block 1 waits for the second half until 3 s; F 0.5 and B 2 s: steps of 5.5 s.
    assert step_s(StubStep(layout(dp=2), num_blocks=2, parameter_bytes=3.0)) == pytest.approx(6.0, rel=1e-12)
    beside = StubStep(layout(dp=2, overlap_dp=True), num_blocks=2, parameter_bytes=3.0)
    assert step_s(beside, num_steps=3) == pytest.approx(5.5, rel=1e-12)


def test_buckets_pay_latency_once_for_several_blocks_worked_by_hand():
    # Four blocks, B 0.5 s each from 1 s on, 0.25 s of gradients each, latency 1 s on each message.
    # Buckets of 0.5: after blocks 3, 2 at 2 s until 3.5; after blocks 1, 0 at 3 s, so 3.5-5.
    # Buckets of 0.25: 1.5-2.75, -4, -5.25, -6.5. One of all: 3-5. By default latency is paid once: the whole takes 2 s, each
    # block 0.5 s of it: 1.5-2, 2-2.5, 2.5-3, 3-3.5.
    step = StubStep(layout(dp=2, overlap_dp=True), num_blocks=4, gradient_bytes=1.0, latency_s=1.0)
    ends = {size: finish_s(step, CostSettings(contention="independent", gradient_bucket_bytes=size)) for size in (0.25, 0.5, 1.0)}
    assert ends == pytest.approx({0.25: 6.5, 0.5: 5.0, 1.0: 5.0}, rel=1e-12)
    assert finish_s(step) == pytest.approx(3.5, rel=1e-12)


def test_chunks_let_an_urgent_message_go_between_worked_by_hand():
    # Stream of one message at a time. Two blocks; B of block 1 0.5-1, its tensor-parallel message of 0.25 s -1.25, then its
    # gradients of 200,000 s go and B of block 0 runs 1.25-1.75. The message behind it is urgent: the backward pass ends
    # with it. Whole gradients hold the stream until 200,001.25 s; in chunks of 100,000 s until 100,001.25 s, if the urgent
    # one is the next to go.
    urgent = (Message("sum", "all_reduce", "tp", 0.25),)
    step = StubStep(layout(dp=2, tp=2, overlap_dp=True), 0.5, 1.0, num_blocks=2, gradient_bytes=400_000.0, items=urgent)

    def backward_end_s(**changes):
        result = run_layout(step, HOST, costs=CostSettings(**changes), num_steps=1)
        return max(result.timeline.finish_s[row].max() for passed in result.lowered.passes for row in passed.ends)

    # forward: two blocks of 0.25 s, each with its message: 1 s in all; so everything above is 0.5 s later
    assert backward_end_s() == pytest.approx(200_002.0, rel=1e-12)
    assert backward_end_s(message_chunk_bytes=100_000.0) == pytest.approx(200_002.0, rel=1e-12)
    chunked = backward_end_s(message_chunk_bytes=100_000.0, priority="first-consumer")
    assert chunked == pytest.approx(100_002.0, rel=1e-12)


@pytest.mark.every(3)
@pytest.mark.parametrize(("name", "place", "choice"), CASES[: min(20, len(cases(8)))])
def test_every_rank_computes_each_pass_of_its_stage_and_messages_have_members_of_their_group(name, place, choice):
    lowered = run_layout(priced(name, place, choice), cluster(place), costs=INDEPENDENT, num_steps=1).lowered
    execution, messages = lowered.execution, lowered.execution.messages
    is_compute = execution.kind == TaskKind.COMPUTE
    work_s = np.bincount(execution.rank[is_compute], execution.duration_s[is_compute], choice.world).reshape(choice.pp, -1)
    np.testing.assert_allclose(work_s, work_s[:, :1] * np.ones(work_s.shape[1]), rtol=1e-12)
    kinds = 3 if choice.schedule.startswith("zb") and choice.pp > 1 else 2
    assert len(lowered.passes) == kinds * choice.num_micro_batches * choice.pp * choice.virtual_stages
    width = choice.world // choice.pp
    for task in np.flatnonzero(execution.kind == TaskKind.COLLECTIVE)[:200].tolist():
        members = messages.ranks(task)
        stages = {rank // width for rank in members}
        assert len(set(members)) == len(members) >= 2
        assert stages == {0, choice.pp - 1} if "tied" in lowered.op_names[execution.op[task]] else len(stages) == 1
    for task in np.flatnonzero(execution.kind == TaskKind.TRANSFER)[:200].tolist():
        sender, receiver = messages.ranks(task)
        assert sender % width == receiver % width
        assert sender == execution.rank[task]


@pytest.mark.every(3)
@pytest.mark.parametrize(("name", "place", "choice"), CASES[: min(25, len(cases(12)))])
def test_memory_over_time_peaks_at_what_the_formula_says(name, place, choice):
    step = priced(name, place, choice)
    result = run_layout(step, cluster(place), costs=INDEPENDENT, num_steps=1)
    peaks = layout_memory(step, result).peak_bytes.reshape(choice.pp, -1)
    expected = [[stage_memory(step.work, stage).total] for stage in range(choice.pp)]
    np.testing.assert_allclose(peaks, expected * np.ones(peaks.shape[1]), rtol=1e-9)


def test_memory_worked_by_hand():
    # two stages, three micro-batches: the first stage keeps two at once (10 each), the last one
    step = StubStep(layout(pp=2, num_micro_batches=3))
    assert layout_memory(step, run_layout(step, HOST, costs=INDEPENDENT, num_steps=1)).peak_bytes.tolist() == [120.0, 110.0]


def test_memory_of_recomputed_layers_in_a_zero_bubble_pipeline_worked_by_hand():
    # Two stages, two micro-batches, ZB-H1: stage 0 does F F B W B W, stage 1 F B F B W W. From F to B a micro-batch keeps
    # inputs, from B to W all activations of its layers; the latter are most on stage 1 when both gradients are put off.
    choice = layout(pp=2, num_micro_batches=2, schedule="zb-h1", recompute="full")
    step = layout_step(describe(shapes()["config"][0], choice, 512), HOST)
    stored, put_off = kept_bytes(step, 0), put_off_bytes(step, 0)
    assert put_off > 4 * stored
    peaks = layout_memory(step, run_layout(step, HOST, costs=INDEPENDENT, num_steps=1)).peak_bytes
    assert peaks[0] == pytest.approx(held_bytes(step, 0) + stored + put_off)
    assert peaks[1] == pytest.approx(held_bytes(step, 1) + 2 * put_off)


NEW = (
    layout(pp=2, dp=2, num_micro_batches=3, zero=3),
    layout(pp=2, dp=4, num_micro_batches=2, zero=3, shard_group=2, schedule="zb-h1", recompute="full"),
    layout(pp=4, num_micro_batches=4, schedule="zb-2p", recompute="full", attention="unfused"),
    layout(pp=4, num_micro_batches=6, schedule="interleaved", virtual_stages=2),
    layout(pp=4, dp=2, num_micro_batches=3, schedule="interleaved", virtual_stages=2, zero=3, recompute="full"),
    layout(pp=2, num_micro_batches=5, schedule="interleaved", virtual_stages=4, overlap_pp=True),
)


@pytest.mark.parametrize("choice", NEW, ids=str)
def test_pipelines_of_shards_of_recomputed_weight_gradients_and_of_uneven_rounds_run_and_keep_what_is_told(choice):
    step = layout_step(describe(shapes()["config"][0], choice, 512), HOST)
    result = run_layout(step, HOST, costs=INDEPENDENT, num_steps=1)
    kinds = 3 if choice.schedule.startswith("zb") else 2
    assert len(result.lowered.passes) == kinds * choice.num_micro_batches * choice.pp * choice.virtual_stages
    peaks = layout_memory(step, result).peak_bytes.reshape(choice.pp, -1)
    expected = [[stage_memory(step.work, stage).total] for stage in range(choice.pp)]
    np.testing.assert_allclose(peaks, expected * np.ones(peaks.shape[1]), rtol=1e-9)
    names = [result.lowered.op_names[op] for op in result.lowered.execution.op]
    gathers = sum("parameters" in name for name in names)
    # of eight layers for each pass that wants them, of embedding and head for the forward and the backward pass, for each
    # micro-batch, by each group of ranks that share them
    passes = 8 * (3 if choice.recompute == "full" else 2) + 2 * 2
    target = passes * choice.num_micro_batches * (choice.dp // choice.num_shards)
    assert gathers == (target if choice.zero == 3 else 0)


def test_steps_follow_each_other_in_the_time_of_the_second():
    for name, place, choice in CASES[: min(10, len(cases(4)))]:
        step = priced(name, place, choice)
        two, four = (run_layout(step, cluster(place), costs=INDEPENDENT, num_steps=n).step_s for n in (2, 4))
        assert two == pytest.approx(four, rel=1e-9)


def test_a_tensor_parallel_group_across_hosts_takes_longer_than_inside_one():
    choice = layout(tp=8, num_micro_batches=1)
    step = priced("config", "dgx-a100-8x8", choice)
    inside = run_layout(step, cluster("dgx-a100-8x8"), costs=INDEPENDENT).step_s
    across = run_layout(step, cluster("dgx-a100-8x8"), np.arange(0, 64, 8), INDEPENDENT).step_s
    uneven = run_layout(step, cluster("dgx-a100-8x8"), np.arange(3, 11), INDEPENDENT).step_s
    assert inside < across
    assert inside < uneven


def test_a_switch_of_the_task_layer_changes_the_step_where_links_are_shared():
    work = describe(shapes()["llama-7b"][0], layout(tp=4, dp=2, num_micro_batches=2, overlap_dp=True), 1024)
    changes = ({}, {"message_chunk_bytes": 16e6}, {"message_chunk_bytes": 16e6, "priority": "first-consumer"})
    whole, cut, urgent = (simulated_step_s(work, HOST, CostSettings(contention="serialised", **change)) for change in changes)
    free = simulated_step_s(work, HOST, INDEPENDENT)
    assert free < whole
    assert free < urgent < cut


def test_where_its_ranks_stand_is_checked():
    step = StubStep(layout(dp=2))
    for devices, message in (([0], "2 ranks for 1 devices"), ([0, 8], r"has devices 0\.\.7 .*8"), ([1, 1], "named twice")):
        with pytest.raises(PlanError, match=message):
            run_layout(step, HOST, devices)
    with pytest.raises(PlanError, match="num_steps: must be at least 1"):
        run_layout(step, HOST, num_steps=0)
    with pytest.raises(PlanError, match="2 ranks for 3 devices"):
        lower(step, RankNetwork(HOST, np.arange(3)), INDEPENDENT)
