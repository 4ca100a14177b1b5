"""Idle time of a pipeline: the published bubble of equal stages, whatever they send, and no other waiting under its name."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.costs.pipelines.waits import IDLE, bubble_time_fraction, waits
from meshwright.costs.training_step.graph_step_time import GraphPricer
from meshwright.costs.work.graph_work import describe_graph
from meshwright.devices import device_type
from meshwright.plans.partition import Layout

from ...draws import draws
from ..graphs import Line, graph_of

A100 = device_type("a100")


def chain(seconds, sends_bytes=0.0):
    """A chain of ops of forward and backward seconds of one sample; see `graphs.Line` for what its messages take."""
    edges = [(op, op + 1) for op in range(len(seconds) - 1)]
    return graph_of(seconds, edges, [sends_bytes] * len(seconds), [0.0] * len(seconds))


def priced(seconds, layout, sends_bytes=0.0):
    graph = chain([layout.global_batch * one for one in seconds], layout.global_batch * sends_bytes)
    cuts = np.arange(len(seconds) + 1)
    return GraphPricer(A100, Line()).price_work(describe_graph(graph, layout, A100, cuts=cuts))


@pytest.mark.parametrize(("p", "v", "m"), [(2, 1, 1), (4, 1, 8), (8, 1, 8), (4, 2, 8), (2, 4, 6), (4, 4, 16)])
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_equal_stages_have_the_published_bubble(p, v, m, schedule):
    if v > 1 and schedule == "gpipe":
        return
    schedule = "interleaved" if v > 1 else schedule
    layout = Layout(pp=p, virtual_stages=v, schedule=schedule, micro_batch=1, global_batch=m)
    for sends_bytes in (0.0, 0.3):
        step = priced([1.0] * (p * v), layout, sends_bytes)
        assert bubble_time_fraction(step.breakdown_s) == pytest.approx((p - 1) / (v * m))
        assert step.breakdown_s["imbalance"] == 0
        assert (step.breakdown_s["pipeline transfers"] > 0) is (sends_bytes > 0)


def test_waiting_for_a_longer_stage_is_no_bubble_worked_by_hand():
    # Two stages of 3 and 9 s a micro-batch (a third of it forward), four micro-batches: the second computes 36 s without a
    # pause behind the first one's 1 s and before its last 2 s. The first computes 12 of these 39 s.
    step = priced([1.0, 3.0], Layout(pp=2, micro_batch=1, global_batch=4))
    assert step.step_s == pytest.approx(39)
    parts = {name: step.breakdown_s[name] for name in ("compute", *IDLE)}
    assert parts == pytest.approx({"compute": 12, "pipeline transfers": 0, "bubble": 3, "imbalance": 24})
    assert bubble_time_fraction(step.breakdown_s) == pytest.approx(3 / 36)


@draws(50)
@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=6), st.data(), st.floats(0, 300), st.floats(0, 300))
def test_parts_of_a_span_are_never_negative_and_always_the_whole(computed_s, data, more_s, unsent_s):
    stage = data.draw(st.integers(0, len(computed_s) - 1))
    result = waits(computed_s[stage] + more_s, unsent_s, np.array(computed_s), stage)
    assert min(result.values()) >= 0
    assert sum(result.values()) == pytest.approx(more_s, abs=1e-9)
