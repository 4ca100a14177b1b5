"""Arrays of clusters for compiled code, worked by hand."""

import numpy as np

from meshwright.clusters import load_cluster
from meshwright.simulation.fleet.network import fleet_network

from ...samples.sample_clusters import cluster_of, matrix

SITES = {
    "kind": "matrix",
    "sites": {"here": 3, "there": 2},
    "bandwidth_gbytes_per_s": [[5.0, 0.5], [0.5, 5.0]],
    "latency_us": [[5.0, 50.0], [50.0, 5.0]],
}


def test_sites_of_a_matrix_are_groups_and_none_of_their_links_is_shared():
    named = fleet_network(cluster_of(SITES))
    network = named.arrays
    assert named.trunk_names == ("here", "there")
    assert network.host_group.tolist() == network.class_group.tolist() == [0, 0, 0, 1, 1]
    assert (network.num_groups, network.num_sites, network.num_trunks) == (2, 1, 2)
    # Bytes of any step keep them busy for no time: each pair has a channel of its own.
    assert (network.capacity_bytes_per_s > 1e200).all()
    assert not named.has_shared_links
    assert fleet_network(load_cluster("preset:lingjun-64")).has_shared_links
    assert len(named.link_names) == len(network.capacity_bytes_per_s) == 2 * 5 + 2 * 2


def test_hosts_of_a_site_need_not_be_neighbours():
    site = np.array([0, 1, 0, 1, 1])
    bandwidth = np.where(site[:, None] == site, 5.0, 0.5)
    network = fleet_network(cluster_of(matrix(bandwidth, np.ones((5, 5))))).arrays
    assert network.host_group.tolist() == site.tolist()
    assert network.group_hosts.tolist() == [0, 2, 1, 3, 4]
    assert network.group_first.tolist() == [0, 2, 5]
