"""Step times between measurements, the fitted model, and batches of the largest goodput."""

import math

import numpy as np
import pytest
import scipy.interpolate
import scipy.optimize
from hypothesis import given
from hypothesis import strategies as st

from meshwright.simulation.elastic import fitting
from meshwright.simulation.elastic.batch_size import known_goodput
from meshwright.simulation.elastic.measured import gain, placement_index, placement_key, split_batch, step_times

from ...draws import draws
from ...elastic_samples import simulation_of, times, write_applications


@pytest.fixture(scope="module")
def simulation(tmp_path_factory):
    return simulation_of(write_applications(tmp_path_factory.mktemp("elastic") / "applications"))


def test_a_ring_has_no_beginning():
    assert placement_key(np.array([4, 1, 2, 1]), 4) == 1214
    assert placement_key(np.array([2, 1, 4, 1]), 4) == 1214
    assert placement_key(np.array([1, 4, 2, 1]), 4) == 1142


@given(st.lists(st.integers(1, 4), min_size=1, max_size=16), st.integers(0, 15))
def test_turning_a_placement_changes_no_key(counts, turn):
    turned = counts[turn % len(counts) :] + counts[: turn % len(counts)]
    assert placement_key(np.array(counts), len(counts)) == placement_key(np.array(turned), len(counts))


def test_times_of_measured_placements_are_linear_between_batches(simulation):
    # Halfway from 8 to 16 samples, on 1 and 2 ranks of two hosts.
    expected = np.mean([times("quick", 2, 3, 8), times("quick", 2, 3, 16)], axis=0)
    result = step_times(simulation.apps, 0, placement_index(simulation.apps, 0, 12), 2, 3, 12)
    assert result == pytest.approx(expected.tolist(), rel=1e-12)
    assert math.isnan(step_times(simulation.apps, 0, placement_index(simulation.apps, 0, 12), 2, 3, 17)[0])


@pytest.fixture(scope="module")
def linear(simulation):
    """SciPy's interpolation of the second application's times between numbers of hosts, of ranks, and samples."""
    application = simulation.applications[1]
    placed, scaled = application.placed, application.scaled
    columns = [
        np.concatenate([getattr(placed, name), getattr(scaled, name)])
        for name in ("num_hosts", "num_ranks", "local_batch", "step_s", "sync_s")
    ]
    # The sample's formula gives one time for all placements of as many hosts and ranks: no mean is needed.
    at, first = np.unique(np.stack(columns[:3], axis=1), axis=0, return_index=True)
    return scipy.interpolate.LinearNDInterpolator(at, np.stack(columns[3:], axis=1)[first])


@given(st.integers(3, 12), st.integers(4, 16))
@draws(40)
def test_times_of_other_placements_are_those_of_scipy(simulation, linear, num_ranks, local):
    expected = linear([3, num_ranks, local])[0]
    assert step_times(simulation.apps, 1, -1, 3, num_ranks, local) == pytest.approx(expected.tolist(), rel=1e-9)


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3), st.floats(1.0, 1e3))
def test_a_larger_batch_is_worth_more_steps_yet_never_in_proportion(sqr, var, scale):
    assert 1.0 - 1e-12 <= gain(sqr, var, scale) <= scale * (1 + 1e-12)


def test_a_batch_is_split_into_passes_that_fit(simulation):
    # 64 samples on three ranks: 22 each, more than the 16 that fit, so two passes of 11.
    assert split_batch(simulation.apps, 0, 64, 3) == (10, 1)  # 3 * 2 * 11 would be above the largest batch, 64
    assert split_batch(simulation.apps, 0, 16, 1) == (16, 0)
    assert split_batch(simulation.apps, 0, 32, 1) == (16, 1)


def test_no_batch_has_more_goodput_than_the_chosen_one(simulation):
    apps = simulation.apps
    best, local, passes = known_goodput(apps, 0, 0, placement_index(apps, 0, 2), 1, 2)
    assert 2 * local * (passes + 1) <= apps.max_batch[0]
    step_s = step_times(apps, 0, placement_index(apps, 0, 2), 1, 2, 8)[0]
    assert best >= gain(1.0, 2.0, 1.0) / step_s


OBSERVED = st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 64), st.floats(0.01, 2.0), st.floats(0.01, 0.9))


@given(st.lists(OBSERVED, min_size=1, max_size=8))
@draws(10)
def test_the_fit_is_no_worse_than_the_one_of_the_original_method(rows):
    kinds = np.array([(hosts, hosts * each, local) for hosts, each, local, _, _ in rows], np.int64)
    seconds = np.array([(step_s, step_s * share) for *_, step_s, share in rows])
    slope = np.empty(7)
    logs = np.log(seconds[:, 0] - seconds[:, 1]), np.log(seconds[:, 0])

    def loss(p):
        return fitting.loss(np.log(p), kinds, *logs, 0.0, slope), slope / p

    result = fitting.fit(kinds, seconds)
    first, lower, upper = np.array([0.1, 0.01] * 3 + [1.001]), np.array([1e-8] * 6 + [1.0]), np.array([1e4] * 6 + [10.0])
    fixed = np.isclose(result, 1e-8, rtol=0.2)
    fixed[2:4] |= not (kinds[:, 0] > 1).any()  # raised to what is within a node: no loss tells them
    fixed[0] |= len(set(kinds[:, 2].tolist())) == 1
    for i in np.flatnonzero(fixed):
        first[i] = lower[i] = upper[i] = result[i]
    theirs = scipy.optimize.minimize(loss, first, bounds=list(zip(lower, upper, strict=True)), jac=True)
    assert loss(result)[0] <= theirs.fun + 1e-3


@given(st.lists(st.floats(-3.0, 0.5), min_size=6, max_size=6), st.floats(0.05, 2.0), st.lists(OBSERVED, min_size=1, max_size=5))
@draws(15)
def test_the_loss_falls_as_its_slope_says(logs, log_gamma, rows):
    kinds = np.array([(hosts, hosts * each, local) for hosts, each, local, _, _ in rows], np.int64)
    seconds = np.array([(step_s, step_s * share) for *_, step_s, share in rows])
    reported = np.log(seconds[:, 0] - seconds[:, 1]), np.log(seconds[:, 0])
    u, slope, unused = np.array([*logs, log_gamma]), np.empty(7), np.empty(7)
    fitting.loss(u, kinds, *reported, 1e-6, slope)
    for i in range(7):
        step = np.eye(7)[i] * 1e-5
        rise = fitting.loss(u + step, kinds, *reported, 1e-6, unused) - fitting.loss(u - step, kinds, *reported, 1e-6, unused)
        assert rise / 2e-5 == pytest.approx(slope[i], rel=1e-3, abs=1e-4)
