"""Each co-design switch is explained by its change and the path that prices it, or by the reason why it has none."""

import json

import numpy as np
import pytest

from meshwright.costs.collectives import ALGORITHMS, UNTAKEN
from meshwright.costs.network import RankNetwork
from meshwright.costs.settings import CostSettings
from meshwright.planning import explain as explaining
from meshwright.planning.estimate import estimate
from meshwright.planning.explain import explain, side_by_side_s, untaken
from meshwright.plans.splitting.op_splits import OpSplits
from meshwright.simulation.layouts.running import layout_step, num_tasks
from meshwright.simulation.step.timeline import JobStep, simulate, simulate_together

from ..oracles.layout_views import simulated_step_s
from ..samples.sample_clusters import clos, cluster_of
from ..samples.sample_graphs import profile

LAYOUT = "tp=4,dp=4,micro_batch=1,global_batch=4,sequence_parallel=true,distributed_optimizer=true"
SMALL = "pp=2,dp=8,micro_batch=1,global_batch=16,overlap_dp=true"
KINDS = {"vertical", "horizontal", "intra-inter", "host-net", "flows"}
STEPS = 12


@pytest.fixture(scope="module")
def cut(job):
    return estimate(job, "preset:dgx-a100-8x8", LAYOUT)


@pytest.fixture(scope="module")
def small(job):
    return estimate(job, "preset:dgx-a100-8x8", SMALL)


@pytest.fixture(scope="module")
def told(small):
    return explain(small)


def test_each_switch_is_told_with_its_change_or_why_it_changes_nothing(cut):
    result = {one.name: one for one in explain(cut)}
    assert result["overlap_tp=true"].change < 0
    assert result["overlap_dp=false"].change > 0
    assert result["overlap_pp=true"].change is None
    assert "pp is 1" in result["overlap_pp=true"].remark
    assert result["jobs interleaved"].change < 0
    assert {one.kind for one in result.values()} == {*KINDS, "collectives"}
    assert "joined pair by pair" in result["collectives=synthesised"].remark


def test_switches_that_the_analytic_path_does_not_read_are_simulated_on_both_sides(small, told):
    result = {one.name: one for one in told if one.provenance == "simulated"}
    assert list(result) == [
        "priority=first-consumer",
        "priority=shortest-first",
        "priority=deadline",
        "gradient_bucket_bytes=26214400",
        "message_chunk_bytes=33554432",
        "contention=independent",
        "contention=fair",
        "flows_priority=priority",
        "flows_priority=edf",
        "routing=ecmp",
        "routing=spread",
    ]
    base_s = simulated_step_s(small.work, small.cluster, small.costs)
    assert {one.base_s for one in result.values() if one.kind == "vertical"} == {base_s}
    fair_s = simulated_step_s(small.work, small.cluster, CostSettings(contention="fair").of_layouts)
    assert {one.base_s for one in result.values() if one.kind == "flows"} == {fair_s}
    bucketed_s = simulated_step_s(small.work, small.cluster, CostSettings(gradient_bucket_bytes=25 * 2**20).of_layouts)
    assert result["gradient_bucket_bytes=26214400"].step_s == bucketed_s
    assert result["gradient_bucket_bytes=26214400"].change == bucketed_s / base_s - 1
    assert {one.kind for one in told if one.change is not None} == KINDS
    assert {one.micro_batches for one in result.values()} == {(2,)}


def test_choices_that_are_made_are_switched_back(small):
    costs = CostSettings(priority="first-consumer", gradient_bucket_bytes=1e6, contention="fair")
    result = {one.name: one for one in explain(small, costs)}
    assert result["gradient_bucket_bytes=none"].step_s == pytest.approx(
        simulated_step_s(small.work, small.cluster, CostSettings(priority="first-consumer", contention="fair").of_layouts)
    )
    assert {"priority=fifo", "contention=serialised", "contention=independent"} <= set(result)
    assert not {"priority=first-consumer", "contention=fair"} & set(result)


def test_choices_that_do_not_go_together_are_told(small):
    result = {one.name: one for one in explain(small, CostSettings(flows="store-and-forward"))}
    assert result["contention=fair"].change is None
    assert "wants flows cut-through" in result["contention=fair"].remark


def test_what_is_too_large_to_simulate_is_simulated_with_fewer_micro_batches(job, monkeypatch):
    long = estimate(job, "preset:host-8", "pp=2,dp=4,micro_batch=1,global_batch=80")
    whole = {one.name: one for one in explain(long) if one.provenance == "simulated"}
    assert {one.micro_batches for one in whole.values() if one.change is not None} == {(20,)}
    monkeypatch.setattr(explaining, "MOST_TASKS", long.num_tasks(CostSettings()) / 2)
    fewer = {one.name: one for one in explain(long) if one.provenance == "simulated"}
    assert {one.micro_batches for one in fewer.values() if one.change is not None} == {(4, 6)}
    assert fewer["contention=fair"].change is not None
    assert {name for name, one in fewer.items() if one.change is None} == {"routing=ecmp", "routing=spread"}  # one path only
    for name, one in fewer.items():
        if one.change is not None:
            assert (one.base_s, one.step_s) == pytest.approx((whole[name].base_s, whole[name].step_s), rel=1e-3)


def test_what_is_too_large_with_any_number_of_micro_batches_says_so_with_its_size(cut, monkeypatch):
    tasks = num_tasks(layout_step(cut.work, cut.cluster), RankNetwork(cut.cluster, np.arange(16)))
    monkeypatch.setattr(explaining, "MOST_TASKS", 1000)
    left_out = [one for one in explain(cut) if one.provenance == "simulated"]
    assert len(left_out) == 11
    why = f"not simulated: about {tasks:,} tasks, 1,000 at most, and no micro-batches to leave out"
    assert {one.remark for one in left_out} == {why}
    assert {one.change for one in left_out} == {None}
    assert {one.micro_batches for one in left_out} == {()}


def test_rows_are_plain_data(told):
    rows = json.loads(json.dumps([data.to_data() for data in told]))
    assert set(rows[0]) == {"kind", "switch", "provenance", "base_s", "step_s", "change", "remark", "micro_batches"}


@pytest.mark.parametrize(("busy", "together", "shifted"), [(0.25, 1.25, 1.0), (0.5, 1.5, 1.0), (0.75, 1.75, 1.5)])
def test_two_simulated_jobs_take_what_the_closed_form_says(busy, together, shifted):
    # a step of 200 ms of which the all-reduce of 10 GB/s has a share; two ranks send their payload once each way
    cluster = cluster_of(clos(2, 2))
    costs, splits = CostSettings(contention="fair", collectives="ring"), OpSplits(np.array([2]))
    forward_s, backward_s = ([whole_s * (1 - busy)] for whole_s in (0.16, 0.24))  # both ranks compute half of it
    graph = profile("burst", forward_s, backward_s, parameter_bytes=[2e9 * busy], source="estimated")
    alone = simulate(graph, cluster, splits, [0, 2], costs)
    assert alone.step_s == pytest.approx(0.2, rel=1e-3)
    assert side_by_side_s(1.0, busy) == (together, shifted)
    for start_s, factor in ((0.0, together), (alone.step_s / 2, shifted)):  # bursts overlap least half a step apart
        jobs = [JobStep(graph, splits, [0, 2], 0.0, costs, STEPS), JobStep(graph, splits, [1, 3], start_s, costs, STEPS)]
        steps_s = [timeline.step_s / STEPS for timeline in simulate_together(jobs, cluster)]
        assert steps_s == pytest.approx([factor * 0.2] * 2, rel=0.03)


def test_an_algorithm_that_is_faster_than_the_default_says_why_that_is_not_it():
    # bert-large on 64 ranks of an oversubscribed Clos: switches that reduce halve what the uplinks carry
    place, layout = "preset:clos-64-4to1", "dp=64,micro_batch=4,global_batch=256"
    usual = estimate("zoo:bert-large", place, layout)
    reduced, tree = (
        estimate("zoo:bert-large", place, layout, costs=CostSettings(collectives=name)) for name in ("in-network", "tree")
    )
    assert untaken(usual) is untaken(tree) is None
    assert reduced.step.step_s < usual.step.step_s < tree.step.step_s
    reported = untaken(reduced)
    assert f"{1 - reduced.step.step_s / usual.step.step_s:.1%} less" in reported
    assert "it needs switches that reduce" in reported


def test_each_algorithm_that_may_be_named_has_a_reason_not_to_be_the_default():
    assert {*UNTAKEN, "calibrated"} == {*ALGORITHMS, "auto"}


def test_each_algorithm_says_itself_under_which_co_design_it_is_compared_with_a_ring():
    assert [(name, model.co_design) for name, model in ALGORITHMS.items() if model.co_design] == [
        ("hierarchical", "intra-inter"),
        ("joint", "intra-inter"),
        ("joint-split", "intra-inter"),
        ("rail", "intra-inter"),
        ("in-network", "host-net"),
        ("synthesised", "collectives"),
    ]
