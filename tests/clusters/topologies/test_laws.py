"""Laws of every topology, at any size and with any figures."""

import json
from itertools import pairwise
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from meshwright.clusters import Cluster
from meshwright.clusters.blocks import _SCANS, blocks
from meshwright.clusters.settings import TopologySettings
from meshwright.clusters.symmetry import pair_signature, signatures

from ...draws import draws
from ..alike_groups import classes

"""Machines that run several things at once are no failure."""

bandwidths = st.floats(0.5, 1000.0)
latencies = st.floats(0.0, 50.0)
small = st.integers(1, 4)


def of(kind: str, **keys: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"kind": st.just(kind), **keys})


cards = st.sampled_from([(1, 1), (2, 1), (2, 2), (4, 2), (3, 3)])


def with_hosts(topology: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    hosts = st.fixed_dictionaries(
        {
            "intra_host_bandwidth_gbytes_per_s": bandwidths,
            "intra_host_latency_us": latencies,
            "nic_bandwidth_gbytes_per_s": bandwidths,
            "nic_latency_us": latencies,
        }
    )
    return st.builds(lambda t, h, c: t | h | {"devices_per_host": c[0], "nics_per_host": c[1]}, topology, hosts, cards)


ramps = of(
    "ramp",
    num_groups=small,
    num_racks=small,
    servers_per_rack=small,
    node_bandwidth_gbytes_per_s=bandwidths,
    propagation_ns=latencies,
    io_ns=latencies,
)
closes = with_hosts(
    of(
        "clos",
        num_hosts=st.integers(1, 7),
        hosts_per_leaf=small,
        wiring=st.sampled_from(["host", "rail"]),
        num_spines=small,
        oversubscription=st.floats(0.5, 8.0),
        spine_latency_us=latencies,
    )
)
tori = of(
    "torus",
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    link_bandwidth_gbytes_per_s=bandwidths,
    link_latency_us=latencies,
)
singles = of(
    "single-host",
    num_devices=st.integers(1, 9),
    fabric=st.sampled_from(["switch", "bus"]),
    bandwidth_gbytes_per_s=bandwidths,
    latency_us=latencies,
)


@st.composite
def matrices(draw: st.DrawFn) -> dict[str, Any]:
    per_host = draw(st.integers(1, 2))
    n = per_host * draw(st.integers(1, 4))
    rows = st.lists(st.lists(bandwidths, min_size=n, max_size=n), min_size=n, max_size=n)
    return {"kind": "matrix", "devices_per_host": per_host, "bandwidth_gbytes_per_s": draw(rows), "latency_us": draw(rows)}


places = st.tuples(st.sampled_from(["P2", "P10"]), st.sampled_from(["S1", "S2", "S11"]))
traces = with_hosts(
    of(
        "trace",
        hosts_at=st.lists(places, min_size=1, max_size=7).map(lambda at: [(f"h{i}", "G1", *p) for i, p in enumerate(at)]),
        leaf_uplink_gbytes_per_s=bandwidths,
        leaf_uplink_latency_us=latencies,
        pod_uplink_gbytes_per_s=bandwidths,
        pod_uplink_latency_us=latencies,
    )
)
opticals = of(
    "optical",
    num_hosts=st.integers(1, 7),
    devices_per_host=small,
    intra_host_bandwidth_gbytes_per_s=bandwidths,
    intra_host_latency_us=latencies,
    ports_per_host=small,
    port_bandwidth_gbytes_per_s=bandwidths,
    circuit_latency_us=latencies,
    reconfiguration_us=latencies,
)
symmetric = st.one_of(ramps, closes, tori, singles, traces, opticals)
topologies = st.one_of(symmetric, matrices())


def test_every_kind_of_topology_has_its_order_of_blocks_and_is_held_by_these_laws():
    union, _ = get_args(TopologySettings)
    kinds = {get_args(one.model_fields["kind"].annotation)[0]: get_type_hints(one.build)["return"] for one in get_args(union)}
    assert set(_SCANS) == set(kinds.values())
    for kind in kinds:  # raises NoSuchExample for a kind that has no strategy
        find(topologies, lambda one, kind=kind: one["kind"] == kind, settings=settings(max_examples=999, phases=[Phase.generate]))


def cluster_of(topology: dict[str, Any], **keys: Any) -> Cluster:
    return Cluster.from_data({"name": "any", "device": "a100", "topology": topology, **keys})


def pairs(cluster: Cluster) -> tuple[np.ndarray, np.ndarray]:
    ids = np.arange(cluster.num_devices)
    return ids[:, None], ids[None, :]


@draws(8)
@given(topologies)
def test_the_narrowest_link_and_the_sum_of_latencies_on_each_path_are_what_the_arrays_say(topology):
    cluster = cluster_of(topology)
    bandwidth, latency = cluster.bandwidth_bytes_per_s(*pairs(cluster)), cluster.latency_s(*pairs(cluster))
    for a in range(cluster.num_devices):
        for b in range(cluster.num_devices):
            path = list(cluster.path(a, b))
            assert (path == []) == (a == b)
            assert bandwidth[a, b] == cluster.links.bandwidth_bytes_per_s[path].min(initial=np.inf)
            assert latency[a, b] == pytest.approx(cluster.links.latency_s[path].sum(), rel=1e-12)


@draws(10)
@given(topologies)
def test_a_path_runs_from_the_source_to_the_target_without_a_gap_and_without_a_link_twice(topology):
    cluster = cluster_of(topology)
    if topology.get("fabric") == "bus":
        return
    local = {cluster.device_name(i): i for i in range(cluster.num_devices)}
    for a in range(cluster.num_devices):
        for b in range(cluster.num_devices):
            path = cluster.path(a, b)
            assert len(set(path)) == len(path)
            ends = [cluster.links.names[link].split(">") for link in path]
            for (_, reached), (left, _) in pairwise(ends):
                assert reached == left
            if ends:
                for end, device in ((ends[0][0], a), (ends[-1][1], b)):
                    # A link ends at the device, at its host (one device each) or at its host's network card.
                    host = cluster.host_names[cluster.device_host[device]]
                    assert end in (host, cluster.device_name(device)) or end.startswith(f"{host}.nic")
                    assert local.get(end, device) == device


@given(symmetric)
def test_both_directions_of_a_pair_are_equal_where_links_are_full_duplex(topology):
    cluster = cluster_of(topology)
    bandwidth, latency = cluster.bandwidth_bytes_per_s(*pairs(cluster)), cluster.latency_s(*pairs(cluster))
    assert (bandwidth == bandwidth.T).all()
    assert (latency == latency.T).all()


@given(topologies)
def test_link_names_are_unique_and_each_link_has_figures(topology):
    links = cluster_of(topology).links
    assert len(set(links.names)) == len(links) == len(links.bandwidth_bytes_per_s) == len(links.latency_s)
    assert (links.bandwidth_bytes_per_s > 0).all()
    assert (links.latency_s >= 0).all()


@given(topologies)
def test_a_cluster_survives_the_round_trip_through_json(topology):
    cluster = cluster_of(topology, device_overrides={})
    again = Cluster.from_data(json.loads(json.dumps(cluster.to_data())))
    assert again.to_data() == cluster.to_data()
    assert again.digest == cluster.digest
    assert again.host_names == cluster.host_names
    assert again.links.names == cluster.links.names


@given(topologies)
def test_devices_of_a_host_are_consecutive_and_coordinates_tell_all_devices_apart(topology):
    cluster = cluster_of(topology)
    assert (np.diff(cluster.device_host) >= 0).all()
    assert set(cluster.device_host.tolist()) == set(range(cluster.num_hosts))
    assert len({tuple(at) for at in cluster.coordinates.tolist()}) == cluster.num_devices
    assert cluster.coordinates.shape[1] == len(cluster.topology.coordinate_names)
    assert len({cluster.device_name(i) for i in range(cluster.num_devices)}) == cluster.num_devices


@given(topologies, st.data())
def test_any_changed_figure_changes_the_digest_and_names_do_not(topology, data):
    cluster = cluster_of(topology)
    numbers = [key for key, value in topology.items() if isinstance(value, float)]
    if numbers:
        key = data.draw(st.sampled_from(numbers))
        assert cluster_of(topology | {key: topology[key] * 1.5 + 1.0}).digest != cluster.digest
    assert cluster_of(topology, device="h100").digest != cluster.digest
    assert cluster_of(topology, device_overrides={cluster.host_names[-1]: "v100"}).digest != cluster.digest
    renamed = cluster_of(topology, name="other", host_names=[f"x{i}" for i in range(cluster.num_hosts)])
    assert renamed.digest == cluster.digest
    assert renamed.device_name(0) == "x0/0"


@draws(10)
@given(topologies, st.integers(1, 20))
def test_blocks_are_distinct_sets_of_distinct_devices(topology, size):
    cluster = cluster_of(topology)
    result = blocks(cluster, size)
    assert result.devices.shape == (len(result), size)
    assert len({frozenset(row) for row in result.devices.tolist()}) == len(result)
    assert all(len(set(row)) == size for row in result.devices.tolist())
    assert ((result.devices >= 0) & (result.devices < cluster.num_devices)).all()
    assert (np.diff(result.shape) >= 0).all(), "scan order is shape by shape"
    assert set(result.shape.tolist()) == set(range(len(result.shape_names)))


@given(topologies)
def test_every_single_device_is_a_block(topology):
    cluster = cluster_of(topology)
    assert sorted(blocks(cluster, 1).devices.reshape(-1).tolist()) == list(range(cluster.num_devices))


def sharing(cluster: Cluster, group: list[int]) -> list[list[int]]:
    """The links of each ordered pair of positions, numbered by first use."""
    numbers: dict[int, int] = {}
    result = []
    for a in group:
        for b in group:
            result.append([numbers.setdefault(link, len(numbers)) for link in cluster.path(a, b)])
    return result


@given(topologies, st.data())
def test_groups_of_equal_signature_have_equal_links_between_equal_positions(topology, data):
    cluster = cluster_of(topology)
    if cluster.num_hosts > 1 and data.draw(st.booleans()):
        cluster = cluster_of(topology, device_overrides={cluster.host_names[0]: "v100"})
    size = data.draw(st.integers(1, min(4, cluster.num_devices)))
    groups = data.draw(
        st.lists(st.permutations(range(cluster.num_devices)).map(lambda order: order[:size]), min_size=2, max_size=12)
    )
    group_of = classes(cluster, np.array(groups))
    for index in set(group_of.tolist()):
        first, *others = [groups[i] for i in np.flatnonzero(group_of == index)]
        for other in others:
            for figure in (cluster.bandwidth_bytes_per_s, cluster.latency_s):
                there = [figure(np.array(g)[:, None], np.array(g)[None, :]) for g in (first, other)]
                assert (there[0] == there[1]).all()
            assert (cluster.device_type[list(first)] == cluster.device_type[list(other)]).all()
            assert sharing(cluster, list(first)) == sharing(cluster, list(other))


@given(topologies)
def test_one_signature_at_a_time_equals_many_at_once(topology):
    cluster = cluster_of(topology)
    devices = blocks(cluster, min(2, cluster.num_devices)).devices
    assert [pair_signature(cluster, row) for row in devices] == signatures(cluster, devices)
