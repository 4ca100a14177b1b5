"""Reduction in the switches: what it gains over a ring, and what happens where trees run out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.clusters.cluster import load_cluster
from meshwright.costs import collectives
from meshwright.costs.collectives.in_network import InNetwork
from meshwright.costs.network import RankNetwork
from meshwright.costs.phases import fullest_s
from meshwright.costs.settings import CostSettings
from meshwright.errors import ConfigError
from meshwright.plans.splitting.op_splits import OpSplits
from meshwright.simulation.step.timeline import JobStep, simulate, simulate_together

from ...samples.sample_clusters import clos, cluster_of

MIB = 2**20


def hosts_of_one(num_hosts):
    figures = {"inside": (450, 0.6), "card": (50, 1.35), "num_spines": 32, "spine_latency_us": 0.5}
    return cluster_of(clos(num_hosts, 1, 32, **figures), "h100")


def seconds(model, network, payload, operation="all_reduce"):
    return model.time_s(network, np.arange(len(network.devices)), payload, operation)


@pytest.mark.parametrize(
    ("num_ranks", "payload"),
    [
        (64, 256 * MIB),
        (64, 1024 * MIB),
        (64, 8192 * MIB),
        (128, 1024 * MIB),
        (128, 8192 * MIB),
        (256, 2048 * MIB),
        (256, 8192 * MIB),
    ],
)
def test_switches_gain_almost_a_factor_of_two_over_a_ring(num_ranks, payload):
    # 0.95 x 2 (n - 1) / n of the bytes; smaller payloads gain more, since a ring's latency grows with its ranks
    network = RankNetwork(hosts_of_one(num_ranks), np.arange(num_ranks))
    gain = seconds(collectives.algorithm_named("ring"), network, payload) / seconds(InNetwork(1), network, payload)
    assert 1.7 <= gain <= 2.0


def test_a_tree_worked_by_hand():
    # two hosts of one leaf: the way up and down takes 2 x 1.35 us, 95 MB at 95 % of 50 GB/s
    network = RankNetwork(hosts_of_one(64), np.array([0, 1]))
    assert seconds(InNetwork(1), network, 95e6) == pytest.approx(2.7e-6 + 2e-3, rel=1e-12)
    # across leaves: 1 us more for two spine hops
    far = RankNetwork(hosts_of_one(64), np.array([0, 40]))
    assert seconds(InNetwork(1), far, 95e6) == pytest.approx(3.7e-6 + 2e-3, rel=1e-12)


def test_hosts_reduce_before_their_network_does_worked_by_hand(dgx):
    # a chunk of S / k bytes is inside for 14 steps of 0.6 us + S / 8 k / 300 GB/s; then an eighth of it is on each of eight
    # rails for 2.7 us + S / 8 k / (95 % of 25 GB/s); 8 chunks are best for 760 MB
    network = RankNetwork(dgx, np.arange(16))
    by_chunks = []
    for k in (1, 2, 4, 8, 16, 32):
        inside, between = 14 * (0.6e-6 + 95e6 / k / 300e9), 2.7e-6 + 4e-3 / k
        by_chunks.append(inside + between + (k - 1) * max(inside, between))
    assert seconds(InNetwork(1), network, 760e6) == pytest.approx(min(by_chunks), rel=1e-12)


def test_a_cluster_of_hosts_gains_as_much_over_rings_on_all_cards(dgx):
    # The library's own rings use all eight cards of a host: 2 x 63/64 of 256 MiB at 8 x 25 x 0.94 GB/s
    network = RankNetwork(dgx, np.arange(64))
    by_rings = [
        one for one in collectives.algorithm_named("nccl").lines(network, np.arange(64), "all_reduce") if one.algorithm == "ring"
    ]
    ring_s = min(by_ring.time_s(256 * MIB) for by_ring in by_rings)
    assert 1.7 <= ring_s / seconds(InNetwork(1), network, 256 * MIB) <= 2.0


def test_a_hosts_own_switch_reduces():
    # 0.6 us, 285 MB at 95 % of 300 GB/s, against twice 7/8 of it on a ring
    network = RankNetwork(load_cluster("preset:host-8"), np.arange(8))
    assert seconds(InNetwork(1), network, 285e6) == pytest.approx(0.6e-6 + 1e-3, rel=1e-12)


@given(payload=st.floats(1, 1e10), n=st.integers(2, 64))
def test_without_a_tree_it_is_rings_on_the_rails(dgx, payload, n):
    network = RankNetwork(dgx, np.arange(n))
    rail = collectives.algorithm_named("rail")
    assert seconds(InNetwork(0), network, payload) == seconds(rail, network, payload)
    assert InNetwork(0).phases(network, np.arange(n), payload) == rail.phases(network, np.arange(n), payload)
    result = collectives.price("all_reduce", network, np.arange(n), payload, InNetwork(0))
    assert result.algorithm == "ring"


@pytest.mark.parametrize(
    ("devices", "operation", "share"),
    [
        # rings of eight inside each of two hosts carry 7/8 of the payload, before and after, and each card an eighth of it
        (range(16), "all_reduce", 15 / 8),
        (range(16), "broadcast", 1.0),
        ([0, 8, 16], "all_reduce", 1.0),
        (range(8), "all_reduce", 1.0),
    ],
)
def test_its_flows_are_each_ranks_share_and_take_what_it_says(dgx, devices, operation, share):
    network, ranks = RankNetwork(dgx, np.array(devices)), np.arange(len(devices))
    phases = InNetwork(1).phases(network, ranks, 8e9, operation)
    for place in (0, 1):  # sent, received
        moved = np.bincount([flow[place] for flow in phases[0].flows], [flow.payload_bytes for flow in phases[0].flows])
        assert moved == pytest.approx(np.full(len(devices), share * 8e9), rel=1e-12)
    (phase,) = phases
    assert phase.latency_s + fullest_s(network, phase) == pytest.approx(seconds(InNetwork(1), network, 8e9, operation), rel=1e-12)


def test_the_groups_that_move_most_have_the_trees():
    small, large, middle = (np.arange(n).tobytes() for n in (2, 4, 8))
    model = InNetwork(2).allotted({small: 1.0, large: 9.0, middle: 5.0})
    network = RankNetwork(hosts_of_one(64), np.arange(8))
    has_tree = [model.has_tree(network, np.arange(n), "all_reduce") for n in (2, 4, 8)]
    assert has_tree == [False, True, True]


def test_more_groups_side_by_side_than_trees_take_rings(dgx):
    def at(beside):
        fabric = collectives.Fabric(dgx, InNetwork(4))
        return fabric.price("all_reduce", 1e9, collectives.Group(8, 1, 8, beside)).algorithm

    assert [at(4), at(5)] == ["in-network", "ring"]


def test_jobs_share_the_trees(one_op):
    # Two jobs of eight ranks on hosts of their own and one tree: the first one reduces in the switch, the second on a ring.
    cluster = hosts_of_one(64)
    costs = CostSettings(contention="fair", collectives="in-network", in_network_trees=1, compute="roofline")
    splits = OpSplits(np.array([8]))
    first, second = simulate_together([JobStep(one_op, splits, range(start, start + 8), 0.0, costs) for start in (0, 8)], cluster)
    with_tree, on_ring = (
        simulate(one_op, cluster, splits, range(8), costs.model_copy(update={"in_network_trees": n})).step_s for n in (1, 0)
    )
    assert with_tree < on_ring
    assert (first.step_s, second.step_s) == pytest.approx((with_tree, on_ring), rel=1e-12)


def test_clusters_without_switches_are_refused(ramp):
    with pytest.raises(ConfigError, match=r"collectives: .*needs a cluster with switches \(got 'in-network'\)"):
        seconds(InNetwork(1), RankNetwork(ramp, np.arange(4)), 1e6)


def test_slots_of_a_tree_bound_its_rate_and_enough_of_them_change_nothing():
    network, ranks = RankNetwork(load_cluster("preset:dgx-a100-8x8"), np.arange(0, 64, 8)), np.arange(8)
    whole = InNetwork().time_s(network, ranks, 1e9)
    assert InNetwork(num_slots=10**9).time_s(network, ranks, 1e9) == whole
    latency_s = InNetwork().time_s(network, ranks, 1e-9)
    # 16 packets of 256 bytes under way at a time, each for a way up and down
    assert InNetwork(num_slots=16).time_s(network, ranks, 1e9) == pytest.approx(
        latency_s + 1e9 * latency_s / (16 * 256), rel=1e-6
    )
    times = [InNetwork(num_slots=slots).time_s(network, ranks, 1e9) for slots in (16, 64, 256, 1024, 4096)]
    assert times == sorted(times, reverse=True)
