"""Laws of joined ops: nothing is lost, nothing is counted twice, and the graph stays one that can be run in order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.profiling.profile import fused

from ..draws import num_cases
from ..samples.sample_graphs import profile


@st.composite
def graphs(draw):
    """A job graph in topological order, and which of its ops are element-wise."""
    num_ops = draw(st.integers(1, 9))
    pairs = [(source, target) for target in range(num_ops) for source in range(target)]
    choice = draw(st.lists(st.booleans(), min_size=len(pairs), max_size=len(pairs)))
    costs = [np.array(draw(st.lists(st.integers(0, 99), min_size=num_ops, max_size=num_ops)), float) for _ in range(5)]
    edges = [pair for pair, keep in zip(pairs, choice, strict=True) if keep]
    names = ("forward_flops", "backward_flops", "activation_bytes", "parameter_bytes", "workspace_bytes")
    graph = profile(
        "drawn",
        np.zeros(num_ops),
        np.zeros(num_ops),
        edges,
        op_kinds=("op",) * num_ops,
        samples_per_step=1,
        **dict(zip(names, costs, strict=True)),
    )
    return graph, draw(st.lists(st.booleans(), min_size=num_ops, max_size=num_ops))


@settings(max_examples=num_cases(60))
@given(graphs())
def test_sums_stay_edges_lead_forward_and_only_element_wise_ops_are_joined(drawn):
    graph, is_pointwise = drawn
    joined, part_of = fused(graph, is_pointwise)
    for field in ("forward_flops", "backward_flops", "parameter_bytes"):
        assert getattr(joined, field).sum() == getattr(graph, field).sum()
    assert joined.workspace_bytes.max() == graph.workspace_bytes.max()
    assert (joined.edges[:, 0] < joined.edges[:, 1]).all()
    assert sorted(set(part_of.tolist())) == list(range(joined.num_ops))
    for part in range(joined.num_ops):
        first, *others = np.flatnonzero(part_of == part).tolist()
        assert joined.op_names[part] == graph.op_names[first]
        assert all(is_pointwise[op] for op in others)
    within = {(part_of[source], part_of[target]) for source, target in graph.edges.tolist()}
    assert {tuple(edge) for edge in joined.edges.tolist()} == {edge for edge in within if edge[0] != edge[1]}


@settings(max_examples=num_cases(30))
@given(graphs())
def test_without_element_wise_ops_nothing_is_joined(drawn):
    graph, _ = drawn
    joined, part_of = fused(graph, [False] * graph.num_ops)
    assert part_of.tolist() == list(range(graph.num_ops))
    assert joined.op_names == graph.op_names
    assert joined.activation_bytes.tolist() == graph.activation_bytes.tolist()


def test_an_output_that_two_ops_read_is_kept():
    # a -> b (element-wise) and a -> c: a's output is read twice, so b is an op of its own; d joins c, whose output it alone reads
    graph = profile(
        "fork",
        np.zeros(4),
        np.zeros(4),
        [(0, 1), (0, 2), (2, 3)],
        op_names=("a", "b", "c", "d"),
        forward_flops=[1.0, 2.0, 4.0, 8.0],
        activation_bytes=[10.0, 20.0, 30.0, 40.0],
        samples_per_step=1,
    )
    joined, part_of = fused(graph, [False, True, False, True])
    assert joined.op_names == ("a", "b", "c")
    assert part_of.tolist() == [0, 1, 2, 2]
    assert joined.forward_flops.tolist() == pytest.approx([1, 2, 12])
    assert joined.activation_bytes.tolist() == pytest.approx([10, 20, 40])
