"""Classes of flows: strict between them, max-min fair within; what is urgent gets its link first."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.clusters import load_cluster
from meshwright.costs.settings import CostSettings
from meshwright.errors import ConfigError
from meshwright.planning.estimate import estimate
from meshwright.planning.explain import explain
from meshwright.settings import build_settings
from meshwright.simulation.contention import concurrent_jobs
from meshwright.simulation.contention.placed_job import PlacedJob

from ..execution_samples import execution_of, sent
from .concurrent_messages import switch
from .test_fair_sharing import links_of, rates


@st.composite
def drawn(draw):
    num_links = draw(st.integers(1, 5))
    bandwidth = draw(st.lists(st.integers(1, 9), min_size=num_links, max_size=num_links))
    path = st.lists(st.integers(0, num_links - 1), min_size=1, max_size=num_links, unique=True)
    paths = draw(st.lists(path, min_size=1, max_size=7))
    classes = draw(st.lists(st.integers(0, 2), min_size=len(paths), max_size=len(paths)))
    return bandwidth, paths, np.array(classes, np.int64)


@given(drawn())
def test_each_class_shares_fairly_what_those_before_it_leave(case):
    bandwidth, paths, classes = case
    result = np.array(rates(links_of(*bandwidth), paths, classes))
    left = np.array(bandwidth, float)
    for own in np.unique(classes):
        # flows of this class alone; over a link with nothing left none gets through
        mine = [flow for flow in np.flatnonzero(classes == own) if (left[paths[flow]] > 1e-9).all()]
        assert all(result[flow] == pytest.approx(0, abs=1e-8) for flow in np.flatnonzero(classes == own) if flow not in mine)
        if mine:
            expected = rates(links_of(*np.maximum(left, 1e-30)), [paths[flow] for flow in mine])
            assert result[mine] == pytest.approx(expected, abs=1e-8)
        for flow in mine:
            left[paths[flow]] -= result[flow]


@given(drawn())
def test_one_class_is_plain_fairness(case):
    bandwidth, paths, classes = case
    last = rates(links_of(*bandwidth), paths, np.full_like(classes, 2))
    assert last == pytest.approx(rates(links_of(*bandwidth), paths), rel=1e-12)


# Both messages go from device 0 to 1 at 4 GB/s: 8 GB of gradients, and 4 GB that a computation of 2 s wants.
TWO = {
    "durations_s": [0.0, 0.0, 2.0],
    "edges": [(1, 2)],
    "members": [(0, 1), (0, 1), ()],
    "phases": [sent(0, 1, 8e9), sent(0, 1, 4e9), ()],
}


@pytest.mark.parametrize(
    ("choice", "priority", "finish_s"),
    [
        # half of the link each: the second is there at 2, the first at 3, the computation ends at 4
        ("fair", [0.0, 1.0, 0.0], [3.0, 2.0, 4.0]),
        # the gradients first: 2, then 3, then 5
        ("priority", [0.0, 1.0, 0.0], [2.0, 3.0, 5.0]),
        # urgent by the order of tasks: the second first
        ("priority", [1.0, 0.0, 0.0], [3.0, 1.0, 3.0]),
        # what is wanted first: 1, then 3, and the computation ends at 3
        ("edf", [0.0, 1.0, 0.0], [3.0, 1.0, 3.0]),
    ],
)
def test_two_flows_on_a_link_worked_by_hand(choice, priority, finish_s):
    execution = execution_of(**TWO, priority=priority)
    timed = replace(execution, duration_s=np.array([2.0, 1.0, 2.0]))  # what each takes alone tells deadlines
    job = PlacedJob(timed, np.arange(2), flows_priority=choice)
    assert concurrent_jobs.schedule([job], switch)[0][1].tolist() == finish_s


def test_an_order_of_flows_wants_flows_that_share():
    with pytest.raises(ConfigError, match="flows_priority edf wants contention fair"):
        build_settings(CostSettings, {"flows_priority": "edf"})


def test_explain_tells_both_switches_of_a_layout_with_experts_or_gradients():
    costs = CostSettings(contention="fair")
    result = estimate("zoo:vgg16", load_cluster("preset:clos-64-4to1"), "dp=8,micro_batch=32,global_batch=256", costs=costs)
    figures = {switch.name: switch for switch in explain(result)}
    for name in ("flows_priority=priority", "flows_priority=edf", "priority=deadline"):
        assert figures[name].step_s is not None
