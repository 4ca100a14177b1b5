"""Pictures of who held which device when."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.clusters import load_cluster
from meshwright.evaluation.plots import gantt
from meshwright.jobs.workload import Workload, WorkloadSettings
from meshwright.simulation.cluster.dynamics import Outcome
from meshwright.simulation.cluster.records import EpisodeRecord
from meshwright.simulation.cluster.scenario import ScenarioSettings, assemble

from .texts import HOSTILE, texts

# --- occupancy ---


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
    window = gantt.Window.of(record.arrival_s, 1, 3)
    assert (window.begin_s, window.end_s, window.num_jobs) == (3600.0, 4 * 3600.0, 3)
    assert gantt.mean_held_share(scenario, record, window) == pytest.approx(2 / 24)


def test_the_occupancy_tells_for_each_policy_what_was_turned_away(scenario):
    episodes = [("mine", episode(scenario, [4, 0, 2, 1], [1, 0, 0.5, 2])), (HOSTILE, episode(scenario, [4, 4, 4, 4], [1] * 4))]
    found = texts(gantt.occupancy_svg(scenario, episodes))
    assert "1 of 3 arrivals turned away, 8 % of device-time held" in found  # from 1 h to 4 h: (1 + 1) / (8 x 3)
    assert "0 of 3 arrivals turned away, 50 % of device-time held" in found
    assert {"mine", HOSTILE.replace("\x00", "?"), "squeezenet", "alexnet", "time since the episode began (h)"} <= set(found)


def test_the_window_begins_after_the_warmup(scenario):
    record = episode(scenario, [0, 1, 1, 1], [0, 1, 1, 1])
    found = texts(gantt.occupancy_svg(scenario, [("mine", record)]))
    assert any(text.startswith("0 of 3 arrivals") for text in found)


def test_an_episode_without_an_accepted_job_is_drawn(scenario):
    record = episode(scenario, [0, 0, 0, 0], [0] * 4, Outcome.DEADLINE)
    found = texts(gantt.occupancy_svg(scenario, [("nobody", record)]))
    assert "3 of 3 arrivals turned away, 0 % of device-time held" in found


def test_a_window_past_the_end_shows_the_last_arrival(scenario):
    record = episode(scenario, [1, 1, 1, 1], [1] * 4)
    assert gantt.Window.of(record.arrival_s, 99, 40).jobs == slice(3, 4)
    assert gantt.Window.of(np.zeros(3), 0, 40).length_s > 0


@given(st.sets(st.integers(0, 40), min_size=1))
def test_runs_of_devices_cover_each_device_once(devices):
    runs = gantt.consecutive(np.array(sorted(devices, reverse=True)))
    assert sorted(device for first, count in runs for device in range(first, first + count)) == sorted(devices)
    assert all(b[0] > a[0] + a[1] for a, b in pairwise(runs))
