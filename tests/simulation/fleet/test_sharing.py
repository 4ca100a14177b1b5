"""Jobs that meet on links: one worked by hand, the plain reference, and what must hold whatever the constants."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.simulation.fleet.sharing import CONSTANTS, INTERLEAVED, slowdown_parts, step_times

from ...draws import draws
from ...oracles import sharing_reference

FAIR = 1
MODES = (FAIR, INTERLEAVED)


@dataclass(frozen=True)
class Job:
    """Seconds of a step, of it behind computation, and seconds and streams on each link."""

    alone_s: float
    hidden_s: float
    loads: dict[int, tuple[float, float]]


HALF = Job(1.0, 0.0, {0: (0.5, 2.0)})
"""Sends for half of its step."""


def arrays_of(jobs):
    """Seconds alone and hidden, and the loads."""
    first = np.zeros(len(jobs) + 1, np.int64)
    np.cumsum([len(job.loads) for job in jobs], out=first[1:])
    rows = [(link, *load) for job in jobs for link, load in job.loads.items()]
    loads = (np.array([row[i] for row in rows], kind) for i, kind in enumerate((np.int64, float, float)))
    return np.array([job.alone_s for job in jobs]), np.array([job.hidden_s for job in jobs]), (first, *loads)


def together_s(jobs, mode=FAIR, constants=CONSTANTS):
    alone_s, hidden_s, loads = arrays_of(jobs)
    result = np.zeros(len(jobs))
    step_times(len(jobs), alone_s, hidden_s, *loads, constants, mode, result)
    return result


def parts_of(jobs, mode=FAIR, constants=CONSTANTS):
    alone_s, hidden_s, loads = arrays_of(jobs)
    return slowdown_parts(alone_s, hidden_s, together_s(jobs, mode, constants), loads, constants, mode)


@st.composite
def drawn_job(draw, periods=(0.5, 1.0, 2.0)):
    alone_s = draw(st.sampled_from(periods) | st.floats(0.1, 10.0))
    links = draw(st.lists(st.integers(0, 5), max_size=4, unique=True))
    loads = {link: (alone_s * draw(st.floats(0.0, 1.0)), float(draw(st.integers(1, 8)))) for link in links}
    return Job(alone_s, alone_s * draw(st.floats(0.0, 0.5)), loads)


drawn_jobs = st.lists(drawn_job(), min_size=1, max_size=6)
modes = st.sampled_from(MODES)


def test_two_jobs_that_send_half_of_the_time_worked_by_hand():
    # By a = 1 and b = h = t = 0 the network takes s = 1 + u times as long if the other sends u of the time. As
    # T = 1 + (s - 1) / 2, that is u = (s / 2) / T = s / (1 + s), so s^2 = s + 1: the golden ratio.
    golden = (1 + np.sqrt(5)) / 2
    assert together_s([HALF, HALF], constants=np.array([1.0, 0.0, 0.0, 0.0])) == pytest.approx((1 + golden) / 2, rel=1e-2)


def test_fair_sharing_costs_jobs_of_half_duty_a_sixth_and_taking_turns_nothing():
    assert HALF.alone_s / together_s([HALF, HALF]).max() <= 0.85
    assert HALF.alone_s / together_s([HALF, HALF], INTERLEAVED).max() >= 0.95


def test_turns_help_no_jobs_of_different_periods_nor_what_does_not_fit():
    other = Job(1.1, 0.0, {0: (0.55, 2.0)})
    assert np.array_equal(together_s([HALF, other]), together_s([HALF, other], INTERLEAVED))
    full = Job(1.0, 0.0, {0: (1.0, 1.0)})
    assert together_s([full, full], INTERLEAVED) == pytest.approx(together_s([full, full]), rel=1e-12)
    # three thirds fit, three halves do not
    third = Job(1.0, 0.0, {0: (1 / 3, 1.0)})
    assert together_s([third] * 3, INTERLEAVED) == pytest.approx(1.0, rel=1e-9)
    assert (together_s([HALF] * 3, INTERLEAVED) > 1.05).all()


@draws(60)
@given(jobs=drawn_jobs, mode=modes)
def test_the_kernel_equals_its_plain_reference_bit_for_bit(jobs, mode):
    plain = sharing_reference.step_times(
        [j.alone_s for j in jobs], [j.hidden_s for j in jobs], [j.loads for j in jobs], CONSTANTS.tolist(), mode
    )
    assert together_s(jobs, mode).tolist() == plain


@given(jobs=drawn_jobs, mode=modes)
def test_who_shares_no_link_takes_exactly_as_long_as_alone(jobs, mode):
    apart = [replace(job, loads={10 * i + link: load for link, load in job.loads.items()}) for i, job in enumerate(jobs)]
    assert together_s(apart, mode).tolist() == [job.alone_s for job in apart]
    with_idle = [*apart, Job(1.0, 0.0, {link: (0.0, 1.0) for job in apart for link in job.loads})]
    assert together_s(with_idle, mode)[:-1].tolist() == [job.alone_s for job in apart]


@given(jobs=drawn_jobs, other=drawn_job())
def test_another_job_makes_nobody_faster(jobs, other):
    assert (together_s([*jobs, other])[:-1] >= together_s(jobs) * (1 - 1e-12)).all()


@given(jobs=drawn_jobs, factor=st.floats(1.0, 4.0), number=st.integers(0, 5))
def test_more_bytes_or_a_slower_network_make_nobody_faster(jobs, factor, number):
    def slower(job):
        return replace(job, loads={link: (busy_s * factor, streams) for link, (busy_s, streams) in job.loads.items()})

    before = together_s(jobs) * (1 - 1e-12)
    assert (together_s([slower(job) for job in jobs]) >= before).all()
    assert (together_s([slower(job) if i == number else job for i, job in enumerate(jobs)]) >= before).all()


@given(job=drawn_job(), number=st.integers(2, 5), mode=modes)
def test_equal_jobs_take_equally_long(job, number, mode):
    result = together_s([job] * number, mode)
    assert result == pytest.approx(result[0], rel=1e-12)


@given(jobs=drawn_jobs)
def test_taking_turns_makes_nobody_slower(jobs):
    assert (together_s(jobs, INTERLEAVED) <= together_s(jobs) * (1 + 1e-12)).all()


def test_its_rounds_bring_it_near_the_fixed_point_from_below():
    jobs = [Job(1.0 + 0.1 * i, 0.1, {0: (0.4, 1.0 + i), i: (0.3, 2.0)}) for i in range(1, 6)]
    plain = [[j.alone_s for j in jobs], [j.hidden_s for j in jobs], [j.loads for j in jobs]]
    settled = sharing_reference.step_times(*plain, CONSTANTS, FAIR, rounds=50)
    assert together_s(jobs) == pytest.approx(settled, rel=5e-2)
    assert (together_s(jobs) <= settled).all()


def test_parts_of_a_slowdown_worked_by_hand():
    # By a = 1 and b = h = t = 0 the part of k is as w_k u_k. Neither of the others is slowed: all that they send is hidden. One
    # sends half of the time in one stream, one a quarter of it in four: 1/2 to 1.
    others = [Job(1.0, 0.5, {0: (0.5, 1.0)}), Job(2.0, 0.5, {0: (0.5, 4.0)})]
    parts = parts_of([HALF, *others], constants=np.array([1.0, 0.0, 0.0, 0.0]))
    assert parts == pytest.approx(np.array([[0, 1 / 3, 2 / 3], [0, 0, 0], [0, 0, 0]]))


@draws(60)
@given(jobs=drawn_jobs, mode=modes)
def test_a_slowdown_is_divided_among_those_that_share_a_link(jobs, mode):
    parts, is_slowed = parts_of(jobs, mode), together_s(jobs, mode) > arrays_of(jobs)[0]
    assert parts.sum(axis=1) == pytest.approx(is_slowed.astype(float), abs=1e-12)
    busy = [{link for link, (busy_s, _) in job.loads.items() if busy_s > 0} for job in jobs]
    for j, k in np.argwhere(parts > 0):
        assert j != k
        assert busy[j] & busy[k]
    twins = parts_of([*jobs, jobs[0], jobs[0]], mode)
    assert twins[:-2, -1] == pytest.approx(twins[:-2, -2], rel=1e-9)
