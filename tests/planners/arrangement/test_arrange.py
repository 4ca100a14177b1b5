"""Arrangement: all groupings of few devices, renumbering, determinism, and the published networks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.budget_clock import NO_MOVE
from meshwright.errors import PlanError
from meshwright.evaluation.validation.strategies.placed_groups import NETWORKS, WORLD, network
from meshwright.planners.arrangement.arrange import BEST, CHAIN, SOLVERS, ArrangementRequest, arrange, best_of_all, equal_devices
from meshwright.planners.arrangement.rank_devices import arrange_ranks
from meshwright.planners.tasklets.annealing import anneal_tasklets
from meshwright.planners.tasklets.request import TaskletRequest
from meshwright.simulation.tasklets.instance import TaskletInstance
from meshwright.simulation.tasklets.placement import tasklet_value_s

from ...draws import draws


def drawn(seed, stages, replicas):
    random, n = np.random.default_rng(seed), stages * replicas
    seconds, rates = np.triu(random.uniform(0, 0.1, (n, n)), 1), np.triu(random.uniform(0.5, 5, (n, n)), 1)
    return TaskletInstance("drawn", ("a",) * n, seconds + seconds.T, rates + rates.T + np.eye(n), stages, 1.0, 1.0)


def renumbered(instance, order):
    return TaskletInstance(
        "renumbered",
        instance.regions,
        instance.latency_s[order][:, order],
        instance.bandwidth_bytes_per_s[order][:, order],
        instance.num_stages,
        instance.gradient_bytes,
        instance.activation_bytes,
    )


@given(st.integers(0, 10**6), st.sampled_from([(2, 2), (3, 2), (2, 3), (2, 4)]))
@draws(8)
def test_few_devices_are_proven_whatever_their_numbers(seed, shape):
    instance = drawn(seed, *shape)
    result = best_of_all(instance)
    other = renumbered(instance, np.random.default_rng(seed).permutation(instance.num_devices))
    assert arrange(other).value_s == pytest.approx(result.value_s, rel=1e-12)
    assert anneal_tasklets(instance, TaskletRequest(seed=seed), num_steps=200).value_s >= result.value_s * (1 - 1e-12)


def test_all_groupings_of_more_devices_are_refused():
    with pytest.raises(PlanError, match="at most 12 devices"):
        best_of_all(drawn(1, 2, 7))
    with pytest.raises(PlanError, match="positive number"):
        arrange(drawn(1, 2, 7), ArrangementRequest(budget_s=0.0))


@pytest.mark.parametrize("shape", [(4, 4), (7, 2), (16, 1), (1, 14)])
def test_an_arrangement_has_the_value_that_it_says_and_a_seed_says_all(shape, monkeypatch):
    monkeypatch.setattr("meshwright.planners.arrangement.arrange.ROUND_STEPS", 2_000)
    instance = drawn(3, *shape)
    one, other = (arrange(instance) for _ in range(2))
    assert one.device_of.tolist() == other.device_of.tolist()
    assert one.value_s == pytest.approx(tasklet_value_s(instance, one.device_of), rel=1e-12)
    assert one.value_s <= tasklet_value_s(instance, np.arange(instance.num_devices).reshape(shape)) * (1 + 1e-12)


@pytest.mark.parametrize("solver", SOLVERS)
def test_each_solver_has_the_value_that_it_says(solver):
    instance = drawn(3, 4, 4)
    result = arrange(instance, ArrangementRequest(budget_s=0.05, solver=solver))
    assert sorted(result.device_of.ravel().tolist()) == list(range(16))
    assert result.value_s == pytest.approx(tasklet_value_s(instance, result.device_of), rel=1e-12)


def test_the_best_is_the_better_of_two_and_says_which(monkeypatch):
    monkeypatch.setattr("meshwright.planners.arrangement.arrange.ROUND_STEPS", 2_000)
    instance = drawn(3, 4, 4)
    result = {solver: arrange(instance, ArrangementRequest(solver=solver)) for solver in (BEST, CHAIN, "annealing")}
    taken = min((CHAIN, "annealing"), key=lambda solver: result[solver].value_s)
    assert result[BEST].device_of.tolist() == result[taken].device_of.tolist()
    assert result[BEST].note.startswith(f"{taken} found this")
    assert arrange(drawn(3, 2, 4), ArrangementRequest(solver=BEST)).note == "proven"


def test_more_stages_than_can_be_ordered_exactly_are_arranged():
    result = arrange(drawn(3, 24, 1), ArrangementRequest(budget_s=0.01, solver=BEST))
    assert sorted(result.device_of.ravel().tolist()) == list(range(24))


@pytest.mark.parametrize("solver", [CHAIN, "annealing"])
def test_a_budget_without_time_for_a_move_is_said(solver):
    assert arrange(drawn(3, 4, 4), ArrangementRequest(budget_s=1e-9, solver=solver)).note == NO_MOVE


def test_an_unknown_solver_is_told_with_the_nearest():
    with pytest.raises(PlanError, match="did you mean 'genetic'"):
        arrange(drawn(1, 2, 7), ArrangementRequest(solver="genetics"))


def test_a_genetic_search_breeds_until_its_budget_ends():
    instance = network("four US regions")
    counts = [arrange(instance, ArrangementRequest(budget_s, solver="genetic")).num_valued for budget_s in (0.01, 0.2)]
    assert 100 <= counts[0] < counts[1]


def test_devices_with_equal_links_are_alike():
    hosts = network("eight hosts of 4 and 32 devices")
    names = equal_devices(hosts)
    assert len(set(names[:4])) == 1
    assert len(set(names[:32])) == 8
    assert len(set(names[32:])) == 1


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != WORLD])
def test_what_was_published_is_reached_without_a_clock(name, monkeypatch):
    monkeypatch.setattr("meshwright.planners.arrangement.arrange.ROUND_STEPS", 200)
    assert arrange(network(name)).value_s <= float(NETWORKS[name][0][2]) * (1 + 1e-6)


def test_hosts_are_put_in_the_order_of_the_least_price():
    # the price counts neighbours that are not neighbours by number
    expected = [3, 0, 2, 1]
    hosts = np.arange(8).reshape(4, 2)

    def step_s(devices):
        order = (devices[::2] // 2).tolist()
        return 1.0 + sum(one != other for one, other in zip(order, expected, strict=True))

    result = arrange_ranks(step_s, hosts, [], 300)
    assert result.step_s == 1.0
    assert result.devices.tolist() == [6, 7, 0, 1, 4, 5, 2, 3]
    assert result.num_priced <= 24
    assert arrange_ranks(step_s, hosts, [np.array(expected)], 0).step_s == 1.0


def test_devices_change_places_within_hosts_and_with_free_ones():
    # two hosts of three devices of which the job has the first two; it wants devices 5 and 3 of the second, then 1 and 2
    hosts, expected = np.arange(6).reshape(2, 3), [5, 3]

    def step_s(devices):
        return 1.0 + sum(one != other for one, other in zip(devices.tolist(), expected, strict=True))

    assert arrange_ranks(step_s, hosts, [], 300, count=1, width=2, within=True).devices.tolist() == expected
    assert arrange_ranks(step_s, hosts, [], 300, count=1, width=2).devices.tolist() in ([0, 1], [3, 4])
    whole = arrange_ranks(lambda devices: float(devices[0]), hosts, [], 300, within=True)
    assert sorted(whole.devices.tolist()) == list(range(6))
    assert {frozenset(half) for half in whole.devices.reshape(2, 3).tolist()} == {frozenset({0, 1, 2}), frozenset({3, 4, 5})}


def test_links_with_two_directions_worked_by_hand():
    # Two stages of one replica. Device 0 sends to 1 in 1 s + 1/2 s and gets in 3 s + 1/4 s; gradients go the other way.
    latency, rates = np.array([[0.0, 1.0], [3.0, 0.0]]), np.array([[1.0, 2.0], [4.0, 1.0]])
    two = TaskletInstance("two ways", ("a", "a"), latency, rates, 2, 1.0, 1.0)
    assert not two.is_symmetric
    assert arrange(two).value_s == pytest.approx(1.5 + 3.25)
    # One stage of two replicas: each sends half of its gradients to the other, and gets as much.
    one = TaskletInstance("two ways", ("a", "a"), latency, rates, 1, 1.0, 1.0)
    assert arrange(one).value_s == pytest.approx((1 + 0.5 / 2) + (3 + 0.5 / 4))


@given(st.integers(0, 10**6), st.sampled_from([(2, 2), (3, 2), (2, 4)]))
@draws(8)
def test_exchanging_all_directions_changes_no_arrangement(seed, shape):
    random, n = np.random.default_rng(seed), shape[0] * shape[1]
    seconds, rates = random.uniform(0, 0.1, (n, n)), random.uniform(0.5, 5, (n, n))
    one, other = (
        TaskletInstance("drawn", ("a",) * n, a, b, shape[0], 1.0, 1.0) for a, b in ((seconds, rates), (seconds.T, rates.T))
    )
    result = arrange(one)
    assert result.value_s == pytest.approx(arrange(other).value_s, rel=1e-12)
    order = random.permutation(n)
    assert arrange(renumbered(one, order)).value_s == pytest.approx(result.value_s, rel=1e-12)
