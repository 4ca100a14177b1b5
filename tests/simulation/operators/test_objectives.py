"""What a placement may be valued by: each objective is counted, and nothing else is taken for one of them."""

from __future__ import annotations

from typing import get_args, get_type_hints

import numpy as np
import pytest

from meshwright.errors import ConfigError
from meshwright.planning.place import NOT_COUNTED
from meshwright.plans.making import op_placement_plan
from meshwright.plans.op_placement import OpPlacementPartition
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
        assert all(ask(name) is not None for name in OBJECTIVES)


def test_all_who_list_the_objectives_list_the_same():
    assert get_args(OpPlacementPartition.model_fields["objective"].annotation) == OBJECTIVES
    assert get_args(get_type_hints(op_placement_plan)["objective"]) == OBJECTIVES
    assert tuple(NOT_COUNTED) == OBJECTIVES
