"""HEFT, earliest start and favourite children: worked by hand, against plain Python, and laws of every list scheduler."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import PlanError
from meshwright.planners.operators.place import place
from meshwright.planners.operators.request import PlacementRequest
from meshwright.planners.operators.rules.etf import earliest_starts, favourite_children
from meshwright.planners.operators.rules.heft import heft_devices
from meshwright.simulation.operators.instance import OperatorInstance
from meshwright.simulation.operators.placement import lower_bound, value
from meshwright.simulation.operators.schedules import append_in_order, arrays, insert_in_order, upward_order, upward_rank_s

from ....draws import draws
from ....oracles.operators import schedules as plain
from ..instances import chain, fork, renamed
from ..placed_samples import drawn

LATENCY = PlacementRequest("latency")
RULES = ("heft", "m-etf", "m-sct")
seeds = st.integers(0, 10**6)


@pytest.mark.parametrize("rule", ["heft", "m-sct"])
def test_a_chain_stays_on_one_device(rule):
    # Each op ends at once where its input is, and a second later elsewhere: 4 s.
    assert place(chain(), rule, LATENCY).value_s == 4.0


def test_heft_cuts_the_fork():
    # a ends 1; b or c first: on device 0 it ends 4; the other on device 1 gets its input at 2, ends 5; its output is back at 6;
    # the last op ends 7 on device 0, on device 1 (the other's output there at 5, its own at 5) 6.
    assert place(fork(), "heft", LATENCY).value_s == 6.0


@pytest.mark.parametrize("rule", [*RULES, "multilevel", "annealing"])
def test_memory_for_two_ops_a_device_gives_two_and_two(rule):
    # 4 GB an op on devices of 10 GB: a and b, and c and d, or a and c, and b and d: 6 s; no three are together.
    result = place(fork(memory_bytes=10e9, resident_bytes=4e9), rule, LATENCY)
    assert np.bincount(result.device_of).tolist() == [2, 2]
    assert result.value_s == 6.0 if rule in ("heft", "annealing") else result.value_s >= 6.0


@pytest.mark.parametrize("rule", [*RULES, "multilevel", "annealing"])
def test_a_device_of_twice_the_speed_runs_the_whole_fork(rule):
    times = np.outer((1.0, 3.0, 3.0, 1.0), (1.0, 0.5))
    instance = OperatorInstance.of_outputs("fork", times, fork().edges, 1e9, bandwidth_bytes_per_s=1e9)
    value_s = place(instance, rule, LATENCY).value_s
    assert value_s == 4.0 or (rule in ("m-etf", "m-sct") and value_s > 4.0)  # those look at starts, not at ends


@given(seeds)
@draws(60)
def test_schedules_are_those_of_plain_python(seed):
    instance = drawn(seed)
    device_of = np.random.default_rng(seed).integers(0, instance.num_devices, instance.num_ops)
    order = upward_order(instance)
    for compiled, reference in ((append_in_order, plain.appended_s), (insert_in_order, plain.inserted_s)):
        _, end_s = compiled(arrays(instance), device_of, order)
        expected = reference(instance, device_of.tolist(), order.tolist())
        assert end_s.tolist() == pytest.approx([expected[op] for op in range(instance.num_ops)], rel=1e-12)


@given(seeds)
@draws(60)
def test_rules_are_those_of_plain_python(seed):
    instance = drawn(seed)
    assert upward_rank_s(instance).tolist() == pytest.approx([plain.upward_ranks(instance)[op] for op in range(instance.num_ops)])
    for with_insertion in (True, False):
        result = heft_devices(instance, with_insertion=with_insertion).tolist()
        assert result == plain.heft_devices(instance, with_insertion=with_insertion)
    assert earliest_starts(instance)[0].tolist() == plain.earliest_start_devices(instance)


@given(seeds)
@draws(40)
def test_earliest_start_is_within_grahams_bound_where_transfers_are_free(seed):
    """A device is idle only while no op is ready. So the value is at most (2 - 1/m) times the best, here times its bound."""
    rng = np.random.default_rng(seed)
    instance = drawn(seed, most_ops=12, most_devices=4)
    n, m = instance.num_ops, instance.num_devices
    equal = OperatorInstance.of_outputs("equal", np.repeat(rng.lognormal(0, 1, (n, 1)), m, axis=1), instance.edges, 1.0)
    best = lower_bound(equal, "latency")
    assert best <= place(equal, "m-etf", LATENCY).value_s * (1 + 1e-12) <= (2 - 1 / m) * best * (1 + 1e-9)


@given(seeds, st.sampled_from(["latency", "throughput"]))
@draws(40)
def test_every_rule_is_legal_and_above_the_best(seed, objective):
    """`place` holds memory and groups of every answer; the best is over all placements."""
    instance = drawn(seed, most_ops=6, is_tight=True, is_grouped=seed % 2 == 0)
    request = PlacementRequest(objective)
    least = place(instance, "exhaustive", request).value_s
    for rule in (*RULES, "multilevel"):
        try:
            result = place(instance, rule, request)
        except PlanError:
            pytest.fail(f"{rule} found no placement where there is one")
        assert result.value_s >= least * (1 - 1e-12)
        assert len(set(zip(instance.group.tolist(), result.device_of.tolist(), strict=True))) == instance.num_groups


@given(seeds)
@draws(30)
def test_names_of_devices_do_not_matter(seed):
    instance = drawn(seed, is_tight=seed % 2 == 0)
    order = np.random.default_rng(seed).permutation(instance.num_devices)
    if instance.num_devices > 1 and np.isinf(instance.memory_bytes).all():
        for rule in RULES:
            other = place(renamed(instance, order), rule, LATENCY)
            assert other.value_s == pytest.approx(place(instance, rule, LATENCY).value_s, rel=1e-12)
    device_of = heft_devices(instance)
    there = np.argsort(order)[device_of]
    for objective in ("latency", "throughput"):
        assert value(renamed(instance, order), there, objective) == pytest.approx(
            value(instance, device_of, objective), rel=1e-12
        )


def test_a_favourite_child_runs_where_its_parent_ran():
    # a feeds b and c; c's transfer matters, as c is long: the program lets the edge to c cost nothing.
    instance = OperatorInstance.of_outputs(
        "tree", np.outer((1.0, 1.0, 9.0), np.ones(2)), [(0, 1), (0, 2)], 1e9, bandwidth_bytes_per_s=1e9
    )
    assert favourite_children(instance).tolist() == [2, -1, -1]
    result = place(instance, "m-sct", LATENCY)
    assert result.device_of[2] == result.device_of[0]
    assert result.value_s == 10.0


@pytest.mark.parametrize("planner", [*RULES, "multilevel", "annealing"])
def test_no_room_is_told_in_one_line(planner):
    # Three ops of 4 GB on two devices of 7 GB: each device holds one.
    instance = OperatorInstance.of_outputs("full", np.ones((3, 2)), [], 0.0, memory_bytes=7e9, resident_bytes=4e9)
    with pytest.raises(PlanError, match=r"no legal placement was found: 3 groups that hold 1\.2e\+10 bytes") as error:
        place(instance, planner, LATENCY)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("planner", [*RULES, "multilevel", "annealing"])
def test_a_packing_that_greedy_rules_miss_is_found(planner):
    # 6, 4, 4, 3, 3 on two devices of 10: only 6 + 4 and 4 + 3 + 3 fit. The largest first on the emptiest device gives
    # 6 + 3 and 4 + 4, and the last 3 fits nowhere.
    sizes = np.array([3.0, 4.0, 6.0, 3.0, 4.0])
    instance = OperatorInstance.of_outputs(
        "packed", np.ones((5, 2)), [(0, 1), (1, 2), (2, 3), (3, 4)], 1.0, memory_bytes=10.0, resident_bytes=sizes
    )
    result = place(instance, planner, LATENCY)
    assert sorted(np.bincount(result.device_of, sizes).tolist()) == [10.0, 10.0]


def test_of_workspaces_the_largest_counts():
    # Each device has 10: two ops of 3 with workspaces of 4 fit one, as 3 + 3 + 4; a third does not.
    options = {"memory_bytes": 10.0, "resident_bytes": 3.0, "workspace_bytes": 4.0}
    instance = OperatorInstance.of_outputs("work", np.ones((4, 2)), [], 0.0, **options)
    assert np.bincount(place(instance, "heft", LATENCY).device_of).tolist() == [2, 2]
