"""Parameter servers, whose staleness lies between its limits, and rounds of gossip as an execution graph."""

import numpy as np
import pytest

from meshwright.costs.training.gossip import rounds
from meshwright.costs.training.synchronisation import server_rate

from ...oracles.strategy_runs import gossip_s


def test_no_staleness_is_synchronous_and_no_bound_is_asynchronous():
    times = np.tile([1.0, 1.0, 2.0], (60, 1))
    assert server_rate(times, 0.5, 0, 1000) == pytest.approx(3 / 2.5, rel=1e-9)
    assert server_rate(times, 0.5, None, 1000) == pytest.approx(2 / 1.5 + 1 / 2.5, rel=1e-9)
    assert server_rate(times, 0.5, 60, 1000) == pytest.approx(server_rate(times, 0.5, None, 1000), rel=1e-9)
    rates = [server_rate(times, 0.5, s, 1000) for s in (0, 1, 3, 10, None)]
    assert rates == sorted(rates)


def test_the_servers_cards_bound_the_rate():
    assert server_rate(np.ones((20, 8)), 0.5, None, 2) == pytest.approx(2 / 0.5)


def test_a_step_of_gossip_is_the_longer_of_computing_and_averaging():
    found = rounds("aer", 8, 4)
    assert gossip_s(np.ones((64, 8)), found, [0.5, 1.5]) == pytest.approx(1.25)
