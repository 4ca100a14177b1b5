"""Regular groups by shape: equal to the same ranks on the network, and quick."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.clusters.cluster import load_cluster
from meshwright.costs import collectives
from meshwright.costs.collectives import Fabric, Group
from meshwright.costs.collectives.groups import placed
from meshwright.costs.network import RankNetwork
from meshwright.costs.settings import CostSettings
from meshwright.errors import ConfigError

from ...draws import draws

CLUSTERS = {name: load_cluster(f"preset:{name}") for name in ("dgx-a100-8x8", "clos-64-4to1", "host-8", "ramp-4x4x4")}
NAMES = ["auto", "ring", "tree", "hierarchical", "rail", "nccl", "measured", "calibrated"]


@pytest.mark.every(3)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("cluster", CLUSTERS)
@draws(5)
@given(data=st.data(), payload=st.floats(1, 1e11), operation=st.sampled_from(collectives.OPERATIONS))
def test_a_group_by_shape_costs_what_its_ranks_cost(cluster, name, data, payload, operation):
    where = CLUSTERS[cluster]
    per_host = where.num_devices // where.num_hosts
    g = data.draw(st.sampled_from([n for n in (1, 2, 4, 8) if n <= per_host]))
    stride = data.draw(st.integers(1, max(1, (per_host - 1) // max(1, g - 1)))) if g > 1 else 1
    hosts = data.draw(st.integers(1, min(8, where.num_hosts)))
    devices = [h * per_host + i * stride for h in range(hosts) for i in range(g)]
    network = RankNetwork(where, np.array(devices))
    expected = collectives.price(operation, network, np.arange(len(devices)), payload, name)
    fabric = Fabric(where, collectives.algorithm_named(name))
    group = Group(len(devices), g, stride)
    if len(devices) > 1:
        assert fabric.seconds(operation, group)(payload) == expected.seconds
    assert fabric.price(operation, payload, group) == expected


def test_eight_groups_side_by_side_have_a_card_each(dgx):
    # one rank on each of 8 hosts, 8 such groups, 8 cards: nobody waits
    fabric = Fabric(dgx, collectives.algorithm_named("ring"))
    alone = fabric.seconds("all_reduce", Group(8, 1))(1e9)
    assert fabric.seconds("all_reduce", Group(8, 1, 8, 8))(1e9) == pytest.approx(alone, rel=1e-12)


def test_two_groups_side_by_side_share_a_card():
    # devices 0 and 1 of a host have one card: two groups of one rank on each of two hosts of a leaf, 1 GB at 12.5 GB/s each
    fabric = Fabric(CLUSTERS["clos-64-4to1"], collectives.algorithm_named("ring"))
    alone, both = (fabric.seconds("all_reduce", Group(2, 1, 2, k))(1e9) for k in (1, 2))
    latency_s = 2 * 2.7e-6
    assert alone == pytest.approx(latency_s + 1e9 / 12.5e9, rel=1e-12)
    assert both == pytest.approx(latency_s + 2e9 / 12.5e9, rel=1e-12)


@pytest.mark.parametrize("name", ["nccl", "rail", "in-network"])
@given(beside=st.integers(1, 8), payload=st.floats(1, 1e10))
def test_neighbours_never_make_a_group_faster(name, beside, payload):
    fabric = Fabric(CLUSTERS["clos-64-4to1"], collectives.algorithm_named(name))
    times = [fabric.seconds("all_reduce", Group(8, 1, 8, k))(payload) for k in (1, beside)]
    assert times[1] >= times[0]


def test_settings_choose_what_a_fabric_does(dgx):
    assert Fabric.from_settings(dgx, CostSettings()).algorithm.name == "auto"
    assert Fabric.from_settings(dgx, CostSettings(collectives="in-network", in_network_trees=5)).algorithm.num_trees == 5
    assert Fabric.from_settings(dgx, CostSettings(collectives="measured", collectives_table="v100")).algorithm.table == "v100"


@pytest.mark.parametrize(
    "shape",
    [Group(16, 8, 2), Group(72, 8), Group(9, 8), Group(8, 8, 1, 2), Group(4, 0)],
    ids=["wide", "hosts", "uneven", "full", "none"],
)
def test_a_group_without_room_is_refused(dgx, shape):
    with pytest.raises(ConfigError, match=r"group: dgx-a100-8x8 has 64 devices on 8 hosts: no room"):
        Fabric(dgx).price("all_reduce", 1e6, shape)


def test_groups_that_are_joined_alike_have_one_signature_and_others_another(dgx):
    # two hosts of two ranks each, twice; then four ranks of one host; then the first two groups beside each other
    alike, inside = [[0, 1, 8, 9], [16, 17, 24, 25]], [[0, 1, 2, 3]]
    first, second, third = placed(dgx, np.array([[row] for row in alike + inside]))
    assert first.signature == second.signature != third.signature
    assert first == second
    assert placed(dgx, np.array([alike]))[0].signature != first.signature
    assert third.devices.tolist() == inside
