"""Steps that are repeated are those that would have been lowered."""

import numpy as np
import pytest

from meshwright.costs.network import RankNetwork
from meshwright.costs.settings import CostSettings
from meshwright.costs.work.work import describe
from meshwright.errors import PlanError
from meshwright.plans.partition import Layout
from meshwright.simulation.contention.concurrent_jobs import schedule
from meshwright.simulation.contention.placed_job import PlacedJob
from meshwright.simulation.layouts.lowering import lower
from meshwright.simulation.layouts.running import layout_step
from meshwright.simulation.layouts.steady import extended

from .grid import cluster, shapes

FAIR = CostSettings(contention="fair")
WHERE = cluster("dgx-a100-8x8")
NETWORK = RankNetwork(WHERE, np.arange(4) * 8)


def lowered(cut, num_steps):
    shape, length = shapes()["gpt2"]
    layout = Layout(**({"micro_batch": 1, "global_batch": 8} | cut))
    return lower(layout_step(describe(shape, layout, length), WHERE), NETWORK, FAIR, num_steps=num_steps)


@pytest.mark.parametrize("cut", [{"pp": 2, "dp": 2, "zero": 1, "overlap_dp": True}, {"tp": 2, "dp": 2}])
def test_it_runs_to_the_last_bit_as_if_every_step_had_been_lowered(cut):
    whole, grown = lowered(cut, 6), extended(lowered(cut, 3), 6)
    assert np.array_equal(grown.optimizers, whole.optimizers)
    placed = [PlacedJob(one.execution, NETWORK.devices) for one in (whole, grown)]
    (start_s, finish_s), again = (schedule([job], WHERE)[0] for job in placed)
    assert np.array_equal(start_s, again[0])
    assert np.array_equal(finish_s, again[1])


@pytest.mark.parametrize(("present", "expected"), [(2, 6), (4, 3)])
def test_too_few_steps_are_refused(present, expected):
    with pytest.raises(PlanError, match="num_steps: must be at least"):
        extended(lowered({"dp": 4}, present), expected)
