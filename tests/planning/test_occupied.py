"""Plans next to other jobs: on free devices alone, on an empty cluster as without a state, and at the simulator's prices."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.clusters import load_cluster
from meshwright.clusters.cluster import Cluster
from meshwright.costs.process_groups.group_network import HostNetwork, PlacedNetwork
from meshwright.costs.settings import CostSettings
from meshwright.errors import PlanError
from meshwright.jobs.load import JobSource
from meshwright.planners.free_devices import find_allocation, find_allocations, most_free
from meshwright.planning.estimate import estimate, read_layout
from meshwright.planning.op_graph_work import work_of
from meshwright.planning.plan import plan
from meshwright.planning.search import in_type_orders, search_layouts

from ..draws import draws

CLOS = load_cluster("preset:clos-256-4to1")  # leaves of four hosts of eight
COSTS = CostSettings().of_layouts


def free(*hosts, cluster=CLOS, per_host=8):
    """All devices of some hosts, or the first ones of them."""
    return np.isin(cluster.device_host, hosts) & (cluster.local_rank < per_host)


@given(st.lists(st.integers(0, 8), min_size=32, max_size=32), st.sampled_from([1, 2, 4, 6, 8, 16, 24, 32, 64, 128]))
@draws(40)
def test_an_allocation_is_of_free_devices_equally_many_on_each_host_and_found_wherever_there_is_one(room, count):
    is_free = CLOS.local_rank < np.array(room)[CLOS.device_host]
    allocation = find_allocation(CLOS, COSTS, is_free, count)
    parts = [part for part in range(1, 9) if count % part == 0 and sum(here >= part for here in room) >= count // part]
    assert (allocation is None) == (not parts)
    if allocation is not None:
        assert len(set(allocation.devices.tolist())) == count
        assert is_free[allocation.devices].all()
        held = np.bincount(CLOS.device_host[allocation.devices])
        assert set(held.tolist()) <= {0, max(parts)}  # on the fewest hosts
        leaves = len({host // 4 for host in CLOS.device_host[allocation.devices].tolist()})
        of_leaf = sorted(
            (sum(room[host] >= max(parts) for host in range(4 * leaf, 4 * leaf + 4)) for leaf in range(8)), reverse=True
        )
        assert leaves == next(n for n in range(1, 9) if sum(of_leaf[:n]) >= count // max(parts))  # below the fewest leaves


def test_a_job_goes_where_it_leaves_the_least_over():
    assert set(CLOS.device_host[find_allocation(CLOS, COSTS, free(*range(16), 17, 18), 16).devices]) == {17, 18}
    is_free = free(0, 1) | free(2, per_host=3)
    assert CLOS.device_host[find_allocation(CLOS, COSTS, is_free, 2).devices].tolist() == [2, 2]
    assert most_free(CLOS, is_free) == 16
    assert most_free(CLOS, free(5, per_host=3)) == 3


def test_where_all_devices_are_free_plans_are_those_of_the_empty_cluster():
    everything = np.ones(256, np.bool_)
    request = {"batch": 16, "devices": "16", "top": 1, "keep": "cp=1,pp=1,tp=8"}
    assert (
        search_layouts("zoo:llama-7b", CLOS, is_free=everything, **request).plan
        == search_layouts("zoo:llama-7b", CLOS, **request).plan
    )
    layout = "tp=8,dp=2,micro_batch=1,global_batch=64"
    assert estimate("zoo:llama-7b", CLOS, layout, is_free=everything).step == estimate("zoo:llama-7b", CLOS, layout).step
    policy = {"policy_spec": "fixed-16", "max_degree": 16}
    empty = plan("zoo:vgg16", "preset:clos-256-4to1", **policy).plan
    assert plan("zoo:vgg16", "preset:clos-256-4to1", free_at_s=np.zeros(256), **policy).plan == empty


def test_an_allocation_like_the_first_devices_costs_as_much_and_none_is_faster_than_one_leaf():
    layout = "tp=16,dp=2,micro_batch=1,global_batch=2"
    places = {"one leaf": range(4, 8), "two": [2, 3, 4, 5], "uneven": [1, 2, 3, 8], "four": [3, 7, 11, 15]}
    step_s = {name: estimate("zoo:llama-7b", CLOS, layout, is_free=free(*hosts)).step.step_s for name, hosts in places.items()}
    assert step_s["one leaf"] == estimate("zoo:llama-7b", CLOS, layout).step.step_s
    assert step_s["one leaf"] == min(step_s.values()) < max(step_s.values())


@pytest.mark.every(3)
@pytest.mark.parametrize("hosts", [range(4, 8), [2, 3, 4, 5], [1, 2, 3, 8], [3, 7, 11, 15]])
def test_the_price_of_an_allocation_is_near_what_the_simulator_says_of_its_devices(hosts):
    """As near as it is on the first devices of the empty cluster, or within a tenth."""
    costs = CostSettings(collectives="auto")
    layout = "dp=32,micro_batch=1,global_batch=32"
    result = estimate("zoo:gpt2-xl", CLOS, layout, is_free=free(*hosts), costs=costs)
    first = estimate("zoo:gpt2-xl", CLOS, layout, costs=costs)
    allowed = max(0.1, abs(first.step.step_s / first.simulated_s(costs) - 1) + 0.02)
    assert result.step.step_s == pytest.approx(result.simulated_s(costs), rel=allowed)


def test_a_search_takes_free_devices_alone_and_tells_of_other_numbers():
    is_free = free(3, 9, 10, 11) | free(4, per_host=3)
    result = search_layouts("zoo:gpt2-xl", CLOS, batch=32, devices="2,16,64", is_free=is_free, top=2, keep="cp=1,recompute=none")
    devices = result.plan.placement().devices
    assert is_free[devices].all()
    assert set(CLOS.device_host[devices]) == {9, 10}
    assert [f"on {count} free devices" in " ".join(result.remarks) for count in (2, 16)] == [True, True]
    assert "64 devices are not free, equally many on each host" in result.plan.why
    assert isinstance(result.maker.allocation.wires, HostNetwork)
    whole = search_layouts("zoo:gpt2-xl", CLOS, batch=32, is_free=is_free, top=1, keep="cp=1,pp=1")
    assert len(whole.plan.ranks) == 32  # all free hosts, not the part of one


def test_policies_choose_among_the_blocks_that_are_free():
    held = np.where(free(*range(3)), np.inf, 0.0)
    made = plan("zoo:vgg16", "preset:clos-256-4to1", policy_spec="fixed-8", free_at_s=held).plan
    assert (held[made.placement().devices] == 0).all()
    assert "the 232 free devices of 256" in made.why
    with pytest.raises(PlanError, match="no block of free devices will do; 0 of 256 devices are free"):
        plan("zoo:vgg16", "preset:clos-256-4to1", free_at_s=np.full(256, 30.0))


def test_what_does_not_fit_is_told():
    with pytest.raises(PlanError, match="no device of clos-256-4to1 is free"):
        search_layouts("zoo:gpt2-xl", CLOS, batch=32, is_free=free())
    with pytest.raises(PlanError, match=r"16 of 256 devices of clos-256-4to1 are free, but not so many .* \(got '64'\)"):
        search_layouts("zoo:gpt2-xl", CLOS, batch=32, devices="64", is_free=free(2, 3))
    with pytest.raises(PlanError, match="has 32 ranks, but only 16 of 256"):
        estimate("zoo:gpt2-xl", CLOS, "dp=32,micro_batch=1,global_batch=32", is_free=free(2, 3))


def test_on_other_networks_messages_are_priced_on_the_very_devices():
    torus = load_cluster("preset:torus-256")
    is_free = np.zeros(torus.num_devices, np.bool_)
    is_free[[5, 9, 77, 200]] = True
    allocation = find_allocation(torus, COSTS, is_free, 4)
    assert isinstance(allocation.wires, PlacedNetwork)
    near = estimate("zoo:gpt2-small", torus, "dp=4,micro_batch=1,global_batch=8").step.step_s
    assert estimate("zoo:gpt2-small", torus, "dp=4,micro_batch=1,global_batch=8", is_free=is_free).step.step_s >= near


def of_types(*types, **topology):
    """A host of eight devices of each type, below one leaf switch unless the topology says otherwise."""
    data, names = load_cluster("preset:dgx-a100-8x8").to_data(), [f"h{number}" for number in range(len(types))]
    topology = data["topology"] | {"num_hosts": len(types), "hosts_per_leaf": len(types)} | topology
    return Cluster.from_data(
        data | {"host_names": names, "device_overrides": dict(zip(names, types, strict=True)), "topology": topology}
    )


def hosts_of(devices, cluster):
    return sorted(set(cluster.device_host[devices].tolist()))


@pytest.mark.parametrize("costs", [COSTS, COSTS.model_copy(update={"collectives": "auto"})])
@pytest.mark.parametrize(
    ("types", "count", "sets"),
    [
        (("a100", "a100", "h100", "h100"), 16, [[0, 1], [2, 3]]),
        (("a100", "h100", "a100", "h200"), 16, [[0, 1], [1, 3]]),  # h100 and h200 are equally fast
        (("v100", "a100", "l40s", "h100"), 8, [[0], [3], [2], [1]]),
        (("a100", "a100", "h100", "h100"), 24, [[0, 1, 2]]),
        (("h100", "h100", "h200", "h200"), 16, [[0, 1], [2, 3]]),  # which have more memory
    ],
)
def test_free_devices_of_several_types_are_tried_as_they_are_and_the_fastest_and_largest_alone(types, count, sets, costs):
    cluster = of_types(*types)
    found = find_allocations(cluster, costs, np.ones(cluster.num_devices, np.bool_), count)
    assert [hosts_of(one.devices, cluster) for one in found] == sets


def test_the_faster_of_the_sets_is_taken_and_priced():
    cluster = of_types("a100", "a100", "h100", "h100", "h100")
    is_free = free(0, 1, 2, 3, cluster=cluster)
    request = {"batch": 16, "devices": "16", "top": 1, "keep": "cp=1,pp=1,tp=8"}
    plan = search_layouts("zoo:llama-7b", cluster, is_free=is_free, **request).plan
    assert hosts_of(plan.placement().devices, cluster) == [2, 3]
    layout = "tp=8,dp=2,micro_batch=1,global_batch=16"
    assert set(estimate("zoo:llama-7b", cluster, layout, is_free=is_free).maker.hosts) == {2, 3}


def test_one_slow_type_is_no_better_than_a_mix_with_a_fast_one():
    cluster = of_types(*["h100"] * 4, *["a100"] * 4)
    request = {"batch": 64, "devices": "32", "top": 1, "keep": "cp=1,tp=1,recompute=none,schedule=zb-2p,micro_batch=1"}
    found = search_layouts("zoo:llama-7b", cluster, is_free=free(0, 1, 2, 4, 5, 6, 7, cluster=cluster), **request)
    assert hosts_of(found.plan.placement().devices, cluster) == [0, 1, 2, 4]
    assert found.best.step_s == pytest.approx(0.4106, rel=0.01)  # 0.792 s on the four of a100


@pytest.mark.parametrize(("types", "count", "step_s"), [(("a100", "l40s"), 2, 3.328), (("h200", "h100"), 1, 2.410)])
def test_a_job_that_does_not_fit_the_fastest_devices_takes_others(types, count, step_s):
    cluster = of_types(*types, *types)
    is_free = free(1, 2, 3, cluster=cluster) | free(0, cluster=cluster, per_host=count)
    found = search_layouts("zoo:llama-7b", cluster, is_free=is_free, batch=16, devices=str(count), top=1)
    assert hosts_of(found.plan.placement().devices, cluster) == [0]
    assert found.best.step_s == pytest.approx(step_s, rel=0.01)
    with pytest.raises(PlanError, match=r"where a device has (47.8|84.9) GB: [0-9]"):
        search_layouts("zoo:llama-7b", cluster, is_free=free(1, cluster=cluster), batch=16, devices=str(count), top=1)


def test_types_side_by_side_have_the_uplinks_of_their_leaves():
    cluster = of_types(*["h100", "a100"] * 4, hosts_per_leaf=4, oversubscription=8.0)
    maker = work_of(JobSource("zoo:llama-7b"), cluster, COSTS)
    work = maker.work(read_layout("dp=32,pp=2,micro_batch=1,global_batch=64", None)[0])
    apart, _, leaves = (one.pricer.price_work(work).step_s for one in in_type_orders(maker))
    assert apart > leaves  # a stage is on both leaves, or on one
    assert maker.wires.uplinks.hosts_per_leaf == 2
    some = maker.on(np.arange(64))
    assert [one.wires.uplinks.hosts_per_leaf for one in in_type_orders(some)] == [4, 2, 2]
