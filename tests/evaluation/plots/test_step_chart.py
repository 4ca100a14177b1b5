"""Pictures of one training step."""

import numpy as np
import pytest

from meshwright.clusters import load_cluster
from meshwright.costs.settings import CostSettings
from meshwright.evaluation.plots import step_chart, style
from meshwright.jobs import load_graph
from meshwright.plans.splitting.op_splits import sip_ml_splits
from meshwright.simulation.step.timeline import simulate

from .texts import texts

# --- one step ---


@pytest.fixture(scope="module")
def job():
    cluster = load_cluster("preset:host-8")
    return cluster, load_graph("zoo:squeezenet", device=cluster.device_types[0])


def step_of(job, degree, **costs):
    cluster, graph = job
    return simulate(graph, cluster, sip_ml_splits(graph, degree, 1e-6), np.arange(degree), CostSettings(**costs))


@pytest.mark.parametrize("degree", [1, 4])
def test_the_compute_lanes_hold_exactly_what_each_rank_computes(job, degree):
    timeline = step_of(job, degree)
    lanes = step_chart.lanes(timeline)
    for rank in range(degree):
        busy_s = sum(bar.end_s - bar.begin_s for bar in lanes[2 * rank])
        assert busy_s == pytest.approx(timeline.compute_busy_s[rank])
        assert {bar.colour for bar in lanes[2 * rank]} == {style.COMPUTE_FORWARD, style.COMPUTE_BACKWARD}


@pytest.mark.parametrize("contention", ["serialised", "independent"])
def test_an_all_reduce_is_drawn_on_every_rank_that_takes_part(job, contention):
    lanes = step_chart.lanes(step_of(job, 4, contention=contention))
    reduces = [[bar[:2] for bar in lanes[2 * rank + 1] if bar.colour == style.ALL_REDUCE] for rank in range(4)]
    widest = set(map(tuple, reduces[0]))
    assert widest
    assert all(set(found) <= widest for found in reduces)
    assert set(reduces[3])


def test_joining_short_neighbours_moves_no_border(job):
    timeline = step_of(job, 4)
    fine, coarse = step_chart.lanes(timeline), step_chart.lanes(timeline, shortest_s=timeline.step_s / 100)
    assert sum(map(len, coarse)) < sum(map(len, fine))
    for before, after in zip(fine, coarse, strict=True):
        assert {bar.begin_s for bar in after} <= {bar.begin_s for bar in before}
        assert {bar.end_s for bar in after} <= {bar.end_s for bar in before}


def test_the_step_tells_job_ranks_time_and_communication(job):
    timeline = step_of(job, 4)
    svg = step_chart.step_svg(timeline, job[1], device_names=["h0/0", "h0/1"])
    found = texts(svg)
    share = f"{100 * timeline.communication_share:.0f} % of it communication"
    assert f"squeezenet on 4 ranks: {timeline.step_s * 1e3:.4g} ms a step, {share}" in found
    assert {"rank 0  h0/0", "rank 1  h0/1", "rank 2", "rank 3", "all-reduce of gradients"} <= set(found)
    assert svg == step_chart.step_svg(timeline, job[1], device_names=["h0/0", "h0/1"])
