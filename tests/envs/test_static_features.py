"""Features of job graphs and degrees."""

import numpy as np
import pytest

from meshwright.envs.static_features import OP_FEATURES, static_features


def test_every_feature_lies_between_zero_and_one(small, toy):
    for scenario in (small, toy):
        static = static_features(scenario)
        for features in (static.ops, static.degrees):
            assert features.dtype == np.float32
            assert features.min() >= 0
            assert features.max() <= 1


def test_graphs_stand_one_after_another(toy):
    static = static_features(toy)
    graphs = toy.workload.graphs
    assert static.num_graphs == 3
    assert np.bincount(static.graph_of_op).tolist() == [graph.num_ops for graph in graphs]
    assert len(static.edges) == sum(graph.num_edges for graph in graphs)
    # No edge joins two graphs.
    assert (static.graph_of_op[static.edges[:, 0]] == static.graph_of_op[static.edges[:, 1]]).all()
    np.testing.assert_array_equal(static.edges[: graphs[0].num_edges], graphs[0].edges)


def test_degrees_of_the_toy_by_hand(toy):
    # 1, 2 and 4 of 4 devices; log2 of them over log2 of 4
    assert static_features(toy).degrees.tolist() == [[0.25, 0.0], [0.5, 0.5], [1.0, 1.0]]


def test_features_of_one_op_by_hand(toy):
    graph = toy.workload.graphs[0]
    row = dict(zip(OP_FEATURES, static_features(toy).ops[0].tolist(), strict=True))
    # Times are squashed around a millisecond, parameters around 10 MB.
    assert row["forward time"] == pytest.approx(graph.forward_s[0] / (graph.forward_s[0] + 1e-3))
    assert row["parameters"] == pytest.approx(graph.parameter_bytes[0] / (graph.parameter_bytes[0] + 1e7))
    assert row["share of forward time"] == pytest.approx(graph.forward_s[0] / graph.forward_s.sum())
    assert (row["depth"], row["is source"], row["is sink"]) == (0.0, 1.0, 0.0)


def test_sources_and_sinks_are_where_edges_begin_and_end(small):
    static = static_features(small)
    assert set(np.flatnonzero(static.ops[:, OP_FEATURES.index("is source")] == 0)) == set(static.edges[:, 1])
    assert set(np.flatnonzero(static.ops[:, OP_FEATURES.index("is sink")] == 0)) == set(static.edges[:, 0])
    # The longest path of each graph ends at depth 1.
    depth = static.ops[:, OP_FEATURES.index("depth")]
    assert all(depth[static.graph_of_op == g].max() == 1.0 for g in range(static.num_graphs))
    assert (depth[static.edges[:, 1]] > depth[static.edges[:, 0]]).all()
