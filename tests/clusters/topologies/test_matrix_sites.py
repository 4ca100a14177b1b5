"""Sites of a matrix: stated by their sizes, or found in the figures."""

import csv
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.clusters import Cluster, load_cluster
from meshwright.errors import ConfigError

from ...draws import draws


def cluster_of(**topology):
    return Cluster.from_data({"name": "any", "device": "a100", "topology": {"kind": "matrix", **topology}})


TWO = {"sites": {"a": 4, "b": 2}, "bandwidth_gbytes_per_s": [[5.0, 1.0], [2.0, 4.0]], "latency_us": [[10.0, 90.0], [80.0, 20.0]]}


def test_figures_of_sites_worked_by_hand():
    cluster = cluster_of(**TWO)
    assert cluster.num_devices == 6
    assert cluster.host_names == ("a-0", "a-1", "a-2", "a-3", "b-0", "b-1")
    # Inside a, from a to b, from b to a, inside b.
    assert cluster.bandwidth_bytes_per_s([0, 3, 4, 4], [1, 5, 0, 5]).tolist() == [5e9, 1e9, 2e9, 4e9]
    assert cluster.latency_s([0, 3, 4, 4], [1, 5, 0, 5]) == pytest.approx([10e-6, 90e-6, 80e-6, 20e-6], rel=1e-15)
    assert cluster.topology.host_group.tolist() == [0, 0, 0, 0, 1, 1]


def test_devices_of_a_host_have_the_links_of_a_host():
    hosts = TWO | {"devices_per_host": 2, "intra_host_bandwidth_gbytes_per_s": 300.0, "intra_host_latency_us": 0.6}
    cluster = cluster_of(**hosts)
    assert cluster.host_names == ("a-0", "a-1", "b-0")
    assert cluster.bandwidth_bytes_per_s([0, 1], [1, 2]).tolist() == [300e9, 5e9]
    assert cluster.latency_s(4, 5) == pytest.approx(0.6e-6, rel=1e-15)
    assert cluster.topology.host_group.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sites": {"a": 6}}, "1 sites, but 2 rows"),
        ({"sites": {}}, "sites: is empty"),
        ({"devices_per_host": 4}, r"sites.b: 2 devices do not fill hosts of 4"),
        ({"devices_per_host": 2}, "need intra_host_bandwidth_gbytes_per_s and intra_host_latency_us"),
        ({"latency_us": [[10.0, 90.0], [80.0, -1.0]]}, "latency_us, row 1, column 1: must not be negative, is -1"),
        ({"sites": None, "intra_host_latency_us": 1.0}, "are read with sites alone"),
    ],
)
def test_what_sites_cannot_be_is_told_in_one_line(change, message):
    with pytest.raises(ConfigError, match=message) as caught:
        cluster_of(**(TWO | change))
    assert "\n" not in str(caught.value)


@draws(40)
@given(st.lists(st.integers(1, 5), min_size=2, max_size=4), st.integers(2, 20), st.randoms(use_true_random=False))
def test_sites_are_found_in_what_was_measured_however_hosts_are_numbered(sizes, times, random):
    # Near pairs differ by less than a factor of two (1.9), far ones take at least four times as long as the slowest near one.
    site = np.repeat(np.arange(len(sizes)), sizes)
    random.shuffle(order := list(range(len(site))))
    site = site[order]
    is_near = site[:, None] == site[None, :]
    noise = np.array([[random.uniform(1.0, 1.9) for _ in site] for _ in site])
    bandwidth = np.where(is_near, 10.0, 10.0 / (4 * times)) / noise
    host_group = cluster_of(
        bandwidth_gbytes_per_s=bandwidth.tolist(), latency_us=np.zeros_like(bandwidth).tolist()
    ).topology.host_group
    if max(sizes) > 1:
        assert ((host_group[:, None] == host_group[None, :]) == is_near).all()
    assert host_group[0] == 0
    assert sorted(set(host_group.tolist())) == list(range(host_group.max() + 1))


def test_alike_pairs_are_one_site():
    rows = np.full((5, 5), 3.0)
    assert cluster_of(bandwidth_gbytes_per_s=rows.tolist(), latency_us=rows.tolist()).topology.host_group.tolist() == [0] * 5


@pytest.mark.reference
def test_the_two_sites_are_as_they_were_measured(reference):
    published = json.loads((reference / "operators" / "tasklets" / "case2_multi_universities.json").read_text())
    cluster = load_cluster("preset:two-sites-64")
    pairs = ~np.eye(64, dtype=bool)
    assert (cluster.topology.pair_bandwidth_bytes_per_s[pairs] == (np.array(published["bandwidth_gbps"]) * 0.125e9)[pairs]).all()
    assert cluster.topology.pair_latency_s[pairs] == pytest.approx((np.array(published["delay_ms"]) / 1e3)[pairs], rel=1e-15)
    every = [region.lower() for region in published["regions"]]
    assert [name.rsplit("-", 1)[0] for name in cluster.host_names] == every


@pytest.mark.reference
def test_the_cut_of_the_recorded_network_is_every_twelfth_leaf(reference):
    with (reference / "traces" / "topo.csv").open() as text:
        rows = list(csv.DictReader(text))
    leaves = sorted({(row["PSW"], row["ASW"]) for row in rows}, key=lambda leaf: tuple(int(name[1:]) for name in leaf))
    stored = leaves[11::12]
    topology = load_cluster("preset:lingjun-64").topology
    assert topology.leaf_names == tuple(".".join(leaf) for leaf in stored)
    assert np.bincount(topology.host_leaf).tolist() == [sum((row["PSW"], row["ASW"]) == leaf for row in rows) for leaf in stored]
    assert topology.hosts.num_hosts == 64
