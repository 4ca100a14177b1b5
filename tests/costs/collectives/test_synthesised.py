"""Trees that fill the links: a cube mesh by hand, never worse than rings, never above a cut."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.clusters import load_cluster
from meshwright.costs.collectives import OPERATIONS
from meshwright.costs.collectives.direct import RING
from meshwright.costs.collectives.staged import RAIL
from meshwright.costs.collectives.synthesised import Synthesised, tree_packing
from meshwright.costs.network import RankNetwork
from meshwright.costs.phases import alone_s, fullest_s
from meshwright.costs.settings import CostSettings
from meshwright.errors import ConfigError
from meshwright.planning.estimate import estimate
from meshwright.planning.explain import explain

from ...samples.sample_clusters import cluster_of, matrix

# DGX-1V: two NVLinks of 25 GB/s a direction between some pairs, one between others; the rest goes over PCIe, here 1 GB/s.
CUBE_MESH = {
    50.0: [(0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (2, 6), (3, 7), (4, 7), (5, 6), (6, 7)],
    25.0: [(0, 1), (0, 2), (1, 3), (4, 5), (4, 6), (5, 7)],
}


def network_of(gbytes_per_s, latency_us=0.0, devices_per_host=None):
    n = len(gbytes_per_s)
    return RankNetwork(cluster_of(matrix(gbytes_per_s, latency_us, devices_per_host or n), "v100"), np.arange(n))


def cube_mesh():
    result = np.full((8, 8), 1.0)
    for bandwidth, pairs in CUBE_MESH.items():
        for a, b in pairs:
            result[a, b] = result[b, a] = bandwidth
    return result


@st.composite
def meshes(draw):
    n = draw(st.integers(2, 6))
    values = draw(st.lists(st.integers(1, 20), min_size=n * n, max_size=n * n))
    result = np.array(values, float).reshape(n, n)
    return np.triu(result, 1) + np.triu(result, 1).T + np.eye(n)


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
    result = estimate("zoo:vgg16", cluster, "dp=8,micro_batch=32,global_batch=256", costs=CostSettings(collectives="ring"))
    (switch,) = (one for one in explain(result) if one.name == "collectives=synthesised")
    assert switch.change < -0.1


OF_THREE = [
    # operation, hops over the trees, part of the payload that each tree's share is of, and flows on every pair
    ("all_reduce", 2, 1.0, 2),
    ("reduce_scatter", 2, 2 / 3, 2),
    ("all_gather", 2, 2 / 3, 2),
    ("broadcast", 1, 1.0, 1),
]


@pytest.mark.parametrize(("operation", "hops", "part", "ways"), OF_THREE)
def test_three_devices_worked_by_hand(operation, hops, part, ways):
    # Links of 10 GB/s between each two of three: three trees of two links, each from another centre, fill them with
    # 30 / 2 = 15 GB/s; each has a third of the payload and sends it down both of its links, and up where results come back.
    network, ranks, size = network_of(np.full((3, 3), 10.0), 2.0), np.arange(3), 3e9
    assert Synthesised().time_s(network, ranks, size, operation) == pytest.approx(hops * 2e-6 + part * size / 15e9)
    (phase,) = Synthesised().phases(network, ranks, size, operation)
    sent = np.zeros((3, 3))
    for sender, receiver, payload_bytes in phase.flows:
        assert payload_bytes == pytest.approx(part * size / 3)
        sent[sender, receiver] += payload_bytes
    assert sent == pytest.approx(ways * part * size / 3 * (1 - np.eye(3)))
    assert alone_s(network, (phase,)) <= Synthesised().time_s(network, ranks, size, operation)
    lasts_s = phase.latency_s + fullest_s(network, phase)
    assert lasts_s == pytest.approx(Synthesised().time_s(network, ranks, size, operation))


def test_the_slower_direction_of_two_devices_counts_and_the_operation_is_an_all_reduce_unless_it_is_named():
    network, ranks = network_of([[1.0, 10.0], [4.0, 1.0]], 1.0), np.arange(2)
    assert Synthesised().time_s(network, ranks, 8e9) == pytest.approx(2e-6 + 8 / 4)
    assert Synthesised().phases(network, ranks, 8e9) == Synthesised().phases(network, ranks, 8e9, "all_reduce")
    assert {flow[:2] for flow in Synthesised().phases(network, ranks, 8e9)[0].flows} == {(0, 1), (1, 0)}


@settings(max_examples=15)
@given(meshes(), st.integers(0, 2**30))
def test_each_tree_goes_out_from_the_rank_that_is_nearest_to_all_others(mesh, seed):
    mesh = mesh * np.random.default_rng(seed).uniform(0.5, 1.0)  # so that no packing is known from before
    packing = tree_packing(mesh)
    radii = []
    for tree in packing.trees:
        depth = {tree[0][0]: 0}
        for near, far in tree:  # in order: the near end is reached before
            assert far not in depth
            depth[far] = depth[near] + 1
        radii.append(max(depth.values()))
        assert radii[-1] == min(eccentricities(tree, len(mesh)))
    assert packing.radius == max(radii)


def eccentricities(tree, n):
    hops = np.full((n, n), np.inf)
    np.fill_diagonal(hops, 0)
    for a, b in tree:
        hops[a, b] = hops[b, a] = 1
    for k in range(n):
        hops = np.minimum(hops, hops[:, [k]] + hops[[k], :])
    return hops.max(axis=1)


def test_an_all_to_all_takes_two_steps_by_hosts_and_many_ranks_a_ring(monkeypatch):
    mesh = network_of(np.full((33, 33), 10.0) + np.eye(33), 1.0)
    synthesised, many, three = Synthesised(), np.arange(33), np.arange(3)
    for operation in ("all_reduce", "all_to_all", "broadcast"):
        assert synthesised.time_s(mesh, many, 1e8, operation) == RING.time_s(mesh, many, 1e8, operation)
        assert synthesised.phases(mesh, many, 1e8, operation) == RING.phases(mesh, many, 1e8, operation)
    trees_s, ring_s = (one.time_s(mesh, three, 1e8, "all_reduce") for one in (synthesised, RING))
    assert trees_s != ring_s
    for most, wanted_s in ((3, trees_s), (2, ring_s)):
        monkeypatch.setattr("meshwright.costs.collectives.synthesised.MOST_RANKS", most)
        assert synthesised.time_s(mesh, three, 1e8, "all_reduce") == wanted_s
    monkeypatch.undo()
    # two hosts of two: inside at 10 GB/s, between them at 1 GB/s
    gbytes_per_s = np.kron([[10.0, 1.0], [1.0, 10.0]], np.ones((2, 2)))
    two, ranks = network_of(gbytes_per_s, 1.0, devices_per_host=2), np.arange(4)
    assert RAIL.time_s(two, ranks, 1e8, "all_to_all") != RING.time_s(two, ranks, 1e8, "all_to_all")
    for operation, other in (("all_to_all", RAIL), ("send_recv", RING)):
        assert synthesised.time_s(two, ranks, 1e8, operation) == other.time_s(two, ranks, 1e8, operation)
        assert synthesised.phases(two, ranks, 1e8, operation) == other.phases(two, ranks, 1e8, operation)


def test_one_rank_and_no_bytes_send_nothing_and_a_send_is_no_collective_of_its_own():
    mesh = network_of(np.full((3, 3), 10.0))
    assert Synthesised().phases(mesh, np.arange(1), 1e6) == Synthesised().phases(mesh, np.arange(3), 0.0) == ()
    assert [name for name in OPERATIONS if not Synthesised().offers(name)] == ["send_recv"]


def test_links_that_pairs_share_are_refused():
    network = RankNetwork(load_cluster("preset:host-8"), np.arange(8))
    with pytest.raises(ConfigError, match="collectives: wants devices that are joined pair by pair") as error:
        Synthesised().time_s(network, np.arange(8), 1e6)
    assert (error.value.field, error.value.value) == ("collectives", "synthesised")
