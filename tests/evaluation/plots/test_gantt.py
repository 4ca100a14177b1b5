"""Pictures of who held which device when, of one step, and of ops on their devices."""

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import meshwright
from meshwright.clusters import load_cluster
from meshwright.costs.settings import CostSettings
from meshwright.evaluation.cluster.cluster_figures import mean_held_share
from meshwright.evaluation.plots import gantt, operators, static, step
from meshwright.jobs import load_graph
from meshwright.jobs.workload import Workload, WorkloadSettings
from meshwright.plans.splitting.op_splits import sip_ml_splits
from meshwright.quantities import counted
from meshwright.simulation.cluster.records import EpisodeRecord
from meshwright.simulation.cluster.scenario import ScenarioSettings, assemble
from meshwright.simulation.cluster.state import Outcome
from meshwright.simulation.step.timeline import simulate

from ...plans.test_op_placement import fork
from .test_figures import check
from .texts import HOSTILE, texts, words

# --- jobs of an episode ---


@pytest.fixture(scope="module")
def scenario(tmp_path_factory):
    described = WorkloadSettings.model_validate(
        {
            "graphs": ["zoo:squeezenet", "zoo:alexnet"],
            "steps": {"kind": "fixed", "num_steps": 10},
            "arrivals": {"kind": "fixed", "interarrival_s": 3600.0},
            "deadline": {"kind": "none"},
        }
    )
    settings = ScenarioSettings(cluster="preset:host-8", workload="unused", num_jobs=4, num_warmup_jobs=1, max_degree=4)
    cluster = load_cluster("preset:host-8")
    return assemble(settings, cluster, Workload.from_settings(described), cache=tmp_path_factory.mktemp("step_times"))


def episode(scenario, degrees, hours, outcome=Outcome.NO_BLOCK):
    """One arrival per hour; degree 0 is turned away, others run so many hours on the first block of their degree."""
    k = len(degrees)
    sizes = np.diff(scenario.space.start)
    blocks = [-1 if d == 0 else int(np.flatnonzero(sizes == d)[0]) for d in degrees]
    arrival_s = 3600.0 * np.arange(k)
    completion_s = np.array([np.nan if d == 0 else 3600.0 * h for d, h in zip(degrees, hours, strict=True)])
    return EpisodeRecord(
        arrival_s=arrival_s,
        graph_id=np.arange(k) % 2,
        num_steps=np.full(k, 10),
        allowed_s=np.full(k, np.inf),
        sequential_s=np.full(k, 7200.0),
        degree=np.array(degrees, np.int64),
        candidate=np.array(degrees, np.int64),
        block=np.array(blocks, np.int64),
        completion_s=completion_s,
        outcome=np.array([int(outcome if d == 0 else Outcome.ACCEPTED) for d in degrees], np.int64),
        start_s=np.where(np.isnan(completion_s), np.nan, arrival_s),
        finish_s=arrival_s + completion_s,
        **dict.fromkeys(["num_failures", "num_preemptions", "lost_work_s", "delay_s"], np.zeros(k)),
    )


def test_held_share_worked_by_hand(scenario):
    # 8 devices: 4 of them from 0 h to 1 h, none turned away at 1 h, 2 from 2 h to 2.5 h, 1 from 3 h to 5 h
    record = episode(scenario, [4, 0, 2, 1], [1, 0, 0.5, 2])
    moments, share = gantt.held_share(scenario, record)
    assert (moments / 3600).tolist() == [0, 1, 2, 2.5, 3, 5]
    assert share.tolist() == [0.5, 0, 0.25, 0, 0.125, 0]
    # from 1 h to 4 h: (2 x 0.5 h + 1 x 1 h) / (8 x 3 h)
    assert mean_held_share(scenario, record, 3600.0, 4 * 3600.0) == pytest.approx(2 / 24)


def test_bars_hold_every_device_second_of_an_episode_once(scenario):
    record = episode(scenario, [4, 0, 2, 1], [1, 0, 0.5, 2])
    result = gantt.episode_figure(scenario, [("mine", record), (HOSTILE, record)])
    check(result)
    bars = [trace for trace in result["data"] if trace["type"] == "bar" and trace["yaxis"] == "y"]
    held_h = sum(float(np.dot(np.array(trace["width"]) / 0.94, trace["x"])) for trace in bars)
    assert held_h == pytest.approx(4 * 1 + 2 * 0.5 + 1 * 2)
    assert {trace["name"] for trace in bars} == {"squeezenet", "alexnet"}
    (away,) = (trace for trace in result["data"] if trace["name"].startswith("turned away") and trace["yaxis"] == "y")
    assert (away["x"], away["name"]) == ([1.0], "turned away: no free block")
    assert result["layout"]["xaxis"]["range"] == [0.0, 5.0]
    said = words(result)
    assert any(text.startswith("mine: 3 of 4 jobs placed") for text in said)
    assert {"time since the episode began (h)", "job 1, alexnet no free block", "Devices held"} <= set(said)
    assert any("job 0 4 ranks, 10 training steps 0 µs to 60 min: 60 min" in text for text in said)


def test_an_episode_without_an_accepted_job_is_drawn(scenario):
    record = episode(scenario, [0, 0, 0, 0], [0] * 4, Outcome.DEADLINE)
    result = gantt.episode_figure(scenario, [("nobody", record)])
    check(result)
    assert any(text.startswith("nobody: 0 of 4 jobs placed, 0 % of device-time held") for text in words(result))
    texts(static.svg(result))


def test_of_too_many_bars_the_first_part_is_drawn_and_the_axis_says_so():
    count = 3 * gantt.MOST_BARS
    bars = [gantt.Bar(60.0 * k, 60.0 * k + 50.0, k % 8, 1, "job", (f"job {k}",)) for k in range(count)]
    result = gantt.gantt_figure("", [gantt.Lanes("", bars, [("host", 0, 8)])], {"job": ("#0072b2", "")}, (0.0, 60.0 * count))
    (drawn,) = (trace for trace in result["data"] if trace["type"] == "bar")
    assert len(drawn["x"]) == gantt.MOST_BARS
    assert "drawn to 5.56 d of 16.7 d" in result["layout"]["xaxis"]["title"]["text"]
    assert len(json.dumps(result)) < 2e6


@given(st.sets(st.integers(0, 40), min_size=1))
def test_runs_of_devices_cover_each_device_once(devices):
    runs = gantt.consecutive(np.array(sorted(devices, reverse=True)))
    assert sorted(device for first, count in runs for device in range(first, first + count)) == sorted(devices)
    assert all(b[0] > a[0] + a[1] for a, b in pairwise(runs))


# --- one step of a job ---


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
    for rank in range(degree):
        stretches = step.lanes(timeline)[2 * rank]
        assert sum(stretch.end_s - stretch.begin_s for stretch in stretches) == pytest.approx(timeline.compute_busy_s[rank])
        assert {stretch.kind for stretch in stretches} == {step.FORWARD, step.BACKWARD}


@pytest.mark.parametrize("contention", ["serialised", "independent"])
def test_an_all_reduce_is_drawn_on_every_rank_that_takes_part(job, contention):
    lanes = step.lanes(step_of(job, 4, contention=contention))
    reduces = [[one[:2] for one in lanes[2 * rank + 1] if one.kind == step.REDUCED] for rank in range(4)]
    widest = set(map(tuple, reduces[0]))
    assert widest
    assert all(set(reduce) <= widest for reduce in reduces)
    assert set(reduces[3])


def test_joining_short_neighbours_moves_no_border(job):
    timeline = step_of(job, 4)
    fine, coarse = step.lanes(timeline), step.lanes(timeline, shortest_s=timeline.step_s / 100)
    assert sum(map(len, coarse)) < sum(map(len, fine))
    for before, after in zip(fine, coarse, strict=True):
        assert {one.begin_s for one in after} <= {one.begin_s for one in before}
        assert {one.end_s for one in after} <= {one.end_s for one in before}


def test_a_step_shows_ranks_time_and_communication_and_few_ranks_of_many_bars(job, monkeypatch):
    timeline = step_of(job, 4)
    result = step.step_figure(timeline, job[1], ["h0/0", "h0/1"])
    check(result)
    title = f"squeezenet on 4 ranks: {timeline.step_s * 1e3:.4g} ms a step, "
    title += f"{100 * timeline.communication_share:.0f} % of it communication"
    assert {title, "rank 0 h0/0", "rank 1 h0/1", "rank 2", "rank 3", step.REDUCED} <= set(words(result))
    monkeypatch.setattr(gantt, "MOST_BARS", 8)
    few = step.step_figure(timeline, job[1])
    assert few["layout"]["yaxis"]["ticktext"] == ["rank 0"]
    assert any(text.endswith("; the first 1 ranks") for text in words(few))


# --- ops on devices ---


def test_levels_are_the_longest_ways_from_a_source():
    assert operators.levels(fork().edges, fork().order).tolist() == [0, 1, 1, 2]


def test_a_drawing_names_each_device_and_its_ops_and_the_bytes_that_cross():
    result = meshwright.place("zoo:resnet50", "preset:toy", by="heft", batch_size=64)
    drawn = operators.placement_figure(result)
    check(drawn)
    for each in result.device_rows():
        assert any(text.endswith(f" {each['num_ops']} op{'s' * (each['num_ops'] != 1)}") for text in words(drawn))
    graph, device_of = result.graph, np.array(result.plan.partition.device_of)
    crossing = {(a, device_of[b]) for a, b in graph.edges.tolist() if device_of[a] != device_of[b]}
    total = sum(graph.activation_bytes[a] for a, _ in crossing)
    assert 1e3 <= total < 1e6
    assert f"{counted(len(crossing), 'tensor')} of {total / 1e3:.3g} kB cross forward" in drawn["layout"]["meta"]["label"]
    assert sum(len(trace["x"]) for trace in drawn["data"] if trace.get("marker", {}).get("symbol") == "square") == graph.num_ops
    assert texts(static.svg(drawn)) == texts(static.svg(operators.placement_figure(result)))
