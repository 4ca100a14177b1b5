"""The worked instances, and that nothing is better than what `exhaustive` finds."""

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import PlanError
from meshwright.planners.operators.exhaustive import num_placements
from meshwright.planners.operators.place import place
from meshwright.planners.operators.request import PlacementRequest
from meshwright.planners.operators.stages.units import device_classes
from meshwright.simulation.operators.instance import OperatorInstance
from meshwright.simulation.operators.placement import lower_bound, placed, value

from ...draws import draws
from ...oracles.operators.values import latency_s, legal_placements, max_load_s, topological_orders
from .instances import BETTER, chain, fork, short_and_long, small_instances

OBJECTIVES = ("latency", "throughput")


def best(instance, objective):
    return place(instance, "exhaustive", PlacementRequest(objective))


def test_a_chain_runs_on_one_device_for_its_latency_and_on_two_for_its_throughput():
    # One device: 4 s either way. Cut in the middle: 2 + 1 + 2 = 5 s, and 2 + 1 = 3 s of load on both sides.
    assert best(chain(), "latency").value_s == 4
    assert best(chain(), "throughput").value_s == 3
    halves = np.array([0, 0, 1, 1])
    assert value(chain(), halves, "latency") == 5
    assert value(chain(), halves, "throughput") == 3


def test_a_fork_takes_six_seconds_on_two_devices_with_or_without_little_memory():
    # All on one: 8 s. a, b, d | c: c starts at 2, ends at 5, is back at 6, d ends at 7. a, b | c, d: c runs 2-5, b's output
    # is there at 5, d ends at 6.
    assert value(fork(), np.array([0, 0, 1, 0]), "latency") == 7
    assert best(fork(), "latency").value_s == 6
    tight = fork(resident_bytes=4e9, memory_bytes=10e9)
    assert best(tight, "latency").value_s == 6
    with pytest.raises(PlanError, match="needs"):
        placed(tight, np.array([0, 0, 0, 1]), "latency", "given")


def test_an_output_that_two_ops_of_a_device_read_crosses_once():
    # c of the fork in two halves on device 1: a's output crosses once, c1 and c2 run 2-5, theirs arrive by 6, d ends at 7.
    times_s = np.repeat([[1.0], [3.0], [1.5], [1.5], [1.0]], 2, axis=1)
    edges = [(0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 4)]
    split = OperatorInstance.of_outputs("split", times_s, edges, 1e9, bandwidth_bytes_per_s=1e9)
    assert value(split, np.array([0, 0, 1, 1, 0]), "latency") == 7


@short_and_long(25, small_instances(most_ops=5), small_instances(most_ops=7))
def test_no_placement_and_no_order_is_better(instance):
    legal = list(legal_placements(instance))
    if not legal:
        for objective in OBJECTIVES:
            with pytest.raises(PlanError):
                best(instance, objective)
        return
    result = best(instance, "throughput")
    assert result.value_s == pytest.approx(min(max_load_s(instance, each) for each in legal))
    assert result.value_s == pytest.approx(max_load_s(instance, result.device_of))
    orders = list(topological_orders(instance))
    result = best(instance, "latency")
    assert result.value_s == pytest.approx(latency_s(instance, result.device_of, result.order))
    if len(orders) * len(legal) <= 5_000:
        assert result.value_s == pytest.approx(min(latency_s(instance, each, order) for each in legal for order in orders))


@draws(15)
@given(small_instances(most_ops=6), st.sampled_from(OBJECTIVES), st.sampled_from(sorted(BETTER)))
def test_a_better_device_never_makes_the_best_worse(instance, objective, what):
    try:
        before = best(instance, objective).value_s
    except PlanError:
        return
    after = best(BETTER[what](instance), objective).value_s
    assert after <= before * (1 + 1e-12)
    assert before >= lower_bound(instance, objective) * (1 - 1e-12)


def test_one_device_takes_the_sum_of_all_times():
    alone = OperatorInstance.of_outputs("alone", np.array([[1.0], [2.0], [4.0]]), [(0, 1), (1, 2)], 5.0)
    for objective in OBJECTIVES:
        assert best(alone, objective).value_s == 7


def test_an_op_by_itself_finds_its_own_place():
    # The chain takes device 0 for 4 s; an op of 3 s without edges goes to device 1 and changes nothing.
    times_s = np.concatenate([np.ones((4, 2)), [[3.0, 3.0]]])
    apart = OperatorInstance.of_outputs("apart", times_s, [(0, 1), (1, 2), (2, 3)], 1e9, bandwidth_bytes_per_s=1e9)
    result = best(apart, "latency")
    assert result.value_s == 4
    assert len(set(result.device_of[:4])) == 1
    assert result.device_of[4] != result.device_of[0]


def test_placements_are_counted_once_for_devices_that_may_change_places():
    # Four ops on two equal devices: 2^4 / 2; on three: partitions into at most three parts, 1 + 7 + 6.
    assert num_placements(chain(), device_classes(chain(), "latency")) == (8, True)
    three = OperatorInstance.of_outputs("three", np.ones((4, 3)), [(0, 1)], 1.0, bandwidth_bytes_per_s=1.0)
    assert num_placements(three, device_classes(three, "latency")) == (14, True)
    with pytest.raises(PlanError, match=r"has 14 placements, and at most 10 are tried \(got 10\)"):
        place(three, "exhaustive", PlacementRequest(max_placements=10))


@draws(25)
@given(small_instances(most_ops=6))
def test_as_many_placements_are_counted_as_there_are(instance):
    classes = device_classes(instance, "throughput")
    instance = replace(instance, memory_bytes=np.full(instance.num_devices, np.inf))
    different = set()
    for device_of in legal_placements(instance):  # of a class the first device is the first to be used, and so on
        number = {}
        for device in device_of:
            number.setdefault(device, sum(classes[each] == classes[device] for each in number))
        different.add(tuple((classes[device], number[device]) for device in device_of))
    assert num_placements(instance, classes) == (len(different), True)


@pytest.mark.parametrize("links", ["alike", "of hosts", "of pairs", "all different"])
def test_counting_a_large_instance_ends_at_once(links):
    # 300 ops on 64 devices: with links of hosts there are 9^8 ways to use eight classes of eight, with other ones 2^64.
    bandwidth = np.full((64, 64), 1e9)
    host = np.arange(64) // 8
    if links == "of hosts":
        bandwidth[host[:, None] == host] = 9e9
    elif links == "of pairs":
        bandwidth[np.arange(64)[:, None] // 2 == np.arange(64) // 2] = 9e9
    elif links == "all different":
        bandwidth = np.random.default_rng(0).uniform(1e9, 2e9, (64, 64))
    edges = [(op, op + 1) for op in range(299)]
    large = OperatorInstance.of_outputs("large", np.ones((300, 64)), edges, 1e6, bandwidth_bytes_per_s=bandwidth)
    begun_s = time.perf_counter()
    with pytest.raises(PlanError, match=r"has (about|more than) .* placements, and at most 5,000,000 are tried"):
        place(large, "exhaustive", PlacementRequest())
    assert time.perf_counter() - begun_s < 10


def test_ops_that_fit_only_one_by_one_are_refused_together():
    # Two ops of 4 bytes and one device of 6.
    full = OperatorInstance.of_outputs("full", np.ones((2, 1)), [(0, 1)], 1.0, resident_bytes=4.0, memory_bytes=6.0)
    with pytest.raises(PlanError, match="no placement fits the devices' memory"):
        best(full, "latency")
