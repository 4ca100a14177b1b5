"""Tiers of hosts, read from bandwidths and latencies, and what a plan's groups mean in terms of hosts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.clusters.cluster import load_cluster, preset_names
from meshwright.errors import ExportError
from meshwright.export.host_domains import domains, domains_of, hosts_by_stage, hosts_per_group

from ..samples.sample_clusters import cluster_of, torus, trace
from .across_hosts import plan_across, two_stages_of_two_groups


def test_leaves_of_a_clos_network_are_a_tier_and_the_whole_is_the_last():
    result = domains(load_cluster("preset:clos-64-4to1"))
    assert result.label.tolist() == [[0, 0, 1, 1, 2, 2, 3, 3], [0] * 8]
    assert result.members(1, 2) == ["l2-h0", "l2-h1"]
    assert result.members(2, 0) == ["0", "1", "2", "3"]
    assert result.tier_of(["l2-h1", "l2-h0"]) == 1
    assert result.tier_of(["l2-h1", "l1-h0"]) == 2


@pytest.mark.parametrize("preset", ["ramp-4x4x2", "host-8", "dgx-a100-8x8"])
def test_where_all_hosts_are_equally_near_there_is_one_tier(preset):
    cluster = load_cluster(f"preset:{preset}")
    assert domains(cluster).label.tolist() == [[0] * cluster.num_hosts]


def test_nearness_in_a_torus_makes_no_groups():
    cluster = cluster_of(torus(4, 4, link=(50, 1)))
    assert domains(cluster).label.tolist() == [[0] * 16]


@pytest.mark.parametrize("preset", preset_names())
def test_tiers_nest_and_no_outsider_is_nearer_than_a_member(preset):
    cluster = load_cluster(f"preset:{preset}")
    result = domains(cluster)
    first = np.flatnonzero(cluster.local_rank == 0)
    bandwidth = cluster.bandwidth_bytes_per_s(first[:, None], first[None, :])
    for tier, label in enumerate(result.label):
        same = label[:, None] == label[None, :]
        if tier:
            below = result.label[tier - 1]
            assert same[below[:, None] == below[None, :]].all()
        if not same.all():
            assert bandwidth[same].min() >= bandwidth[~same].max()
    assert not result.label[-1].any()


@given(st.permutations(range(8)))
def test_the_order_of_hosts_does_not_change_their_tier(hosts):
    result = domains(load_cluster("preset:clos-64-4to1"))
    names = [result.host_names[host] for host in hosts]
    assert result.tier_of(names[:3]) == result.tier_of(names[2::-1]) == 2


def test_groups_that_span_hosts_are_counted_in_hosts():
    assert hosts_per_group(two_stages_of_two_groups()) == 2
    assert hosts_per_group(plan_across([3, 1, 2, 0], "tp=32")) == 4
    assert hosts_per_group(plan_across([3, 1], "tp=8,dp=2")) == 1
    # replicas on both hosts: two groups share a pair of hosts
    assert hosts_per_group(plan_across([3, 1], "tp=4,dp=4")) == 1


def test_groups_that_overlap_or_lie_apart_are_none_of_hosts(make_plan):
    plan = make_plan(["a", "a", "b", "b", "c", "c"]).model_dump(mode="json", exclude_none=True)
    assert hosts_per_group(make_plan(["a", "b"])) == 1
    for rank, (dp, tp) in zip(plan["ranks"], [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (0, 1)], strict=True):
        rank["coordinates"] = {"pp": 0, "dp": dp, "cp": 0, "ep": 0, "tp": tp}
    assert hosts_per_group(type(make_plan(["a"])).model_validate(plan)) == 1


def test_stages_with_hosts_of_their_own_are_told_apart():
    stages = hosts_by_stage(two_stages_of_two_groups())
    assert stages == [["l3-h1", "l3-h0", "l0-h0", "l0-h1"], ["l2-h1", "l2-h0", "l1-h0", "l1-h1"]]
    assert hosts_by_stage(plan_across([3, 1], "tp=4,pp=4")) == [["l1-h1", "l0-h1"]]


def test_without_a_cluster_there_are_no_tiers(running_example):
    with pytest.raises(ExportError, match="cluster: the plan embeds no cluster, so its topology is unknown"):
        domains_of(running_example)


def test_a_cluster_too_large_to_compare_is_refused():
    cluster = cluster_of(torus(64, 65, link=(50, 1)))
    with pytest.raises(ExportError, match=r"cluster: tiers are given for at most 4096 hosts \(got 4160\)"):
        domains(cluster)


@pytest.mark.reference
def test_a_real_irregular_network_has_its_leaves_and_pods_as_tiers(reference):
    topology = trace([], (200, 1), (800, 1), devices_per_host=8, inside=(300, 1), cards=4, card=(25, 1))
    del topology["hosts_at"]
    cluster = cluster_of(topology | {"csv": str(reference / "traces/topo.csv")})
    network = cluster.topology
    leaf = network.host_leaf
    expected = np.stack([leaf, network.leaf_pod[leaf], np.zeros_like(leaf)])
    assert domains(cluster).label.tolist() == expected.tolist()
