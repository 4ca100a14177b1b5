"""Flows of each algorithm: volumes, and the time of its flows alone against its formula."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.clusters.cluster import load_cluster
from meshwright.costs import collectives, flows
from meshwright.costs.network import RankNetwork
from meshwright.costs.phases import alone_s

from ..draws import draws

NAMES = ["ring", "tree", "halving-doubling", "hierarchical"]
SENT_BY_STEPS = sorted(set(collectives.OPERATIONS) - {"all_to_all"})
"""Operations in each of whose steps a rank sends to one other; in an all-to-all it may send to all, each by its own channel."""
GROUPS = st.integers(1, 24)
SIZES = st.floats(1.0, 1e12)
dgx, host, ramp = (load_cluster(f"preset:{name}") for name in ("dgx-a100-8x8", "host-8", "ramp-4x4x2"))


def network_of(cluster, num_ranks, seed=None):
    """Ranks on the first devices, or on drawn ones."""
    devices = np.arange(cluster.num_devices) if seed is None else np.random.default_rng(seed).permutation(cluster.num_devices)
    return RankNetwork(cluster, devices[:num_ranks])


def moved(phases):
    """Bytes that each rank sends and receives."""
    sends, receives = Counter(), Counter()
    for _, sent in phases:
        for a, b, size in sent:
            sends[a] += size
            receives[b] += size
    return sends, receives


def phases_of(name, network, payload):
    return collectives.algorithm_named(name).phases(network, np.arange(len(network.devices)), payload)


def test_a_ring_of_three_worked_by_hand():
    # Each hop carries 2 x 2 / 3 of 3 GB, and 4 steps pay 0.6 us each.
    ((latency_s, sent),) = phases_of("ring", network_of(host, 3), 3e9)
    assert latency_s == pytest.approx(2.4e-6, rel=1e-12)
    assert sorted(sent) == [(0, 1, 4e9), (1, 2, 4e9), (2, 0, 4e9)]


def test_halving_and_doubling_of_three_worked_by_hand():
    # Rank 2 sends its 4 GB to rank 0; 0 and 1 exchange halves, then give them back; rank 0 sends the sum to rank 2.
    phases = phases_of("halving-doubling", network_of(host, 3), 4e9)
    assert [sorted(sent) for _, sent in phases] == [
        [(2, 0, 4e9)],
        [(0, 1, 2e9), (1, 0, 2e9)],
        [(0, 1, 2e9), (1, 0, 2e9)],
        [(0, 2, 4e9)],
    ]


def test_two_trees_of_four_worked_by_hand():
    # Places 1 2 3 4: 4 is the root, 2 below it, 1 and 3 below 2. The first tree has rank = place - 1, the second one the
    # next rank, round the corner. 2 GB go up and down each of the edges 0-1, 2-1, 1-3 and 1-2, 3-2, 2-0.
    ((_, sent),) = phases_of("tree", network_of(host, 4), 4e9)
    edges = [(0, 1), (2, 1), (1, 3), (1, 2), (3, 2), (2, 0)]
    assert Counter(sent) == Counter([(a, b, 2e9) for x, y in edges for a, b in ((x, y), (y, x))])


def test_trees_of_five_are_three_deep_as_those_of_eight():
    for n in (5, 8):
        ((latency_s, _),) = phases_of("tree", network_of(host, n), 4e9)
        assert latency_s == pytest.approx(2 * 3 * 0.6e-6, rel=1e-12)  # there and back


def test_hierarchical_phases_worked_by_hand():
    # Two hosts of two ranks, 4 GB: rings of two in each host carry 1/2 of it, rings of two across carry 2 x 1/2 of 2 GB.
    network = RankNetwork(dgx, np.array([0, 1, 8, 9]))
    inside, across, again = phases_of("hierarchical", network, 4e9)
    assert inside == again
    assert sorted(inside.flows) == [(0, 1, 2e9), (1, 0, 2e9), (2, 3, 2e9), (3, 2, 2e9)]
    assert sorted(across.flows) == [(0, 2, 2e9), (1, 3, 2e9), (2, 0, 2e9), (3, 1, 2e9)]


@given(st.permutations(range(8)), st.permutations(range(8)), st.integers(1, 8), st.integers(1, 8), SIZES)
def test_the_flows_of_rings_along_rails_take_alone_what_the_formula_says(hosts, cards, num_hosts, per_host, payload):
    # Each device has a card of its own, and all devices of a place in the host one leaf: no two flows share a link. A plain
    # ring keeps to one host or one rail.
    grid = 8 * np.array(hosts[:num_hosts])[:, None] + np.array(cards[:per_host])
    for name, devices in (("hierarchical", grid.ravel()), ("ring", grid[0]), ("ring", grid[:, 0])):
        network = RankNetwork(dgx, devices)
        formula_s = collectives.algorithm_named(name).time_s(network, np.arange(len(devices)), payload)
        assert alone_s(network, phases_of(name, network, payload)) == pytest.approx(formula_s, rel=1e-12)


@draws(13)
@given(st.sampled_from(["ring", "halving-doubling"]), st.sampled_from(SENT_BY_STEPS), st.integers(1, 8), SIZES)
def test_on_equal_links_flows_alone_take_what_the_formula_says(name, operation, num_ranks, payload):
    network, ranks = network_of(host, num_ranks), np.arange(num_ranks)
    model = collectives.algorithm_named(name)
    formula_s = model.time_s(network, ranks, payload, operation)
    assert alone_s(network, model.phases(network, ranks, payload, operation)) == pytest.approx(formula_s, rel=1e-12)


@draws(13)
@given(st.sampled_from(NAMES), GROUPS, SIZES, st.integers(0, 99))
def test_flows_alone_never_take_longer_than_the_formula(name, num_ranks, payload, seed):
    network = network_of(dgx, num_ranks, seed)
    formula_s = collectives.algorithm_named(name).time_s(network, np.arange(num_ranks), payload)
    assert alone_s(network, phases_of(name, network, payload)) <= formula_s * (1 + 1e-12)


@given(st.sampled_from(NAMES), st.integers(2, 24), st.integers(0, 99))
def test_every_rank_sends_and_receives_what_the_algorithm_needs(name, num_ranks, seed):
    network = network_of(dgx, num_ranks, seed)
    for bytes_of in moved(phases_of(name, network, 1.0)):
        assert set(bytes_of) == set(range(num_ranks))
        total = sum(bytes_of.values())
        # No algorithm moves less than a ring, 2 (n - 1) in all.
        assert total >= 2 * (num_ranks - 1) * (1 - 1e-12)
        if name in ("ring", "hierarchical"):
            assert list(bytes_of.values()) == pytest.approx([2 * (num_ranks - 1) / num_ranks] * num_ranks, rel=1e-12)
        if name == "tree":
            assert max(bytes_of.values()) <= 2 + 1e-12


def test_each_tree_joins_all_ranks_with_as_few_edges_as_can_be():
    for n in (*range(2, 40), 64):
        ((_, sent),) = phases_of("tree", network_of(dgx, n), 2.0)
        assert len(sent) == 4 * (n - 1)
        for tree in (sent[: len(sent) // 2], sent[len(sent) // 2 :]):
            reached = {tree[0].sender}
            for _ in range(n):
                reached |= {flow.receiver for flow in tree if flow.sender in reached}
            assert reached == set(range(n))
            children = Counter(flow.receiver for flow in tree[::2])  # what goes up
            assert max(children.values()) <= 2


@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_a_ring_sends_of_each_operation_what_every_rank_must_get(n):
    # latencies paid, and what each rank sends and receives, as shares of the payload
    expected = {
        "all_gather": (n - 1, (n - 1) / n),
        "reduce_scatter": (n - 1, (n - 1) / n),
        "all_to_all": (n - 1, (n - 1) / n),
        "send_recv": (1, 1.0),
    }
    for operation, (latencies, share) in expected.items():
        phases = collectives.algorithm_named("ring").phases(network_of(host, n), np.arange(n), 8e9, operation)
        assert sum(phase.latency_s for phase in phases) == pytest.approx(latencies * 0.6e-6, rel=1e-12)
        for bytes_of in moved(phases):
            assert [bytes_of[rank] for rank in range(n)] == pytest.approx([share * 8e9] * n, rel=1e-12)


@pytest.mark.parametrize("n", [2, 3, 5, 8, 13])
def test_a_broadcast_brings_the_payload_to_every_rank_once(n):
    for name, halves in (("ring", 1), ("tree", 2)):
        phases = collectives.algorithm_named(name).phases(network_of(dgx, n), np.arange(n), 8e9, "broadcast")
        sent = [flow for phase in phases for flow in phase.flows]
        each = len(sent) // halves
        assert each == n - 1
        for part in (sent[first : first + each] for first in range(0, len(sent), each)):
            assert {flow.payload_bytes for flow in part} == {8e9 / halves}
            receivers = [flow.receiver for flow in part]
            assert len(set(receivers)) == each  # nobody twice, and all but the one that has it
            reached = set(range(n)) - set(receivers)
            for _ in range(n):
                reached |= {flow.receiver for flow in part if flow.sender in reached}
            assert reached == set(range(n))


@given(GROUPS, SIZES, st.integers(0, 99))
def test_auto_sends_what_the_fastest_algorithm_sends(num_ranks, payload, seed):
    network, ranks = network_of(dgx, num_ranks, seed), np.arange(num_ranks)
    best = min(NAMES, key=lambda name: collectives.algorithm_named(name).time_s(network, ranks, payload))
    assert phases_of("auto", network, payload) == phases_of(best, network, payload)


def test_ramp_switches_circuits_of_its_own():
    for name in ("ramp", "auto"):
        assert phases_of(name, network_of(ramp, 8), 1e9) == ()
    # broadcast and send go hop by hop, as in a ring
    for operation in collectives.OPERATIONS:
        own, ring = (
            collectives.algorithm_named(name).phases(network_of(ramp, 8), np.arange(8), 1e9, operation)
            for name in ("ramp", "ring")
        )
        assert own == (ring if operation in ("broadcast", "send_recv") else ())


def test_a_transfer_is_one_flow_with_the_latency_of_its_path():
    network = network_of(host, 2)
    ((latency_s, sent),) = flows.transfer(network, 0, 1, 5.0)
    assert (latency_s, sent) == (pytest.approx(0.6e-6, rel=1e-12), ((0, 1, 5.0),))
    assert flows.transfer(network, 1, 1, 5.0) == flows.transfer(network, 0, 1, 0.0) == ()
    assert alone_s(network, flows.transfer(network, 0, 1, 5.0)) == flows.cut_through_s(network, 0, 1, 5.0)
