"""Operations other than all-reduce: hand-worked times, and the links as a bound from below."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from meshwright.clusters.cluster import load_cluster
from meshwright.costs import collectives
from meshwright.costs.network import RankNetwork

from ...draws import draws

CLOS = load_cluster("preset:clos-64-4to1")
SWITCHED = ["ring", "tree", "halving-doubling", "hierarchical", "rail", "joint", "joint-split", "in-network", "nccl", "measured"]
payloads, operations = st.floats(1.0, 1e11), st.sampled_from(collectives.OPERATIONS)


def seconds(name, cluster, devices, payload, operation):
    network = RankNetwork(cluster, np.array(devices, np.int64))
    return collectives.algorithm_named(name).time_s(network, np.arange(len(devices)), payload, operation)


HALVES = ("all_gather", "reduce_scatter")
BY_HAND = [
    # half of a ring: 3 steps of 0.6 us + 75 MB / 300 GB/s
    *(("ring", range(4), 300e6, half, 0.7518e-3) for half in HALVES),
    # 3 steps of 0.6 us; each rank sends three quarters of its 400 MB at 300 GB/s
    ("ring", range(4), 400e6, "all_to_all", 1.8e-6 + 1e-3),
    # a chain of 4 hops of 0.6 us, 900 MB at 300 GB/s: 3 x 0.6 us + 3 ms + 2 sqrt(3 x 0.6 us x 3 ms)
    ("ring", range(5), 900e6, "broadcast", 1.8e-6 + 3e-3 + 2 * (1.8e-6 * 3e-3) ** 0.5),
    # few bytes go in one chunk: 7 hops of 0.6 us + 30 B / 300 GB/s
    ("ring", range(8), 30.0, "broadcast", 7 * 0.6001e-6),
    # neighbours along a rail: 2.7 us + 50 MB / 25 GB/s
    ("ring", [0, 8], 50e6, "send_recv", 2.7e-6 + 2e-3),
    # ranks 4 and 5 pass on all 1.2 GB; two steps of the other four move half of it and a quarter; 0.6 us and 300 GB/s
    *(("halving-doubling", range(6), 1.2e9, half, 3 * 0.6e-6 + 7e-3) for half in HALVES),
    # trees of six are three deep: 3 x 0.6 us, and 1.2 GB once at 300 GB/s
    ("tree", range(6), 1.2e9, "broadcast", 3 * 0.6e-6 + 4e-3),
    # on each rail a ring of two over 80 MB / 8, inside 7 steps of 0.6 us + 10 MB / 300 GB/s
    *(("hierarchical", range(16), 80e6, half, 2.7e-6 + 5e6 / 25e9 + 7 * (0.6e-6 + 10e6 / 300e9)) for half in HALVES),
    # inside 7 x 0.6 us + 7/8 of 80 MB at 300 GB/s; then on each rail half of it at 25 GB/s
    ("rail", range(16), 80e6, "all_to_all", 7 * 0.6e-6 + 70e6 / 300e9 + 2.7e-6 + 40e6 / 25e9),
]


@pytest.mark.parametrize(("name", "devices", "payload", "operation", "expected"), BY_HAND)
def test_an_operation_worked_by_hand(dgx, name, devices, payload, operation, expected):
    assert seconds(name, dgx, devices, payload, operation) == pytest.approx(expected, rel=1e-12)


def test_the_best_number_of_chunks_is_found(dgx):
    # (h + k - 1) (alpha + S beta / k) over all k; that k may be broken gains less than what one chunk more or less loses
    send_s, result = 90e6 / 300e9, seconds("ring", dgx, range(8), 90e6, "broadcast")
    by_chunks = [(7 + k - 1) * (0.6e-6 + send_s / k) for k in range(1, 2000)]
    assert result <= min(by_chunks)
    assert result == pytest.approx(min(by_chunks), rel=1e-4)


def test_rails_do_not_care_in_which_order_a_host_numbers_its_ranks(dgx):
    # 0-1 on the first host, 9-8 on the second: hierarchical pairs 0 with 9, another rail, over a spine: 2 x 0.15 us more
    crossed = [0, 1, 9, 8]
    assert seconds("rail", dgx, crossed, 8e6, "all_reduce") == seconds("rail", dgx, [0, 1, 8, 9], 8e6, "all_reduce")
    assert seconds("hierarchical", dgx, crossed, 8e6, "all_reduce") == pytest.approx(
        seconds("rail", dgx, crossed, 8e6, "all_reduce") + 2 * 0.3e-6, rel=1e-12
    )


def test_ramp_halves_an_all_reduce(ramp):
    box = [int(np.ravel_multi_index((g, r, s), (4, 4, 2))) for g in (0, 1) for r in (0, 1) for s in (0, 1)]
    whole = seconds("ramp", ramp, box, 64e6, "all_reduce")
    assert seconds("ramp", ramp, box, 64e6, "all_gather") == whole / 2
    # an all-to-all passes all 64 MB on in each of three steps of two nodes: 250 ns + 32 MB / 1600 GB/s
    assert seconds("ramp", ramp, box, 64e6, "all_to_all") == pytest.approx(3 * 20.25e-6, rel=1e-12)


OF_ALL = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1, "broadcast": 1}


@pytest.mark.parametrize("name", ["ring", "tree", "halving-doubling", "hierarchical", "rail"])
@draws(8)
@given(
    num_hosts=st.integers(1, 6),
    per_host=st.integers(1, 8),
    left_out=st.integers(0, 1),
    operation=st.sampled_from([*OF_ALL, "send_recv"]),
)
def test_all_that_is_sent_is_what_every_algorithm_of_an_operation_sends(name, num_hosts, per_host, left_out, operation):
    """An all-reduce sends ``2 (n - 1)`` payloads in all, whichever way; half of that gathers, scatters or broadcasts."""
    devices = np.array([8 * host + place for host in range(num_hosts) for place in range(per_host)])[left_out:]
    n = len(devices)
    assume(n > 1)
    network, ranks = RankNetwork(CLOS, np.random.default_rng(n).permutation(devices)), np.arange(n)
    flows = [flow for phase in collectives.algorithm_named(name).phases(network, ranks, 960.0, operation) for flow in phase.flows]
    sent = sum(size for _, _, size in flows)
    if operation == "send_recv":  # every rank to its neighbour
        expected = n
    elif operation == "all_to_all" and name in ("hierarchical", "rail") and num_hosts > 1 and per_host > 1 and not left_out:
        expected = num_hosts * (per_host - 1) + per_host * (num_hosts - 1)  # what goes to another place and host goes twice
    else:
        expected = OF_ALL[operation] * (n - 1)
    assert sent == pytest.approx(960.0 * expected, rel=1e-12)
    assert all(sender != receiver for sender, receiver, _ in flows)


@draws(80)
@given(st.sampled_from(sorted({*SWITCHED} - {"nccl", "measured"})), operations, payloads, st.integers(2, 64), st.integers(0, 99))
def test_nothing_is_faster_than_its_fullest_links(name, operation, payload, n, seed):
    devices = np.random.default_rng(seed).permutation(64)[:n] if seed % 2 else np.arange(n)
    network, ranks = RankNetwork(CLOS, devices), np.arange(n)
    model = collectives.algorithm_named(name)
    sending_s = 0.0
    for phase in model.phases(network, ranks, payload, operation):
        load = Counter()
        for sender, receiver, size in phase.flows:
            for link, share in network.carried(sender, receiver):
                load[link] += share * size
        sending_s += max(size / CLOS.links.bandwidth_bytes_per_s[link] for link, size in load.items())
    assert model.time_s(network, ranks, payload, operation) >= sending_s * (1 - 1e-9)


@draws(50)
@given(st.sampled_from(["auto", "ramp", *SWITCHED]), operations, payloads, st.floats(0, 1e10), st.integers(1, 16))
def test_more_bytes_never_take_less_time(dgx, ramp, name, operation, payload, more, n):
    cluster = ramp if name == "ramp" else dgx
    less_s, more_s = (seconds(name, cluster, range(n), size, operation) for size in (payload, payload + more))
    assert more_s >= less_s * (1 - 1e-12)


@pytest.mark.parametrize("name", ["auto", "ramp", *SWITCHED])
def test_one_rank_or_no_bytes_cost_nothing(dgx, ramp, name):
    cluster = ramp if name == "ramp" else dgx
    network = RankNetwork(cluster, np.array([5, 7, 20]))
    for operation in collectives.OPERATIONS:
        assert seconds(name, cluster, [5], 1e9, operation) == 0.0
        assert seconds(name, cluster, [5, 7, 20], 0.0, operation) == 0.0
        for ranks, payload in ((np.arange(3), 0.0), (np.arange(1), 1e9)):
            assert collectives.algorithm_named(name).phases(network, ranks, payload, operation) == ()
            assert collectives.price(operation, network, ranks, payload, name).seconds == 0.0
        if name in ("nccl", "measured"):  # of nothing the library is certain
            nothing = collectives.Price(0.0, "estimated", 0.0, name)
            assert collectives.price(operation, network, np.arange(3), 0.0, name) == nothing


@pytest.mark.parametrize(
    ("name", "operation", "does"),
    [
        ("tree", "all_gather", "ring"),
        ("tree", "broadcast", "tree"),
        ("in-network", "all_gather", "ring"),
        ("ring", "send_recv", "ring"),
    ],
)
def test_a_price_names_what_runs(dgx, name, operation, does):
    network = RankNetwork(dgx, np.arange(16))
    result = collectives.price(operation, network, np.arange(16), 1e8, name)
    assert (result.algorithm, result.provenance) == (does, "estimated")


@pytest.mark.parametrize(("operation", "factor"), [("all_reduce", 1.75), ("all_gather", 0.875), ("broadcast", 1.0)])
def test_bus_bytes_of_eight_ranks(operation, factor):
    assert collectives.wire_factor(operation, 8) == factor
    assert collectives.wire_factor(operation, 1) == 0.0
