"""Kueue's Workloads: what is read of them, what is written, and that faults on the way change nothing in the end.

The API here is a dictionary; a real one, without Kueue, is in ``tests/schedulers/service/test_kubernetes_kueue.py``.
"""

from __future__ import annotations

import copy
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import ConfigError, InputFileError
from meshwright.live import pricing
from meshwright.live.actuators.kueue_objects import CONTROLLER, CheckAnswer, KueueWorkload, labelled_nodes, workloads_of
from meshwright.live.deciding import Planners
from meshwright.live.decisions import JobRequest

from ...draws import draws
from ..controller_samples import NOW, Clock, InThreads
from .kueue_samples import ASKED, CHECK, held, stand_in, turns, workload


def test_an_answer_changes_its_own_entry_alone():
    before = workload("a")
    one = KueueWorkload(before, CHECK)
    after = one.answered(CheckAnswer("Ready", "why", "m-1"), NOW)
    theirs, ours = after["status"]["admissionChecks"]
    assert theirs == before["status"]["admissionChecks"][0]
    assert ours == {
        "name": CHECK,
        "state": "Ready",
        "message": "why",
        "lastTransitionTime": "2026-03-01T00:00:00Z",
        "podSetUpdates": [
            {"name": "main", "labels": {"meshwright.dev/decision": "m-1"}, "nodeSelector": {"plan.meshwright.dev/m-1": "planned"}}
        ],
    }
    after["status"]["admissionChecks"] = before["status"]["admissionChecks"]
    assert after == before
    again = KueueWorkload(one.answered(CheckAnswer("Ready", "why", "m-1"), NOW), CHECK)
    assert again.is_answered(CheckAnswer("Ready", "why", "m-1"))
    assert (again.updates, again.state) == ("m-1", "Ready")


@pytest.mark.parametrize(
    ("count", "devices", "hosts", "fits"),
    [
        (2, 2, "aabb", True),
        (2, 2, "aaab", False),
        (1, 4, "aaaa", True),
        (4, 1, "abca", True),
        (2, 2, "aaa", False),
        (2, 1, "abc", False),
    ],
)
def test_pods_fit_a_plan_whole_and_fill_it(count, devices, hosts, fits):
    plan = {"ranks": [{"host": host} for host in hosts]}
    assert KueueWorkload(workload("a", count, devices), CHECK).fits(plan) is fits


def test_a_part_of_a_list_is_no_list_and_what_cannot_be_read_is_told():
    with pytest.raises(ConfigError, match="whole list"):
        workloads_of({"items": [], "metadata": {"continue": "x"}}, CHECK)
    with pytest.raises(ConfigError, match="whole list"):
        workloads_of({}, CHECK)
    result, unread = workloads_of({"items": [workload("a"), {"metadata": {}}, workload("b", admissionChecks=[])]}, CHECK)
    assert [one.name for one in result] == ["team/a"]
    assert len(unread) == 1


@pytest.mark.parametrize(
    ("word", "value", "message"), [("step", "1", "meshwright.dev/steps"), ("steps", "many", "no number"), ("steps", "0", "steps")]
)
def test_a_wrong_annotation_is_rejected_by_name(planners, api, word, value, message):
    api.workloads["a"] = workload("a")
    api.workloads["a"]["spec"]["podSets"][0]["template"]["metadata"]["annotations"][f"meshwright.dev/{word}"] = value
    with turns(planners) as (take, made):
        take()
        assert api.says("a")["state"] == "Rejected"
        assert message in api.says("a")["message"]
        assert held(made) == set()


def test_with_kueues_own_topology_nothing_is_pinned_or_held(planners, api):
    assigned = {
        "podSetAssignments": [{"name": "main", "topologyAssignment": {"levels": ["kubernetes.io/hostname"], "slices": []}}]
    }
    api.workloads["a"] = workload("a", admission=assigned)
    with turns(planners) as (take, made):
        take()
        assert api.says("a")["state"] == "Ready"
        assert "podSetUpdates" not in api.says("a")
        assert held(made) == set()


def test_the_check_of_another_controller_is_left_alone(planners, api):
    api.check["spec"]["controllerName"] = "theirs"
    api.workloads["a"] = workload("a")
    with turns(planners) as (take, _), pytest.raises(ConfigError, match=CONTROLLER):
        take()
    assert api.writes == 0


def test_leases_of_waiting_workloads_are_renewed_and_a_change_of_priority_changes_nothing(planners, api):
    api.workloads["a"] = workload("a")
    clock = Clock()
    with turns(planners, clock=clock) as (take, made):
        take(2)
        (name,) = api.given().values()
        writes = api.writes
        for _ in range(3):
            clock.elapsed_s += 8.0  # of a lease of 10
            take()
            assert made.expire() == []
        api.workloads["a"]["metadata"]["generation"] += 1
        take()
        assert (api.given(), held(made), api.writes) == ({"a": name}, {name}, writes)


def test_a_running_job_is_never_taken_back(planners, api):
    api.workloads["a"] = workload("a")
    with turns(planners) as (take, made):
        take(2)
        (name,) = api.given().values()
        api.workloads["a"]["status"]["conditions"].append({"type": "Admitted", "status": "True"})
        made.release(name, "lost")
        before = copy.deepcopy(api.workloads["a"])
        take()
        assert api.workloads["a"] == before  # its pods' nodes are the truth


def test_those_that_came_first_are_placed_and_the_next_one_waits_until_there_is_room(planners, api):
    for name in "dcab":
        api.workloads[name] = workload(name)
    with turns(planners) as (take, made):
        take()
        assert set(api.given()) == {"a", "b", "c"}
        assert api.says("d")["state"] == "Retry"
        assert api.says("d")["requeueAfterSeconds"] > 0
        del api.workloads["b"]
        take()
        assert len(held(made)) == 2
        api.workloads["d"]["status"]["admissionChecks"][1] = dict(ASKED)  # Kueue asks again
        take()
        assert set(api.given()) == {"a", "c", "d"}
        assert held(made) == set(api.given().values())


def test_what_no_empty_cluster_could_place_is_rejected(planners, api):
    api.workloads["a"] = workload("a")
    api.workloads["a"]["spec"]["podSets"][0]["template"]["metadata"]["annotations"]["meshwright.dev/deadline-s"] = "0.000001"
    with turns(planners) as (take, made):
        take()
        assert api.says("a")["state"] == "Rejected"
        assert "not even on an empty cluster" in api.says("a")["message"]
        assert held(made) == set()


def test_a_plan_that_cuts_a_pod_in_two_is_given_back(cluster, tmp_path, api):
    planners = Planners(cluster, "max@best-fit", scratch=tmp_path)
    planners.make_ready(JobRequest(job="zoo:squeezenet", max_devices=8))
    api.workloads["cut"] = workload("cut", count=1, devices=8, job="zoo:squeezenet")  # of two hosts
    api.workloads["whole"] = workload("whole", count=4, devices=2, job="zoo:squeezenet")
    with turns(planners) as (take, made):
        take()
        assert api.says("cut")["state"] == "Rejected"
        assert "do not fit" in api.says("cut")["message"]
        assert held(made) == set(api.given().values())
        assert set(api.given()) == {"whole"}


def test_a_workload_of_which_another_part_is_admitted_gets_another_decision(planners, api, monkeypatch):
    monkeypatch.setattr(pricing, "WorkerPool", InThreads)
    api.workloads["a"] = workload("a", count=4, devices=1)
    with turns(planners) as (take, made):
        api.failing = {5}  # it is decided on, and not told so
        with pytest.raises(InputFileError):
            take()
        (first,) = held(made)
        api.workloads["a"]["status"]["admission"] = {"podSetAssignments": [{"name": "main", "count": 2}]}
        for _ in range(1000):
            take()
            if api.says("a")["state"] == "Ready":
                break
            time.sleep(0.02)  # a job of two devices is another one to price
        (second,) = held(made)
        assert second != first
        assert len(made.store.decision(second).decision.plan["ranks"]) == 2


names = st.sampled_from("abcdef")
steps = st.one_of(
    st.tuples(st.just("create"), names),
    st.tuples(st.just("delete"), names),
    st.tuples(st.just("evict"), names),
    st.tuples(st.just("reserve"), names),
    st.tuples(st.just("fail"), st.integers(1, 8)),
    st.tuples(st.just("shuffle"), st.randoms(use_true_random=False)),
    st.tuples(st.just("start again"), st.none()),
)


def do(api, step):
    """Change the cluster, or the calls to it."""
    what, which = step
    if what == "fail":
        api.failing.add(api.calls + which)
    elif what == "shuffle":
        api.order = lambda items: which.sample(items * 2, len(items) * 2)
    elif what == "create":
        api.workloads.setdefault(which, workload(which))
    elif which in api.workloads:
        one = api.workloads[which]
        one["version"] = one.get("version", 0) + 1
        has_quota = what == "reserve"
        if what == "delete":
            del api.workloads[which]
        elif has_quota == (one["status"]["conditions"][0]["status"] == "False"):
            one["status"]["conditions"][0]["status"] = str(has_quota)
            one["status"]["admissionChecks"][1] = dict(ASKED)


@given(st.lists(steps, max_size=12))
@draws(25, deadline=None)
def test_whatever_goes_wrong_after_two_good_turns_ready_workloads_and_no_others_hold_devices(planners, drawn):
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        api = stand_in(patch)
        ledger = Path(folder) / "s.db"
        services: list[list] = [[]]
        for step in drawn:
            if step[0] == "start again":
                services.append([])
            else:
                services[-1].append(step)
        for met in services:  # each finds what the one before left
            with turns(planners, ledger) as (take, made):
                for step in met:
                    do(api, step)
                    with suppress(InputFileError):
                        take()
        with turns(planners, ledger) as (take, made):
            api.failing, api.order = set(), lambda items: items
            take(2)
            given = api.given()
            assert held(made) == set(given.values())
            assert len(set(given.values())) == len(given) <= 3  # three hosts of four devices, four each
            assert labelled_nodes({"items": api.nodes.values()}).keys() == set(given.values())
            asks = [KueueWorkload(one, CHECK) for one in api.workloads.values()]
            waiting = [ask for ask in asks if ask.may_hold and ask.updates is None]
            assert all(one.state == "Retry" for one in waiting)
            writes = api.writes
            take()
            assert api.writes == writes
