"""All-reduce algorithms on real clusters: hand-worked numbers, rank order, and the choice of the fastest."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.clusters.cluster import Cluster
from meshwright.costs import collectives
from meshwright.costs.network import RankNetwork
from meshwright.errors import ConfigError

from ..samples.sample_clusters import cluster_of, matrix

NAMES = sorted(collectives.AUTOMATIC.keys() - {"circuits"})
"""Without what needs an optical cluster, see `collectives.test_circuits`."""
ANYWHERE = [name for name in NAMES if name != "ramp"]
payloads = st.floats(0, 1e11)


def price(name, cluster, devices, payload):
    network = RankNetwork(cluster, np.array(devices, np.int64))
    return collectives.algorithm_named(name).time_s(network, np.arange(len(devices)), payload)


RAMP_BOX = [int(np.ravel_multi_index((g, r, s), (4, 4, 2))) for g in (0, 1) for r in (0, 1) for s in (0, 1)]
RAMP_DIAGONAL = [0, 10, 20, 30]
BY_HAND = [
    # inside a host 6 steps of 0.6 us + 75 MB / 300 GB/s = 0.6 us + 0.25 ms
    ("ring", "dgx", [0, 1, 2, 3], 300e6, 1.5036e-3),
    # 7 hops inside a host and one to a card of another rail: 14 steps of 2 x 1.35 + 2 x 0.15 us + 25 MB / 25 GB/s
    ("ring", "dgx", [0, 1, 2, 3, 8, 9, 10, 11], 200e6, 14 * (3.0e-6 + 1e-3)),
    # Two devices in each of two hosts. 0-1-9-8 changes host along rails: 6 steps of 2.7 us + 10 MB / 25 GB/s; 0-9-1-8
    # changes the rail on every hop, so over a spine: 0.3 us more.
    ("ring", "dgx", [0, 1, 9, 8], 40e6, 6 * 402.7e-6),
    ("ring", "dgx", [0, 9, 1, 8], 40e6, 6 * 403.0e-6),
    # inside: 14 steps of 0.6 us + 80 MB / 8 / 300 GB/s; between: on each rail a ring of two over 80 MB / 8, that is
    # 2 steps of 2.7 us + 5 MB / 25 GB/s
    ("hierarchical", "dgx", range(16), 80e6, 14 * (0.6e-6 + 10e6 / 300e9) + 2 * (2.7e-6 + 5e6 / 25e9)),
    # 6 x (4 us + 10 MB / 10 GB/s) against 6 x (10 us + 10 MB / 2.5 GB/s) of a ring that leaves its leaf
    ("ring", "leaves", [0, 1, 2, 3], 40e6, 6 * 1.004e-3),
    ("ring", "leaves", [0, 4, 2, 6], 40e6, 6 * 4.010e-3),
    # servers of groups 0-1, racks 0-1, both servers: subgroups of 2, 2, 2; all 4 transceivers to the one peer: 1600 GB/s.
    # 64 MB become 32, 16, 8 MB: 20 + 10 + 5 us, 3 x 250 ns; twice
    ("ramp", "ramp", RAMP_BOX, 64e6, 2 * 35.75e-6),
    # servers (i, i, 0): one subgroup of 4, one transceiver for each peer: 250 ns + 16 MB / 400 GB/s; twice
    ("ramp", "ramp", RAMP_DIAGONAL, 64e6, 2 * 40.25e-6),
    # 2 servers of one rack: 250 ns + 32 MB / 1600 GB/s; twice
    ("ramp", "ramp", [0, 1], 64e6, 2 * 20.25e-6),
]


@pytest.mark.parametrize(("name", "cluster", "devices", "payload", "expected"), BY_HAND)
def test_an_all_reduce_worked_by_hand(request, name, cluster, devices, payload, expected):
    assert price(name, request.getfixturevalue(cluster), devices, payload) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("devices", [[0, 1, 2, 3], [0, 8, 16], [0, 1, 8]], ids=["one-host", "one-each", "unequal"])
def test_hierarchical_is_a_ring_where_there_is_no_hierarchy(dgx, devices):
    assert price("hierarchical", dgx, devices, 80e6) == price("ring", dgx, devices, 80e6)


def test_a_good_rank_order_shortens_the_longest_hop():
    # A line of switches: neighbours 1 us apart, devices k apart k us, all at 1 GB/s. In a row the ring's longest hop is
    # the way back (3 us); zig-zag it is 2 us.
    far = np.abs(np.subtract.outer(np.arange(4), np.arange(4)))
    line = Cluster.from_data(
        {
            "name": "line",
            "device": "a100",
            "topology": {"kind": "matrix", "bandwidth_gbytes_per_s": np.ones((4, 4)).tolist(), "latency_us": far.tolist()},
        }
    )
    # 6 steps of 3 us + 1 ms; 6 steps of 2 us + 1 ms
    assert price("ring", line, [0, 1, 2, 3], 4e6) == pytest.approx(6 * 1.003e-3, rel=1e-12)
    assert price("ring", line, [0, 1, 3, 2], 4e6) == pytest.approx(6 * 1.002e-3, rel=1e-12)


def test_a_ramp_message_is_cut_into_whole_bytes(ramp):
    # 9 bytes over 4 groups: 3 bytes each
    assert price("ramp", ramp, RAMP_DIAGONAL, 9) == price("ramp", ramp, RAMP_DIAGONAL, 12)
    assert price("ramp", ramp, RAMP_DIAGONAL, 9) == pytest.approx(2 * (250e-9 + 3 / 400e9), rel=1e-12)


@given(devices=st.permutations(range(32)), n=st.integers(2, 16), payload=payloads)
def test_rank_order_does_not_matter_to_ramp(ramp, devices, n, payload):
    assert price("ramp", ramp, devices[:n], payload) == price("ramp", ramp, sorted(devices[:n]), payload)


def test_ramp_is_refused_elsewhere(dgx):
    with pytest.raises(ConfigError, match=r"collectives: .*needs a RAMP cluster \(got 'ramp'\)"):
        price("ramp", dgx, [0, 1], 1e6)


@given(devices=st.permutations(range(64)), n=st.integers(1, 16), payload=payloads, data=st.data())
def test_auto_is_the_fastest_of_all_that_run(dgx, devices, n, payload, data):
    group = devices[:n] if data.draw(st.booleans()) else list(range(n))
    costs = {name: price(name, dgx, group, payload) for name in ANYWHERE}
    assert price("auto", dgx, group, payload) == min(costs.values())


@given(payload=st.floats(1, 1e9))
def test_auto_takes_ramps_own_algorithm_on_ramp(ramp, payload):
    assert price("auto", ramp, range(8), payload) == price("ramp", ramp, range(8), payload)


@pytest.mark.every(3)
@pytest.mark.parametrize("name", ANYWHERE)
@given(
    figures=st.lists(st.integers(1, 9), min_size=128, max_size=128),
    hosts=st.permutations(range(4)),
    devices=st.permutations(range(8)),
    n=st.integers(2, 8),
)
def test_renaming_hosts_changes_no_price(name, figures, hosts, devices, n):
    def cluster(bandwidth, latency):
        return cluster_of(matrix(bandwidth, latency, devices_per_host=2))

    bandwidth, latency = np.array(figures, float).reshape(2, 8, 8)
    new = np.array([2 * h + i for h in hosts for i in range(2)])  # device new[d] of the first is device d of the second
    old = np.argsort(new)
    square = np.ix_(new, new)
    first = price(name, cluster(bandwidth, latency), devices[:n], 1e6)
    assert first == price(name, cluster(bandwidth[square], latency[square]), old[devices[:n]], 1e6)


def test_an_unknown_algorithm_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match=r"collectives: .*'hierachical'.*did you mean 'hierarchical'\?"):
        collectives.algorithm_named("hierachical")
