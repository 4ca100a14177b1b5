"""Mirroring: numbers of ops, both passes, milliseconds, the order in which things are added up."""

import numpy as np
import pytest

from meshwright.errors import GraphError
from meshwright.jobs.readers.pipedream import without_inputs
from meshwright.simulation.pacml.mirror import mirror
from meshwright.simulation.pacml.semantics import PHYSICAL, Defects

from .conftest import make_graph

CHAIN = make_graph([1.0, 2.0, 3.0], [10.0, 20.0, 30.0], [5.0, 6.0, 7.0], [0.5, 0.25, 0.0], [(0, 1), (1, 2)])


def test_a_chain_mirrored_by_hand():
    job = mirror(CHAIN, Defects())
    assert job.compute_s.tolist() == [1, 2, 3, 30, 20, 10]  # milliseconds pass as seconds; b(1) is the last op
    assert job.memory_bytes.tolist() == [5.5, 6.25, 7, 7, 6.25, 5.5]
    assert job.edges.tolist() == [[0, 1], [1, 2], [4, 5], [3, 4], [2, 3]]  # forward, mirrored, join
    assert job.edge_bytes.tolist() == [5, 6, 6, 7, 7]  # the activation of each edge's source
    assert job.step_s == 66


def test_ops_stand_at_their_numbers_and_are_cut_in_the_order_of_the_file():
    shuffled = make_graph([3.0, 1.0, 2.0], [0, 0, 0], [0, 0, 0], [0, 0, 0], [(1, 2), (2, 0)], names=["node3", "node1", "node2"])
    job = mirror(shuffled, Defects())
    assert job.compute_s[:3].tolist() == [1, 2, 3]
    assert job.split_rank.tolist() == [2, 4, 0, 1, 5, 3]
    assert job.forward_order.tolist() == [0, 1, 2]


def test_ops_of_other_names_are_numbered_in_topological_order():
    named = make_graph([3.0, 1.0, 2.0], [0, 0, 0], [0, 0, 0], [0, 0, 0], [(1, 2), (2, 0)], names=["c", "a", "b"])
    assert mirror(named, Defects()).compute_s[:3].tolist() == [1, 2, 3]


def test_without_the_defect_milliseconds_are_seconds_over_a_thousand():
    job = mirror(CHAIN, Defects(milliseconds_as_seconds=False))
    assert job.compute_s.tolist() == pytest.approx([1e-3, 2e-3, 3e-3, 30e-3, 20e-3, 10e-3], rel=1e-15)


def test_milliseconds_come_back_without_a_trace_of_the_conversion():
    times = [0.539, 4.423, 635.942, 0.001, 1.1]
    edges = [(0, 1), (1, 2), (2, 3), (3, 4)]
    job = mirror(make_graph(times, times, [1] * 5, [1] * 5, edges), Defects())
    assert job.compute_s[:5].tolist() == times


def test_input_ops_are_left_out_without_their_defect(branching):
    stored, left = mirror(branching, Defects()), mirror(branching, PHYSICAL)
    assert (stored.num_forward, left.num_forward) == (5, 4)
    assert left.edges.tolist() == [[0, 2], [1, 2], [2, 3], [5, 7], [5, 6], [4, 5], [3, 4]]


def test_parents_stand_in_the_order_of_the_edges(branching):
    assert mirror(branching, Defects()).parents == [[], [0], [0], [1, 2], [3]]


def test_a_profile_without_its_input_ops_is_mirrored_as_where_they_are_left_out_here(branching):
    left, there = (mirror(graph, PHYSICAL) for graph in (without_inputs(branching), branching))
    for name in ("compute_s", "activation_bytes", "edges", "split_rank", "forward_order"):
        assert getattr(left, name).tolist() == getattr(there, name).tolist()


@pytest.mark.parametrize(("names", "value"), [(["node0", "node1"], "node0"), (["node1", "node01"], "node1")])
def test_numbers_that_stand_twice_or_below_1_are_refused(names, value):
    graph = make_graph([1.0, 1.0], [1, 1], [1, 1], [1, 1], [(0, 1)], names=names)
    with pytest.raises(GraphError, match=value):
        mirror(graph, Defects())


def test_the_sequential_time_is_added_up_in_the_order_of_the_file():
    # 0.1 + 0.2 + 0.3 is another float than 0.3 + 0.2 + 0.1; a deadline may hang on it.
    values = [0.3, 0.2, 0.1]
    for names, expected in ((["node1", "node2", "node3"], (0.3 + 0.2) + 0.1), (["node3", "node2", "node1"], (0.3 + 0.2) + 0.1)):
        graph = make_graph(values, [0.0] * 3, [0] * 3, [0] * 3, [], names=names)
        assert mirror(graph, Defects()).step_s == expected
    assert np.sum([0.1, 0.2, 0.3]) != 0.3 + 0.2 + 0.1
