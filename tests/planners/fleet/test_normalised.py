"""Throughput normalised over types of devices: whose type is whose, and who comes first, worked by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.planners.fleet.rule_kernel import choose, relative_speed, relative_speed_of_others, served_share
from meshwright.planners.fleet.rules import fleet_rule

from ...simulation.fleet import samples
from ...simulation.fleet.samples import CONSTRUCT, PACKED, Workload, constant, menu_of, network_of, problem_of

TYPES = [(PACKED, 0), (PACKED, 1)]
"""Three hosts of two devices each of either type."""


def entry(*step_s, degree=2):
    return degree, lambda kind, *_: step_s[kind], constant(0.0), lambda *_: []


def problem(types, rules=TYPES, **keys):
    network = network_of("two types")
    return problem_of(network, menu_of(network, [[one] for one in types]), rules=rules, **keys)


def played(rule, types, lengths, rules=TYPES, seen=lambda *_: None):
    """Seconds to the end of each job, from when one host of the first type and three of the other are free for them.

    Until 5 s a job holds two hosts of the first type, the only type on which it runs; one like it waits before ours.
    """
    held, n = [entry(seconds, np.inf, degree=4) for seconds in (5.0, 100.0)], len(types)
    given_problem = problem([*held, *types], rules)
    arrival_s, kinds = np.array([0.0, 1.0] + [2.0] * n), np.arange(n + 2)
    workload = Workload(arrival_s, kinds, np.array([1.0, 1.0, *lengths]), np.full(2 + n, np.inf))
    choice = fleet_rule(f"{rule}:fixed-4", given_problem)

    def act(state, _):
        seen(given_problem, state)
        return choose(given_problem, state, 0, choice)

    return (samples.play(given_problem, workload, act).finish_s[0][2:] - 5.0).tolist()


@pytest.mark.parametrize("rules", [TYPES, [(CONSTRUCT, 0)]])
def test_a_type_is_left_to_whom_it_is_worth_more(rules):
    # The first job takes 1 s a step on the fast type and 1.2 on the slow one, the second 1 and 4, ten steps each. First come,
    # first served gives the first one the fast type: 10 and 40 s. To the second one it is worth 1.6 times its mean speed.
    types = [entry(1.0, 1.2), entry(1.0, 4.0)]
    assert played("fifo", types, [10, 10], rules) == pytest.approx([10, 40])
    assert played("normalised-throughput", types, [10, 10], rules) == pytest.approx([12, 10])


def test_speeds_are_told_over_their_mean():
    results = []

    def look(given_problem, state):
        if state.offered[0, :2].tolist() == [2, 3]:
            results.append([relative_speed(given_problem, state, 0, 3, kind) for kind in (0, 1)])
            results.append([relative_speed_of_others(given_problem, state, 0, 2, kind) for kind in (0, 1)])
            results.append([served_share(given_problem, state, 0, job) for job in (2, 3)])

    played("normalised-throughput", [entry(1.0, 1.2), entry(1.0, 4.0)], [10, 10], seen=look)
    assert results[0] == pytest.approx([1 / 0.625, 0.25 / 0.625])
    assert results[1] == results[0]  # the other one alone
    assert results[2] == [0.0, 0.0]


@given(steps=st.lists(st.integers(1, 9), min_size=2, max_size=2), lengths=st.lists(st.integers(1, 9), min_size=2, max_size=2))
def test_where_types_are_alike_it_is_first_come_first_served(steps, lengths):
    types = [entry(float(step), float(step)) for step in steps]
    assert played("normalised-throughput", types, lengths) == played("fifo", types, lengths)


def test_a_job_that_has_had_less_of_its_share_comes_first():
    # Two jobs of 12 s on one host, with a round every 4 s: whoever has less is let go on at the next round.
    network = network_of("one host")
    menu = menu_of(network, [[(8, constant(1.0), constant(0.0), lambda *_: [])]])
    given_problem = problem_of(network, menu, every_s=4.0, restart_s=0.0, storage_bytes_per_s=np.inf, visible_running=2)
    workload = Workload(np.zeros(2), np.zeros(2, np.int64), np.array([12.0, 12.0]), np.full(2, np.inf))
    rules = {name: fleet_rule(name, given_problem) for name in ("fifo", "normalised-throughput")}
    ends = {
        name: samples.play(given_problem, workload, lambda state, _, rule=rule: choose(given_problem, state, 0, rule)).finish_s[0]
        for name, rule in rules.items()
    }
    assert sorted(ends["fifo"]) == pytest.approx([12, 24])
    assert min(ends["normalised-throughput"]) > 16  # neither is done before the other has had its turn
    assert max(ends["normalised-throughput"]) == pytest.approx(24)
