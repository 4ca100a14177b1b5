"""What is run without a search: recipes as `estimate` prices them, gains that are none, and the layout that a plan is of."""

import math
import re
from functools import cache

import pytest

from meshwright.errors import MeshwrightError
from meshwright.planners.layouts.ties import Compared
from meshwright.planning.comparisons.recipes import load_recipes, shipped_recipes
from meshwright.planning.comparisons.references import gain_text
from meshwright.planning.estimate import estimate
from meshwright.planning.search import search_layouts

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
    for one in searched.references:
        assert one.found.devices == 8
        assert one.found.step_s >= searched.best.step_s * (1 - 1e-12)
        layout = one.found.layout
        if one.name == "default":
            assert (layout.dp, layout.zero) == (8, 3)
        else:
            assert (layout.cp, layout.ep, layout.zero > 1, layout.schedule in ("1f1b", "none")) == (1, 1, False, True)
            assert layout.tp <= 8


def test_a_recipe_is_scaled_by_data_parallelism_and_priced_as_estimate_does(own):
    searched = found(recipes=own)
    recipe = searched.references[0]
    assert (recipe.name, recipe.found.layout.dp, recipe.source) == ("recipe", 2, "mine, 2026")  # 16 devices were dp=4
    keys = "pp=4,dp=2,schedule=interleaved,virtual_stages=4,micro_batch=2,zero=1,global_batch=128"
    priced = estimate("zoo:gpt2-xl", "preset:dgx-a100-8x8", keys, sequence_length=1024)
    assert recipe.found.layout == priced.layout
    assert recipe.found.step_s == pytest.approx(priced.step.step_s, rel=1e-12)
    assert recipe.found.memory_bytes == pytest.approx(priced.peak.total, rel=1e-12)
    assert recipe.compared.ratio == pytest.approx(searched.best.step_s / priced.step.step_s)
    assert [one["name"] for one in searched.to_data()["references"]] == ["recipe", "default", "1f1b"]
    # twelve devices are no whole number of replicas of 32, and DeepSpeed has no interleaved schedule
    assert shipped_recipes().recipes[1].keys(12) is None
    assert "recipe" not in {one.name for one in found(recipes=own, launcher="deepspeed").references}


@pytest.mark.parametrize("take", ["fastest", "plain", "recipe", "default", "1f1b"])
def test_the_plan_is_of_the_layout_that_was_taken_and_says_so(own, take):
    searched = found(recipes=own, take=take)
    assert searched.plan.taken == take
    assert searched.plan.layout() == searched.taken.layout
    assert searched.plan.why.startswith(take)
    assert searched.plan.figure("step_s").value == pytest.approx(searched.taken.step_s)
    assert take != "plain" or searched.by_time.index(searched.taken) in searched.ties


def test_every_shipped_recipe_has_a_class_a_source_and_a_date():
    shipped = shipped_recipes()
    assert len(shipped.recipes) >= 12
    for one in shipped.recipes:
        assert one.model in shipped.models
        keys = one.keys(one.num_devices)
        assert one.global_batch % (keys["dp"] * keys["micro_batch"]) == 0
        assert (keys["dp"] * keys["cp"]) % keys["ep"] == 0
        assert re.match(r"[\w-]+/[\w-]+/.+\.\w+$", one.source)
        assert re.match(r"20\d\d-\d\d-\d\d$", one.date)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"micro_batch": "micro_bach"}, "unknown key.*micro_batch"),
        ({"model: xl": "model: xx"}, "no such class of models.*xl"),
        ({"zero: 1": "zero: 4"}, "zero"),
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
    assert compared.is_told_apart is (abs(math.log(step_s)) > 0.1) is ("which is no " not in compared.text)
    assert f"{abs(1 - step_s):.1%} {'less' if step_s < 1 else 'more'}" in compared.text
    assert compared.order_probability == pytest.approx(Compared(1 / step_s, 0.1).order_probability)
    assert compared.order_probability >= 0.5
    same = Compared.of(step, step, are_same=True)
    assert (same.uncertainty, same.is_told_apart, same.order_probability) == (0, False, 0.5)


def test_the_first_line_is_against_the_best_reference(own):
    searched = found(recipes=own)
    roomy = [one for one in searched.references if not searched.is_tight(one.found)]
    best = min(roomy, key=lambda one: one.found.step_s)
    line = gain_text(searched)
    assert line.startswith(f"fastest: {searched.best.step_s:.4g} s ± ")
    assert f"the best reference, {best.name} (" in line
    assert line.endswith(best.compared.text)
    assert "data parallelism alone" in {one.title for one in found("zoo:resnet18", "8", keep="schedule=1f1b").references}
