"""The number of a layout's tasks is known before they are made."""

import numpy as np
import pytest

from meshwright.costs.network import RankNetwork
from meshwright.costs.settings import CostSettings
from meshwright.costs.work.work import describe
from meshwright.plans.partition import Layout
from meshwright.simulation.layouts.lowering import lower
from meshwright.simulation.layouts.running import layout_step, num_tasks

from .grid import cluster, shapes
from .stub import StubStep, layout

NETWORK = RankNetwork(cluster("dgx-a100-8x8"), np.arange(4))


def test_two_stages_of_two_ranks_worked_by_hand():
    # 2 steps x 3 micro-batches x (2 stages x 2 passes x 2 ranks + a transfer there and back for 2 ranks) = 6 x 12
    step = StubStep(layout(pp=2, dp=2, num_micro_batches=3), send_bytes=1.0)
    assert num_tasks(step, NETWORK) == 72
    # and a task for each rank's optimizer in each step
    assert lower(step, NETWORK, CostSettings(), num_steps=2).execution.num_tasks == 72 + 8


@pytest.mark.parametrize("cut", [{"pp": 2, "dp": 2}, {"tp": 2, "pp": 2, "schedule": "zb-h1"}, {"dp": 4}, {"cp": 4}])
def test_it_is_never_more_than_there_are_and_most_of_them(cut):
    shape, length = shapes()["gpt2"]
    where = cluster("dgx-a100-8x8")
    step = layout_step(describe(shape, Layout(**({"micro_batch": 1, "global_batch": 16} | cut)), length), where)
    made = lower(step, NETWORK, CostSettings(), num_steps=2).execution.num_tasks
    assert 0.8 * made <= num_tasks(step, NETWORK) <= made
