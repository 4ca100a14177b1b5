"""Several steps one after another."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.clusters.cluster import load_cluster
from meshwright.costs.network import RankNetwork
from meshwright.costs.settings import CostSettings
from meshwright.errors import GraphError
from meshwright.jobs import load_graph
from meshwright.plans.splitting.op_splits import uniform_splits
from meshwright.simulation.step import kernel
from meshwright.simulation.step.lowering import lower
from meshwright.simulation.step.timeline import JobStep, repeated, simulate_together

HOST = load_cluster("preset:host-8")
GRAPH = load_graph("zoo:alexnet")


@given(num_steps=st.integers(1, 5), degree=st.sampled_from([1, 2, 4]))
def test_steps_alone_take_as_many_times_as_long(num_steps, degree):
    execution = lower(GRAPH, uniform_splits(GRAPH, degree), RankNetwork(HOST, np.arange(degree)), CostSettings())
    one_s = kernel.schedule(execution)[1].max()
    assert kernel.schedule(repeated(execution, num_steps))[1].max() == pytest.approx(num_steps * one_s, rel=1e-12)


@pytest.mark.parametrize("collective", ["ring", "hierarchical", "nccl"])
def test_steps_that_share_links_take_as_many_times_as_long(collective):
    costs = CostSettings(contention="fair", collectives=collective)
    one, three = (simulate_together([JobStep(GRAPH, uniform_splits(GRAPH, 4), range(4), 0.0, costs, n)], HOST)[0] for n in (1, 3))
    assert three.step_s == pytest.approx(3 * one.step_s, rel=1e-9)


def test_a_step_begins_when_all_of_the_one_before_has_ended():
    execution = lower(GRAPH, uniform_splits(GRAPH, 2), RankNetwork(HOST, np.arange(2)), CostSettings())
    start_s, finish_s = kernel.schedule(repeated(execution, 2))
    t = execution.num_tasks
    assert start_s[t + 1 :].min() >= finish_s[:t].max()


def test_one_step_is_itself_and_none_is_refused():
    execution = lower(GRAPH, uniform_splits(GRAPH, 1), RankNetwork(HOST, np.arange(1)), CostSettings())
    assert repeated(execution, 1) is execution
    with pytest.raises(GraphError, match=r"num_steps: must be at least 1 \(got 0\)"):
        repeated(execution, 0)
