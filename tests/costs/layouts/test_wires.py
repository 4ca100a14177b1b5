"""Messages over regular groups: ZeRO-3 fetches the same whatever algorithm is named."""

import pytest

from meshwright.clusters import load_cluster
from meshwright.costs.layouts.step_time import Pricer
from meshwright.costs.layouts.wires import FabricWires, Group, Wires, wiring
from meshwright.costs.model import CostSettings
from meshwright.jobs.load import load_shape
from meshwright.plans.partition import Layout

CLUSTER = load_cluster("preset:dgx-a100-8x8")
NAMED = ("ring", "tree", "halving-doubling", "hierarchical", "rail", "joint", "in-network", "nccl", "measured")


def wires(name):
    return wiring(CLUSTER, CostSettings(collectives=name))


@pytest.mark.parametrize("name", NAMED)
def test_where_each_rank_fetches_all_it_takes_what_its_share_of_the_cards_takes(name):
    # 16 ranks on two hosts: 15/16 of 16 GB over a card of 25 GB/s, 0.6 s; the algorithms differ in what they say of latency
    found = wires(name)
    assert isinstance(found, FabricWires)
    seconds = found.flat_s("all_gather", 16e9, Group(16, 8, 1, 1))
    assert seconds == pytest.approx(0.6, rel=0.15)
    assert seconds >= found.group_s("all_gather", 16e9, Group(16, 8, 1, 1))


def test_the_measured_figures_say_about_the_same():
    # 90 % of the nominal rate
    assert isinstance(wires("auto"), Wires)
    assert wires("auto").flat_s("all_gather", 16e9, Group(16, 8, 1, 1)) == pytest.approx(0.6 / 0.9, rel=1e-3)


@pytest.mark.parametrize("name", ["auto", *NAMED])
def test_within_a_host_there_is_nothing_to_fetch_from_outside(name):
    found, group = wires(name), Group(8, 8, 1, 1)
    assert found.flat_s("all_gather", 1e9, group) == found.group_s("all_gather", 1e9, group)


@pytest.mark.parametrize("name", ["hierarchical", "rail", "joint", "in-network", "nccl"])
def test_zero_3_is_no_faster_by_an_algorithm_that_shares_what_a_host_fetches(name):
    # all parameters of 6.7 B in two bytes, gathered twice and reduced once by each of 64 ranks over 25 GB/s
    shape, layout = load_shape("zoo:llama-7b")[0], Layout(dp=64, micro_batch=1, global_batch=64, zero=3)
    exposed_s = Pricer(CLUSTER.device_types[0], wires(name)).price(shape, layout).breakdown_s["exposed shard"]
    least_s = 3 * 63 / 64 * 6.7e9 * 2 / 25e9
    assert exposed_s > 0.5 * least_s
    auto_s = Pricer(CLUSTER.device_types[0], wires("auto")).price(shape, layout).breakdown_s["exposed shard"]
    assert exposed_s == pytest.approx(auto_s, rel=0.35)
