"""Refusals of concurrent jobs."""

from dataclasses import replace

import numpy as np
import pytest

from meshwright.clusters.cluster import Cluster
from meshwright.clusters.topologies.matrix import MatrixTopology
from meshwright.errors import ClusterError, GraphError, PlanError
from meshwright.simulation.contention import concurrent_jobs
from meshwright.simulation.contention.placed_job import PlacedJob
from meshwright.simulation.step.messages import Messages

from ..execution_samples import cluster_of, execution_of, sent
from .concurrent_messages import SCHEDULERS, finishes, messages_of, switch

# --- bad input ---


def without_bandwidth():
    """Three devices; the channel from 0 to 1 carries nothing, which YAML would not have let through."""
    good = cluster_of({"kind": "matrix", "bandwidth_gbytes_per_s": [[1.0] * 3] * 3, "latency_us": [[0.0] * 3] * 3})
    assert isinstance(good, Cluster)
    bandwidth = np.full((3, 3), 1e9)
    bandwidth[0, 1] = 0.0
    return replace(good, topology=MatrixTopology(bandwidth, np.zeros((3, 3))))


def test_a_link_without_bandwidth_is_refused_where_a_flow_crosses_it():
    cluster = without_bandwidth()
    assert finishes(concurrent_jobs.schedule, cluster, messages_of(cluster, (1, 0, 1), devices=[0, 1])) == [[1.0]]
    with pytest.raises(ClusterError, match=r"links\.host-0/0>host-1/0\.bandwidth_bytes_per_s: must be finite and positive"):
        concurrent_jobs.schedule([messages_of(cluster, (0, 1, 1), devices=[0, 1])], cluster)


@pytest.mark.parametrize("schedule", SCHEDULERS)
def test_devices_that_are_absent_or_taken_are_refused(schedule):
    with pytest.raises(PlanError, match=r"devices: sample has devices 0\.\.7 \(got 8\)"):
        schedule([messages_of(switch, (0, 1, 1), devices=[0, 8])], switch)
    with pytest.raises(PlanError, match=r"devices: a device is named twice"):
        schedule([messages_of(switch, (0, 1, 1), devices=[3, 3])], switch)
    jobs = [messages_of(switch, (0, 1, 1), devices=devices) for devices in ([0, 1], [2, 3], [4, 1])]
    with pytest.raises(PlanError, match=r"devices: jobs 0 and 2 both own a device \(got 1\)"):
        schedule(jobs, switch)


@pytest.mark.parametrize("schedule", SCHEDULERS)
def test_a_cycle_is_refused_by_the_number_of_its_job_and_nothing_is_changed(schedule):
    good = messages_of(switch, (0, 1, 1), devices=[0, 1])
    round_and_round = PlacedJob(execution_of([1.0, 1.0], [(0, 1), (1, 0)]), np.array([2, 3]), start_s=1.0)
    before = round_and_round.execution.edges.tobytes(), good.devices.tobytes()
    with pytest.raises(GraphError, match=r"jobs\.1\.edges: the tasks form a cycle \(got '2 tasks never start'\)"):
        schedule([good, round_and_round], switch)
    assert (round_and_round.execution.edges.tobytes(), good.devices.tobytes()) == before
    assert finishes(schedule, switch, good) == [[0.25]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"devices": np.arange(3)}, "devices: 2 ranks for 3 devices"),
        ({"start_s": float("inf")}, "start_s: must be finite"),
        ({"overlap_slowdown": 0.5}, "overlap_slowdown: must be finite and at least 1"),
        ({"overlap_slowdown": float("nan")}, "overlap_slowdown: must be finite and at least 1"),
    ],
)
def test_an_impossible_job_is_refused(changes, message):
    with pytest.raises(PlanError, match=message):
        replace(messages_of(switch, (0, 1, 1), devices=[0, 1]), **changes)


@pytest.mark.parametrize(
    ("phases", "members", "message"),
    [
        ([sent(0, 2, 1.0)], [(0, 1)], r"messages\.receiver: names a rank outside 0\.\.1 \(got 2\)"),
        ([sent(-1, 0, 1.0)], [(0, 1)], r"messages\.sender: names a rank outside"),
        ([()], [(5,)], r"messages\.members: names a rank outside 0\.\.1 \(got 5\)"),
        ([sent(0, 1, -1.0)], [(0, 1)], r"messages\.flow_bytes: must be finite and not negative \(got -1\.0\)"),
        ([sent(0, 1, 1.0, float("nan"))], [(0, 1)], r"messages\.phase_latency_s: must be finite"),
        ([(), ()], [(), ()], r"messages: must have an entry for each of 1 tasks"),
    ],
)
def test_impossible_messages_are_refused(phases, members, message):
    with pytest.raises(GraphError, match=message):
        replace(execution_of([1.0]), describe_messages=lambda: Messages.from_members(members, phases)).messages  # noqa: B018


def test_a_task_on_an_absent_rank_is_refused():
    with pytest.raises(GraphError, match=r"task 1: is on a rank outside 0\.\.1 \(got 2\)"):
        execution_of([1.0, 1.0], streams=[[0], [0]], ranks=[0, 2])
