"""Laws of the clock of budgets: CPU time does not advance while the process sleeps, and the choice ends with its context."""

from __future__ import annotations

import time

import pytest

from meshwright.budget_clock import budgets_by, clock_s
from meshwright.planners.operators.place import place
from meshwright.planners.operators.request import PlacementRequest
from tests.simulation.operators.test_forms import two_devices


def slept_s() -> float:
    """Seconds that the clock counts in 50 ms of sleep."""
    begun_s = clock_s()
    time.sleep(0.05)
    return clock_s() - begun_s


def test_cpu_time_stands_still_in_sleep_and_wall_time_does_not():
    with budgets_by("cpu"):
        assert slept_s() < 0.04
        with budgets_by("wall"):
            assert slept_s() >= 0.05
        assert slept_s() < 0.04
    assert slept_s() >= 0.05
    with pytest.raises(ZeroDivisionError), budgets_by("cpu"):
        1 / 0  # noqa: B018
    assert slept_s() >= 0.05


def test_a_search_takes_its_budget_of_cpu_time():
    chain = two_devices([1.0] * 4, [(0, 1), (1, 2), (2, 3)], [1e9] * 4)
    place(chain, "annealing", PlacementRequest("throughput", budget_s=0.01))  # loads compiled code
    with budgets_by("cpu"):
        begun_s = clock_s()
        assert place(chain, "annealing", PlacementRequest("throughput", budget_s=0.1)).value_s == pytest.approx(3.0)
        assert 0.08 < clock_s() - begun_s < 0.2
