"""All paths of equal cost: as networkx finds them, on random graphs and on the topologies that have several."""

from collections import Counter
from itertools import pairwise

import networkx
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from meshwright.clusters import load_cluster
from meshwright.clusters.routes import ShortestPaths
from meshwright.errors import ClusterError

from ..draws import draws
from ..samples import sample_clusters
from ..samples.sample_clusters import cluster_of


def clos(**keys):
    return cluster_of({**sample_clusters.clos(4, 2), "num_spines": 2, **keys}, name="clos")


def torus(*shape):
    return cluster_of(sample_clusters.torus(*shape))


def paths_of(cluster, a, b):
    return [cluster.equal_path(a, b, number) for number in range(cluster.num_paths(a, b))]


def graph_of(cluster):
    """The links by their names. In a torus devices pass messages on; below a Clos they and their cards only send or receive."""
    graph, is_clos = networkx.DiGraph(), cluster.topology.kind == "clos"
    for link, name in enumerate(cluster.links.names):
        tail, _, head = name.partition(">")
        ends_there = is_clos and ("/" in head or ".nic" in head)
        graph.add_edge(tail, f"{head} in" if ends_there else head, link=link)
    for device in range(cluster.num_devices):
        name = cluster.device_name(device)
        if is_clos:
            card = cluster.links.names[cluster.topology.hosts.way_out(device)].partition(">")[0]
            graph.add_edge(name, card)
            graph.add_edge(f"{card} in", f"{name} in")
        else:
            graph.add_edge(name, f"{name} in")
    return graph


def listed(graph, a, b):
    """The links of every shortest path."""
    for nodes in networkx.all_shortest_paths(graph, a, b):
        edges = [graph.edges[pair] for pair in pairwise(nodes)]
        yield tuple(edge["link"] for edge in edges if "link" in edge)


@draws(15)
@given(st.integers(2, 9), st.data())
def test_on_random_graphs_they_are_those_that_networkx_lists(n, data):
    pairs = [(a, b) for a in range(n) for b in range(n) if a != b]
    links = data.draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=30, unique=True))
    source, target = data.draw(st.sampled_from(pairs))
    result = ShortestPaths.from_source(n, links, source)
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(n))
    graph.add_edges_from((a, b, {"link": link}) for link, (a, b) in enumerate(links))
    assume(networkx.has_path(graph, source, target))
    every = list(listed(graph, source, target))
    assert [result.path(target, number) for number in range(result.num_paths[target])] == sorted(every, key=lambda p: p[::-1])
    assert result.distance[target] == len(every[0])
    count = Counter(link for path in every for link in path)
    assert dict(result.carried(target)) == pytest.approx({link: times / len(every) for link, times in count.items()})


@draws(8)
@given(st.integers(2, 6), st.data())
def test_what_is_carried_leaves_the_source_once_and_arrives_once(n, data):
    pairs = [(a, b) for a in range(n) for b in range(n) if a != b]
    links = data.draw(st.lists(st.sampled_from(pairs), min_size=n, max_size=40))  # some appear twice, side by side
    result = ShortestPaths.from_source(n, links, 0)
    for target in range(1, n):
        balance = np.zeros(n)
        for link, share in result.carried(target):
            balance[links[link][0]] -= share
            balance[links[link][1]] += share
        arrives = float(result.num_paths[target] > 0)
        expected = np.zeros(n)
        expected[0], expected[target] = -arrives, arrives
        assert balance == pytest.approx(expected, abs=1e-12)


def test_a_square_torus_worked_by_hand():
    # two steps along each axis of a ring of five: 4! / (2! 2!) = 6 ways; the first hop is along either axis in 3 of 6
    cluster = torus(5, 5)
    assert cluster.num_paths(0, 12) == 6
    shares = dict(cluster.spread(0, 12))
    first = [shares[link] for link in shares if cluster.links.names[link].startswith("t0-0/0>")]
    assert first == [0.5, 0.5]
    assert sum(shares.values()) == pytest.approx(4.0)  # four hops
    # in a ring of four, two steps are two ways round
    assert sorted(torus(4).spread(1, 3)) == [(link, 0.5) for link in sorted({2, 4, 3, 1})]


def test_a_leaf_reaches_another_through_every_spine():
    cluster = clos(num_spines=3)
    paths = paths_of(cluster, 0, 5)
    assert [cluster.links.names[path[1]] for path in paths] == ["leaf0>spine0", "leaf0>spine1", "leaf0>spine2"]
    assert {path[0] for path in paths} == {cluster.path(0, 5)[0]}
    assert cluster.num_paths(0, 3) == cluster.num_paths(0, 1) == cluster.num_paths(0, 0) == 1


several = st.one_of(
    st.lists(st.integers(1, 5), min_size=1, max_size=3).map(lambda shape: torus(*shape)),
    st.builds(
        clos,
        num_hosts=st.integers(1, 5),
        hosts_per_leaf=st.integers(1, 3),
        num_spines=st.integers(1, 4),
        wiring=st.sampled_from(["host", "rail"]),
        nics_per_host=st.sampled_from([1, 2]),
        oversubscription=st.sampled_from([0.5, 1, 4]),
    ),
)


@draws(10)
@given(several, st.data())
def test_on_every_topology_they_are_those_that_networkx_lists(cluster, data):
    devices = st.integers(0, cluster.num_devices - 1)
    a, b = data.draw(devices), data.draw(devices)
    paths = paths_of(cluster, a, b)
    assert cluster.path(a, b) in paths
    if a == b:
        assert paths == [()]
        return
    assert sorted(paths) == sorted(listed(graph_of(cluster), cluster.device_name(a), f"{cluster.device_name(b)} in"))
    assert len(paths) == 1 or cluster.topology.has_equal_paths
    count = Counter(link for path in paths for link in path)
    carried = dict(cluster.spread(a, b))
    assert carried == pytest.approx({link: times / len(paths) for link, times in count.items()})
    bandwidth, latency = cluster.links.bandwidth_bytes_per_s, cluster.links.latency_s
    slowest = min(bandwidth[link] / share for link, share in carried.items())
    assert cluster.spread_bandwidth_bytes_per_s(a, b) == pytest.approx(slowest)
    for path in paths:
        assert latency[list(path)].sum() == pytest.approx(cluster.latency_s(a, b))
        assert bandwidth[list(path)].min() == cluster.bandwidth_bytes_per_s(a, b)


@draws(10)
@given(several, st.data())
def test_groups_of_one_pattern_share_links_alike_on_paths_of_the_same_numbers(cluster, data):
    size = data.draw(st.integers(1, min(3, cluster.num_devices)))
    groups = st.lists(st.integers(0, cluster.num_devices - 1), min_size=size, max_size=size, unique=True)
    two = np.array([data.draw(groups), data.draw(groups)])
    pattern = cluster.topology.pattern(two)
    assume((pattern[0] == pattern[1]).all())
    expected = data.draw(st.integers(0, 50))
    loads = []
    for group in two.tolist():
        links = [cluster.equal_path(a, b, expected % cluster.num_paths(a, b)) for a in group for b in group]
        names = {link: place for place, link in enumerate(dict.fromkeys(link for path in links for link in path))}
        loads.append([tuple(names[link] for link in path) for path in links])
    assert loads[0] == loads[1]


def test_all_pairs_at_once_are_what_each_pair_is():
    cluster = torus(4, 3)
    every = np.arange(12)
    result = cluster.spread_bandwidth_bytes_per_s(every[:, None], every[None, :])
    assert result[2, 9] == cluster.spread_bandwidth_bytes_per_s(2, 9)
    assert np.isinf(np.diag(result)).all()


@pytest.mark.parametrize("name", ["ramp-4x4x2", "host-8"])
def test_other_topologies_have_one_path(name):
    cluster = load_cluster(f"preset:{name}")
    assert not cluster.topology.has_equal_paths
    assert cluster.num_paths(0, 5) == 1
    assert cluster.equal_path(0, 5, 0) == cluster.path(0, 5)
    assert cluster.spread(0, 5) == tuple((link, 1.0) for link in cluster.path(0, 5))
    assert cluster.spread_bandwidth_bytes_per_s(0, 5) == cluster.bandwidth_bytes_per_s(0, 5)


def test_an_absent_path_or_device_is_refused():
    with pytest.raises(ClusterError, match=r"clos: 2 paths join devices 0 and 5 \(got 2\)"):
        clos().equal_path(0, 5, 2)
    with pytest.raises(ClusterError, match=r"no such device, there are 0\.\.7"):
        clos().spread(0, 8)
