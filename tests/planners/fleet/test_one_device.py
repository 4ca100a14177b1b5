"""Orders of the queue on one device, which are known to be best or worse: laws of scheduling theory."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.planners.fleet.rule_kernel import choose
from meshwright.planners.fleet.rules import fleet_rule

from ...simulation.fleet import samples
from ...simulation.fleet.samples import Workload, constant, menu_of, network_of, problem_of

ENTRY = 8, constant(1.0), constant(0.0), lambda _, hosts: []
"""All of the one host, in steps of a second."""


def _mean_completion_s(rule, arrivals, lengths, every_s=1.0, *, at_events=False):
    """By a rule that may preempt every second, free of charge, or at arrivals and ends."""
    network = network_of("one host")
    keys = {"queue_capacity": 64, "visible_waiting": 16, "visible_running": 1, "storage_bytes_per_s": np.inf}
    problem = problem_of(network, menu_of(network, [[ENTRY]]), every_s=every_s, at_events=at_events, restart_s=0.0, **keys)
    never = np.full(len(lengths), np.inf)
    arrival_s = np.sort(np.array(arrivals, float))
    workload = Workload(arrival_s, np.zeros(len(lengths), np.int64), np.array(lengths, float), never)
    choice = fleet_rule(rule, problem)
    state = samples.play(problem, workload, lambda state, _: choose(problem, state, 0, choice))
    return float((state.finish_s[0] - arrival_s).mean())


def test_a_short_job_that_comes_later_worked_by_hand():
    # Ten seconds of work at 0 and one at 2. First come, first served: 10 and 9 s. With preemption the short one runs from 2 to 3.
    assert _mean_completion_s("fifo", [0, 2], [10, 1]) == pytest.approx((10 + 9) / 2)
    assert _mean_completion_s("srtf", [0, 2], [10, 1]) == pytest.approx((11 + 1) / 2)


JOBS = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9)), min_size=1, max_size=10)


@given(drawn=JOBS)
def test_shortest_remaining_with_free_preemption_is_never_above_first_come(drawn):
    arrivals, lengths = zip(*sorted(drawn), strict=True)
    best_s = _mean_completion_s("srtf", arrivals, lengths)
    for rule in ("fifo", "sjf", "las"):
        assert best_s <= _mean_completion_s(rule, arrivals, lengths) * (1 + 1e-12)


def test_whoever_is_decided_again_at_arrivals_alone_loses_nothing_worked_by_hand():
    # A second of work comes at 2, when two of ten are done: it runs from 2 to 3, and the other one from 3 to 11.
    assert _mean_completion_s("srtf", [0, 2], [10, 1], np.inf, at_events=True) == pytest.approx((11 + 1) / 2)
    # Without rounds nobody is preempted.
    assert _mean_completion_s("srtf", [0, 2], [10, 1], 1e9) == pytest.approx((10 + 9) / 2)


@given(drawn=JOBS)
def test_shortest_remaining_decided_at_arrivals_and_ends_is_never_above_any_other(drawn):
    arrivals, lengths = zip(*sorted(drawn), strict=True)
    best_s = _mean_completion_s("srtf", arrivals, lengths, np.inf, at_events=True)
    assert best_s == pytest.approx(_mean_completion_s("srtf", arrivals, lengths))  # whole seconds: as decided every second
    for rule in ("fifo", "sjf", "las"):
        assert best_s <= _mean_completion_s(rule, arrivals, lengths, np.inf, at_events=True) * (1 + 1e-12)
