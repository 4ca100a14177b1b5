"""The compiled kernel and its plain reference: equal to the last bit, and both obey the laws of list scheduling."""

from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import GraphError
from meshwright.simulation.step import kernel

from ...draws import cases, draws
from ...oracles import list_scheduling
from ..execution_samples import execution_of

SCHEDULERS = [kernel.schedule, list_scheduling.schedule]
tasks = partial(execution_of, num_ranks=4)


def random_graph(num_tasks, num_ranks, seed):
    """Many ties, many zero durations, tasks of several streams or of none, one stream named twice now and then."""
    rng = np.random.default_rng(seed)
    pairs = rng.integers(0, max(num_tasks, 1), (int(rng.integers(0, 2 * num_tasks + 1)), 2))
    pairs = np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1)
    most = int(rng.integers(1, 2 * num_ranks + 1))
    return tasks(
        rng.choice([0.0, 0.1, 0.7, 1.0, 3.0], num_tasks) + rng.choice([0.0, 1.0], num_tasks) * rng.random(num_tasks),
        rng.permutation(num_tasks)[pairs] if num_tasks else pairs,
        streams=[rng.integers(0, 2 * num_ranks, rng.integers(0, most + 1)).tolist() for _ in range(num_tasks)],
        priority=rng.integers(-2, 3, num_tasks) + rng.choice([0.0, 0.5], num_tasks) * rng.random(num_tasks),
        num_ranks=num_ranks,
    )


execution_graphs = st.builds(random_graph, st.integers(0, 20), st.integers(1, 3), st.integers(0, 2**32))


def assert_equal_to_the_last_bit(graph):
    for compiled, plain in zip(kernel.schedule(graph), list_scheduling.schedule(graph), strict=True):
        assert compiled.tobytes() == plain.tobytes()


@draws(125)
@given(execution_graphs)
def test_the_kernel_equals_the_reference_to_the_last_bit(graph):
    assert_equal_to_the_last_bit(graph)


def test_the_kernel_equals_the_reference_on_larger_graphs():
    for seed in cases(20):
        assert_equal_to_the_last_bit(random_graph(50 + 10 * (seed % 20), 1 + seed % 8, seed))


@draws(25)
@given(execution_graphs)
def test_a_stream_does_one_task_at_a_time(graph):
    start_s, finish_s = kernel.schedule(graph)
    for stream in range(graph.num_streams):
        users = [i for i in range(graph.num_tasks) if stream in graph.streams[graph.stream_start[i] : graph.stream_start[i + 1]]]
        users.sort(key=lambda i: (start_s[i], finish_s[i]))
        assert all(finish_s[a] <= start_s[b] for a, b in pairwise(users))


@draws(25)
@given(execution_graphs)
def test_every_task_runs_once_for_its_duration_after_its_predecessors(graph):
    start_s, finish_s = kernel.schedule(graph)
    assert finish_s.tolist() == (start_s + graph.duration_s).tolist()
    assert all(start_s[after] >= finish_s[before] for before, after in graph.edges.tolist())


BY_HAND = [
    # Ranks 0 and 1 compute on streams 0 and 1. At 0: task 2 (priority 0) takes stream 0 before task 0 (priority 5);
    # task 1 needs both streams and waits, although stream 1 is free, so task 3 (priority 9) takes that.
    # At 1, task 2 ends: task 1 (priority 1) still lacks stream 1, so task 0 starts. At 3, task 3 ends, stream 0 is busy
    # until 5. Task 4 follows task 3 without a stream of its own: 3 to 3.5. Task 1 runs from 5 to 6.
    (
        [4.0, 1.0, 1.0, 3.0, 0.5],
        [(3, 4)],
        {"streams": [[0], [0, 1], [0], [1], []], "priority": [5, 1, 0, 9, 0]},
        [1.0, 5.0, 0.0, 0.0, 3.0],
    ),
    # equal priorities go by the number of the task
    ([1.0, 1.0, 1.0], [], {"priority": [1, 0, 1]}, [1.0, 0.0, 2.0]),
    # 1 waits for 0 and has the stream before 2, which is ready but less urgent, only after 0 has ended
    ([0.0, 1.0, 1.0], [(0, 1)], {"priority": [0, 1, 2]}, [0.0, 0.0, 1.0]),
    ([], [], {}, []),
]


@pytest.mark.parametrize("schedule", SCHEDULERS)
@pytest.mark.parametrize(("durations_s", "edges", "keys", "starts_s"), BY_HAND)
def test_a_schedule_worked_by_hand(schedule, durations_s, edges, keys, starts_s):
    start_s, finish_s = schedule(tasks(durations_s, edges, **keys))
    assert start_s.tolist() == starts_s
    assert finish_s.tolist() == (start_s + durations_s).tolist()


@pytest.mark.parametrize("schedule", SCHEDULERS)
@pytest.mark.parametrize(
    ("edges", "stuck"),
    [([(0, 0)], 1), ([(0, 1), (1, 0)], 2), ([(2, 0), (0, 1), (1, 0), (1, 2)], 3), ([(2, 0), (0, 1), (1, 0)], 2)],
)
def test_a_cycle_is_refused(schedule, edges, stuck):
    with pytest.raises(GraphError, match=rf"edges: the tasks form a cycle \(got '{stuck} tasks never start'\)"):
        schedule(tasks([1.0, 1.0, 1.0], edges))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"durations_s": [1.0, -1.0]}, r"task 1 duration_s: must be finite and not negative \(got -1.0\)"),
        ({"durations_s": [float("nan"), 1.0]}, r"task 0 duration_s: must be finite"),
        ({"durations_s": [1.0, float("inf")]}, r"task 1 duration_s: must be finite"),
        ({"priority": [0.0, float("nan")]}, r"task 1 priority: must be a number"),
        ({"edges": [(0, 2)]}, r"edges: .*outside 0\.\.1"),
        ({"edges": [(-1, 0)]}, r"edges: .*outside 0\.\.1"),
        ({"streams": [[0], [8]]}, r"streams: .*outside 0\.\.7"),
        ({"streams": [[-1], [0]]}, r"streams: .*outside 0\.\.7"),
    ],
)
def test_an_impossible_execution_graph_is_refused(change, message):
    with pytest.raises(GraphError, match=message):
        tasks(**{"durations_s": [1.0, 1.0], **change})
