"""The search as an API: plans of the winner, rows that add up, devices and batches that are possible."""

import json
import re

import pytest

from meshwright.clusters import load_cluster
from meshwright.clusters.cluster import Cluster
from meshwright.costs.settings import CostSettings
from meshwright.costs.work.work import describe
from meshwright.devices import DeviceSettings, device_type
from meshwright.errors import PlanError
from meshwright.evaluation.plots.figure import rounded
from meshwright.evaluation.plots.static import svg
from meshwright.evaluation.plots.trade_off import layouts_figure
from meshwright.planning.estimate import estimate
from meshwright.planning.search import device_counts, search_layouts
from meshwright.plans import check
from meshwright.plans.frameworks.table import FRAMEWORKS
from meshwright.plans.memory import MEMORY_UNCERTAINTY, tight_in

MIXTURE = {
    "model_type": "mixtral",
    "hidden_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "intermediate_size": 1024,
    "vocab_size": 32000,
    "max_position_embeddings": 1024,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}


@pytest.fixture
def mixture(tmp_path):
    (tmp_path / "mixture.json").write_text(json.dumps(MIXTURE))
    return str(tmp_path / "mixture.json")


def test_the_plan_holds_the_layers_that_were_priced_in_the_order_that_was_chosen():
    result = search_layouts(
        "zoo:gpt2-small", "preset:dgx-a100-8x8", batch=32, devices="16", keep="pp=4|8,schedule=1f1b,cp=1,zero=1", top=3
    )
    plan, best = result.plan, result.best
    check(plan)
    work = describe(result.maker.shape, best.layout, 1024)
    layers = [len({op.split(".")[0] for op in stage.ops if op.startswith("layer")}) for stage in plan.stages]
    assert layers == [chunk.num_layers for chunk in work.chunks]
    assert plan.layout() == best.layout
    assert best.order in plan.why
    assert plan.figure("step_s").value == best.step_s
    assert plan.figure("memory_bytes").value == best.memory_bytes


def test_experts_are_cut_where_that_is_faster_and_the_plan_is_legal(mixture):
    result = search_layouts(
        mixture, "preset:dgx-a100-8x8", batch=64, devices="8", keep="pp=1,cp=1,recompute=none,zero=1", top=None
    )
    assert {one.layout.ep for one in result.searched.ranking} == {1, 2, 4, 8}
    fastest = {}
    for one in result.searched.ranking:
        fastest.setdefault(one.layout.ep, one.step_s)
    assert result.best.step_s == min(fastest.values())
    check(result.plan)


def test_shares_of_a_row_are_shares_of_its_step():
    result = search_layouts(
        "zoo:gpt2-small", "preset:dgx-a100-8x8", batch=64, devices="16", keep="cp=1,tp=1|2,pp=2|4,recompute=none"
    )
    for row in map(result.row, result.searched.ranking[:5]):
        breakdown_s = row.step.breakdown_s
        rest = sum(breakdown_s[name] for name in ("compute", "recompute", "imbalance", "optimizer", "host"))
        assert row.bubble_share + row.exposed_share + rest / row.step.step_s == pytest.approx(1)
        assert row.step.step_s == row.ranked.step_s


def test_a_kept_key_that_changes_nothing_is_told():
    result = search_layouts("zoo:gpt2-small", "preset:host-8", keep="recompute=selective,tp=1,cp=1,pp=1", top=1)
    why = "recompute=selective changes nothing: fused attention keeps no scores, so there is nothing to compute again"
    assert result.remarks == (why,)
    assert result.plan.why.endswith(why)
    assert search_layouts("zoo:vgg16", "preset:host-8", keep="precision=fp32,pp=1", top=1).remarks == (
        "precision=fp32 changes nothing: a graph of ops has no layers",
    )
    # what the search chose by itself is not told
    assert search_layouts("zoo:gpt2-small", "preset:host-8", devices="1", top=1).remarks == ()


def test_a_zoo_job_brings_its_own_batch_and_a_cluster_may_be_given_as_such():
    cluster = load_cluster("preset:host-8")
    assert isinstance(cluster, Cluster)
    result = search_layouts("zoo:gpt2-small", cluster, keep="cp=1,pp=1")
    assert result.cluster is cluster
    assert result.search.global_batch == 16
    assert result.plan.job_graph().samples_per_step == 16


def test_a_named_algorithm_prices_other_clusters_too():
    result = search_layouts("zoo:gpt2-small", "preset:ramp-4x4x2", batch=16, devices="8", keep="cp=1,pp=1", top=1)
    check(result.plan)
    ring = CostSettings(collectives="ring", overlap_slowdown=1.126)
    assert search_layouts("zoo:gpt2-small", "preset:host-8", batch=16, keep="cp=1,pp=1", top=1, costs=ring).best.step_s > 0


WRITTEN = [("8", [8]), ("4,64", [4, 64]), ("6-24", [6, 7, 8, 16, 24]), ([16, 8], [8, 16]), ("9-17, 8", [8, 16])]


@pytest.mark.parametrize(("expected", "counts"), WRITTEN)
def test_devices_are_whole_hosts_or_a_part_of_one(expected, counts):
    cluster = load_cluster("preset:dgx-a100-8x8")
    assert device_counts(expected, cluster, 62) == counts
    with pytest.raises(PlanError, match="next are 48 and 56"):
        device_counts("62", cluster, 56)


def test_the_picture_is_the_same_every_time_and_names_the_fastest():
    result = search_layouts("zoo:gpt2-small", "preset:host-8", batch=16, devices="4,8", keep="cp=1,pp=1,recompute=none,zero=1")
    drawn = svg(layouts_figure(result))
    assert drawn == svg(layouts_figure(result))
    points = {point for trace in layouts_figure(result)["data"] for point in zip(trace["x"], trace["y"], strict=True)}
    assert points == {(rounded(one.memory_bytes / 1e9), rounded(one.step_s)) for one in result.searched.examined}
    assert f"fastest: {result.best.text}" in drawn
    assert "on the front, 8 devices" in drawn


def test_a_number_of_layers_that_nothing_divides_still_has_pipelines(tmp_path):
    odd = MIXTURE | {"num_hidden_layers": 7, "num_local_experts": 1, "num_experts_per_tok": 1}
    (tmp_path / "odd.json").write_text(json.dumps(odd))
    result = search_layouts(str(tmp_path / "odd.json"), "preset:host-8", batch=8, keep="pp=2,cp=1,zero=1")
    layers = [len({op.split(".")[0] for op in stage.ops if op.startswith("layer")}) for stage in result.plan.stages]
    assert sorted(layers) == [3, 4]


@pytest.mark.parametrize(
    ("job", "options", "line"),
    [
        (
            "zoo:gpt2-small",
            {"keep": "tp=1,cp=1,pp=2,zero=1,schedule=1f1b,overlap_pp=false"},
            "runs on megatron, deepspeed; not on",
        ),
        ("zoo:gpt2-small", {"keep": "pp=2,schedule=zb-h1"}, "fsdp2 (tp): --for NAME, as --for megatron, searches what it runs"),
        ("zoo:alexnet", {"keep": "pp=1,zero=0"}, "megatron (a graph of ops)"),
    ],
)
def test_a_line_says_which_frameworks_run_the_best_layout(job, options, line):
    result = search_layouts(job, "preset:host-8", batch=16, devices="4", **options)
    assert line in result.frameworks_text
    named = result.frameworks_text.partition("as --for ")[2].partition(",")[0]
    assert not named or search_layouts(job, "preset:host-8", batch=16, devices="4", launcher=named).best
    request = result.maker.of_model(result.best.layout)
    for name in result.frameworks_text.partition(";")[0].removeprefix("runs on ").split(", "):
        assert name not in FRAMEWORKS or FRAMEWORKS[name].refusal(request, as_priced=False) is None


TIGHT = "tp=1,pp=1,cp=1|2|4,zero=1|2|3,recompute=none"


def on_devices_of(memory_gbytes):
    described = load_cluster("preset:dgx-a100-8x8").settings
    device = DeviceSettings(**device_type("a100").to_data() | {"memory_gib": memory_gbytes * 1e9 / 2**30})
    return Cluster.from_settings(described.model_copy(update={"device": device}))


def searched(memory_gbytes):
    return search_layouts("zoo:llama-7b", on_devices_of(memory_gbytes), batch=64, devices="16", keep=TIGHT)


@pytest.fixture(scope="module")
def needed_gbytes():
    return searched(400.0).best.memory_bytes / 1e9


def test_a_first_choice_that_may_not_fit_is_told_with_the_next_row_that_does(needed_gbytes):
    room = needed_gbytes * (1 + MEMORY_UNCERTAINTY / 2)
    result = searched(room)
    reported = result.tight_text(10)
    assert reported.startswith(
        f"memory is tight: {needed_gbytes:.1f} of {room:.1f} GB of a device. The estimate can be off by 6%"
    )
    assert result.plan.why is not None
    assert f"; memory is tight: {needed_gbytes:.1f} of" in result.plan.why
    assert tight_in(result.plan.why) == result.tight_text(10).partition("; =")[0]
    assert result.table()[0]["is_tight"]
    near = [p for p in sorted(result.ties) if p < 10]
    roomy = [p for p in near if result.by_time[p].memory_bytes * (1 + MEMORY_UNCERTAINTY) <= room * 1e9]
    named = re.search(r"=(\d+) is as fast and needs", reported)
    assert (None if named is None else int(named[1]) - 1) == (roomy[0] if roomy else None)
    assert "=" not in result.tight_text(1)


def test_a_layout_with_room_for_its_uncertainty_has_no_remark(needed_gbytes):
    result = searched(needed_gbytes * (1 + MEMORY_UNCERTAINTY) + 0.01)
    assert result.tight_text(10) == ""
    assert "tight" not in (result.plan.why or "")
    assert not result.table()[0]["is_tight"]


def test_an_estimate_tells_the_same_of_its_layout():
    words = "dp=16,micro_batch=1,global_batch=64,zero=1"
    needed = estimate("zoo:llama-7b", on_devices_of(400.0), words).peak.total / 1e9
    for share, is_told in ((1.03, True), (1.061, False)):
        result = estimate("zoo:llama-7b", on_devices_of(needed * share), words)
        assert bool(result.maker.tight_text(result.work)) is is_told
