"""The chain of tasks that decides how long a step takes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import GraphError
from meshwright.simulation.contention import concurrent_jobs
from meshwright.simulation.step import kernel
from meshwright.simulation.step.critical_path import critical_path

from ...draws import draws
from ..execution_samples import drawn_execution, drawn_jobs, execution_of


def test_a_path_over_a_dependency_and_a_stream_worked_by_hand():
    # Rank 0: task 0 (0-2), then task 1 (2-5), which waited for the stream. Task 2 on rank 1 depends on 1: 5-6. Task 3 on
    # rank 1 ran 0-1 and matters to nobody.
    execution = execution_of([2.0, 3.0, 1.0, 1.0], [(1, 2)], ranks=[0, 0, 1, 1])
    assert critical_path(execution, *kernel.schedule(execution)) == [0, 1, 2]


def test_no_tasks_have_no_path():
    assert critical_path(execution_of([]), np.zeros(0), np.zeros(0)) == []


def test_times_of_no_schedule_have_no_path():
    with pytest.raises(GraphError, match="no chain of tasks"):
        critical_path(execution_of([1.0]), np.array([1.0]), np.array([2.0]))


def assert_has_no_gap(execution, start_s, finish_s):
    path = critical_path(execution, start_s, finish_s)
    assert start_s[path[0]] == 0.0
    assert finish_s[path[-1]] == finish_s.max()
    assert [finish_s[task] for task in path[:-1]] == [start_s[task] for task in path[1:]]
    assert len(set(path)) == len(path)


@draws(38)
@given(st.integers(0, 2**32))
def test_the_path_has_no_gap(seed):
    rng = np.random.default_rng(seed)
    execution = drawn_execution(rng, int(rng.integers(1, 30)), 3)
    assert_has_no_gap(execution, *kernel.schedule(execution))


@draws(25)
@given(st.integers(0, 2**32))
def test_the_path_has_no_gap_where_links_are_shared(seed):
    jobs, cluster = drawn_jobs(seed, max_tasks=15)
    for job in jobs:
        if job.execution.num_tasks:
            (times,) = concurrent_jobs.schedule([job], cluster)
            assert_has_no_gap(job.execution, *times)


@draws(15)
@given(st.integers(0, 2**32))
def test_what_is_off_the_path_and_faster_shortens_nothing_below_it(seed):
    rng = np.random.default_rng(seed)
    execution = drawn_execution(rng, int(rng.integers(1, 20)), 2)
    start_s, finish_s = kernel.schedule(execution)
    path = critical_path(execution, start_s, finish_s)
    assert sum(execution.duration_s[path]) == pytest.approx(finish_s.max(), rel=1e-12)
