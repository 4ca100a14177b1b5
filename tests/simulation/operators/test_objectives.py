"""Objectives of a placement: each one is counted, and no other name is accepted."""

from __future__ import annotations

import json
from typing import get_args, get_type_hints

import numpy as np
import pytest

from meshwright.errors import ConfigError
from meshwright.planners.operators.place import PLACEMENT_PLANNERS
from meshwright.planning.place import NOT_COUNTED
from meshwright.plans.making import op_placement_plan
from meshwright.plans.op_placement import OpPlacementPartition
from meshwright.plans.schema import published_text
from meshwright.simulation.operators.forms import FORMS, ValueForm
from meshwright.simulation.operators.generators import DeviceDraw, GraphDraw, draw_instance
from meshwright.simulation.operators.placement import OBJECTIVES, feature_unit_s, lower_bound, placed, value


@pytest.fixture(scope="module")
def instance():
    return draw_instance(GraphDraw(kind="mixed", num_ops=(6,)), DeviceDraw(num_devices=(2,), memory_slack=None), "training", 0)


def test_an_unknown_objective_is_refused_in_one_line_and_not_counted_as_latency(instance):
    nowhere = np.zeros(instance.num_ops, np.int64)
    for ask in (
        lambda name: value(instance, nowhere, name),
        lambda name: lower_bound(instance, name),
        lambda name: feature_unit_s(instance, name),
        lambda name: placed(instance, nowhere, name, "by hand"),
    ):
        with pytest.raises(ConfigError, match=r"^objective: .*'latencies'\); did you mean 'latency'\?$") as refused:
            ask("latencies")
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_each_objective_has_a_value_of_its_own_and_a_bound_below_it(instance, objective):
    spread = np.arange(instance.num_ops) % instance.num_devices
    seconds = value(instance, spread, objective)
    assert 0.0 < lower_bound(instance, objective) <= seconds < np.inf
    assert 0.0 < feature_unit_s(instance, objective) < np.inf
    assert placed(instance, spread, objective, "by hand").value_s == seconds
    assert [value(instance, spread, other) == seconds for other in OBJECTIVES].count(True) == 1


def test_all_who_list_the_objectives_list_the_same():
    assert get_args(OpPlacementPartition.model_fields["objective"].annotation) == OBJECTIVES
    assert get_args(get_type_hints(op_placement_plan)["objective"]) == OBJECTIVES
    assert tuple(NOT_COUNTED) == tuple(FORMS) == OBJECTIVES
    for name in ("heft", "multilevel", "annealing", "exhaustive"):
        assert PLACEMENT_PLANNERS[name].objectives == OBJECTIVES, name
    assert {objective for planner in PLACEMENT_PLANNERS.values() for objective in planner.objectives} == set(OBJECTIVES)
    assert tuple(listed("OpPlacementPartition", "objective")) == OBJECTIVES


def listed(model, key):
    """The values that a key of a model may have in the published schema of plans."""
    return json.loads(published_text())["$defs"][model]["properties"][key]["enum"]


@pytest.mark.parametrize("form", get_args(ValueForm))
def test_each_form_is_of_one_objective(form):
    assert sum(form in forms for forms in FORMS.values()) == 1
