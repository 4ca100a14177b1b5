"""Times of failures and preemptions: the documented hash, exponential, and independent of each other."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.simulation import random_times

from ..oracles.plain_player import FAILURE, PREEMPTION, exponential_s


@given(words=st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 1), st.integers(0, 10**6), st.integers(0, 10**6)))
def test_the_hash_is_the_documented_one(words):
    assert random_times.exponential_s(100.0, *words) == exponential_s(100.0, *words)


def test_random_times_are_exponential_and_those_of_neighbours_do_not_hang_together():
    # 20,000 events of neighbouring devices; of an exponential time mean and standard deviation are equal
    times = np.array([[random_times.exponential_s(1.0, 7, FAILURE, d, i) for i in range(200)] for d in range(100)])
    n = times.size
    assert times.mean() == pytest.approx(1.0, abs=3 / math.sqrt(n))
    # the variance of the sample variance of exponential times is 8 / n
    assert times.var() == pytest.approx(1.0, abs=3 * math.sqrt(8 / n))
    for share in (0.1, 0.5, 0.9):
        below = (times < -math.log(1 - share)).mean()
        assert below == pytest.approx(share, abs=3 * math.sqrt(share * (1 - share) / n))
    centred = times - times.mean()
    assert abs((centred[:, 1:] * centred[:, :-1]).mean()) < 3 / math.sqrt(n)
    assert abs((centred[1:] * centred[:-1]).mean()) < 3 / math.sqrt(n)
    other = random_times.exponential_s(1.0, 7, PREEMPTION, 0, 0)
    assert other not in times
