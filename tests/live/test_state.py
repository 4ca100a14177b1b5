"""A state on a cluster: who holds what, worked by hand; and what contradicts itself or the cluster."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from meshwright.clusters.cluster import Cluster
from meshwright.errors import ConfigError, InputFileError, StateError
from meshwright.live.changes import places
from meshwright.live.state import ClusterState, HeldJob, HostState, held_by_plan, load_state, num_held, occupancy, occupancy_after
from meshwright.planning.plan import plan

from ..draws import draws
from .live_samples import CLUSTER, listings

THREE = Cluster.from_data(yaml.safe_load(CLUSTER))


def state(*jobs, **others):
    return ClusterState(jobs=tuple(HeldJob(**job) for job in jobs), **others)


NOW = datetime(2026, 11, 24, 15, tzinfo=UTC)


def test_devices_worked_by_hand():
    end = NOW + timedelta(seconds=60)
    result = state({"id": "x", "devices": {"a": (2, 1, 1), "b": (0,)}, "ends_at": end}, {"id": "y", "devices": {"c": (3,)}})
    taken = occupancy(result, THREE)
    assert taken.holder.tolist() == [-1, 0, 0, -1, 0, -1, -1, -1, -1, -1, -1, 1]
    assert taken.free_at_s(result, NOW).tolist() == [0, 60, 60, 0, 60, 0, 0, 0, 0, 0, 0, np.inf]
    assert taken.remarks == ()
    assert [num_held(job, result) for job in result.jobs] == [3, 1]


def test_whole_hosts_hold_all_their_devices_and_a_job_past_its_limit_is_not_free():
    job = {"id": "x", "devices": {"b": (2,)}, "whole_hosts": True, "ends_at": NOW}
    result = state(job, hosts={"b": HostState(num_devices=4)})
    taken = occupancy(result, THREE)
    assert taken.holder.tolist() == [-1] * 4 + [0] * 4 + [-1] * 4
    for late_s in (0, 60):
        assert np.isinf(taken.free_at_s(result, NOW + timedelta(seconds=late_s))[4:8]).all()
    assert num_held(result.jobs[0], result) == 4


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"jobs": []}', '{"schema_version": 2}'])
@pytest.mark.parametrize("ending", ["json", "yaml"])
def test_a_file_that_was_cut_off_is_no_empty_state(tmp_path, text, ending):
    file = tmp_path / f"s.{ending}"
    file.write_text(text)
    with pytest.raises((ConfigError, InputFileError)):
        load_state(file)


@pytest.mark.parametrize("condition", ["drained", "down"])
def test_closed_hosts_and_such_as_are_not_listed_take_no_jobs(condition):
    result = state(source="slurm", hosts={"a": HostState(), "b": HostState(condition=condition)})
    taken = occupancy(result, THREE)
    assert taken.is_free.tolist() == [True] * 4 + [False] * 8
    assert taken.remarks == ("c of three is not listed by slurm: taken as down",)


def test_what_nobody_listed_is_up_and_hosts_of_others_are_left_out():
    result = state({"id": "x", "devices": {"a": (0,), "z": (9,)}}, hosts={"b": HostState(condition="drained")})
    taken = occupancy(result, THREE)
    assert taken.is_free.tolist() == [False] + [True] * 3 + [False] * 4 + [True] * 4
    assert taken.remarks == ("z is not in three: left out, with what runs there",)


def test_a_host_with_another_number_of_devices_is_closed_and_ends_no_plan():
    jobs = {"id": "x", "devices": {"a": (0,), "b": (7,)}}
    result = state(jobs, source="slurm", hosts={"a": HostState(num_devices=4), "b": HostState(num_devices=8), "c": HostState()})
    taken = occupancy(result, THREE)
    assert taken.is_free.tolist() == [False] + [True] * 3 + [False] * 4 + [True] * 4
    assert taken.remarks == ("b has another number of devices than in three: taken as down",)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (state({"id": "x", "devices": {"z": (0,)}}), "its hosts are called as a: give them these names under host_names"),
        (state({"id": "x", "devices": {"a": (4,)}}), "jobs.0.devices.a: the host has devices 0..3 (got 4)"),
        (state({"id": "x", "devices": {"a": (1,)}}, {"id": "y", "devices": {"a": (0, 1)}}), "x and y hold one device of a"),
        (state({"id": "x", "devices": {"a": (1,)}}, {"id": "x", "devices": {"b": (1,)}}), "the id appears twice"),
        (state(hosts={"a": HostState(num_devices=8)}), "the host has 8 devices, in three it has 4"),
    ],
)
def test_contradictions_are_told(result, message):
    with pytest.raises(StateError) as raised:
        occupancy(result, THREE, file="now.json")
    assert message in str(raised.value)
    assert str(raised.value).startswith("now.json: ")


@given(listing=listings())
@draws(15)
def test_devices_are_held_free_or_closed_and_what_is_saved_is_read_again(listing, tmp_path_factory):
    taken = occupancy(listing, THREE)
    assert (taken.is_free == ((taken.holder < 0) & taken.is_up)).all()
    for number, job in enumerate(listing.jobs):
        held = sum(4 if job.whole_hosts else len(local) for local in job.devices.values())
        assert (taken.holder == number).sum() == held
    assert ClusterState.model_validate(listing.model_dump(mode="json", exclude_none=True)) == listing


def test_a_plan_holds_the_devices_of_its_ranks(tmp_path):
    (tmp_path / "three.yaml").write_text(CLUSTER)
    made = plan("zoo:alexnet", str(tmp_path / "three.yaml"), policy_spec="fixed-4").plan
    job = held_by_plan(made, "mine", whole_hosts=False)
    assert job.devices == {"a": (0, 1, 2, 3)}
    assert (job.id, job.source) == ("mine", "plan")
    with pytest.raises(ConfigError):
        held_by_plan(made, "")


def test_a_file_of_another_kind_is_told(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text(CLUSTER)
    with pytest.raises(ConfigError, match="is a cluster, which `--cluster` takes"):
        load_state(file)


def test_devices_in_words():
    assert places({"b": (0, 1, 2, 5), "a": (7,)}) == "a/7, b/0-2+5"
    assert places(dict.fromkeys("vwxyz", (0,))) == "v/0, w/0, x/0, y/0 and 1 more"


JOBS = st.builds(
    lambda name, host, local, whole: HeldJob(id=name, devices={host: local}, whole_hosts=whole),
    st.sampled_from("pqrstuv"),
    st.sampled_from("abcz"),
    st.tuples(st.integers(0, 4)),
    st.sampled_from((False, False, True)),
)


def outcome(make):
    try:
        result = make()
    except StateError as error:
        return str(error)
    return result.holder.tolist(), result.is_up.tolist(), result.remarks


@draws(60)
@given(st.lists(st.one_of(JOBS, st.integers(0, 6), st.sampled_from(["drain", "same"])), max_size=12))
def test_what_follows_from_an_earlier_state_is_what_follows_from_nothing(steps):
    now = state(hosts={"a": HostState(), "b": HostState()})
    held = occupancy(now, THREE)
    for step in steps:
        later = now
        if isinstance(step, HeldJob):
            later = now.model_copy(update={"jobs": (*now.jobs, step)})
        elif isinstance(step, int):
            later = now.model_copy(update={"jobs": tuple(job for number, job in enumerate(now.jobs) if number != step)})
        elif step == "drain":
            later = now.model_copy(update={"hosts": {**now.hosts, "b": HostState(condition="drained")}})
        reported = outcome(lambda later=later: occupancy(later, THREE))
        assert outcome(lambda now=now, held=held, later=later: occupancy_after(now, held, later, THREE)) == reported
        if not isinstance(reported, str):
            now, held = later, occupancy_after(now, held, later, THREE)
