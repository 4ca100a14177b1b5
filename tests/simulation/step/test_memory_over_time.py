"""Memory of each rank while a step runs."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.jobs import load_graph
from meshwright.plans.memory import op_split_memory_bytes
from meshwright.plans.splitting.op_splits import OpSplits, uniform_splits
from meshwright.simulation.step.timeline import simulate

from ...draws import draws
from ...samples.sample_graphs import profile


def chain(forward_s, activation, parameters, workspace):
    n = len(forward_s)
    edges = [(i, i + 1) for i in range(n - 1)]
    graph = profile("chain", forward_s, forward_s, edges, activation_bytes=activation, parameter_bytes=parameters)
    return replace(graph, workspace_bytes=np.array(workspace))


def test_two_ops_on_one_rank_worked_by_hand(host):
    # State: 8 x (1 + 2) = 24. Forward of a (0-1 s): 5 of activation and 3 of workspace; forward of b (1-2 s): 7 and 4 more;
    # backward of b (2-3 s): its workspace, then both of its shares go; backward of a (3-4 s).
    graph = chain([1.0, 1.0], [5.0, 7.0], [1.0, 2.0], [3.0, 4.0])
    timeline = simulate(graph, host, uniform_splits(graph, 1), [0])
    time_s, memory_bytes = timeline.memory(graph).rank(0)
    assert time_s.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4]
    assert memory_bytes.tolist() == [24, 32, 29, 40, 36, 40, 29, 32, 24]
    assert timeline.memory(graph).peak_bytes.tolist() == [40.0] == op_split_memory_bytes(graph, uniform_splits(graph, 1)).tolist()


def test_a_rank_without_an_op_holds_nothing_of_it(host):
    # a on rank 0 only, b on both: rank 1 has 8 x 2 of state, half of b's activation and workspace.
    graph = chain([1.0, 1.0], [4.0, 8.0], [1.0, 2.0], [0.0, 6.0])
    memory = simulate(graph, host, OpSplits(np.array([1, 2])), [0, 1]).memory(graph)
    assert memory.peak_bytes.tolist() == [24.0 + 4.0 + 4.0 + 3.0, 16.0 + 4.0 + 3.0]


numbers = st.lists(st.integers(0, 9), min_size=4, max_size=4)


@draws(20)
@given(numbers, numbers, numbers, numbers, st.lists(st.integers(1, 4), min_size=4, max_size=4))
def test_no_peak_exceeds_the_plan_and_it_ends_as_it_began(host, seconds, activation, parameters, workspace, degrees):
    as_floats = [[float(x) for x in row] for row in (seconds, activation, parameters, workspace)]
    graph, splits = chain(*as_floats), OpSplits(np.array(degrees))
    memory = simulate(graph, host, splits, range(8)).memory(graph)
    planned = op_split_memory_bytes(graph, splits)
    assert (memory.peak_bytes <= planned * (1 + 1e-12)).all()
    # At the turn from forward to backward every activation is there, so at most the workspace is missing.
    assert (memory.peak_bytes >= planned - max(workspace) - 1e-9).all()
    for rank in range(splits.degree):
        time_s, memory_bytes = memory.rank(rank)
        assert (np.diff(time_s) >= 0).all()
        assert memory_bytes[-1] == pytest.approx(memory_bytes[0], abs=1e-9)
        assert (memory_bytes >= memory_bytes[0] - 1e-9).all()


@draws(10)
@given(numbers, numbers, numbers, st.integers(1, 8))
def test_the_peak_is_the_plans_where_all_workspaces_are_equal(host, seconds, activation, parameters, degree):
    graph = chain([float(x) for x in seconds], [float(x) for x in activation], [float(x) for x in parameters], [3.0] * 4)
    splits = uniform_splits(graph, degree)
    memory = simulate(graph, host, splits, range(8)).memory(graph)
    assert memory.peak_bytes == pytest.approx(op_split_memory_bytes(graph, splits), rel=1e-12)


@pytest.mark.parametrize("spec", ["zoo:resnet50", "zoo:gpt2-small"])
def test_models_reach_the_peak_of_their_plan_but_for_the_workspace(host, spec):
    graph = load_graph(spec)
    splits = uniform_splits(graph, 4)
    peak, planned = simulate(graph, host, splits, range(4)).memory(graph).peak_bytes, op_split_memory_bytes(graph, splits)
    assert (peak <= planned * (1 + 1e-12)).all()
    assert (peak >= planned - graph.workspace_bytes.max() / 4 - 1).all()
