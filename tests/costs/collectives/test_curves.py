"""Curves of measured times: lines between sizes, jumps between protocols, outliers."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

from meshwright.costs.collectives.libraries.curves import Curve

sizes = st.lists(st.floats(1, 1e10), min_size=1, max_size=12, unique=True)


def jumping(size):
    """10 us and 100 GB/s up to 1.5 MB, 40 us and 200 GB/s from there on, and what it is called."""
    return ("LL", 10e-6 + size / 100e9) if size < 1.5e6 else ("Simple", 40e-6 + size / 200e9)


@pytest.mark.parametrize(
    ("known", "size", "seconds", "provenance"),
    [
        # halfway between 1 and 3 MB on a line in bytes
        ([(1e6, 10e-6), (3e6, 20e-6)], 2e6, 15e-6, "interpolated"),
        # below: as long as the smallest; above: 5 us for each MB more
        ([(1e6, 10e-6), (3e6, 20e-6)], 1.0, 10e-6, "estimated"),
        ([(1e6, 10e-6), (3e6, 20e-6)], 13e6, 70e-6, "estimated"),
        # a single size is all bandwidth above it and all latency below
        ([(1e6, 10e-6)], 3e6, 30e-6, "estimated"),
        ([(1e6, 10e-6)], 3.0, 10e-6, "estimated"),
    ],
)
def test_times_between_and_beyond_sizes_by_hand(known, size, seconds, provenance):
    assert Curve(known).at(size) == (pytest.approx(seconds), provenance)


def test_a_measured_size_is_told_as_measured():
    curve = Curve([(1e6, 10e-6), (3e6, 20e-6), (9e6, 50e-6)])
    assert [curve.at(size) for size, _ in curve.points] == [(seconds, "measured") for _, seconds in curve.points]


@pytest.mark.parametrize("size", [1.2e6, 1.4e6, 1.6e6, 1.9e6])
def test_a_change_of_protocol_is_found_on_its_right_side(size):
    known = [(s, jumping(s)[1]) for s in (0.25e6, 0.5e6, 1e6, 2e6, 4e6, 8e6)]
    seconds = Curve(known, lambda s: jumping(s)[0]).at(size).seconds
    untold = Curve(known).at(size).seconds
    assert seconds == pytest.approx(jumping(size)[1], rel=1e-9)
    assert abs(untold / jumping(size)[1] - 1) > 0.05


def test_protocols_that_do_not_show_are_ignored():
    known = [(s, 10e-6 + s / 100e9) for s in (0.25e6, 0.5e6, 1e6, 2e6, 4e6)]
    assert Curve(known, lambda s: jumping(s)[0]).at(1.4e6).seconds == pytest.approx(24e-6)


def test_a_single_size_grows_as_the_tuner_expects_where_there_is_one():
    # expected 10 us + 1 us for each kB: 11 us at 1 kB and 20 us at 10 kB; measured 22 us at 1 kB, so 40 us at 10 kB
    curve = Curve([(1e3, 22e-6)], expected_s=lambda size: 10e-6 + size * 1e-9)
    assert curve.at(1e4) == (pytest.approx(40e-6), "estimated")


def test_an_outlier_of_a_single_run_is_left_out():
    curve = Curve([(1024, 7.4e-6), (4096, 16.6e-6), (16384, 7.5e-6), (65536, 8.0e-6)])
    assert curve.num_outliers == 1
    assert curve.at(4096).seconds == pytest.approx(7.42e-6, rel=1e-3)
    assert curve.at(4096).provenance == "interpolated"


def test_times_that_fall_a_little_are_evened_out():
    assert Curve([(1, 10.0), (2, 9.0), (3, 11.0)]).points == [(1, 9.5), (2, 9.5), (3, 11.0)]


@given(st.lists(st.floats(1.0, 1.14), min_size=1, max_size=12))
def test_evened_out_times_are_the_nearest_that_never_fall(times):
    """No time is 15 % above another here, so none is left out."""
    evened = [seconds for _, seconds in Curve(list(enumerate(times, start=1))).points]
    assert evened == pytest.approx(isotonic_regression(times).x, rel=1e-12)


def test_of_a_size_that_stands_twice_the_lower_time_counts_and_of_three_the_middle_one():
    assert Curve([(1, 3.0), (1, 2.0)]).points == [(1, 2.0)]
    assert Curve([(1, 3.0), (1, 2.0), (1, 2.5)]).points == [(1, 2.5)]


@given(sizes=sizes, seed=st.integers(0, 999), x=st.floats(0.1, 1e11), more=st.floats(0, 1e11))
def test_time_is_positive_and_never_falls(sizes, seed, x, more):
    rng = np.random.default_rng(seed)
    known = [(size, (1e-6 + size / 100e9) * math.exp(rng.normal(0, 0.3))) for size in sizes]
    curve = Curve(known, lambda s: jumping(s)[0])
    assert 0 < curve.at(x).seconds <= curve.at(x + more).seconds * (1 + 1e-9)
    least, most = (curve.at(size).seconds for size, _ in (curve.points[0], curve.points[-1]))
    if curve.points[0][0] <= x <= curve.points[-1][0]:
        assert least * (1 - 1e-9) <= curve.at(x).seconds <= most * (1 + 1e-9)


@given(latency=st.floats(1e-6, 1e-3), speed=st.floats(1e9, 1e12), x=st.floats(1e3, 1e9))
def test_a_line_is_told_exactly(latency, speed, x):
    curve = Curve([(s, latency + s / speed) for s in (1e3, 1e5, 1e7, 1e9)])
    assert curve.at(x).seconds == pytest.approx(latency + x / speed, rel=1e-6)
