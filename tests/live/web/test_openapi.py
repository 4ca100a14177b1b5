"""Every answer, whatever is sent, is one of the OpenAPI document: no error of ours, no undocumented status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, given
from hypothesis.errors import Unsatisfiable
from hypothesis.stateful import run_state_machine_as_test
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance, status_code_conformance

from meshwright.live import pricing
from meshwright.live.service import Service
from meshwright.live.web import replay_routes
from meshwright.live.web.access import access
from meshwright.live.web.app import build_app

from ...draws import draws
from ..controller_samples import Clock, InThreads, controller
from .web_samples import serving

DOCUMENT = Path(__file__).parents[3] / "docs" / "openapi.json"
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def url(tmp_path_factory, planners):
    """A service on a free port of the loopback."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (pricing, replay_routes):
            patch.setattr(module, "WorkerPool", InThreads)
        path = tmp_path_factory.mktemp("service") / "s.db"
        app = build_app(Service(controller(path, planners, Clock()), path), access("127.0.0.1", None))
        with serving(app, lifespan="on") as port:
            yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def schema(url):
    return schemathesis.openapi.from_url(f"{url}/openapi.json")


def test_the_document_is_the_one_that_is_kept(url, schema):
    """To change it: `curl URL/openapi.json | python -m json.tool --indent 1 > docs/openapi.json`."""
    assert schema.raw_schema == json.loads(DOCUMENT.read_text())


def test_every_answer_is_told_of_in_the_document_whatever_is_sent(schema):
    failed = {}
    for operation in schema.get_all_operations():
        made = operation.ok()
        for mode in schemathesis.GenerationMode:

            @given(case=made.as_strategy(generation_mode=mode))
            @draws(2, deadline=None, suppress_health_check=list(HealthCheck))
            def hold(case):
                case.headers.pop("accept", None)  # a stream of events has no end
                case.call_and_validate(checks=CHECKS)

            try:
                hold()
            except Unsatisfiable:  # nothing wrong can be sent to it
                assert mode.name == "NEGATIVE"
                assert not made.definition.raw.get("parameters")
            except Exception as error:
                failed[f"{made.label} {mode.name}"] = str(error)[:1500]
    assert failed == {}


def test_the_ways_through_the_service_hold_too(schema):
    """Calls in a row, each with what the one before answered."""

    class Ways(schema.as_state_machine()):
        def validate_response(self, response, case, **others):
            case.validate_response(response, checks=CHECKS)

    run_state_machine_as_test(Ways, settings=draws(1, deadline=None, suppress_health_check=list(HealthCheck)))
