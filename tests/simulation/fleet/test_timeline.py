"""An episode that is watched: two jobs worked by hand, and sums that its record has too."""

import math

import numpy as np
import pytest
from hypothesis import given

from meshwright.simulation.fleet.state import JobState, SharingMode, Total
from meshwright.simulation.fleet.timeline import watch

from ...draws import draws
from . import samples
from .samples import CONSTRUCT, Workload, constant, menu_of, network_of, problem_of, ring


def watched(problem, workload, choose):
    state = samples.started(problem, workload)
    return watch(problem, state, lambda: choose(state, samples.possible(state))), state


def test_two_jobs_on_one_trunk_slow_each_other():
    # As in test_by_hand: two leaves of two hosts of four devices; each job has a host below either leaf and sends for 1 s of its
    # step of 4 s, 10 steps; the second comes at 8 s. Job 0 ends after 8 steps together, then job 1 makes its last 2 alone.
    network = network_of("two leaves")
    menu = menu_of(network, [[(8, constant(4.0), constant(0.0), ring(10e9))]])
    problem = problem_of(network, menu, rules=[(CONSTRUCT, 0)], sharing=int(SharingMode.FAIR))
    workload = Workload(np.array([0.0, 8.0]), np.zeros(2, np.int64), np.full(2, 10.0), np.full(2, math.inf))
    actions = iter((1, 0, 2, 1, 1, 3))
    result, state = watched(problem, workload, lambda *_: next(actions))
    together_s = (state.finish_s[0, 0] - 8.0) / 8.0
    assert together_s > 4
    assert result.time_s == pytest.approx([0, 8, 8 + 8 * together_s, 16 + 8 * together_s])
    assert (result.num_waiting.tolist(), result.num_running.tolist(), result.num_held.tolist()) == (
        [0] * 3,
        [1, 2, 1],
        [8, 16, 8],
    )
    assert result.load[:, 8] == pytest.approx([1 / 4, 2 / together_s, 1 / 4])  # the trunk up from the first leaf
    assert result.lost_s == pytest.approx({(0, 1): 8 * (together_s - 4), (1, 0): 8 * (together_s - 4)})
    assert [stay.devices.tolist() for stay in result.stays] == [[0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]]
    assert [stay.is_restart for stay in result.stays] == [False, False]
    assert result.mean_in(result.num_held, np.array([-8.0, 0.0, 4.0, 12.0])) == pytest.approx([0, 8, 12])


SHARED = "two leaves", "four leaves", "two sites", "torus"


@draws(10)
@given(fleet=samples.fleets(SHARED, sharing=int(SharingMode.FAIR)) | samples.fleets(SHARED, sharing=int(SharingMode.INTERLEAVED)))
def test_what_is_seen_adds_up_to_what_the_state_has_counted(fleet):
    problem, workload, rng = fleet
    number = iter(range(10**6))
    result, state = watched(problem, workload, lambda _, actions: samples.any_of(actions, rng, next(number)))
    assert (state.status[0] >= JobState.COMPLETED).all()
    lost_s, held_device_s = np.zeros((2, len(workload.arrival_s)))
    for (job, other), seconds in result.lost_s.items():
        assert job != other
        lost_s[job] += seconds
    assert lost_s == pytest.approx(state.shared_s[0], rel=1e-9)
    for stay in result.stays:
        held_device_s[stay.job] += len(stay.devices) * (stay.end_s - stay.begin_s)
        assert stay.begin_s <= stay.steps_from_s
    assert held_device_s == pytest.approx(state.held_device_s[0], rel=1e-9)
    assert result.num_held @ np.diff(result.time_s) == pytest.approx(state.totals[0, Total.HELD_DEVICE_S], rel=1e-9)
    restarts = np.bincount([stay.job for stay in result.stays if stay.is_restart], minlength=len(lost_s))
    assert (restarts <= state.num_restarts[0]).all()  # those that no time passed after are not seen
