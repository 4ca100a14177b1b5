"""Trees that fill the links: a cube mesh by hand, never worse than rings, never above a cut."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.clusters import load_cluster
from meshwright.clusters.cluster import Cluster
from meshwright.costs.collectives.direct import RING
from meshwright.costs.collectives.synthesised import Synthesised, tree_packing
from meshwright.costs.network import RankNetwork
from meshwright.costs.phases import fullest_s
from meshwright.costs.settings import CostSettings
from meshwright.errors import ConfigError
from meshwright.planning.estimate import estimate
from meshwright.planning.explain import explain

# DGX-1V: two NVLinks of 25 GB/s a direction between some pairs, one between others; the rest goes over PCIe, here 1 GB/s.
CUBE_MESH = {
    50.0: [(0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (2, 6), (3, 7), (4, 7), (5, 6), (6, 7)],
    25.0: [(0, 1), (0, 2), (1, 3), (4, 5), (4, 6), (5, 7)],
}


def network_of(gbytes_per_s, latency_us=0.0):
    n = len(gbytes_per_s)
    topology = {
        "kind": "matrix",
        "devices_per_host": n,
        "bandwidth_gbytes_per_s": np.asarray(gbytes_per_s).tolist(),
        "latency_us": np.full((n, n), latency_us).tolist(),
    }
    return RankNetwork(Cluster.from_data({"name": "mesh", "device": "v100", "topology": topology}), np.arange(n))


def cube_mesh():
    found = np.full((8, 8), 1.0)
    for bandwidth, pairs in CUBE_MESH.items():
        for a, b in pairs:
            found[a, b] = found[b, a] = bandwidth
    return found


@st.composite
def meshes(draw):
    n = draw(st.integers(2, 6))
    values = draw(st.lists(st.integers(1, 20), min_size=n * n, max_size=n * n))
    found = np.array(values, float).reshape(n, n)
    return np.triu(found, 1) + np.triu(found, 1).T + np.eye(n)


def partitions_bound(mesh):
    """Capacity between the parts over one less than their number, the least over all partitions."""
    n, best = len(mesh), np.inf
    labels = np.stack(np.meshgrid(*[np.arange(n)] * n, indexing="ij"), -1).reshape(-1, n)
    for label in labels[labels[:, 0] == 0]:
        parts = len(set(label.tolist()))
        if parts > 1:
            best = min(best, (mesh * (label[:, None] != label[None, :])).sum() / 2 / (parts - 1))
    return best


@settings(max_examples=8)
@given(meshes().filter(lambda mesh: len(mesh) <= 5))
def test_the_rate_is_that_of_the_narrowest_partition(mesh):
    assert tree_packing(mesh).rate_bytes_per_s == pytest.approx(partitions_bound(mesh), rel=1e-6)


@settings(max_examples=15)
@given(meshes(), st.floats(1e3, 1e9), st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "broadcast"]))
def test_never_slower_than_a_ring(mesh, payload, operation):
    network = network_of(mesh, 1.0)
    ranks = np.arange(len(mesh))
    trees, ring = (one.time_s(network, ranks, payload, operation) for one in (Synthesised(), RING))
    if operation in ("all_reduce", "all_gather", "reduce_scatter"):
        # gathering over a tree may take a hop more for each rank than along a ring, never more bytes on a link
        hops_s = 0.0 if operation == "all_reduce" else 1e-6 * len(mesh)
        assert trees <= ring * (1 + 1e-6) + hops_s


@settings(max_examples=15)
@given(meshes())
def test_trees_span_all_ranks_and_overfill_no_link(mesh):
    packing = tree_packing(1e9 * mesh)
    assert all(len({rank for pair in tree for rank in pair}) == len(mesh) for tree in packing.trees)
    assert sum(packing.share) == pytest.approx(1)
    network, ranks = network_of(mesh), np.arange(len(mesh))
    (phase,) = Synthesised().phases(network, ranks, 1e9)
    assert fullest_s(network, phase) <= Synthesised().time_s(network, ranks, 1e9) * (1 + 1e-6)


def test_the_cube_mesh_worked_by_hand():
    # 10 double and 6 single links, 650 GB/s each way in all, and 12 pairs of 1 GB/s over 7 links of a tree: (650 + 12) / 7.
    assert tree_packing(1e9 * cube_mesh()).rate_bytes_per_s == pytest.approx(662e9 / 7, rel=1e-6)
    cut = cube_mesh().sum(axis=1).min() - 1.0  # of one device from all others
    assert cut >= 662 / 7


def test_home_case_of_synthesised_is_a_cube_mesh():
    # A ring in the order of the ranks crosses pairs without NVLink.
    cluster = network_of(cube_mesh(), 1.0).cluster
    found = estimate("zoo:vgg16", cluster, "dp=8,micro_batch=32,global_batch=256", costs=CostSettings(collectives="ring"))
    (switch,) = (one for one in explain(found) if one.name == "collectives=synthesised")
    assert switch.change < -0.1


def test_an_all_to_all_takes_two_steps_by_hosts_and_many_ranks_a_ring():
    mesh = network_of(np.full((33, 33), 10.0) + np.eye(33), 1.0)
    for operation in ("all_reduce", "all_to_all"):
        assert Synthesised().time_s(mesh, np.arange(33), 1e8, operation) == RING.time_s(mesh, np.arange(33), 1e8, operation)


def test_links_that_pairs_share_are_refused():
    network = RankNetwork(load_cluster("preset:host-8"), np.arange(8))
    with pytest.raises(ConfigError, match="collectives: wants devices that are joined pair by pair"):
        Synthesised().time_s(network, np.arange(8), 1e6)
