"""Parameter servers: recursion and graph agree, staleness lies between its limits; the slowest of several replicas."""

import numpy as np
import pytest

from meshwright.costs.training.replicas import slowest_of
from meshwright.costs.training.synchronisation import drawn_steps, server_rate
from meshwright.simulation.training.rounds import gossip_rounds_s, periodic_rounds_s, server_rounds_rate


@pytest.mark.parametrize("staleness", [0, 1, 5, None])
def test_the_recursion_is_the_execution_graph(staleness):
    times = drawn_steps([1.0, 1.1, 2.0], 0.3, 40)
    assert server_rounds_rate(times, 0.25, staleness) == pytest.approx(server_rate(times, 0.25, staleness, 1000), rel=1e-9)


def test_no_staleness_is_synchronous_and_no_bound_is_asynchronous():
    times = np.tile([1.0, 1.0, 2.0], (60, 1))
    assert server_rate(times, 0.5, 0, 1000) == pytest.approx(3 / 2.5, rel=1e-9)
    assert server_rate(times, 0.5, None, 1000) == pytest.approx(2 / 1.5 + 1 / 2.5, rel=1e-9)
    assert server_rate(times, 0.5, 60, 1000) == pytest.approx(server_rate(times, 0.5, None, 1000), rel=1e-9)
    rates = [server_rate(times, 0.5, s, 1000) for s in (0, 1, 3, 10, None)]
    assert rates == sorted(rates)


def test_the_servers_cards_bound_the_rate():
    assert server_rate(np.ones((20, 8)), 0.5, None, 2) == pytest.approx(2 / 0.5)


def test_overlapped_averages_hide_up_to_their_time():
    times = np.ones((80, 4))
    assert periodic_rounds_s(times, 8, 2.0) == pytest.approx(1.25)
    assert periodic_rounds_s(times, 8, 2.0, 2, overlap=True) == pytest.approx(1.0)
    assert periodic_rounds_s(times, 4, 6.0, overlap=True) == pytest.approx(1.5)


def test_a_step_of_gossip_is_the_longer_of_computing_and_averaging():
    from meshwright.costs.training.gossip import rounds

    result = rounds("aer", 8, 4)
    assert gossip_rounds_s(np.ones((64, 8)), result, [0.5, 1.5]) == pytest.approx(1.25)


def test_nobody_waits_where_nothing_varies_or_nobody_is_there():
    assert slowest_of(8, 0.0) == 1.0
    assert slowest_of(1, 0.3) == 1.0


def test_drawn_steps_have_the_expected_maximum():
    draws = np.exp(np.random.default_rng(0).normal(-0.02, 0.2, size=(200_000, 8)))
    assert slowest_of(8, 0.2) == pytest.approx(draws.max(axis=1).mean(), rel=2e-3)


def test_the_loss_falls_by_about_the_root_of_the_steps():
    one, sixteen = (slowest_of(8, 0.2, steps) - 1 for steps in (1, 16))
    assert one / sixteen == pytest.approx(4, rel=0.1)
