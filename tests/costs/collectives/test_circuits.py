"""Circuits that are set up once or change per phase: times worked by hand, and laws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.clusters.cluster import Cluster
from meshwright.costs.collectives.choice import of
from meshwright.costs.collectives.circuits import Circuits
from meshwright.costs.collectives.direct import RING
from meshwright.costs.network import RankNetwork
from meshwright.costs.settings import CostSettings
from meshwright.errors import ConfigError

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
    cluster = Cluster.from_data({"name": "optical", "device": "a100", "topology": topology})
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
    # Eight ports reach every other host at once: 1 MB at 10 GB/s.
    assert _us("once", _network(ports=8), 8e6, "all_to_all") == pytest.approx(100 + 5)


def test_an_all_reduce_worked_by_hand():
    network = _network()
    # 14 hops of 1 MB at 40 GB/s, once; 2 (100 + 50 + 25) us and six turns and latencies per phase
    assert _us("once", network, 8e6, "all_reduce") == pytest.approx(14 * (25 + 5))
    assert _us("per-phase", network, 8e6, "all_reduce") == pytest.approx(350 + 6 * 25)


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
    auto = of(CostSettings()).time_s(network, ranks, 8e6, "all_to_all")
    assert auto == Circuits().time_s(network, ranks, 8e6, "all_to_all")
    matrix = {"bandwidth_gbytes_per_s": np.full((2, 2), 1.0).tolist(), "latency_us": np.zeros((2, 2)).tolist()}
    topology = {"kind": "matrix", "devices_per_host": 1, **matrix}
    other = RankNetwork(Cluster.from_data({"name": "pair", "device": "a100", "topology": topology}), np.arange(2))
    with pytest.raises(ConfigError, match="optical"):
        Circuits().time_s(other, np.arange(2), 1.0)


def test_choices_without_circuits_keep_their_digest():
    assert "circuits" not in CostSettings().model_dump()
    assert CostSettings(circuits="once").digest != CostSettings().digest
