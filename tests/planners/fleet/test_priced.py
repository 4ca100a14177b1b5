"""The rule that prices device-seconds by the jobs that wait for them."""

import numpy as np
import pytest

from meshwright.envs.fleet.batch import FleetBatch
from meshwright.errors import PolicyError
from meshwright.planners.fleet.rule_kernel import _priced_action, choose
from meshwright.planners.fleet.rules import fleet_rule
from meshwright.planners.fleet.wanted_degrees import degree_by_price, wanted_degree
from tests.tiny_fleet import tiny_fleet


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    return tiny_fleet(tmp_path_factory.mktemp("fleet"), load=1.5)


def states(fleet, num=60):
    """A batch after each of many decisions at random, where a job waits on the first place of offer."""
    batch, rng = FleetBatch(fleet, 1, observes=False), np.random.default_rng(3)
    batch.reset(0, np.random.default_rng(0))
    for _ in range(num):
        if batch.state.is_over[0]:
            return
        if batch.state.offered[0, 0] >= 0:
            yield batch.state
        batch.step(np.array([rng.choice(np.flatnonzero(batch.state.can_act[0]))]))


def cost_of_degrees(fleet, state, job, weight):
    """Seconds of a step on each degree times one plus the price of its devices, in plain Python."""
    menu, problem = fleet.problem.menu, fleet.problem
    price = (weight * state.num_waiting[0] + state.num_running[0]) / problem.num_devices
    kind = state.job_type[0, job]
    result = np.full(len(problem.degrees), np.inf)
    for entry in range(menu.first_entry[kind], menu.first_entry[kind + 1]):
        d = list(problem.degrees).index(menu.degree[entry])
        result[d] = min(result[d], menu.step_s[entry].min() * (1 + price * menu.degree[entry]))
    return result


@pytest.mark.parametrize("weight", [0, 2, 16])
def test_the_degree_is_that_of_least_time_and_price(fleet, weight):
    rule, seen = fleet_rule(f"sjf:priced-{weight}", fleet.problem), 0
    for state in states(fleet):
        job = state.offered[0, 0]
        costs = cost_of_degrees(fleet, state, job, weight)
        d = degree_by_price(fleet.problem, state, 0, rule, job)
        assert costs[d] == pytest.approx(costs.min(), rel=1e-12)
        assert d == wanted_degree(fleet.problem, state, 0, rule, 0, job)
        seen += 1
    assert seen > 20


def test_jobs_that_count_more_make_no_job_larger(fleet):
    smaller = 0
    for state in states(fleet):
        job = state.offered[0, 0]
        taken = [degree_by_price(fleet.problem, state, 0, fleet_rule(f"priced-{w}", fleet.problem), job) for w in (0, 1, 4, 16)]
        assert taken == sorted(taken, reverse=True)
        smaller += taken[-1] < taken[0]
    assert smaller > 5


def test_a_job_waits_only_for_what_costs_a_quarter_less(fleet):
    rule, waits, starts = fleet_rule("sjf:priced", fleet.problem), 0, 0
    for state in states(fleet):
        job = state.offered[0, 0]
        costs = cost_of_degrees(fleet, state, job, 2)
        action = _priced_action(fleet.problem, state, 0, rule, 0, int(costs.argmin()))
        if action > 0:
            number = (action - 1) // len(fleet.problem.rule)
            entry = fleet.problem.menu.first_entry[state.job_type[0, job]] + number
            taken = costs[fleet.problem.entry_degree[entry]]
            starts += 1
            assert not state.can_act[0, 0] or taken <= 1.25 * costs.min() * (1 + 1e-9)
        else:
            waits += 1
    assert waits > 0
    assert starts > 0


def test_the_rule_takes_what_is_possible_to_the_end(fleet):
    for name in ("sjf:priced", "priced+backfill", "sjf:priced-0"):
        batch = FleetBatch(fleet, 1, observes=False)
        batch.reset(0, np.random.default_rng(5))
        rule = fleet_rule(name, fleet.problem)
        while not batch.state.is_over[0]:
            batch.step(np.array([choose(fleet.problem, batch.state, 0, rule)]))  # refuses what is not possible
        assert np.isfinite(batch.state.finish_s[0]).all()


@pytest.mark.parametrize("name", ["priced-", "priced--1", "priced-100", "priced-x", "sjf:priced-1.5"])
def test_a_weight_is_a_whole_number_below_a_hundred(fleet, name):
    with pytest.raises(PolicyError, match="rule"):
        fleet_rule(name, fleet.problem)
