"""Circuits that are set up once or change per phase: times worked by hand, and laws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.costs.collectives.choice import algorithm_of
from meshwright.costs.collectives.circuits import Circuits
from meshwright.costs.collectives.direct import RING
from meshwright.costs.collectives.prices import OPERATIONS as ALL
from meshwright.costs.collectives.staged import HIERARCHICAL
from meshwright.costs.network import RankNetwork
from meshwright.costs.settings import CostSettings
from meshwright.errors import ConfigError

from ...samples.sample_clusters import cluster_of, matrix

OPERATIONS = st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"])


def _network(turn_us=20.0, hosts=8, devices=1, ports=4):
    topology = {
        "kind": "optical",
        "num_hosts": hosts,
        "devices_per_host": devices,
        "intra_host_bandwidth_gbytes_per_s": 100.0,
        "intra_host_latency_us": 1.0,
        "ports_per_host": ports,
        "port_bandwidth_gbytes_per_s": 10.0,
        "circuit_latency_us": 5.0,
        "reconfiguration_us": turn_us,
    }
    cluster = cluster_of(topology)
    return RankNetwork(cluster, np.arange(hosts * devices))


def _us(circuiting, network, payload_bytes, operation):
    ranks = np.arange(len(network.devices))
    return 1e6 * Circuits(circuiting).time_s(network, ranks, payload_bytes, operation)


def test_an_all_to_all_worked_by_hand():
    # 8 MB over eight hosts, 1 MB to each other one, 40 GB/s of four ports: 25 us each.
    network = _network()
    assert _us("once", network, 8e6, "all_to_all") == pytest.approx(28 * 25 + 7 * 5)  # along the ring, 1 + 2 + ... + 7 hops
    assert _us("per-phase", network, 8e6, "all_to_all") == pytest.approx(7 * (25 + 5 + 20))
    # With half of the ports a phase takes 50 us, which hides a turn of 40: 40 + 7 (50 + 5) against 7 (25 + 5 + 40).
    assert _us("per-phase", _network(40.0), 8e6, "all_to_all") == pytest.approx(40 + 7 * 55)
    # Seven ports or more reach every other host at once: 1 MB at 10 GB/s; six do not, and 28 shares go at 60 GB/s.
    for ports in (7, 8):
        assert _us("once", _network(ports=ports), 8e6, "all_to_all") == pytest.approx(100 + 5)
    assert _us("once", _network(ports=6), 8e6, "all_to_all") == pytest.approx(28 * 1e6 / 60e3 + 7 * 5)


def test_an_all_reduce_worked_by_hand():
    network = _network()
    # 14 hops of 1 MB at 40 GB/s, once; 2 (100 + 50 + 25) us and six turns and latencies per phase
    assert _us("once", network, 8e6, "all_reduce") == pytest.approx(14 * (25 + 5))
    assert _us("per-phase", network, 8e6, "all_reduce") == pytest.approx(350 + 6 * 25)


@pytest.mark.parametrize("operation", ["all_gather", "reduce_scatter"])
def test_half_of_an_all_reduce_worked_by_hand(operation):
    # 7 hops of 1 MB, once; 4 + 2 + 1 MB at 40 GB/s and three turns and latencies per phase
    assert _us("once", _network(), 8e6, operation) == pytest.approx(7 * (25 + 5))
    assert _us("per-phase", _network(), 8e6, operation) == pytest.approx(175 + 3 * 25)


def test_hosts_of_several_ranks_worked_by_hand():
    # Four hosts of two: 2 x 2 x 8 / 8 = 4 MB from host to host, 100 us at 40 GB/s; inside, 2 MB take 1 us and 10 at 100 GB/s,
    # which an all-to-all does meanwhile.
    four = _network(hosts=4, devices=2)
    assert _us("per-phase", four, 8e6, "all_to_all") == pytest.approx(3 * (100 + 5 + 20))
    assert _us("once", four, 8e6, "all_to_all") == pytest.approx(400 + 5)  # a port of 10 GB/s to each of the three others
    # Circuits without end: what is left is inside.
    slow = _network(hosts=2, devices=2, ports=1000)
    assert _us("once", slow, 8e6, "all_to_all") == pytest.approx(1 + 2e6 / 100e3)
    # An all-reduce halves and doubles over the hosts, 2 (4 + 2) MB, and then goes on inside: 2 us and 8 MB at 100 GB/s.
    assert _us("per-phase", four, 8e6, "all_reduce") == pytest.approx(2 * (100 + 50) + 4 * 25 + 2 + 80)
    # Set up once it is the better of a ring and of rings inside and between.
    both = [1e6 * one.time_s(four, np.arange(8), 8e6, "all_reduce") for one in (RING, HIERARCHICAL)]
    assert _us("once", four, 8e6, "all_reduce") == min(both) != max(both)


def test_groups_that_meet_in_no_pairs_have_circuits_that_are_set_up_once():
    network = _network(hosts=3, devices=2)
    for ranks, operation in ((np.arange(6), "all_reduce"), (np.arange(3), "all_to_all"), (np.arange(6), "broadcast")):
        once, per_phase = (Circuits(one).time_s(network, ranks, 8e6, operation) for one in ("once", "per-phase"))
        assert once == per_phase
    # Three hosts shift as any number does: 2 x 2 x 6 / 6 = 4 MB, twice.
    assert 1e6 * Circuits("per-phase").time_s(network, np.arange(6), 6e6, "all_to_all") == pytest.approx(2 * (100 + 5 + 20))


@pytest.mark.parametrize(
    ("circuiting", "turn_us", "without_flows"),
    [
        # Eight hosts of one, 8 MB: an all-reduce takes 420 us once, 350 + 6 (5 + turn) per phase; half of one 210 and 175 +
        # 3 (5 + turn). Who sends meanwhile finds other circuits where they change.
        ("once", 0.0, {"all_to_all"}),
        ("per-phase", 20.0, {"all_to_all", "all_reduce", "all_gather", "reduce_scatter"}),
        ("auto", 0.0, {"all_to_all", "all_reduce", "all_gather", "reduce_scatter"}),
        ("auto", 20.0, {"all_to_all"}),
    ],
)
def test_flows_are_those_of_a_ring_where_circuits_stay(circuiting, turn_us, without_flows):
    network, ranks = _network(turn_us), np.arange(8)
    for operation in ALL:
        result = Circuits(circuiting).phases(network, ranks, 8e6, operation)
        assert result == (() if operation in without_flows else RING.phases(network, ranks, 8e6, operation))
    assert Circuits(circuiting).phases(network, ranks, 8e6) == Circuits(circuiting).phases(network, ranks, 8e6, "all_reduce")
    inside = _network(turn_us, hosts=2, devices=4)
    for operation in ALL:
        flows = RING.phases(inside, np.arange(4), 8e6, operation)
        assert Circuits(circuiting).phases(inside, np.arange(4), 8e6, operation) == flows
        assert Circuits(circuiting).offers(operation)


def test_groups_that_use_the_same_ports_share_them():
    network = _network(hosts=4, devices=2)
    first, second = np.arange(0, 8, 2), np.arange(1, 8, 2)
    beside = RankNetwork(network.cluster, network.devices, (second,))
    alone_s, shared_s = (Circuits("per-phase").time_s(one, first, 1e9, "all_to_all") for one in (network, beside))
    assert shared_s == pytest.approx(2 * alone_s, rel=1e-2)


@given(operation=OPERATIONS, size=st.floats(1e3, 1e9), turn=st.floats(0.0, 1e3), more=st.floats(0.0, 1e3))
def test_a_slower_switch_shortens_nothing_and_auto_is_the_faster_way(operation, size, turn, more):
    fast, slow = _network(turn), _network(turn + more)
    assert _us("once", fast, size, operation) == _us("once", slow, size, operation)
    assert _us("per-phase", fast, size, operation) <= _us("per-phase", slow, size, operation) * (1 + 1e-12)
    ways = [_us(one, fast, size, operation) for one in ("once", "per-phase")]
    assert _us("auto", fast, size, operation) == min(ways)


def test_inside_a_host_there_are_no_circuits():
    network = _network(hosts=2, devices=4)
    inside = np.arange(4)
    for operation in ("all_reduce", "all_to_all"):
        assert Circuits().time_s(network, inside, 1e6, operation) == RING.time_s(network, inside, 1e6, operation)


def test_auto_takes_circuits_on_an_optical_cluster_and_other_clusters_have_none():
    network, ranks = _network(), np.arange(8)
    auto = algorithm_of(CostSettings()).time_s(network, ranks, 8e6, "all_to_all")
    assert auto == Circuits().time_s(network, ranks, 8e6, "all_to_all")
    other = RankNetwork(cluster_of(matrix(np.full((2, 2), 1.0))), np.arange(2))
    with pytest.raises(ConfigError, match="optical") as error:
        Circuits().time_s(other, np.arange(2), 1.0)
    assert (error.value.field, error.value.value) == ("collectives", "circuits")
    assert (Circuits().runs_on(network), Circuits().runs_on(other)) == (True, False)


def test_choices_without_circuits_keep_their_digest():
    assert "circuits" not in CostSettings().model_dump()
    assert CostSettings(circuits="once").digest != CostSettings().digest
