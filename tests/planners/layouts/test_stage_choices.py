"""Meshes that stages may have: the bounds hold for all of them, and what a search finds by bounds is what trying all finds."""

import pytest

from meshwright.clusters import load_cluster
from meshwright.costs.settings import CostSettings
from meshwright.costs.training_step.bounds import BoundedPricer
from meshwright.costs.work.work import describe
from meshwright.errors import PlanError
from meshwright.jobs.zoo.catalogue import zoo_shape
from meshwright.planners.layouts import stage_choices as module
from meshwright.planners.layouts.stage_choices import stage_choices
from meshwright.plans.partition import Layout

SHAPE = zoo_shape("bert-large")[0].model_copy(update={"is_head_tied": False, "num_layers": 6, "vocabulary": 200_000})
PRICER = BoundedPricer.from_cluster(load_cluster("preset:dgx-a100-8x8"), CostSettings().of_layouts)


def work(layout):
    return describe(SHAPE, layout, 512)


def layout(text):
    return Layout.parse(f"{text},micro_batch=1,global_batch=16")


def price_s(base, choice):
    (tp, dp), samples = choice.meshes[0], base.micro_batch * base.dp
    keys = {"tp": tp, "dp": dp, "micro_batch": samples // dp, "stage_meshes": choice.meshes, "stage_layers": choice.layers}
    try:
        return PRICER.step_s(work(Layout(**(base.model_dump() | keys))))
    except PlanError:  # a stage would begin within a host
        return None


@pytest.mark.parametrize(
    "text", ["tp=4,dp=1,pp=2", "tp=2,dp=2,pp=4", "tp=4,dp=2,pp=2,overlap_dp=true,zero=1", "tp=2,dp=2,pp=2,schedule=zb-h1"]
)
def test_no_choice_takes_less_than_its_bound(text):
    base = layout(text)
    choices = stage_choices(base, work, PRICER)
    assert choices.are_all
    priced = [(choice, price_s(base, choice)) for choice in choices.layouts[::7]]
    assert any(seconds is not None for _, seconds in priced)
    assert all(seconds is None or choice.bound_s <= seconds * (1 + 1e-9) for choice, seconds in priced)


def test_choices_have_as_many_devices_and_rise_by_bound():
    base = layout("tp=2,dp=2,pp=3")
    result = stage_choices(base, work, PRICER).layouts
    assert {sum(tp * dp for tp, dp in choice.meshes) for choice in result} == {12}
    assert [choice.bound_s for choice in result] == sorted(choice.bound_s for choice in result)
    assert len({(choice.meshes, choice.layers) for choice in result}) == len(result)
    assert all(sum(choice.layers) == 6 for choice in result if choice.layers)


def test_kept_degrees_are_those_of_every_stage():
    result = stage_choices(layout("tp=2,dp=2,pp=2"), work, PRICER, tp=(2,), dp=(1, 2)).layouts
    assert {mesh for choice in result for mesh in choice.meshes} == {(2, 2)}


def test_too_many_choices_leave_stages_equally_wide(monkeypatch):
    monkeypatch.setattr(module, "MOST_CHOICES", 20)
    choices = stage_choices(layout("tp=2,dp=2,pp=2"), work, PRICER)
    assert not choices.are_all
    assert {tp * dp for choice in choices.layouts for tp, dp in choice.meshes} == {4}


def test_a_heavy_head_gets_more_ranks_than_the_layers_before_it():
    base = layout("tp=2,dp=2,pp=4")
    result = stage_choices(base, work, PRICER, tp=(2, 4, 8), dp=(1, 2)).layouts
    choice = next(one for one in result if [tp * dp for tp, dp in one.meshes] == [4, 2, 2, 8])
    assert price_s(base, choice) < PRICER.step_s(work(base))
