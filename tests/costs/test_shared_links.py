"""All-reduces whose own flows share network cards and uplinks: no price is below what the fullest links need."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.clusters.cluster import load_cluster
from meshwright.costs import collectives, formulas
from meshwright.costs.network import RankNetwork

NAMES = ["ring", "tree", "halving-doubling", "hierarchical"]
payloads = st.floats(1.0, 1e11)
clos, dgx, host, ramp = (load_cluster(f"preset:{name}") for name in ("clos-64-4to1", "dgx-a100-8x8", "host-8", "ramp-4x4x2"))


def price(name, network, payload, ranks=None):
    ranks = np.arange(len(network.devices)) if ranks is None else ranks
    return collectives.algorithm_named(name).time_s(network, ranks, payload)


def network_of(cluster, devices):
    return RankNetwork(cluster, np.array(devices, np.int64))


def link_bound_s(name, network, payload):
    """Each phase waits for the link that needs longest for all that crosses it, and then for its latency."""
    links = network.cluster.links.bandwidth_bytes_per_s
    total_s = 0.0
    for latency_s, flows in collectives.algorithm_named(name).phases(network, np.arange(len(network.devices)), payload):
        load = Counter()
        for sender, receiver, size in flows:
            for link in network.cluster.path(int(network.devices[sender]), int(network.devices[receiver])):
                load[link] += size
        total_s += latency_s + max(size / links[link] for link, size in load.items())
    return total_s


def closed_form_s(name, network, payload):
    """Time of the slowest hop or pair by the formula, as if no link was shared."""
    ranks = np.arange(len(network.devices))
    formula = {"tree": formulas.tree_all_reduce_s, "halving-doubling": formulas.halving_doubling_all_reduce_s}.get(name)
    if formula is None:  # a ring, and hierarchical where there is no hierarchy
        return formulas.ring_all_reduce_s(payload, len(ranks), *network.ring(ranks))
    return formula(payload, len(ranks), *network.all_pairs(ranks))


@st.composite
def groups(draw, cluster, least=2, most=64):
    """Devices in order, drawn at random, or whole hosts."""
    n = draw(st.integers(least, min(most, cluster.num_devices)))
    first = draw(st.sampled_from(range(0, cluster.num_devices - n + 1)))
    in_a_row = range(first, first + n)
    per_host = cluster.num_devices // cluster.num_hosts
    hosts = draw(st.permutations(range(cluster.num_hosts)))[: max(1, n // per_host)]
    whole_hosts = [h * per_host + i for h in hosts for i in range(per_host)]
    anywhere = np.random.default_rng(draw(st.integers(0, 99))).permutation(cluster.num_devices)[:n]
    return draw(st.sampled_from([list(in_a_row), whole_hosts, anywhere.tolist()]))


def test_two_ranks_of_a_host_share_its_card(leaves):
    # Devices 0 and 1 of the first host and 2 and 3 of the second, one card of 10 GB/s each. A ring in the order 0-2-1-3
    # crosses each card twice in each direction: 6 steps of 4 us, and 2 x 60 MB / 10 GB/s.
    assert price("ring", network_of(leaves, [0, 2, 1, 3]), 40e6) == pytest.approx(6 * 4e-6 + 12e-3, rel=1e-12)
    # Hierarchical: 2 steps of 1 us and 40 MB / 100 GB/s inside; the two rings between the hosts carry 20 MB each over
    # the same card: 2 steps of 4 us and 40 MB / 10 GB/s.
    expected = 2e-6 + 0.4e-3 + 8e-6 + 4e-3
    assert price("hierarchical", network_of(leaves, [0, 1, 2, 3]), 40e6) == pytest.approx(expected, rel=1e-12)


def test_hierarchical_over_two_hosts_with_four_cards_worked_by_hand():
    # 14 steps of 0.6 us + 1 GB / 8 / 300 GB/s inside: 5.833 ms. Eight rings of two carry 125 MB each, two of them over
    # one card of 12.5 GB/s: 2 steps of 2.7 us + 20 ms.
    expected = 14 * (0.6e-6 + 125e6 / 300e9) + 2 * 2.7e-6 + 250e6 / 12.5e9
    assert expected == pytest.approx(25.8e-3, abs=0.1e-3)
    assert price("hierarchical", network_of(clos, range(16)), 1e9) == pytest.approx(expected, rel=1e-12)


def test_hierarchical_over_four_leaves_worked_by_hand():
    # Inside as above. Eight rings of eight hosts carry 14 / 8 x 125 MB = 218.75 MB each; all leave each leaf by its two
    # uplinks of 12.5 GB/s, four by each: 70 ms. 14 steps of 2 x 1.35 + 2 x 0.5 us.
    expected = 14 * (0.6e-6 + 125e6 / 300e9) + 14 * 3.7e-6 + 4 * 218.75e6 / 12.5e9
    assert expected == pytest.approx(75.9e-3, abs=0.1e-3)
    assert price("hierarchical", network_of(clos, range(64)), 1e9) == pytest.approx(expected, rel=1e-12)


def test_halving_and_doubling_over_four_leaves_worked_by_hand():
    # Halving: 500 MB, then 250 MB from each of the 16 ranks of a leaf, 8 by each uplink: 320 and 160 ms. 125 MB to the
    # other host of the leaf, two ranks by each card: 20 ms. 62.5, 31.25 and 15.625 MB in the host at 300 GB/s. Doubling
    # takes as long again. 12 steps of 3.7 us.
    halving_s = 8 * 500e6 / 12.5e9 + 8 * 250e6 / 12.5e9 + 2 * 125e6 / 12.5e9 + 109.375e6 / 300e9
    expected = 2 * halving_s + 12 * 3.7e-6
    assert expected == pytest.approx(1001e-3, abs=0.5e-3)
    assert price("halving-doubling", network_of(clos, range(64)), 1e9) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data(), payload=payloads)
def test_no_price_is_below_what_one_card_for_each_host_needs(leaves, name, data, payload):
    network = network_of(leaves, data.draw(groups(leaves)))
    assert price(name, network, payload) >= link_bound_s(name, network, payload) * (1 - 1e-12)


@pytest.mark.parametrize("name", ["ring", "tree", "halving-doubling"])
@given(devices=groups(clos), payload=payloads)
def test_sharing_never_makes_a_formula_faster(name, devices, payload):
    network = network_of(clos, devices)
    assert price(name, network, payload) >= closed_form_s(name, network, payload)


@given(devices=groups(clos), payload=payloads)
def test_rings_take_what_their_fullest_links_need_and_no_more(devices, payload):
    network = network_of(clos, devices)
    for name in ("ring", "hierarchical"):
        assert price(name, network, payload) == pytest.approx(link_bound_s(name, network, payload), rel=1e-12)


@given(devices=groups(clos), payload=payloads)
def test_trees_take_what_formula_or_links_say(devices, payload):
    network = network_of(clos, devices)
    expected = max(closed_form_s("tree", network, payload), link_bound_s("tree", network, payload))
    assert price("tree", network, payload) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", NAMES)
@given(devices=st.permutations(range(8)), n=st.integers(2, 8), first=st.sampled_from([0, 8, 56]), payload=payloads)
def test_within_a_host_the_formula_stands_as_it_is(name, devices, n, first, payload):
    for network in (network_of(host, devices[:n]), network_of(dgx, np.array(devices[:n]) + first)):
        assert price(name, network, payload) == closed_form_s(name, network, payload)


@pytest.mark.parametrize("name", ["ring", "tree", "halving-doubling"])
@given(devices=st.permutations(range(32)), n=st.integers(2, 32), payload=payloads)
def test_where_each_pair_has_its_own_channel_the_formula_stands_as_it_is(name, devices, n, payload):
    network = network_of(ramp, devices[:n])
    assert price(name, network, payload) == closed_form_s(name, network, payload)


@given(devices=groups(clos), payload=payloads)
def test_auto_is_never_slower_than_another_where_links_are_shared(devices, payload):
    network = network_of(clos, devices)
    assert price("auto", network, payload) == min(price(name, network, payload) for name in NAMES)


@given(devices=groups(clos, least=4), sizes=st.lists(st.tuples(st.integers(2, 4), payloads), min_size=1, max_size=4))
def test_what_is_kept_of_one_all_reduce_changes_no_other(devices, sizes):
    stored = network_of(clos, devices)
    for n, payload in sizes:
        for ranks in (np.arange(n), np.arange(n)[::-1]):
            for name in (*NAMES, "auto"):
                assert price(name, stored, payload, ranks) == price(name, network_of(clos, devices), payload, ranks)
