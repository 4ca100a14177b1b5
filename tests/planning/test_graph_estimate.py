"""Any job graph on one cluster: stages, profiles, refusals, and what each switch changes."""

import json
from dataclasses import replace

import pytest

from meshwright.clusters import load_cluster
from meshwright.costs.settings import CostSettings
from meshwright.errors import GraphError, PlanError
from meshwright.jobs import load_graph
from meshwright.planning.estimate import estimate
from meshwright.planning.explain import explain
from meshwright.planning.plan import plan
from meshwright.planning.search import search_layouts

LAYOUT = "dp=4,pp=2,micro_batch=8,global_batch=64"
CLUSTER = "preset:dgx-a100-8x8"


@pytest.fixture(scope="module")
def vgg():
    return estimate("zoo:vgg16", CLUSTER, LAYOUT)


def test_ops_and_memory_are_told_stage_by_stage(vgg):
    data = json.loads(json.dumps(vgg.to_data()))
    assert [stage["stage"] for stage in data["stages"]] == [0, 1]
    assert sum(stage["num_ops"] for stage in data["stages"]) == vgg.work.graph.num_ops
    assert len(data["memory"]) == len(vgg.memory) == 2
    # vgg's weights stand in its last layers: 138 M of four bytes at most, with 8 bytes of state for each byte of weights
    assert vgg.memory[1].model_state > 10 * vgg.memory[0].model_state


def test_a_profile_run_as_it_was_taken_is_measured_and_a_share_of_it_estimated(tmp_path):
    graph = replace(load_graph("zoo:alexnet"), source="measured", reference_device="a100", samples_per_step=64)
    graph.save(tmp_path / "profile.json")
    whole = estimate(str(tmp_path / "profile.json"), CLUSTER, "dp=2,micro_batch=64,global_batch=128")
    parts = {part.name: part for part in whole.parts()}
    assert (parts["compute"].provenance, parts["compute"].uncertainty) == ("measured", 0.05)
    assert parts["bubble"].provenance == "estimated"
    assert whole.step.breakdown_s["compute"] == pytest.approx(graph.step_s)
    shared = estimate(str(tmp_path / "profile.json"), CLUSTER, "dp=2,micro_batch=32,global_batch=128")
    assert {part.name: part for part in shared.parts()}["compute"].provenance == "estimated"
    assert shared.step.uncertainty > whole.step.uncertainty


@pytest.mark.reference
def test_the_data_loader_of_a_published_profile_does_not_count(reference):
    # AlexNet's step takes 721.2 ms, of which the data loader takes 635.9
    whole = {"graphs_dir": reference / "pipedream", "keep_input_ops": True}
    model = {"graphs_dir": reference / "pipedream"}
    layout = "micro_batch=256,global_batch=256"
    assert estimate("alexnet", CLUSTER, layout, **whole).step.step_s == pytest.approx(0.7212, abs=1e-4)
    result = estimate("alexnet", CLUSTER, layout, **model)
    assert result.step.step_s == pytest.approx(0.0853, abs=1e-4)
    (remark,) = result.to_data()["remarks"]
    assert "635.9 of 721.2 ms" in remark
    searched = search_layouts("alexnet", CLUSTER, batch=256, devices="1", **model)
    assert searched.best.step_s == pytest.approx(result.step.step_s)
    assert searched.plan.why.endswith(remark)
    assert searched.to_data()["remarks"] == [remark]
    planned = plan("alexnet", "preset:host-8", max_degree=1, **model)
    assert planned.plan.figure("step_s").value == pytest.approx(result.step.step_s)
    assert planned.plan.why.endswith(remark)


def test_a_batch_is_told_apart_from_the_samples_of_a_profile(tmp_path):
    graph = replace(load_graph("zoo:alexnet"), source="measured", reference_device="a100", samples_per_step=None)
    graph.save(tmp_path / "profile.json")
    job = str(tmp_path / "profile.json")
    for batch in (64, 256):  # one profile after the other
        result = estimate(job, CLUSTER, f"micro_batch=64,global_batch={batch}", profile_batch=64)
        assert result.step.step_s == pytest.approx(batch // 64 * graph.step_s)
    assert estimate(job, CLUSTER, "micro_batch=64", profile_batch=64).layout.global_batch == 64
    searched = search_layouts(job, CLUSTER, devices="1", batch=256, keep="micro_batch=64", profile_batch=64)
    assert searched.best.step_s == pytest.approx(4 * graph.step_s)
    assert ("samples per step", "256 over all ranks", "") in searched.plan.summary_rows()
    assert search_layouts(job, CLUSTER, devices="1", profile_batch=64).search.global_batch == 64
    assert plan(job, CLUSTER, max_degree=1, profile_batch=64).plan.job.graph["samples_per_step"] == 64


def test_each_switch_is_told_on_both_paths(vgg):
    result = {one.name: one for one in explain(vgg)}
    assert result["overlap_dp=false"].change > 0
    assert "tp is 1" in result["overlap_tp=true"].remark
    assert result["contention=independent"].provenance == "simulated"
    base_s = vgg.simulated_s(CostSettings())
    assert {result[name].base_s for name in ("priority=shortest-first", "contention=fair")} == {base_s}
    assert result["collectives=hierarchical"].base_s == pytest.approx(
        vgg.repriced_s(vgg.layout, CostSettings(collectives="ring"))
    )


def test_the_two_paths_agree_where_nothing_contends(vgg):
    costs = CostSettings(contention="independent")
    assert vgg.simulated_s(costs) == pytest.approx(estimate("zoo:vgg16", CLUSTER, LAYOUT, costs=costs).step.step_s, rel=0.03)


def test_other_paths_are_told_where_links_are_shared_fairly():
    # two leaves and two spines, uplinks a quarter of what the hosts below a leaf send: stages that stand below different leaves
    narrow = load_cluster("preset:clos-64-4to1")
    result = estimate("zoo:vgg16", narrow, "dp=32,micro_batch=2,global_batch=64", costs=CostSettings(collectives="ring"))
    rows = {one.name: one for one in explain(result, CostSettings(collectives="ring")) if one.name.startswith("routing")}
    assert set(rows) == {"routing=ecmp", "routing=spread"}
    assert all(row.remark == "base: contention=fair, shortest-path" for row in rows.values())
    fair = CostSettings(collectives="ring", contention="fair")
    assert rows["routing=spread"].base_s == result.simulated_s(fair)
    assert rows["routing=spread"].step_s == result.simulated_s(fair.model_copy(update={"routing": "spread"}))
    one_path = estimate("zoo:vgg16", "preset:host-8", "dp=8,micro_batch=8,global_batch=64")
    messages = [one for one in explain(one_path) if one.name.startswith("routing")]
    assert {one.remark for one in messages} == {"changes nothing: one path joins any two devices"}


def test_hashed_paths_are_those_of_the_seed_in_the_settings():
    narrow = load_cluster("preset:clos-64-4to1")
    result = estimate("zoo:alexnet", narrow, "dp=64,micro_batch=1,global_batch=64")
    costs = [
        CostSettings(contention="fair", routing="ecmp", routing_seed=seed, collectives="halving-doubling") for seed in range(4)
    ]
    steps = [result.simulated_s(cost) for cost in costs]
    assert len(set(steps)) > 1
    assert result.simulated_s(costs[2]) == steps[2]


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ("pp=50,micro_batch=1,global_batch=64", "50 stages are more than the job's ops"),
        ("tp=2,micro_batch=1,global_batch=64", r"layout\.tp: cuts layers"),
        ("dp=2,micro_batch=3,global_batch=66", r"layout\.micro_batch: does not divide the 256 samples of a step of vgg16"),
    ],
)
def test_what_cannot_be_priced_is_refused(layout, message):
    with pytest.raises(PlanError, match=message):
        estimate("zoo:vgg16", CLUSTER, layout)


def test_a_zoo_job_brings_its_own_batch():
    batch = load_graph("zoo:vgg16").samples_per_step
    assert estimate("zoo:vgg16", CLUSTER, "dp=2,micro_batch=8").layout.global_batch == batch


def test_a_job_that_takes_no_time_is_refused(tmp_path):
    graph = load_graph("zoo:alexnet")
    replace(graph, forward_s=0 * graph.forward_s, backward_s=0 * graph.backward_s, source="measured").save(tmp_path / "none.json")
    with pytest.raises(GraphError, match=r"its ops take no time, so that there is nothing to price \(got 'alexnet'\)"):
        estimate(str(tmp_path / "none.json"), CLUSTER, "dp=2,micro_batch=8")
    with pytest.raises(GraphError, match="its ops take no time"):
        search_layouts(str(tmp_path / "none.json"), CLUSTER)
