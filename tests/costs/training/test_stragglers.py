"""The slowest of several replicas."""

import numpy as np
import pytest

from meshwright.costs.training.replicas import slowest_of


def test_nobody_waits_where_nothing_varies_or_nobody_is_there():
    assert slowest_of(8, 0.0) == 1.0
    assert slowest_of(1, 0.3) == 1.0


def test_drawn_steps_have_the_expected_maximum():
    draws = np.exp(np.random.default_rng(0).normal(-0.02, 0.2, size=(200_000, 8)))
    assert slowest_of(8, 0.2) == pytest.approx(draws.max(axis=1).mean(), rel=2e-3)


def test_the_loss_falls_by_about_the_root_of_the_steps():
    one, sixteen = (slowest_of(8, 0.2, steps) - 1 for steps in (1, 16))
    assert one / sixteen == pytest.approx(4, rel=0.1)
