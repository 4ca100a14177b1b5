"""A check of Kueue within the service: failures are shown, and abandoned attempts are counted."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from fastapi.testclient import TestClient

from meshwright.live.actuators.kueue_check import KueueCheck
from meshwright.live.actuators.kueue_objects import CONTROLLER
from meshwright.live.records.retention import give_up
from meshwright.live.service import Service
from meshwright.live.web.app import build_app

from ..controller_samples import controller
from ..web.web_samples import OPEN
from .kueue_samples import CHECK, held, turns, workload


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
        message = f"admission check {CHECK}: AdmissionCheck {CHECK}: controllerName: must be {CONTROLLER} (got 'theirs')"
        assert http.get("/v1/cluster").json()["problems"] == [message]
        health = http.get("/readyz")
        assert (health.status_code, health.json()) == (200, {"status": "degraded", "detail": f"fails: admission check {CHECK}"})
        page = http.get("/", headers={"accept": "text/html"}).text
        assert f"Failing: admission check {CHECK}.</b> AdmissionCheck" in page
        lines = http.get("/metrics").text.splitlines()
        (failures,) = (line.split()[1] for line in lines if line.startswith("meshwright_admission_check_failures_total "))
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
        assert made.stored(second).key.endswith(":2")
