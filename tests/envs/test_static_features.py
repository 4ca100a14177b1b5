"""Features of job graphs, degrees and shapes."""

import numpy as np
import pytest

from meshwright.envs.benchmark import load_benchmark
from meshwright.envs.static_features import OP_FEATURES, SHAPE_FEATURES, static_features


def test_every_feature_lies_between_zero_and_one(small, toy):
    for scenario in (small, toy):
        static = static_features(scenario)
        for features in (static.ops, static.degrees, static.shapes):
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


RAMP = {
    "ramp.yaml": """
name: ramp
scenario: {cluster: cluster.yaml, workload: workload.yaml, num_jobs: 5, max_degree: 4, shape_slots: 3}
""",
    "cluster.yaml": """
name: ramp-2x2x1
device: a100
topology:
  kind: ramp
  num_groups: 2
  num_racks: 2
  servers_per_rack: 1
  node_bandwidth_gbytes_per_s: 1600.0
  propagation_ns: 50.0
  io_ns: 100.0
""",
    "workload.yaml": """
graphs: [zoo:alexnet]
steps: {kind: fixed, num_steps: 100}
arrivals: {kind: fixed, interarrival_s: 100.0}
deadline: {kind: none}
""",
}


def test_shapes_of_a_small_ramp_by_hand(tmp_path):
    for name, text in RAMP.items():
        (tmp_path / name).write_text(text)
    scenario = load_benchmark(str(tmp_path / "ramp.yaml")).build()
    static = static_features(scenario)
    # Two groups of two racks of one server: single servers; pairs across groups, in the same rack (0 2 and 1 3) or on the
    # diagonal (0 3); all four.
    blocks = [scenario.space.block(b).tolist() for b in range(scenario.space.num_blocks)]
    assert blocks == [[0], [1], [2], [3], [0, 2], [1, 3], [0, 3], [0, 1, 2, 3]]
    assert SHAPE_FEATURES == ("share of devices", "doublings", "extent 0", "extent 1", "extent 2", "blocks per device")
    # Share of the four devices; log2 over log2 of 4; whether it spans both groups, both racks; n blocks on four devices
    # as n / (n + 4): 4, 2, 1 and 1 of them.
    expected = [
        [0.25, 0.0, 0.0, 0.0, 0.0, 1 / 2],
        [0.5, 0.5, 1.0, 0.0, 0.0, 1 / 3],
        [0.5, 0.5, 1.0, 1.0, 0.0, 1 / 5],
        [1.0, 1.0, 1.0, 1.0, 0.0, 1 / 5],
    ]
    np.testing.assert_allclose(static.shapes, expected, rtol=1e-6)
    assert static.shape_slots == 3


def test_shapes_of_one_host_extend_along_its_devices(toy):
    # The toy's four devices stand in one host: one block of four, two of two, four of one, along the host's devices alone.
    static = static_features(toy)
    assert static.shapes.shape == (3, len(SHAPE_FEATURES))
    np.testing.assert_allclose(static.shapes[:, :2], static.degrees)
    np.testing.assert_allclose(static.shapes[:, -1], [4 / 8, 2 / 6, 1 / 5])
    extents = static.shapes[:, 2:5]
    assert (extents.max(axis=1) == [0.0, 0.5, 1.0]).all()
    assert (np.count_nonzero(extents, axis=1) <= 1).all()
    assert static.shape_slots == 0


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
