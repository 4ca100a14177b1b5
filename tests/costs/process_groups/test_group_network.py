"""Messages over regular groups: ZeRO-3 fetches the same whatever algorithm is named."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.clusters import load_cluster
from meshwright.costs import collectives
from meshwright.costs.collectives.groups import Group
from meshwright.costs.network import RankNetwork
from meshwright.costs.process_groups.group_network import FabricNetwork, HostNetwork, group_network
from meshwright.costs.process_groups.uplinks import Uplinks
from meshwright.costs.settings import CostSettings
from meshwright.costs.training_step.step_time import Pricer
from meshwright.jobs.load import load_shape
from meshwright.planning.estimate import estimate
from meshwright.plans.partition import Layout

CLUSTER = load_cluster("preset:dgx-a100-8x8")
NAMED = ("ring", "tree", "halving-doubling", "hierarchical", "rail", "joint", "joint-split", "in-network", "nccl", "measured")


def wires(name):
    return group_network(CLUSTER, CostSettings(collectives=name))


@pytest.mark.parametrize("name", NAMED)
def test_where_each_rank_fetches_all_it_takes_what_its_share_of_the_cards_takes(name):
    # 16 ranks on two hosts: 15/16 of 16 GB over a card of 25 GB/s, 0.6 s; the algorithms differ in what they say of latency
    result = wires(name)
    assert isinstance(result, FabricNetwork)
    seconds = result.flat_s("all_gather", 16e9, Group(16, 8, 1, 1))
    assert seconds == pytest.approx(0.6, rel=0.15)
    assert seconds >= result.group_s("all_gather", 16e9, Group(16, 8, 1, 1))


def test_the_measured_figures_say_about_the_same():
    # 90 % of the nominal rate
    assert isinstance(wires("calibrated"), HostNetwork)
    assert wires("calibrated").flat_s("all_gather", 16e9, Group(16, 8, 1, 1)) == pytest.approx(0.6 / 0.9, rel=1e-3)


@pytest.mark.parametrize("name", ["auto", "calibrated", *NAMED])
def test_within_a_host_there_is_nothing_to_fetch_from_outside(name):
    result, group = wires(name), Group(8, 8, 1, 1)
    assert result.flat_s("all_gather", 1e9, group) == result.group_s("all_gather", 1e9, group)


@pytest.mark.parametrize("name", ["hierarchical", "rail", "joint", "in-network", "nccl"])
def test_zero_3_is_no_faster_by_an_algorithm_that_shares_what_a_host_fetches(name):
    # all parameters of 6.7 B in two bytes, gathered twice and reduced once by each of 64 ranks over 25 GB/s
    shape, layout = load_shape("zoo:llama-7b")[0], Layout(dp=64, micro_batch=1, global_batch=64, zero=3)
    exposed_s = Pricer(CLUSTER.device_types[0], wires(name)).price(shape, layout).breakdown_s["exposed shard"]
    least_s = 3 * 63 / 64 * 6.7e9 * 2 / 25e9
    assert exposed_s > 0.5 * least_s
    usual_s = Pricer(CLUSTER.device_types[0], wires("calibrated")).price(shape, layout).breakdown_s["exposed shard"]
    assert exposed_s == pytest.approx(usual_s, rel=0.35)


def test_uplinks_worked_by_hand():
    # Two hosts below each leaf, whose uplinks carry a quarter of their cards. Rings over hosts side by side: one of two hosts
    # sends across, over uplinks of half a host's cards. Hosts two apart: both send across, a quarter is left. In an
    # all-to-all of eight hosts 6 of 7 messages leave the leaf. A ring within the leaf has all of the cards; of a transfer
    # between stages some pairs are across.
    uplinks = Uplinks(2, 4.0)

    def share(hosts, apart, operation="all_reduce", per_host=1):
        return uplinks.share(Group(hosts * per_host, per_host, 8 * apart if per_host == 1 else 1, 8 // per_host), 8, operation)

    assert (share(8, 1), share(8, 1, per_host=4), share(4, 2)) == (0.5, 0.5, 0.25)
    assert share(8, 1, "all_to_all") == pytest.approx(7 / 6 / 4)
    assert (share(2, 1), share(2, 1, "send_recv")) == (1.0, 0.5)
    assert Uplinks().share(Group(8, 1, 8, 8), 8, "all_reduce") == 1.0
    result = group_network(load_cluster("preset:clos-64-4to1"))
    # 64 ranks on eight hosts of four cards of 12.5 GB/s
    assert result.uplinks == uplinks
    assert result.between_bytes_per_s(Group(64, 8, 1, 1)) == 0.5 * 50e9


@given(
    k=st.sampled_from([1, 2, 4, 8]),
    oversubscription=st.floats(1, 16),
    hosts=st.sampled_from([2, 4, 8, 16]),
    apart=st.sampled_from([1, 2, 3, 4]),
    operation=st.sampled_from(["all_reduce", "all_gather", "all_to_all", "send_recv"]),
)
def test_uplinks_leave_no_more_than_the_cards_and_no_less_than_if_all_went_across(k, oversubscription, hosts, apart, operation):
    group = Group(hosts, 1, 8 * apart, 8)
    share = Uplinks(k, oversubscription).share(group, 8, operation)
    assert 1 / oversubscription * (1 - 1e-12) <= share <= 1
    assert share >= Uplinks(k, 2 * oversubscription).share(group, 8, operation)
    assert share <= Uplinks(k, oversubscription).share(Group(hosts, 1, 8, 8), 8, operation) * (1 + 1e-12)


@pytest.mark.parametrize("place", ["preset:dgx-a100-8x8", "preset:clos-64-4to1", "preset:host-8", "preset:ramp-4x4x2"])
def test_calibrated_says_the_same_of_regular_groups_and_of_ranks(place):
    cluster = load_cluster(place)
    wires, algorithm = group_network(cluster), collectives.algorithm_named("calibrated")
    per_host = cluster.num_devices // cluster.num_hosts
    network = RankNetwork(cluster, np.arange(cluster.num_devices))
    for size in (2, 8, cluster.num_devices):
        group = Group(size, min(size, per_host), 1, 1 if size >= per_host else per_host // size)
        alone = group if size >= per_host else group._replace(side_by_side=1)
        if size > per_host or cluster.num_hosts == 1:
            seconds = algorithm.time_s(network, np.arange(size), 1e8, "all_reduce")
            assert seconds == pytest.approx(wires.group_s("all_reduce", 1e8, alone), rel=1e-9)


@pytest.mark.every(2)
@pytest.mark.parametrize("place", ["preset:dgx-a100-8x8", "preset:clos-64-4to1", "preset:host-8"])
def test_naming_an_algorithm_never_halves_a_step(place):
    # What a cluster's YAML tells of is priced alike by all but for what was measured; what reduces in switches is told why.
    ranks = load_cluster(place).num_devices
    layouts = (
        ("zoo:bert-large", f"dp={ranks},micro_batch=4,global_batch={4 * ranks}"),
        ("zoo:llama-7b", f"tp=2,pp=4,dp={ranks // 8},micro_batch=1,global_batch=64,zero=1"),
        ("zoo:llama-7b", f"dp={ranks},micro_batch=1,global_batch=64,zero=3,recompute=full"),
    )
    for job, layout in layouts:
        usual_s = estimate(job, place, layout).step.step_s
        for name in ("auto", "ring", "hierarchical", "rail", "joint", "nccl", "measured"):
            assert estimate(job, place, layout, costs=CostSettings(collectives=name)).step.step_s > 0.75 * usual_s


@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "send_recv"])
def test_hosts_that_their_devices_own_links_join_are_one_to_collectives(operation):
    rack = load_cluster("preset:nvl72")
    of_rack, ranks = group_network(rack), [2] if operation == "send_recv" else [8, 72]
    for size in ranks:
        as_host = HostNetwork(72, 900e9, 3600e9).group_s(operation, 1e8, Group(size, size, 1, 1))
        assert of_rack.group_s(operation, 1e8, Group(size, size, 1, 1)) == as_host
        devices = np.arange(3, 3 + size) % 72  # of hosts with unequal parts too
        network = RankNetwork(rack, devices)
        assert collectives.price(operation, network, np.arange(size), 1e8, "calibrated").seconds == pytest.approx(as_host)
