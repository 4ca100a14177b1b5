import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright import settings
from meshwright.errors import ConfigError
from meshwright.jobs.deadlines import NoDeadline, SkewNormalDeadline, UniformDeadline

NUM_JOBS = 100_000


def uniform(**changes):
    return settings.build_settings(UniformDeadline, {"kind": "uniform", "low": 0.1, "high": 1.0, "decimals": 2, **changes})


def skewed(skewness, **changes):
    data = {"kind": "skew_normal", "skewness": skewness, "low": 0.1, "high": 1.0, "decimals": 2, **changes}
    return settings.build_settings(SkewNormalDeadline, data)


def test_no_deadline_is_infinite():
    assert np.isinf(NoDeadline(kind="none").draw(np.random.default_rng(0), 3)).all()


def test_the_uniform_grid_holds_both_ends_and_all_between_equally():
    drawn = uniform().draw(np.random.default_rng(0), NUM_JOBS)
    values, counts = np.unique(drawn, return_counts=True)
    assert values.tolist() == [round(0.1 + i / 100, 2) for i in range(91)]
    # Chi-squared with 90 degrees of freedom stays below 137 in 999 of 1,000 draws.
    expected = NUM_JOBS / 91
    assert ((counts - expected) ** 2 / expected).sum() < 137


def test_without_decimals_the_uniform_is_continuous():
    drawn = uniform(decimals=None).draw(np.random.default_rng(0), 1000)
    assert len(np.unique(drawn)) == 1000
    assert 0.1 <= drawn.min() < drawn.max() < 1.0


# PAC-ML's distributions A, B, C, D have means of about 0.55, 0.28, 0.49, 0.71.
@pytest.mark.parametrize(("deadline", "mean"), [(uniform(), 0.55), (skewed(5), 0.28), (skewed(0), 0.49), (skewed(-5), 0.71)])
def test_means_of_the_published_distributions(deadline, mean):
    means = [deadline.draw(np.random.default_rng(seed), 10_000).mean() for seed in range(10)]
    assert np.mean(means) == pytest.approx(mean, abs=0.015)


@given(skewness=st.floats(-8, 8), seed=st.integers(0, 99))
def test_skewed_fractions_stay_within_their_bounds_and_decimals(skewness, seed):
    drawn = skewed(skewness).draw(np.random.default_rng(seed), 50)
    assert (drawn >= 0.1).all()
    assert (drawn <= 1.0).all()
    assert np.array_equal(drawn, np.round(drawn, 2))


def test_what_lies_below_the_low_end_piles_up_there():
    # Only half the width of 0.11 rounds to 0.10, yet with what is raised to it 0.10 holds more jobs.
    drawn = skewed(5).draw(np.random.default_rng(0), NUM_JOBS)
    assert drawn.min() == 0.1
    assert (drawn == 0.1).sum() > 1.5 * (drawn == 0.11).sum()


def test_a_skewed_mirror_image_has_mirrored_tails():
    # P(X > mean) is the same for skewness a as P(X < mean) for -a; clipping at 0.1 hardly moves either.
    right, left = (skewed(k, low=1e-9, decimals=None).draw(np.random.default_rng(1), NUM_JOBS) for k in (5, -5))
    assert right.mean() == pytest.approx(1 - left.mean(), abs=0.02)
    assert right.std() == pytest.approx(left.std(), abs=0.02)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"low": 0.0}, "low: .*more than 0"),
        ({"low": 0.9, "high": 0.5}, "low 0.9 is above high 0.5"),
        ({"low": 0.125}, "low 0.125 has more than 2 decimals"),
        ({"high": float("nan")}, "high: .*finite"),
        ({"mode": 1}, "unknown key"),
    ],
)
def test_an_impossible_distribution_is_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        uniform(**changes)
