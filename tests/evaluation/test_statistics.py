import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.evaluation.statistics import interval, paired

samples = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30)


def test_an_interval_worked_by_hand():
    # mean 2; standard deviation 1; t(0.975, 2) = 4.302653; half width 4.302653 / sqrt(3) = 2.484138
    found = interval([1.0, 2.0, 3.0])
    assert found == {"mean": 2.0, "low": pytest.approx(-0.484138, abs=1e-6), "high": pytest.approx(4.484138, abs=1e-6)}


def test_absent_values_are_left_out_and_no_value_is_no_interval():
    assert interval([None, 5.0, None]) == {"mean": 5.0, "low": 5.0, "high": 5.0}
    assert interval([None]) is None


def test_the_interval_covers_the_true_mean_in_about_95_of_100_samples():
    rng = np.random.default_rng(0)
    found = [interval(rng.normal(3.0, 2.0, 10).tolist()) for _ in range(2000)]
    covered = np.mean([f is not None and f["low"] <= 3.0 <= f["high"] for f in found])
    assert 0.935 < covered < 0.965  # 3 standard errors around .95


@given(samples)
def test_a_policy_does_not_differ_from_itself(sample):
    assert paired(sample, sample) == {"mean": 0.0, "low": 0.0, "high": 0.0}


@given(samples)
def test_a_paired_difference_changes_sign_with_its_order(sample):
    forward, backward = paired(sample, sample[::-1]), paired(sample[::-1], sample)
    assert math.isclose(forward["low"], -backward["high"], rel_tol=1e-9, abs_tol=1e-6)


def test_samples_of_unequal_length_cannot_be_paired():
    with pytest.raises(ValueError, match="shorter"):
        paired([1.0, 2.0], [1.0])
