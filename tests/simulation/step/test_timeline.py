"""Figures of a step's timeline, and its trace."""

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.costs.settings import CostSettings
from meshwright.plans.splitting.op_splits import OpSplits, uniform_splits
from meshwright.simulation.step.execution import TaskKind
from meshwright.simulation.step.timeline import Timeline, simulate

from ...draws import draws
from ...samples.sample_graphs import profile
from ..execution_samples import execution_of


def timeline_of(*tasks):
    """A timeline of tasks ``(kind, rank, start, finish)`` on two ranks."""
    kinds, ranks, starts, finishes = zip(*tasks, strict=True)
    start_s, finish_s = np.array(starts, float), np.array(finishes, float)
    return Timeline(execution_of(finish_s - start_s, ranks=ranks, kind=kinds, streams=[()] * len(tasks)), start_s, finish_s)


COMPUTE, TRANSFER, COLLECTIVE = TaskKind.COMPUTE, TaskKind.TRANSFER, TaskKind.COLLECTIVE


def test_the_figures_of_a_step_worked_by_hand():
    # Rank 0 computes 0-2 and 5-6, rank 1 computes 1-4. A last all-reduce runs 6-7: the step takes 7 s, and the busiest ranks
    # compute 3 s each.
    timeline = timeline_of(
        (COMPUTE, 0, 0, 2),
        (COMPUTE, 1, 1, 4),
        (COMPUTE, 0, 5, 6),
        (TRANSFER, 0, 2, 3),
        (TRANSFER, 1, 3, 5.5),
        (COLLECTIVE, 0, 6, 7),
    )
    assert timeline.step_s == 7.0
    assert timeline.compute_busy_s.tolist() == [3.0, 3.0]
    assert timeline.communication_share == pytest.approx(4 / 7, rel=1e-15)


def test_a_step_that_takes_no_time_has_no_share_of_it():
    graph = profile("idle", [0.0], [0.0], [])
    timeline = timeline_of((COMPUTE, 0, 0, 0))
    assert (timeline.step_s, timeline.communication_share) == (0.0, 0.0)
    assert all(event["dur"] == 0 for event in timeline.to_chrome_trace(graph)["traceEvents"] if event["ph"] == "X")


def test_the_trace_of_a_step_worked_by_hand(host, two_ops):
    # see test_lowering: a on rank 0 from 0 to 2 s, then half of its output to rank 1: 0.6 us + 30 GB / 300 GB/s
    trace = simulate(two_ops, host, OpSplits(np.array([1, 2])), [0, 1]).to_chrome_trace(two_ops)
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert events[0] == {
        "ph": "X",
        "name": "op0 forward",
        "cat": "compute",
        "pid": 0,
        "tid": 0,
        "ts": 0.0,
        "dur": 2e6,
        "args": {"bytes": 0.0},
    }
    (sent,) = [event for event in events if event["cat"] == "transfer" and event["name"].endswith("forward")]
    assert (sent["pid"], sent["tid"], sent["ts"], sent["args"]) == (0, 1, 2e6, {"bytes": 30e9})
    assert sent["dur"] == pytest.approx(100000.6, rel=1e-9)
    (reduced,) = [event for event in events if event["cat"] == "all-reduce"]
    assert (reduced["name"], reduced["pid"], reduced["tid"]) == ("op1 backward", 0, 1)


@draws(10)
@given(data=st.data())
def test_a_trace_is_valid_and_no_rank_computes_two_things_at_once(host, data):
    n = data.draw(st.integers(1, 6))
    seconds = st.lists(st.floats(0, 9), min_size=n, max_size=n)
    graph = profile(
        "drawn",
        data.draw(seconds),
        data.draw(seconds),
        [(i, i + 1) for i in range(n - 1)],
        activation_bytes=[1e9] * n,
        parameter_bytes=[1e9] * n,
    )
    splits = OpSplits(np.array(data.draw(st.lists(st.integers(1, 8), min_size=n, max_size=n))))
    timeline = simulate(graph, host, splits, range(8))
    trace = json.loads(json.dumps(timeline.to_chrome_trace(graph), allow_nan=False))
    assert trace["displayTimeUnit"] == "ms"
    events = trace["traceEvents"]
    assert {event["ph"] for event in events} <= {"X", "M", "C", "s", "f"}
    assert sum(event["ph"] == "X" for event in events) == timeline.execution.num_tasks
    named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    spans = [event for event in events if event["ph"] == "X"]
    assert named >= {(event["pid"], event["tid"]) for event in spans}
    assert all(isinstance(event[key], float) and event[key] >= 0 for event in spans for key in ("ts", "dur"))
    assert [event["ts"] for event in spans] == sorted(event["ts"] for event in spans)
    for rank in range(splits.degree):
        mine = sorted((e["ts"], e["ts"] + e["dur"]) for e in spans if (e["pid"], e["tid"]) == (rank, 0))
        assert all(finish <= start + 1e-6 for (_, finish), (start, _) in pairwise(mine))


def test_a_rank_never_computes_longer_than_the_step(host, two_ops):
    timeline = simulate(two_ops, host, uniform_splits(two_ops, 4), range(4))
    # forward and backward of both ops, a quarter each: 18 / 4 s on every rank
    assert timeline.compute_busy_s.tolist() == [4.5] * 4
    assert timeline.communication_share == pytest.approx(1 - 4.5 / timeline.step_s, rel=1e-15)


def test_a_step_worked_by_hand(host, two_ops):
    # a on rank 0, b on both: 30 GB of a's output go from rank 0 to rank 1 and as much of its gradient back, and the ring of
    # two that reduces b's gradients carries 600 GB each way.
    timeline = simulate(two_ops, host, OpSplits(np.array([1, 2])), [2, 5], CostSettings(collectives="ring"))
    assert timeline.step_s == pytest.approx(12.2000012, rel=1e-12)
    assert timeline.compute_busy_s.tolist() == [12.0, 6.0]  # rank 0 computes 2 + 2 + 4 + 4 s, rank 1 2 + 4 s


def test_messages_that_disturb_nobody_may_use_more_than_a_link_has(host):
    # Three ops reduce 300 GB each at once over two ranks, 300 GB a link in 1 s each: three times what it carries.
    graph = profile("wide", [0.0] * 3, [0.0] * 3, [], parameter_bytes=[300e9] * 3)
    alone, shared = (
        simulate(graph, host, uniform_splits(graph, 2), [0, 1], CostSettings(contention=mode, collectives="ring"))
        for mode in ("independent", "fair")
    )
    assert 3 * alone.step_s == pytest.approx(shared.step_s, rel=1e-5)
