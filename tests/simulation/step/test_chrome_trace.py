"""Traces obey the rules of the Trace Event Format.

The ``perfetto`` package brings no trace processor but fetches one over the network on first use. So these tests check
Perfetto's rules for JSON themselves. Slices of one thread do not overlap. Every arrow has one beginning and one end, both
inside slices. A counter has a number at each change.
"""

import json
from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.costs.settings import CostSettings
from meshwright.jobs import load_graph
from meshwright.plans.splitting.op_splits import OpSplits, sip_ml_splits
from meshwright.simulation.step.timeline import simulate

from ...draws import draws
from ...samples.sample_graphs import profile
from ..execution_samples import clos

FLOAT_US = 1e-6
"""Rounding error of a time in microseconds; Perfetto counts whole nanoseconds."""


def check(trace, num_tasks, num_ranks):
    """Every rule on plain data that has been through JSON."""
    trace = json.loads(json.dumps(trace, allow_nan=False))
    assert set(trace) == {"traceEvents", "displayTimeUnit"}
    by_phase = defaultdict(list)
    for event in trace["traceEvents"]:
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert isinstance(event["name"], str)
        by_phase[event["ph"]].append(event)
    assert set(by_phase) <= {"M", "X", "s", "f", "C"}
    named = {(e["pid"], e["tid"]) for e in by_phase["M"] if e["name"] == "thread_name"}
    assert {e["pid"] for e in by_phase["M"] if e["name"] == "process_name"} == set(range(num_ranks))
    slices = defaultdict(list)
    for event in by_phase["X"]:
        assert event["ts"] >= 0
        assert event["dur"] >= 0
        slices[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    assert sum(map(len, slices.values())) == num_tasks
    assert set(slices) <= named
    for spans in slices.values():
        assert all(end <= begin + FLOAT_US for (_, end), (begin, _) in pairwise(sorted(spans)))
    assert len({e["id"] for e in by_phase["s"]}) == len(by_phase["s"]) == len(by_phase["f"])
    begins = {e["id"]: e for e in by_phase["s"]}
    for end in by_phase["f"]:
        assert begins[end["id"]]["ts"] <= end["ts"] + FLOAT_US
        assert end["bp"] == "e"
        for arrow in (begins[end["id"]], end):
            spans = slices[arrow["pid"], arrow["tid"]]
            assert any(a - FLOAT_US <= arrow["ts"] <= b + FLOAT_US for a, b in spans)
    counters = defaultdict(list)
    for event in by_phase["C"]:
        assert isinstance(event["args"]["bytes"], int | float)
        counters[event["pid"]].append(event["ts"])
    assert set(counters) == set(range(num_ranks))
    assert all(times[0] == 0 and times == sorted(set(times)) for times in counters.values())
    return by_phase


@draws(10)
@given(st.integers(0, 2**32))
def test_any_step_makes_a_valid_trace(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 6))
    edges = [(i, j) for j in range(n) for i in range(j) if rng.random() < 0.5]
    seconds = rng.choice([0.0, 0.1, 1 / 3, 2.0], (2, n)).tolist()
    graph = profile("drawn", *seconds, edges, activation_bytes=rng.integers(0, 4, n) * 1e9, parameter_bytes=rng.random(n) * 1e9)
    splits = OpSplits(rng.integers(1, 9, n))
    mode = str(rng.choice(["independent", "serialised", "fair"]))
    costs = CostSettings(contention=mode, overlap_slowdown=float(rng.choice([1.0, 1.5])))
    timeline = simulate(graph, clos(num_hosts=8), splits, range(8), costs)
    check(timeline.to_chrome_trace(graph), timeline.execution.num_tasks, splits.degree)


@pytest.mark.parametrize("mode", ["independent", "serialised", "fair"])
def test_a_model_makes_a_valid_trace(host, mode):
    graph = load_graph("zoo:resnet18")
    splits = sip_ml_splits(graph, 8, 5e-5)
    timeline = simulate(graph, host, splits, range(8), CostSettings(contention=mode))
    result = check(timeline.to_chrome_trace(graph), timeline.execution.num_tasks, splits.degree)
    num_transfers = sum(event["cat"] == "transfer" for event in result["X"])
    assert num_transfers > 0
    assert len(result["s"]) == 2 * num_transfers


def test_messages_at_once_stand_on_threads_of_their_own(host):
    # a on rank 0 feeds b on ranks 0, 1 and 2: two transfers leave rank 0 at 1 s, on threads 1 and 2.
    graph = profile("fan", [1.0, 1.0], [1.0, 1.0], [(0, 1)], activation_bytes=[3e9, 0.0])
    trace = simulate(graph, host, OpSplits(np.array([1, 3])), range(3), CostSettings(contention="fair")).to_chrome_trace(graph)
    result = check(trace, 4 + 4 + 4, 3)
    forward = [e for e in result["X"] if e["cat"] == "transfer" and e["name"].endswith("forward")]
    assert [(e["pid"], e["tid"], e["ts"]) for e in forward] == [(0, 1, 1e6), (0, 2, 1e6)]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in result["M"] if e["name"] == "thread_name"}
    assert (names[0, 0], names[0, 1], names[0, 2]) == ("compute", "communication", "communication 2")


def test_the_counter_shows_memory_worked_by_hand(host):
    # 8 x 2 bytes of state; 5 of activation from the start of the forward pass to the end of the backward one.
    graph = profile("one", [1.0], [2.0], [], activation_bytes=[5.0], parameter_bytes=[2.0])
    result = check(simulate(graph, host, OpSplits(np.array([1])), [0]).to_chrome_trace(graph), 2, 1)
    assert [(e["ts"], e["args"]["bytes"]) for e in result["C"]] == [(0.0, 21.0), (3e6, 16.0)]
