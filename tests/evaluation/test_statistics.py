import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm, t

from meshwright.evaluation.statistics import _tail, excludes_zero, interval, paired

from ..draws import FACTOR, draws

samples = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30)


def test_the_mean_of_three_values_lies_in_an_interval_inside_their_range():
    # Of 27 equally likely resamples one is all 1 and one all 3: each end lies within them, and near them at 95 %.
    result = interval([1.0, 2.0, 3.0])
    assert result["mean"] == 2.0
    assert result["low"] == pytest.approx(1.0)
    assert result["high"] == pytest.approx(3.0)


def test_levels_widen_by_students_quantile_worked_by_hand():
    # 20 values: sqrt(20 / 19) x t(0.975, 19) = 1.025978 x 2.093024 = 2.147397; normal tail beyond it 0.015881
    assert math.sqrt(20 / 19) * t.ppf(0.975, 19) == pytest.approx(2.147397, abs=1e-6)
    assert _tail(20) == pytest.approx(norm.sf(2.147397), rel=1e-5)
    assert _tail(10**6) == pytest.approx(0.025, rel=1e-4)


def test_absent_values_are_left_out_and_no_value_is_no_interval():
    assert interval([None, 5.0, math.nan, 7.0]) == interval([5.0, 7.0])
    assert interval([None]) is None


def test_a_single_value_has_a_mean_and_no_interval():
    assert interval([None, 5.0]) == {"mean": 5.0, "low": None, "high": None}
    assert excludes_zero(paired([5.0], [4.0])) == 0


def test_equal_values_have_an_interval_of_no_width():
    assert interval([0.1, 0.1, 0.1]) == {"mean": 0.1, "low": 0.1, "high": 0.1}


@pytest.mark.parametrize(
    ("draw", "mean"),
    [
        pytest.param(lambda rng: rng.normal(3.0, 2.0, 20), 3.0, id="normal", marks=pytest.mark.slow),
        pytest.param(lambda rng: rng.exponential(2.0, 20), 2.0, id="exponential"),
        pytest.param(lambda rng: rng.beta(2, 18, 20), 0.1, id="shares", marks=pytest.mark.slow),
    ],
)
def test_the_interval_of_twenty_values_holds_the_true_mean_in_about_95_of_100_samples(draw, mean):
    # One standard error of 600 samples is 0.009, of 240 it is 0.014. Skewed samples of 20 lose a few points with any interval.
    rng = np.random.default_rng(0)
    results = [interval(draw(rng).tolist()) for _ in range(240 if FACTOR <= 1 else 600)]
    assert 0.91 < np.mean([f["low"] <= mean <= f["high"] for f in results]) < 0.975


@pytest.mark.slow
def test_the_interval_of_ten_values_is_not_too_narrow():
    rng = np.random.default_rng(1)
    results = [interval(rng.normal(size=10).tolist()) for _ in range(600)]
    assert 0.93 < np.mean([f["low"] <= 0 <= f["high"] for f in results]) < 0.975


@given(samples)
@draws(8)
def test_the_same_values_give_the_same_bytes_and_the_interval_holds_the_mean(sample):
    first = interval(sample)
    assert json.dumps(first) == json.dumps(interval(sample))
    slack = 1e-9 * max(1.0, *map(abs, sample))
    assert min(sample) - slack <= first["low"] <= first["mean"] + slack
    assert first["mean"] - slack <= first["high"] <= max(sample) + slack


@given(samples)
@draws(8)
def test_a_policy_does_not_differ_from_itself(sample):
    assert paired(sample, sample) == {"mean": 0.0, "low": 0.0, "high": 0.0, "cases": len(sample)}


@given(st.lists(st.integers(-1000, 1000), min_size=2, max_size=30))
@draws(8)
def test_a_paired_difference_changes_sign_with_its_order(sample):
    forward, backward = paired(sample, sample[::-1]), paired(sample[::-1], sample)
    assert math.isclose(forward["low"], -backward["high"], rel_tol=1e-6, abs_tol=1e-6)


def test_pairing_sees_a_difference_that_the_spread_of_the_episodes_hides():
    rng = np.random.default_rng(2)
    episodes = rng.normal(0.2, 0.05, 20)
    better = episodes - 0.01 + rng.normal(0, 0.002, 20)
    assert interval(better.tolist())["high"] > interval(episodes.tolist())["low"]
    assert excludes_zero(paired(better.tolist(), episodes.tolist())) == -1
    assert excludes_zero(paired(episodes.tolist(), better.tolist())) == 1


def test_samples_of_unequal_length_cannot_be_paired():
    with pytest.raises(ValueError, match="shorter"):
        paired([1.0, 2.0], [1.0])
