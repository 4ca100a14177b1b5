"""Each topology's figures and paths, worked by hand."""

import numpy as np
import pytest

from meshwright.clusters import Cluster, load_cluster
from meshwright.errors import ConfigError

from ...samples import sample_clusters
from ...samples.sample_clusters import clos


def cluster_of(**topology):
    return sample_clusters.cluster_of(topology)


def names_on(cluster, a, b):
    return [cluster.links.names[link] for link in cluster.path(a, b)]


CLOS = clos(4, 4, inside=(300.0, 0.6), cards=2, card=(25.0, 1.0), num_spines=3, oversubscription=2.0, spine_latency_us=0.25)


def test_ramp_channel_worked_by_hand():
    ramp = load_cluster("preset:ramp-4x4x2")
    # 1.6e12 B/s over 4 transceivers; 50 ns of flight and 100 ns at each end
    assert ramp.bandwidth_bytes_per_s(0, 31) == 4e11
    assert ramp.latency_s(0, 31) == pytest.approx(250e-9, rel=1e-15)
    assert ramp.topology.num_transceivers == 4
    assert (ramp.topology.node_bandwidth_bytes_per_s, ramp.topology.propagation_s, ramp.topology.io_s) == (1.6e12, 50e-9, 100e-9)


def test_ramp_counts_servers_fastest_then_racks_then_groups():
    ramp = load_cluster("preset:ramp-4x4x2")
    # (2, 3, 1) -> (2 * 4 + 3) * 2 + 1
    assert ramp.host_names[23] == "g2-r3-s1"
    assert ramp.coordinates[23].tolist() == [2, 3, 1]


def test_ramp_has_a_channel_of_its_own_for_each_ordered_pair():
    ramp = load_cluster("preset:ramp-4x4x2")
    used = {ramp.path(a, b) for a in range(32) for b in range(32) if a != b}
    assert len(used) == len(ramp.links) == 32 * 31
    assert names_on(ramp, 5, 2) == ["g0-r2-s1>g0-r1-s0"]


@pytest.mark.parametrize("wiring", ["host", "rail"])
def test_spines_may_be_left_out_exactly_where_one_leaf_serves_all_hosts(wiring):
    for hosts_per_leaf in (2, 4, 8):
        keys = CLOS | {"hosts_per_leaf": hosts_per_leaf, "wiring": wiring}
        left_out = {key: value for key, value in keys.items() if key != "num_spines"}
        if hosts_per_leaf < keys["num_hosts"] or wiring == "rail":
            with pytest.raises(ConfigError, match=r"topology\.num_spines: the key is missing"):
                cluster_of(**left_out)
            continue
        given, bare = cluster_of(**keys), cluster_of(**left_out)
        assert bare.topology.num_spines == 1
        ends = np.arange(16)
        for figure in ("bandwidth_bytes_per_s", "latency_s"):
            assert (getattr(given, figure)(ends[:, None], ends) == getattr(bare, figure)(ends[:, None], ends)).all()
    for wrong in (0, None):
        with pytest.raises(ConfigError, match=r"topology\.num_spines: "):
            cluster_of(**CLOS | {"hosts_per_leaf": 4, "num_spines": wrong})


def test_clos_tiers_worked_by_hand():
    clos = cluster_of(**CLOS)
    # Same host: the switch. Same leaf: two cards. Otherwise also a spine: a leaf has 2 hosts x 2 cards x 25 GB/s down,
    # half of it up, over 3 spines: 50 / 3 GB/s.
    assert clos.bandwidth_bytes_per_s([0, 0, 0, 0], [0, 3, 4, 8]) == pytest.approx([np.inf, 300e9, 25e9, 50e9 / 3])
    assert clos.latency_s([0, 0, 0, 0], [0, 3, 4, 8]) == pytest.approx([0.0, 0.6e-6, 2.0e-6, 2.5e-6])


def test_clos_takes_the_spine_that_the_receiving_card_gives_modulo_their_number():
    clos = cluster_of(**CLOS)
    # Device 14 is device 2 of host 3, behind card 1 of that host, card 7 of all; 7 mod 3 = 1.
    assert names_on(clos, 0, 14) == ["l0-h0.nic0>leaf0", "leaf0>spine1", "spine1>leaf1", "leaf1>l1-h1.nic1"]
    assert names_on(clos, 0, 3) == ["l0-h0/0>l0-h0", "l0-h0>l0-h0/3"]


def test_shift_permutations_spread_over_all_spines():
    # 4 hosts of 1 leaf send to 4 hosts of the next: D-mod-k gives each its own of the 4 spines.
    clos = cluster_of(**CLOS | {"num_hosts": 8, "hosts_per_leaf": 4, "devices_per_host": 1, "nics_per_host": 1, "num_spines": 4})
    for shift in range(4, 8):
        crossing = [(a, (a + shift) % 8) for a in range(4) if (a + shift) % 8 >= 4]
        uplinks = [clos.path(a, b)[1] for a, b in crossing]
        assert len(set(uplinks)) == len(uplinks)


def test_rails_join_equal_cards_of_different_hosts_without_a_spine():
    rail = cluster_of(**CLOS | {"wiring": "rail"})
    # Cards 0 of hosts 0 and 1 meet in leaf 0; from card 0 to card 1 of another host a spine is needed.
    assert names_on(rail, 0, 4) == ["l0-h0.nic0>leaf0", "leaf0>l0-h1.nic0"]
    assert names_on(rail, 0, 6) == ["l0-h0.nic0>leaf0", "leaf0>spine0", "spine0>leaf1", "leaf1>l0-h1.nic1"]
    # A rail's leaf has 2 hosts x 1 card x 25 GB/s down, half of it up, over 3 spines.
    assert rail.bandwidth_bytes_per_s(0, 6) == pytest.approx(25e9 / 3)


def test_devices_behind_one_card_share_its_link():
    clos = cluster_of(**CLOS)
    assert clos.path(0, 4)[0] == clos.path(1, 5)[0] != clos.path(2, 6)[0]


def test_a_wider_network_never_narrows_a_pair():
    narrow, wide = cluster_of(**CLOS), cluster_of(**CLOS | {"oversubscription": 1.0})
    ids = np.arange(16)
    before, after = (c.bandwidth_bytes_per_s(ids[:, None], ids) for c in (narrow, wide))
    assert (after >= before).all()
    assert (after > before).any()


def torus_of(*shape, **keys):
    return cluster_of(kind="torus", shape=list(shape), link_bandwidth_gbytes_per_s=50.0, link_latency_us=1.0, **keys)


def test_torus_goes_the_shorter_way_round_axis_by_axis():
    torus = torus_of(5, 4)
    # From (0, 0) to (4, 2): one step down along the first axis, two steps up along the second (a tie, so upward).
    assert names_on(torus, 0, 18) == ["t0-0/0>t4-0/0", "t4-0/0>t4-1/0", "t4-1/0>t4-2/0"]
    assert torus.latency_s(0, 18) == pytest.approx(3e-6)
    assert torus.bandwidth_bytes_per_s(0, 18) == 50e9


def test_torus_has_two_links_per_axis_but_one_along_an_axis_of_two():
    assert len(torus_of(5).links) == 10
    assert len(torus_of(2).links) == 2
    assert len(torus_of(1).links) == 0
    assert len(torus_of(2, 3).links) == 6 * (1 + 2)


def test_torus_hosts_hold_neighbours_along_the_last_axis():
    torus = torus_of(2, 4, devices_per_host=2)
    assert torus.host_names == ("t0-0", "t0-2", "t1-0", "t1-2")
    assert torus.device_name(5) == "t1-0/1"


def host_of(fabric):
    return cluster_of(kind="single-host", num_devices=4, fabric=fabric, bandwidth_gbytes_per_s=300.0, latency_us=0.6)


def test_a_switch_keeps_pairs_apart_and_a_bus_does_not():
    switch, bus = host_of("switch"), host_of("bus")
    assert not set(switch.path(0, 1)) & set(switch.path(2, 3))
    assert bus.path(0, 1) == bus.path(3, 2) == (0,)
    for host in (switch, bus):
        assert host.bandwidth_bytes_per_s(0, 1) == 300e9
        assert host.latency_s(0, 1) == pytest.approx(0.6e-6)


def test_a_matrix_is_taken_as_it_stands_and_its_diagonal_is_not_read(tmp_path):
    (tmp_path / "bandwidth.csv").write_text("0,10\n20,0\n")
    yaml = "{kind: matrix, bandwidth_gbytes_per_s_csv: bandwidth.csv, latency_us: [[7, 1], [2, 7]]}"
    (tmp_path / "pair.yaml").write_text(f"name: pair\ndevice: a100\ntopology: {yaml}\n")
    pair = load_cluster(str(tmp_path / "pair.yaml"))
    assert pair.bandwidth_bytes_per_s([0, 1, 0], [1, 0, 0]).tolist() == [10e9, 20e9, np.inf]
    assert pair.latency_s([0, 1, 0], [1, 0, 0]) == pytest.approx([1e-6, 2e-6, 0])
    # The round trip needs the CSV file no more.
    (tmp_path / "bandwidth.csv").unlink()
    assert Cluster.from_data(pair.to_data()).digest == pair.digest


TRACE = {key: CLOS[key] for key in CLOS if "intra" in key or "nic_" in key} | {
    "kind": "trace",
    "devices_per_host": 2,
    "nics_per_host": 1,
    "leaf_uplink_gbytes_per_s": 20.0,
    "leaf_uplink_latency_us": 0.5,
    "pod_uplink_gbytes_per_s": 10.0,
    "pod_uplink_latency_us": 3.0,
}


def test_trace_tiers_worked_by_hand():
    rows = [["b", "G", "P10", "S1"], ["c", "G", "P2", "S2"], ["a", "G", "P2", "S10"], ["d", "G", "P2", "S2"]]
    trace = cluster_of(**TRACE, hosts_at=rows)
    # Sorted as people count: P2 before P10, S2 before S10; equal places keep the file's order.
    assert trace.host_names == ("c", "d", "a", "b")
    # From c: same host, same leaf (2 x 1 us), same pod (and 2 x 0.5), across the core (and 2 x 3).
    assert trace.bandwidth_bytes_per_s([0] * 4, [1, 2, 4, 6]).tolist() == [300e9, 25e9, 20e9, 10e9]
    assert trace.latency_s([0] * 4, [1, 2, 4, 6]) == pytest.approx([0.6e-6, 2e-6, 3e-6, 9e-6])
    assert names_on(trace, 0, 6) == ["c.nic0>P2.S2", "P2.S2>P2", "P2>core", "core>P10", "P10>P10.S1", "P10.S1>b.nic0"]


def test_leaves_of_one_name_in_two_pods_are_two_leaves():
    trace = cluster_of(**TRACE, hosts_at=[["a", "G", "P1", "S1"], ["b", "G", "P2", "S1"]])
    assert trace.bandwidth_bytes_per_s(0, 2) == 10e9


@pytest.mark.reference
def test_the_real_network_of_847_hosts(reference, tmp_path):
    keys = {key: value for key, value in TRACE.items() if key != "devices_per_host"} | {"devices_per_host": 8}
    trace = Cluster.from_data(
        {"name": "real", "device": "a100", "topology": keys | {"csv": str(reference / "traces" / "topo.csv")}}
    )
    assert (trace.num_hosts, trace.num_devices) == (847, 6776)
    # 119 pairs of pod and leaf switch, three pods of 179, 362 and 306 hosts (counted with sort and uniq).
    assert len(trace.topology.leaf_names) == 119
    assert trace.topology.pod_names == ("P8", "P10", "P12")
    assert np.bincount(trace.topology.device_pod).tolist() == [8 * 179, 8 * 362, 8 * 306]
    assert all(len(name) == 13 and name[0] == "h" for name in trace.host_names)
    ids = np.arange(trace.num_devices)
    latency = trace.latency_s(ids[:64, None], ids)
    assert set(np.round(latency * 1e6, 9).ravel().tolist()) == {0.0, 0.6, 2.0, 3.0, 9.0}
    assert Cluster.from_data(trace.to_data()).digest == trace.digest
