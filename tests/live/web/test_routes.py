"""The service over HTTP: one answer a key, typed problems, the state and what became of each decision."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from datetime import timedelta

import pytest

from meshwright.errors import InputFileError
from meshwright.live import pricing
from meshwright.live import service as services
from meshwright.live.decisions import JobRequest
from meshwright.live.ledger import Ledger
from meshwright.live.records.retention import Retention
from meshwright.live.state import HostState
from meshwright.live.web import replay_routes
from meshwright.live.web.access import Access, Token

from ..controller_samples import Clock, InThreads, all_up, controller, running
from .web_samples import Told, client, wait_for

JOB = {"job": "zoo:alexnet", "steps": 100, "max_devices": 4}


@pytest.fixture
def asked(tmp_path, planners):
    with client(tmp_path / "s.db", planners) as result:
        yield result


@pytest.fixture
def in_threads(monkeypatch):
    """Run background work in threads; `test_pricing` runs it in processes."""
    for module in (pricing, replay_routes):
        monkeypatch.setattr(module, "WorkerPool", InThreads)


def problem(answer, status):
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    reported = answer.json()
    assert reported["status"] == status
    return reported


def test_a_decision_is_answered_with_its_devices_and_the_same_key_with_the_same_bytes(asked):
    first = asked.post("/v1/decisions", json=JOB, headers={"Idempotency-Key": "mine"})
    assert first.status_code == 201
    reported = first.json()
    assert reported["outcome"] == "placed"
    assert [len(place["devices"]) for place in reported["places"]] == [4]
    assert reported["predicted"]["step_s"] > 0
    assert reported["inputs"]["free"] == [[12, 0.0]]
    assert asked.post("/v1/decisions", json=JOB, headers={"Idempotency-Key": "mine"}).content == first.content
    assert asked.get("/v1/decisions").json()["decisions"][0]["status"] == "reserved"
    wrong = problem(asked.post("/v1/decisions", json={**JOB, "steps": 7}, headers={"Idempotency-Key": "mine"}), 409)
    assert (wrong["field"], wrong["value"]) == ("steps", "7")
    assert first.headers["location"] == f"/v1/decisions/{reported['id']}"


def test_the_way_of_a_decision(tmp_path, planners):
    reported = Told()
    with client(tmp_path / "s.db", planners, [reported], resync_s=0.05) as service:
        name = service.post("/v1/decisions", json=JOB).json()["id"]
        at = f"/v1/decisions/{name}"
        assert service.get(at).json()["status"] == "reserved"
        assert service.post(f"{at}/confirm", json={"job_id": "100"}).json() == {
            "id": name,
            "status": "confirmed",
            "detail": "100",
        }
        assert service.post(f"{at}/confirm", json={"job_id": "100"}).status_code == 200
        assert "was handed over as 100" in problem(service.post(f"{at}/confirm", json={"job_id": "101"}), 409)["detail"]
        reported.listing = all_up(running("100", name, a=(0, 1, 2, 3)))
        while service.get(at).json()["status"] != "running":
            time.sleep(0.02)
        steps = [{"step": step, "step_s": 0.5} for step in range(3)]
        assert service.post(f"{at}/observations", json=steps).json() == {"new": 3}
        assert service.post(f"{at}/observations", json=steps).json() == {"new": 0}
        seen = service.get(at).json()
        assert seen["observed"]["median_step_s"] == 0.5
        assert seen["observed"]["ratio"] == pytest.approx(0.5 / seen["decision"]["predicted"]["step_s"])
        assert problem(service.post(f"{at}/release"), 409)["detail"].endswith("runs as 100: end it there")
        reported.listing = all_up()
        while service.get(at).json()["status"] != "ended":
            time.sleep(0.02)
        assert [one["status"] for one in service.get(at).json()["history"]] == ["reserved", "confirmed", "running", "ended"]
        assert service.post(f"{at}/release").json()["status"] == "ended"
        plan = service.get(f"{at}/plan").json()
        assert plan["job"]["graph"]["name"] == "alexnet"
        assert plan["cluster"]["name"] == "three"
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan))
    from meshwright.plans import load_plan

    assert load_plan(path).num_ranks == 4


def test_what_cannot_be_is_a_problem_that_names_the_field(asked):
    for body, field, part in (
        ({"steps": 1}, "job", "job: the key is missing"),
        ({**JOB, "steps": 0}, "steps", "steps: must be at least 1 (got 0)"),
        ({**JOB, "steps": "many"}, "steps", "steps: must be a whole number (got 'many')"),
        ({**JOB, "device": 16}, "device", "device: unknown key (got 'device'); did you mean 'devices'?"),
        ({**JOB, "name": "a\nb"}, "name", "pattern"),
        ([JOB], None, "must be a mapping of keys"),
        ({**JOB, "devices": 8, "max_devices": 4}, None, "above max_devices"),
    ):
        reported = problem(asked.post("/v1/decisions", json=body), 422)
        assert reported.get("field") == field
        assert part in reported["detail"]
    assert "there is no such decision" in problem(asked.get("/v1/decisions/none"), 404)["detail"]
    for content, reported in (
        (b"{", "not valid JSON: Expecting property name enclosed in double quotes (line 1, column 2)"),
        (b'{"job":\n "zoo:alexnet" "x"}', "not valid JSON: Expecting ',' delimiter (line 2, column 16)"),
        (b"", "a body of JSON is wanted"),
    ):
        broken = problem(asked.post("/v1/decisions", content=content, headers={"Content-Type": "application/json"}), 422)
        assert (broken["detail"], broken.get("field")) == (reported, None)
    for head in ({}, {"Content-Type": "application/x-www-form-urlencoded"}):
        plain = problem(asked.post("/v1/decisions", content=json.dumps(JOB), headers=head), 422)
        assert "JSON is wanted, with the head Content-Type: application/json" in plain["detail"]
    wrong = problem(asked.post("/v1/decisions/none/observations", json=[{"step": 1, "step_s": 1.0, "rnak": 0}]), 422)
    assert wrong["detail"] == "0.rnak: unknown key (got 'rnak'); did you mean 'rank'?"
    assert problem(asked.get("/v1/decisions?limit=0"), 422)["detail"] == "limit: must be at least 1 (got '0')"
    assert problem(asked.post("/v1/decisions/none/confirm", json={"job_id": "1"}), 404)
    assert problem(asked.get("/v1/nothing"), 404)
    assert problem(asked.post("/v1/cluster"), 405)
    assert problem(asked.post("/v1/decisions", content=b" " * (9 * 2**20)), 413)
    name = asked.post("/v1/decisions", json=JOB).json()["id"]
    many = [{"step": step, "step_s": 1.0} for step in range(1001)]
    assert problem(asked.post(f"/v1/decisions/{name}/observations", json=many), 422)["title"] == "too many"


@pytest.mark.usefixtures("in_threads")
def test_a_new_job_is_priced_beside_and_its_decision_waits_at_its_address(tmp_path, cluster):
    from meshwright.live.deciding import Planners

    cold = Planners(cluster, "fastest-feasible", scratch=tmp_path)
    with client(tmp_path / "s.db", cold) as service:
        first = service.post("/v1/decisions", json=JOB, headers={"Idempotency-Key": "k"})
        assert first.status_code == 202
        assert first.json()["outcome"] == "preparing"
        wrong = service.post("/v1/decisions", json={"job": "zoo:alexnot"}).json()["id"]
        result = wait_for(service, first.json()["id"])
        assert result["status"] == "reserved"
        assert service.post("/v1/decisions", json=JOB, headers={"Idempotency-Key": "k"}).status_code == 201
        failed = wait_for(service, wrong)
        assert failed["status"] == "failed"
        assert failed["decision"]["field"] == "job"
        assert "did you mean 'alexnet'" in failed["detail"]


def test_what_would_be_decided_holds_nothing(asked):
    reported = asked.post("/v1/plans", json=JOB).json()
    assert reported["outcome"] == "placed"
    assert reported["plan"]["job"]["graph"]["name"] == "alexnet"
    assert asked.get("/v1/decisions").json() == {"decisions": []}
    assert asked.get("/v1/cluster").json()["devices"]["free"] == 12


def test_the_cluster_tells_who_holds_what_and_how_old_that_is(tmp_path, planners):
    down = {"b": HostState(condition="drained", num_devices=4, reason="a fan")}
    reported = Told(all_up(running("7", None, a=(0, 1)), **down))
    with client(tmp_path / "s.db", planners, [reported]) as service:
        service.post("/v1/decisions", json=JOB)
        seen = service.get("/v1/cluster")
        cluster = seen.json()
        assert cluster["devices"] == {"free": 2, "reserved": 4, "held": 2, "closed": 4}
        hosts = {one["name"]: one for one in cluster["hosts"]}
        assert hosts["a"]["held_by"][:2] == ["7", "7"]
        assert (hosts["b"]["condition"], hosts["b"]["reason"]) == ("drained", "a fan")
        assert cluster["sources"][0]["name"] == "slurm"
        assert cluster["sources"][0]["age_s"] < 60
        again = service.get("/v1/cluster", headers={"If-None-Match": seen.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        service.post("/v1/decisions", json=JOB)
        assert service.get("/v1/cluster", headers={"If-None-Match": seen.headers["etag"]}).status_code == 200
        events = service.get("/v1/events", params={"after": 1}).json()
        assert [one["change"]["kind"] for one in events["events"]] == ["job added", "job added"]
        assert events["last"] == 3


def test_a_host_can_be_closed_and_opened(asked):
    assert asked.post("/v1/hosts/a/drain", json={"reason": "a fan"}).json()["reason"] == "a fan"
    assert all(place["host"] != "a" for _ in range(2) for place in asked.post("/v1/decisions", json=JOB).json()["places"])
    assert asked.post("/v1/decisions", json=JOB).json()["outcome"] == "refused"
    assert asked.post("/v1/hosts/a/resume").json()["condition"] == "up"
    assert asked.post("/v1/decisions", json=JOB).json()["places"][0]["host"] == "a"
    problem(asked.post("/v1/hosts/x/drain"), 404)


def test_without_fresh_listings_nothing_is_decided_and_it_is_said_why(tmp_path, planners):
    reported = Told()
    reported.error = InputFileError("ended with status 1", file="scontrol")
    with client(tmp_path / "s.db", planners, [reported], resync_s=0.05) as service:
        answer = service.post("/v1/decisions", json=JOB)
        assert problem(answer, 503)["detail"] == "slurm has listed nothing since its start: scontrol: ended with status 1"
        assert answer.headers["retry-after"] == "5"
        assert service.get("/readyz").status_code == 503
        assert service.get("/healthz").json() == {"status": "ok"}
        reported.error = None
        while service.get("/readyz").status_code == 503:
            time.sleep(0.02)
        assert service.post("/v1/decisions", json=JOB).status_code == 201
        assert service.get("/v1/cluster").json()["sources"][0]["num_failures"] >= 1


def test_tokens_say_who_may_do_what_and_no_foreign_page_or_name_is_answered(tmp_path, planners):
    tokens = tuple(Token(scope, hashlib.sha256(scope.encode()).hexdigest()) for scope in ("read", "decide", "admin"))
    with client(tmp_path / "s.db", planners, access=Access(tokens, frozenset({"testserver"}))) as service:

        def by(token):
            return {"Authorization": f"Bearer {token}"}

        answer = service.get("/v1/cluster")
        assert problem(answer, 401)["title"] == "not known"
        assert answer.headers["www-authenticate"] == "Bearer"
        problem(service.get("/v1/cluster", headers=by("other")), 401)
        problem(service.get("/metrics"), 401)
        assert service.get("/healthz").status_code == 200
        assert service.get("/v1/cluster", headers=by("read")).status_code == 200
        problem(service.post("/v1/decisions", json=JOB, headers=by("read")), 403)
        assert service.post("/v1/decisions", json=JOB, headers=by("decide")).status_code == 201
        problem(service.post("/v1/hosts/a/drain", headers=by("decide")), 403)
        assert service.post("/v1/hosts/a/drain", headers=by("admin")).status_code == 200
        problem(service.get("/v1/cluster", headers=by("read") | {"Origin": "http://evil.example"}), 403)
        assert service.get("/v1/cluster", headers=by("read") | {"Origin": "http://testserver"}).status_code == 200
        problem(service.get("/v1/cluster", headers=by("read") | {"Host": "evil.example"}), 421)
        for origin in ("http://testserver:8888", "http://[::1", "null"):
            problem(service.get("/v1/cluster", headers=by("read") | {"Origin": origin}), 403)
        long = b" " * 100_000
        problem(service.post("/v1/decisions", content=long), 413)
        problem(service.post("/v1/decisions", content=long, headers=by("decide")), 422)
        assert service.post("/sign-in", content=b"token=" + long).status_code == 413


def test_the_counters_are_prometheus_text(tmp_path, planners):
    with client(tmp_path / "s.db", planners, [Told()]) as service:
        service.post("/v1/decisions", json=JOB)
        lines = service.get("/metrics").text.splitlines()
    assert 'meshwright_decisions_total{outcome="placed",policy="fastest-feasible"} 1.0' in lines
    assert 'meshwright_devices{state="free"} 8.0' in lines
    assert 'meshwright_decision_seconds_count{phase="commit"} 1.0' in lines
    assert any(line.startswith('meshwright_state_age_seconds{source="slurm"}') for line in lines)
    assert "meshwright_reservations_expired_total 0.0" in lines


def test_a_service_gives_up_what_is_too_old_by_itself_and_goes_on_meanwhile(tmp_path, planners, monkeypatch):
    monkeypatch.setattr(services, "RETAIN_AFTER_S", 0.0)
    path = tmp_path / "s.db"
    with Ledger(path, now=lambda: "2020-01-01T00:00:00+00:00") as store:
        made = controller(store, planners)
        held, gone = (made.decide(JobRequest(**JOB), key) for key in ("held", "gone"))
        made.confirm(held.decision.id, "1")
        made.release(gone.decision.id)
    with client(path, planners, keep_days=30) as service:
        while service.get("/v1/events").json()["floor"] < 4:
            time.sleep(0.02)
        while service.get(f"/v1/decisions/{gone.decision.id}").status_code != 404:
            time.sleep(0.02)
        assert service.get("/v1/events?after=0").json() == {"events": [], "last": 4, "floor": 4}
        assert service.get(f"/v1/decisions/{held.decision.id}").json()["status"] == "confirmed"
        page = service.get(f"/decisions/{held.decision.id}", headers={"accept": "text/html"})
        assert page.status_code == 200
        assert "the state after change 0 is kept no more, only what came after change 4" in page.text
        again = service.post("/v1/decisions", json=JOB, headers={"Idempotency-Key": "gone"})
        assert (again.status_code, again.json()["field"]) == (409, "Idempotency-Key")
        assert service.post("/v1/decisions", json=JOB, headers={"Idempotency-Key": "new"}).json()["outcome"] == "placed"
        while 'meshwright_given_up_total{kind="decisions"} 1.0' not in (text := service.get("/metrics").text):
            time.sleep(0.02)
        assert 'meshwright_given_up_total{kind="changes"} 4.0' in text
        (size,) = (line.split()[1] for line in text.splitlines() if line.startswith("meshwright_ledger_bytes "))
        assert float(size) >= 4096


def test_a_clock_that_jumps_ahead_gives_up_nothing_that_the_monotonic_clock_does_not_confirm(tmp_path, planners, monkeypatch):
    monkeypatch.setattr(services, "RETAIN_AFTER_S", 0.0)
    monkeypatch.setattr(services, "RETAIN_EVERY_S", 0.01)
    clock = Clock()
    with Ledger(tmp_path / "s.db", now=lambda: clock.now.isoformat()) as store:
        made = controller(store, planners, clock)
        stored = made.decide(JobRequest(**JOB)).decision.id
        made.release(stored)
    num_looks, look = [], Retention.look
    monkeypatch.setattr(Retention, "look", lambda self, store: num_looks.append(self.before) or look(self, store))
    with client(tmp_path / "s.db", planners, clock=clock, keep_days=30) as service:
        clock.now += timedelta(days=400)
        seen = len(num_looks) + 1
        while len(num_looks) <= seen:
            time.sleep(0.01)
        assert service.get(f"/v1/decisions/{stored}").status_code == 200
        clock.elapsed_s += timedelta(days=400).total_seconds()
        while service.get(f"/v1/decisions/{stored}").status_code != 404:
            time.sleep(0.02)


def test_a_store_that_cannot_be_written_is_told_and_serves_again_without_a_restart(tmp_path, planners):
    path = tmp_path / "s.db"
    with client(path, planners) as service:
        service.post("/v1/decisions", json=JOB)
        service.service.controller.store._db.execute("PRAGMA busy_timeout = 50")
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        assert problem(service.post("/v1/decisions", json=JOB), 503)["title"] == "the store cannot be used"
        assert service.get("/v1/cluster").json()["devices"]["free"] == 8  # readers go on
        other.execute("ROLLBACK")
        other.close()
        assert service.post("/v1/decisions", json=JOB).json()["outcome"] == "placed"
        assert service.get("/v1/cluster").json()["devices"]["free"] == 4


@pytest.mark.usefixtures("in_threads")
def test_what_waited_for_a_restart_goes_on(tmp_path, cluster, planners):
    from meshwright.live.deciding import Planners

    from ..controller_samples import controller

    cold = controller(tmp_path / "s.db", Planners(cluster, "fastest-feasible", scratch=tmp_path))
    from meshwright.live.decisions import JobRequest

    name = cold.decide_or_prepare(JobRequest(**JOB), "k").decision.id
    cold.close()
    with client(tmp_path / "s.db", planners) as service:
        assert wait_for(service, name)["status"] == "reserved"


@pytest.mark.usefixtures("in_threads")
def test_a_replay_runs_beside_the_service_and_its_result_is_the_commands(tmp_path, planners):
    with client(tmp_path / "s.db", planners) as service:
        name = service.post("/v1/decisions", json=JOB).json()["id"]
        service.post(f"/v1/decisions/{name}/observations", json=[{"step": step, "step_s": 0.5} for step in range(50)])
        assert service.get("/v1/calibration").json()["rows"][0]["num_devices"] == 4
        request = {"since": "2020-01-01T00:00:00Z", "policies": ["max@best-fit"]}
        begun = service.post("/v1/replays", json=request)
        assert begun.status_code == 202
        assert begun.headers["location"] == "/v1/replays/1"
        while (result := service.get("/v1/replays/1").json())["status"] == "running":
            time.sleep(0.05)
        reported = result.get("why") or result["result"]["rows"][0]["policy"]
        assert reported
        problem(service.get("/v1/replays/2"), 404)
        for spec in ("python:os:system", "menu:python:os:system", "synchronous-only:python:os:system"):
            wrong = {**request, "policies": [spec]}
            assert "would import a module" in problem(service.post("/v1/replays", json=wrong), 422)["detail"]
        problem(service.post("/v1/replays", json={**request, "until": "2019-01-01T00:00:00Z"}), 422)
