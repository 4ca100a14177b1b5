"""References, which need no search: recipes at the prices of `estimate`, gains of nothing, and the layout of a plan."""

import math
import re
from dataclasses import replace
from functools import cache

import pytest

from meshwright.costs.training_step.idle_keys import remarks
from meshwright.errors import MeshwrightError, PlanError
from meshwright.planners.layouts.ties import Compared
from meshwright.planning.comparisons import references as references_module
from meshwright.planning.comparisons.references import gain_text, reference_texts
from meshwright.planning.estimate import estimate
from meshwright.planning.search import search_layouts
from meshwright.planning.search_table import RankedLayouts
from meshwright.plans.frameworks.recipes import load_recipes, shipped_recipes

OWN = """
models:
  xl: {num_layers: 48, hidden: 1600, feed_forward: 6400}
recipes:
  - {maker: us, model: xl, device: a100, num_devices: 16, global_batch: 512, sequence_length: 1024,
     layout: {pp: 4, virtual_stages: 4, micro_batch: 2, zero: 1}, source: mine, date: "2026"}
"""


@cache
def found(job="zoo:gpt2-xl", devices="8", **more):
    return search_layouts(job, "preset:dgx-a100-8x8", batch=128, devices=devices, **more)


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    path = tmp_path_factory.mktemp("recipes") / "own.yaml"
    path.write_text(OWN)
    return str(path)


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("launcher", "names"),
    [
        (None, ["default", "1f1b"]),
        ("megatron", ["1f1b"]),
        ("torchtitan", ["default", "1f1b"]),
        ("fsdp2", ["default"]),
        ("deepspeed", ["default", "1f1b"]),
    ],
)
def test_each_framework_has_its_references_and_the_search_is_never_slower(launcher, names):
    searched = found(launcher=launcher)
    assert [one.name for one in searched.references] == names
    for reference in searched.references:
        assert reference.ranked.devices == 8
        assert reference.ranked.step_s >= searched.best.step_s * (1 - 1e-12)
        layout = reference.ranked.layout
        if reference.name == "default":
            assert (layout.dp, layout.zero) == (8, 3)
        else:
            assert (layout.cp, layout.ep, layout.zero > 1, layout.schedule in ("1f1b", "none")) == (1, 1, False, True)
            assert layout.tp <= 8


def test_a_recipe_is_scaled_by_data_parallelism_and_priced_as_estimate_does(own):
    searched = found(recipes=own)
    recipe = searched.references[0]
    assert (recipe.name, recipe.ranked.layout.dp, recipe.source) == ("recipe", 2, "mine, 2026")  # 16 devices were dp=4
    keys = "pp=4,dp=2,schedule=interleaved,virtual_stages=4,micro_batch=2,zero=1,global_batch=128"
    priced = estimate("zoo:gpt2-xl", "preset:dgx-a100-8x8", keys, sequence_length=1024)
    assert recipe.ranked.layout == priced.layout
    assert recipe.ranked.step_s == pytest.approx(priced.step.step_s, rel=1e-12)
    assert recipe.ranked.memory_bytes == pytest.approx(priced.peak.total, rel=1e-12)
    assert recipe.compared.ratio == pytest.approx(priced.step.step_s / searched.best.step_s)
    assert [one["name"] for one in searched.to_data()["references"]] == ["recipe", "default", "1f1b"]
    # twelve devices are no whole number of replicas of 32, and DeepSpeed has no interleaved schedule
    with pytest.raises(PlanError, match=r"wants multiples of 32 devices \(got 12\)"):
        shipped_recipes().recipes[1].keys(12)
    left = found(recipes=own, launcher="deepspeed")
    assert "recipe" not in {reference.name for reference in left.references}
    (remark,) = (one for one in reference_texts(left) if one.startswith("no reference: us on 16 a100"))
    assert "layout.schedule" in remark


@pytest.mark.parametrize("take", ["fastest", "plain", "recipe", "default", "1f1b"])
def test_the_plan_is_of_the_layout_that_was_taken_and_says_so(own, take):
    searched = found(recipes=own, take=take, keep="cp=1,recompute=none")
    assert searched.plan.taken == take
    assert searched.plan.layout() == searched.taken.layout
    assert searched.plan.why.startswith(take)
    assert searched.plan.figure("step_s").value == pytest.approx(searched.taken.step_s)
    assert take != "plain" or searched.by_time.index(searched.taken) in searched.ties


def test_every_shipped_recipe_has_a_class_a_source_and_a_date():
    shipped = shipped_recipes()
    assert len(shipped.recipes) >= 12
    for recipe in shipped.recipes:
        assert recipe.model in shipped.models
        assert recipe.layout.world == recipe.num_devices
        assert re.match(r"[\w-]+/[\w-]+/.+\.\w+$", recipe.source)
        assert re.match(r"20\d\d-\d\d-\d\d$", recipe.date)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"micro_batch": "micro_bach"}, "unknown key.*micro_batch"),
        ({"model: xl": "model: xx"}, "no such class of models.*xl"),
        ({"zero: 1": "zero: 4"}, "zero"),
        ({"num_devices: 16": "num_devices: 18"}, "num_devices=18 is no multiple of tp x cp x pp = 4"),
        ({"pp: 4": "pp: 4, ep: 3"}, "ep=3 does not divide tp x cp x dp / etp = 4"),
        ({"micro_batch: 2": "micro_batch: 3"}, "global_batch=512 is not a multiple of micro_batch x dp = 12"),
    ],
)
def test_a_wrong_file_of_recipes_is_refused(tmp_path, change, message):
    (old, new), path = next(iter(change.items())), tmp_path / "wrong.yaml"
    path.write_text(OWN.replace(old, new))
    with pytest.raises(MeshwrightError, match=message):
        load_recipes(path)


@pytest.mark.parametrize("step_s", [0.5, 0.89, 0.92, 0.99, 1.0, 1.05, 1.09, 1.12, 1.6])
def test_no_difference_within_its_uncertainty_is_called_a_gain(step_s):
    step = found().row(found().best).step
    compared = Compared(step_s, 0.1)
    assert compared.exceeds_uncertainty is (abs(math.log(step_s)) > 0.1) is ("within their" not in compared.text)
    assert f"{abs(1 - step_s):.1%} {'less' if step_s < 1 else 'more'} time than the fastest" in compared.text
    assert compared.order_probability == pytest.approx(Compared(1 / step_s, 0.1).order_probability)
    assert compared.order_probability >= 0.5
    same = Compared.from_steps(step, step, are_same=True)
    assert (same.uncertainty, same.exceeds_uncertainty, same.order_probability) == (0, False, 0.5)


def test_the_first_line_is_against_the_best_reference(own):
    searched = found(recipes=own)
    roomy = [reference for reference in searched.references if not searched.is_tight(reference.ranked)]
    best = min(roomy, key=lambda one: one.ranked.step_s)
    line = gain_text(searched)
    assert line.startswith(f"fastest: {searched.best.step_s:.4g} s ± ")
    assert f"the best reference, {best.name} (" in line
    assert line.endswith(best.compared.text)
    assert "data parallelism alone" in {
        reference.title for reference in found("zoo:resnet18", "8", keep="schedule=1f1b").references
    }


@pytest.mark.parametrize(
    ("job", "options"),
    [
        pytest.param("zoo:gpt2-xl", {}, marks=pytest.mark.slow),
        ("zoo:gpt2-xl", {"devices": "16", "keep": "cp=1,overlap_dp=false"}),
        ("zoo:gpt2-xl", {"devices": "8,16", "keep": "cp=1,pp=2|4,recompute=none"}),
        pytest.param("zoo:gpt2-xl", {"keep": "schedule=1f1b,zero=1|3"}, marks=pytest.mark.slow),
        ("zoo:gpt2-xl", {"launcher": "deepspeed"}),
        ("zoo:gpt2-xl", {"order": "dp-tp-cp-pp", "keep": "cp=1"}),
        pytest.param("zoo:resnet18", {}, marks=pytest.mark.slow),
    ],
)
def test_what_the_search_has_priced_is_what_another_search_finds(monkeypatch, job, options):
    first = found(job, **options)
    names = [(reference.name, reference.ranked.step_s, reference.ranked.text) for reference in first.references]
    monkeypatch.setattr(references_module, "_of_search", lambda *case: None)
    again = references_module.references(first)
    assert names == [(one.name, pytest.approx(one.ranked.step_s, rel=1e-12), one.ranked.text) for one in again]


@pytest.mark.parametrize("job", ["zoo:gpt2-xl", pytest.param("zoo:resnet18", marks=pytest.mark.slow)])
def test_references_that_the_search_has_priced_take_no_other_search(monkeypatch, job):
    searched = replace(found(job))
    monkeypatch.setattr(type(searched.maker), "search", None)
    assert [reference.name for reference in searched.references] == ["default", "1f1b"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"devices": "16", "launcher": "megatron", "order": "dp-pp-tp-cp"},
            "--set order: megatron starts no such layout with its ranks so",
        ),
        ({"devices": "2"}, "--devices: wants multiples of 4 devices (got 2)"),
    ],
)
def test_a_recipe_that_is_no_reference_is_named_with_the_reason(tmp_path, options, problem):
    path = tmp_path / "own.yaml"
    small = OWN.replace("{num_layers: 48, hidden: 1600, feed_forward: 6400}", "{num_layers: 12, hidden: 768, feed_forward: 3072}")
    path.write_text(small.replace("{pp: 4, virtual_stages: 4, micro_batch: 2, zero: 1}", "{tp: 2, pp: 2, micro_batch: 2}"))
    searched = found("zoo:gpt2-small", keep="tp=1", recipes=str(path), **options)
    assert "recipe" not in {reference.name for reference in searched.references}
    (line,) = (one for one in reference_texts(searched) if one.startswith("no reference: us on 16 a100"))
    assert problem in line


def test_recipes_are_for_a_class_of_models_a_device_and_about_a_length(own):
    recipes, shape = load_recipes(own), found().maker.shape
    assert [one.maker for one in recipes.of(shape, "a100", 1024)] == ["us"]
    assert [len(recipes.of(shape, "a100", length)) for length in (511, 512, 2048, 2049)] == [0, 1, 1, 0]
    assert recipes.of(shape, "h100", 1024) == []
    assert recipes.of(shape.model_copy(update={"num_layers": 24}), "a100", 1024) == []


@pytest.mark.parametrize("take", ["recipe-0", "recipe-1", "recipe-02", "recipe-", "recipe-x", "fastest-2", "best"])
def test_a_word_that_no_layout_can_have_is_refused_before_the_search(monkeypatch, take):
    monkeypatch.setattr(RankedLayouts, "from_request", None)
    with pytest.raises(PlanError, match="--take: no such layout"):
        search_layouts("zoo:gpt2-xl", "preset:dgx-a100-8x8", batch=128, take=take)


@pytest.mark.parametrize("keys", [{"training": "kind=local-sgd,every=4"}, {"compression": "kind=sign"}])
def test_strategies_with_another_layout_are_refused_before_the_search(monkeypatch, keys):
    monkeypatch.setattr(RankedLayouts, "from_request", None)
    with pytest.raises(PlanError, match="--take: strategies are priced for the fastest alone"):
        search_layouts("zoo:gpt2-xl", "preset:dgx-a100-8x8", batch=128, take="plain", **keys)


def test_a_plan_of_a_strategy_is_none_of_the_layouts_that_can_be_taken():
    keep = "tp=1,cp=1,pp=1,micro_batch=1,zero=0,overlap_dp=false"
    declared = "kind=local-sgd,every=64,multiplier=1,multiplier_source=a test"
    searched = search_layouts("zoo:gpt2-small", "preset:clos-64-25g", batch=64, devices="16", keep=keep, training=declared)
    assert searched.strategies.winner is not None
    assert searched.plan.taken is None
    assert searched.to_data()["taken"] is None


def test_remarks_are_of_the_layout_of_the_plan():
    keep = "cp=2,context_parallel=ulysses,recompute=none"
    searched = found("zoo:gpt2-small", keep=keep, take="default")
    idle, used = (
        remarks(one.layout, has_layers=True, request=searched.request.kept_values) for one in (searched.taken, searched.best)
    )
    assert (len(idle), used) == (1, ())
    assert idle[0] in searched.remarks
    assert idle[0] in searched.plan.why
