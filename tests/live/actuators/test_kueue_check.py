"""Kueue's Workloads: what is read of them, what is written, and that faults on the way change nothing in the end.

The API here is a dictionary; a real one, without Kueue, is in ``tests/schedulers/service/test_kubernetes_kueue.py``.
"""

from __future__ import annotations

import asyncio
import copy
import time
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from meshwright.errors import ConfigError, ConflictError, InputFileError, StateError
from meshwright.live.actuators import kubernetes_api
from meshwright.live.actuators.kueue_check import API, KueueCheck
from meshwright.live.actuators.kueue_objects import CONTROLLER, CheckAnswer, KueueWorkload, labelled_nodes, workloads_of
from meshwright.live.deciding import Planners
from meshwright.live.decisions import JobRequest
from meshwright.live.records.memory_store import MemoryStore
from meshwright.live.records.retention import give_up
from meshwright.live.service import Service
from meshwright.live.web.app import build_app

from ...draws import draws
from ..controller_samples import NOW, Clock, controller
from ..live_samples import HOSTS
from ..web.web_samples import OPEN

CHECK = "ours"
BASE = f"{API}/v1beta2"
ASKED = {"name": CHECK, "state": "Pending", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}


def workload(name, count=2, devices=2, job="zoo:alexnet", generation=1, **status):
    """One with quota that asks our check, and another one that we leave alone."""
    limits = {"resources": {"limits": {"nvidia.com/gpu": devices}}} if devices else {}
    annotations = {"meshwright.dev/job": job, "meshwright.dev/steps": "100"} if job else {}
    template = {"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "c", **limits}]}}
    other = ASKED | {"name": "theirs", "state": "Ready", "retryCount": 3}
    return {
        "metadata": {"name": name, "namespace": "team", "uid": f"u-{name}", "generation": generation, "creationTimestamp": name},
        "spec": {"podSets": [{"name": "main", "count": count, "template": template}], "unknown": [1]},
        "status": {
            "conditions": [{"type": "QuotaReserved", "status": "True"}],
            "admissionChecks": [other, dict(ASKED)],
            "unknown": {"kept": True},
            **status,
        },
    }


class DictApi:
    """An API with Workloads and nodes, of which calls may fail and lists come in any order, with repetitions."""

    def __init__(self):
        self.check = {"metadata": {"generation": 1}, "spec": {"controllerName": CONTROLLER}}
        self.workloads: dict[str, dict] = {}
        self.nodes = {host: {"metadata": {"name": host, "labels": {}}} for host in HOSTS}
        self.failing: set[int] = set()
        self.order = lambda items: items
        self.calls = self.writes = 0

    def _count(self):
        self.calls += 1
        if self.calls in self.failing:
            raise InputFileError("no answer", file="kubectl")

    def get(self, path):
        self._count()
        if path == API:
            return {"versions": [{"version": "v1beta1"}, {"version": "v1beta2"}]}
        if path == "/api/v1/nodes":
            return {"items": copy.deepcopy(list(self.nodes.values()))}
        if path.startswith(f"{BASE}/admissionchecks"):
            return copy.deepcopy(self.check)
        return {"metadata": {}, "items": self.order(copy.deepcopy(list(self.workloads.values())))}

    def replace(self, path, content):
        self._count()
        self.writes += 1
        if "admissionchecks" in path:
            self.check = content
            return
        name = path.split("/")[-2]
        if name not in self.workloads:
            raise StateError("(NotFound)")
        if content.get("version", 0) != self.workloads[name].get("version", 0):
            raise ConflictError("(Conflict)")
        self.workloads[name] = {**content, "version": content.get("version", 0) + 1}

    def label_nodes(self, names, key, value):
        self._count()
        for name in names:
            labels = self.nodes[name]["metadata"]["labels"]
            if value is None:
                labels.pop(key, None)
            else:
                labels[key] = value

    def says(self, name) -> dict:
        return next(one for one in self.workloads[name]["status"]["admissionChecks"] if one["name"] == CHECK)

    def given(self) -> dict[str, str]:
        """The decision of each Workload with quota that has one."""
        found = {name: KueueWorkload(one, CHECK) for name, one in self.workloads.items()}
        return {name: one.given for name, one in found.items() if one.may_hold and one.given is not None}


@pytest.fixture
def api(monkeypatch) -> DictApi:
    made = DictApi()
    for name in ("get", "replace", "label_nodes"):
        monkeypatch.setattr(kubernetes_api, name, lambda *words, name=name: getattr(made, name)(*words))
    return made


@contextmanager
def turns(planners, store=None, clock=None):
    """A call that lets a service take some turns, and the controller."""
    made = controller(MemoryStore() if store is None else store, planners, clock)
    service = Service(made, None)
    check = KueueCheck(CHECK, service)
    with asyncio.Runner() as runner:

        async def take(number):
            for _ in range(number):
                await check.turn()

        runner.run(service.start())
        try:
            yield lambda number=1: runner.run(take(number)), made
        finally:
            runner.run(service.stop())


def held(made) -> set[str]:
    return {job.id for job in made.store.last()[1].jobs}


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
            {
                "name": "main",
                "labels": {"meshwright.dev/decision": "m-1"},
                "nodeSelector": {"plan.meshwright.dev/m-1": "planned"},
            }
        ],
    }
    after["status"]["admissionChecks"] = before["status"]["admissionChecks"]
    assert after == before
    again = KueueWorkload(one.answered(CheckAnswer("Ready", "why", "m-1"), NOW), CHECK)
    assert again.is_answered(CheckAnswer("Ready", "why", "m-1"))
    assert (again.given, again.state) == ("m-1", "Ready")


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
    found, unread = workloads_of({"items": [workload("a"), {"metadata": {}}, workload("b", admissionChecks=[])]}, CHECK)
    assert [one.name for one in found] == ["team/a"]
    assert len(unread) == 1


@pytest.mark.parametrize(
    ("word", "value", "told"), [("step", "1", "meshwright.dev/steps"), ("steps", "many", "no number"), ("steps", "0", "steps")]
)
def test_a_wrong_annotation_is_rejected_by_name(planners, api, word, value, told):
    api.workloads["a"] = workload("a")
    api.workloads["a"]["spec"]["podSets"][0]["template"]["metadata"]["annotations"][f"meshwright.dev/{word}"] = value
    with turns(planners) as (take, made):
        take()
        assert api.says("a")["state"] == "Rejected"
        assert told in api.says("a")["message"]
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


def test_a_check_that_fails_is_shown_on_the_page_and_in_health_until_it_is_well_again(planners, api, tmp_path):
    api.check["spec"]["controllerName"] = "theirs"
    made = controller(tmp_path / "s.db", planners)
    service = Service(made, tmp_path / "s.db")
    check = KueueCheck(CHECK, service)
    service.also_runs(lambda: check.keep_answering(0.01))

    def until(is_failing):
        while bool(service.problems) != is_failing:
            time.sleep(0.01)

    with TestClient(build_app(service, OPEN)) as http:
        until(True)
        tag = http.get("/v1/cluster").headers["etag"]
        told = f"admission check {CHECK}: AdmissionCheck {CHECK}: controllerName: must be {CONTROLLER} (got 'theirs')"
        assert http.get("/v1/cluster").json()["problems"] == [told]
        health = http.get("/readyz")
        assert (health.status_code, health.json()) == (200, {"status": "degraded", "detail": f"fails: admission check {CHECK}"})
        page = http.get("/", headers={"accept": "text/html"}).text
        assert f"Failing: admission check {CHECK}.</b> AdmissionCheck" in page
        lines = http.get("/metrics").text.splitlines()
        (failures,) = (one.split()[1] for one in lines if one.startswith("meshwright_admission_check_failures_total "))
        assert float(failures) >= 1
        api.check["spec"]["controllerName"] = CONTROLLER
        until(False)
        assert http.get("/v1/cluster").json()["problems"] == []
        assert http.get("/v1/cluster").headers["etag"] != tag
        assert http.get("/readyz").json() == {"status": "ok"}
        assert "Failing" not in http.get("/", headers={"accept": "text/html"}).text


def test_an_attempt_that_was_given_up_is_counted_and_its_key_not_used_again(planners, api, tmp_path):
    api.workloads["a"] = workload("a")
    with turns(planners) as (take, made):
        take(2)
        (first,) = held(made)
        api.workloads["a"]["status"]["conditions"] = []
        take()
        assert held(made) == set()
        later = datetime.now(UTC) + timedelta(days=2)
        made.store.now = later.isoformat
        give_up(made.store, 1, later)
        assert made.store.decision(first) is None
        api.workloads["a"] = workload("a")
        take(2)
        (second,) = held(made)
        assert made.kept(second).key.endswith(":2")


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


def test_a_workload_of_which_another_part_is_admitted_gets_another_decision(planners, api):
    api.workloads["a"] = workload("a", count=4, devices=1)
    with turns(planners) as (take, made):
        api.failing = {5}  # it is decided on, and not told so
        with pytest.raises(InputFileError):
            take()
        (first,) = held(made)
        api.workloads["a"]["status"]["admission"] = {"podSetAssignments": [{"name": "main", "count": 2}]}
        for _ in range(200):
            take()
            if api.says("a")["state"] == "Ready":
                break
            time.sleep(0.1)  # a job of two devices is another one to price
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
    """What happens to the cluster, or on the way to it."""
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
    with pytest.MonkeyPatch.context() as patch:
        api = DictApi()
        for name in ("get", "replace", "label_nodes"):
            patch.setattr(kubernetes_api, name, lambda *words, name=name: getattr(api, name)(*words))
        store = MemoryStore()
        services: list[list] = [[]]
        for step in drawn:
            if step[0] == "start again":
                services.append([])
            else:
                services[-1].append(step)
        for met in services:  # each finds what the one before left
            with turns(planners, store) as (take, made):
                for step in met:
                    do(api, step)
                    with suppress(InputFileError):
                        take()
        with turns(planners, store) as (take, made):
            api.failing, api.order = set(), lambda items: items
            take(2)
            given = api.given()
            assert held(made) == set(given.values())
            assert len(set(given.values())) == len(given) <= 3  # three hosts of four devices, four each
            assert labelled_nodes({"items": api.nodes.values()}).keys() == set(given.values())
            asks = [KueueWorkload(one, CHECK) for one in api.workloads.values()]
            waiting = [one for one in asks if one.may_hold and one.given is None]
            assert all(one.state == "Retry" for one in waiting)
            writes = api.writes
            take()
            assert api.writes == writes
