"""Annealing: the best of small instances, the books that its moves keep, determinism, starts and weights."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import PlanError
from meshwright.planners.operators.place import place
from meshwright.planners.operators.request import PlacementRequest
from meshwright.planners.operators.rules.packing import memory_of
from meshwright.planners.operators.search import latency_steps as steps
from meshwright.planners.operators.search.annealing import anneal
from meshwright.planners.operators.search.latency_steps import anneal_latency, schedule_of
from meshwright.planners.operators.search.load_steps import anneal_loads, loads_of
from meshwright.planners.operators.search.problem import devices_of_units, problem_of, put
from meshwright.simulation.operators.instance import OperatorInstance
from meshwright.simulation.operators.placement import held_bytes, loads_s
from meshwright.simulation.operators.schedules import append_in_order, arrays

from ....draws import cases, draws
from ....oracles.operators import schedules as plain
from ..placed_samples import drawn

LATENCY, THROUGHPUT = PlacementRequest("latency"), PlacementRequest("throughput")
seeds = st.integers(0, 10**6)


@pytest.mark.parametrize("request_", [LATENCY, THROUGHPUT], ids=["latency", "throughput"])
def test_small_instances_are_solved(request_):
    for seed in cases(12):
        instance = drawn(seed, most_ops=8, is_tight=seed % 3 == 0, is_grouped=seed % 2 == 0)
        best = place(instance, "exhaustive", request_).value_s
        assert anneal(instance, request_, num_steps=8_000).value_s == pytest.approx(best, rel=1e-9)


def test_an_order_that_no_rank_gives_is_found():
    # Device 0 alone runs a (1 s), x (1 s) and b (2 s); x feeds y of 3 s on device 1. By rank x goes first; with b after a
    # nothing changes: x at 0, y ends at 4; a and b end at 4. The order a, x, b would end y at 5.
    times = np.array([[1.0, np.inf], [1.0, np.inf], [2.0, np.inf], [np.inf, 3.0]])
    instance = OperatorInstance.of_outputs("order", times, [(1, 3), (0, 2)], 0.0)
    assert anneal(instance, LATENCY, num_steps=500).value_s == 4.0


def begun(seed):
    """An instance, its memory, its problem with the ops in their order there, and its units where HEFT puts them."""
    instance = drawn(seed, most_ops=14, most_devices=4, is_tight=seed % 2 == 0, is_grouped=seed % 3 == 0)
    memory = memory_of(instance)
    device_of_unit = np.empty(instance.num_groups, np.int64)
    device_of_unit[instance.group] = place(instance, "heft", LATENCY).device_of
    return instance, memory, *problem_of(instance, instance.group, memory), devices_of_units(memory, device_of_unit, seed)


@given(seeds)
@draws(30)
def test_the_kept_schedule_is_that_of_plain_python(seed):
    """After hot moves of all kinds: ends, order, units and memory are what the placement says."""
    instance, memory, problem, ops, units = begun(seed)
    schedule = schedule_of(problem, units, np.arange(instance.num_ops))
    best_of, best_order, best_s = units.device_of.copy(), np.arange(instance.num_ops), np.array([np.inf])
    anneal_latency(problem, units, schedule, best_of, best_order, best_s, 1.0, 0.5, 300)
    for unit_devices, order, value_s in (
        (units.device_of, schedule.order, schedule.end_s.max()),
        (best_of, best_order, best_s[0]),
    ):
        device_of = unit_devices[instance.group]
        end_s = plain.appended_s(instance, device_of.tolist(), ops[order].tolist())
        if value_s < np.inf:  # some instances have no move at all
            assert value_s == pytest.approx(max(end_s.values()), rel=1e-9)
        assert (held_bytes(instance, device_of) <= instance.memory_bytes).all()
    # To the bit: what moves changed is what the whole schedule says, from its begin and from its end.
    device_of = units.device_of[instance.group]
    full_s = append_in_order(arrays(instance), device_of, ops[schedule.order])[1][ops]
    assert schedule.end_s[: instance.num_ops].tolist() == full_s.tolist()
    anew = schedule_of(problem, units, schedule.order)
    for name in ("end_s", "after_s", "before", "behind", "home_of"):
        assert getattr(schedule, name).tolist() == getattr(anew, name).tolist(), name
    fresh = devices_of_units(memory, units.device_of, 0)
    assert units.used.tolist() == fresh.used.tolist()
    assert units.widest.tolist() == fresh.widest.tolist()


@given(seeds)
@draws(30)
def test_a_move_is_refused_where_the_whole_schedule_is_longer_than_allowed_and_only_there(seed):
    """Ops to other devices and places, kept or taken back, against the whole schedule, to the bit."""
    instance, memory, problem, ops, units = begun(seed)
    schedule, rng, n = schedule_of(problem, units, np.arange(instance.num_ops)), np.random.default_rng(seed), instance.num_ops
    for _ in range(20):
        op, unit = int(rng.integers(n)), int(rng.integers(len(units.device_of)))
        place, home = schedule.place_of[op], units.device_of[unit]
        put(memory, units, unit, int(rng.choice(np.flatnonzero(memory.can_run[unit]))))
        steps.assign(problem, schedule, units, unit)
        least, most = steps._places(problem, schedule, op)
        steps._reposition(schedule, op, int(rng.integers(least, most + 1)))
        order, device_of = ops[schedule.order], units.device_of[instance.group]
        full_s = append_in_order(arrays(instance), device_of, order)[1].max()
        most_s = float(rng.choice([np.inf, full_s, np.nextafter(full_s, 0), schedule.end_s.max() * rng.uniform(0.8, 1.2)]))
        assert steps.try_schedule(problem, schedule, most_s) == (full_s if full_s <= most_s else np.inf)
        if full_s <= most_s and rng.random() < 0.7:
            steps.keep_trial(problem, schedule)
        else:
            steps._reposition(schedule, op, place)
            put(memory, units, unit, home)
            steps.assign(problem, schedule, units, unit)
            steps.drop_trial(schedule)


@given(seeds)
@draws(30)
def test_the_kept_loads_are_those_of_the_placement(seed):
    instance, _, problem, _, units = begun(seed)
    device_of_unit = units.device_of.copy()
    loads = loads_of(problem, units)
    assert loads.load_s.tolist() == pytest.approx(loads_s(instance, device_of_unit[instance.group]).tolist(), rel=1e-9, abs=1e-12)
    anneal_loads(problem, units, loads, units.device_of.copy(), np.array([np.inf]), 1.0, 0.5, 300)
    now = units.device_of[instance.group]
    assert loads.load_s.tolist() == pytest.approx(loads_s(instance, now).tolist(), rel=1e-9, abs=1e-9)
    assert (held_bytes(instance, now) <= instance.memory_bytes).all()


@given(seeds, st.sampled_from([LATENCY, THROUGHPUT]))
@draws(20)
def test_a_seed_and_a_number_of_moves_say_all(seed, request_):
    instance = drawn(seed, most_ops=12, is_tight=True)
    one, other = (anneal(instance, request_, num_steps=300) for _ in range(2))
    assert one.value_s == other.value_s
    assert one.device_of.tolist() == other.device_of.tolist()
    assert one.order.tolist() == other.order.tolist()


@given(seeds)
@draws(20)
def test_it_is_never_worse_than_what_it_starts_from(seed):
    instance = drawn(seed, most_ops=12, is_tight=True)
    starts = np.stack([place(instance, rule, LATENCY).device_of for rule in ("m-sct", "multilevel")])
    least = min(place(instance, rule, LATENCY).value_s for rule in ("heft", "m-etf"))
    assert anneal(instance, LATENCY, num_steps=200).value_s <= least
    for request_ in (LATENCY, THROUGHPUT):
        from_starts = anneal(instance, request_, start=starts, num_steps=200)
        each = [anneal(instance, request_, start=start, num_steps=0).value_s for start in starts]
        assert from_starts.value_s <= min(each)


def test_a_budget_ends_it():
    instance = drawn(1, most_ops=20, most_devices=4)
    begun = time.perf_counter()
    result = place(instance, "annealing", PlacementRequest("latency", budget_s=0.02))
    assert result.value_s <= place(instance, "heft", LATENCY).value_s
    assert time.perf_counter() - begun < 60  # against a hang; how exact it is is measured elsewhere


def test_bad_input_is_told():
    instance = drawn(5, most_ops=6)
    with pytest.raises(PlanError, match="no such device"):
        anneal(instance, LATENCY, start=np.full(instance.num_ops, 77))


def test_one_op_one_device_and_no_time_at_all():
    for times in (np.ones((1, 1)), np.zeros((3, 2)), np.ones((1, 3))):
        instance = OperatorInstance.of_outputs("least", times, [], 0.0)
        for request_ in (LATENCY, THROUGHPUT):
            assert anneal(instance, request_, num_steps=50).value_s == times[0, 0]
            assert place(instance, "multilevel", request_).value_s == times[0, 0]
