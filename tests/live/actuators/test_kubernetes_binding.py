"""Binding for kube-scheduler: planned hosts alone for the pods of a decision, all others as asked, and nothing done twice."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from meshwright.errors import ConflictError, StateError
from meshwright.live.actuators import kubernetes_api
from meshwright.live.actuators.kubernetes_binding import ExtenderBindingArgs, PodToBind, confirmed

from ..controller_samples import JOB, controller
from ..web.web_samples import client

ASKED = {"PodName": "train-0", "PodNamespace": "default", "PodUID": "8f2", "Node": "a"}


def asked(**changes) -> ExtenderBindingArgs:
    return ExtenderBindingArgs.model_validate(ASKED | changes)


def pod(decision=None, node=None, uid="8f2", **labels):
    labels |= {"meshwright.dev/decision": decision} if decision else {}
    return {"metadata": {"uid": uid, "labels": labels}, "spec": {"nodeName": node} if node else {}}


@pytest.fixture
def made(planners, tmp_path):
    return controller(tmp_path / "s.db", planners)


def test_the_first_pod_confirms_and_the_next_ones_change_nothing(made):
    name = made.decide(JOB).decision.id
    first = PodToBind(asked(), pod(name, **{"job-name": "train"}))
    assert first.job == "default/train"
    assert confirmed(made, first)
    seq = made.store.last()[0]
    assert not confirmed(made, PodToBind(asked(PodName="other"), pod(name)))
    assert not confirmed(made, PodToBind(asked(), pod()))
    assert made.store.last()[0] == seq
    assert made.store.last()[1].planned(name).confirmed_as == "default/train"


def test_a_pod_that_is_bound_is_that_pod_on_that_node():
    PodToBind(asked(), pod(node="a")).bind()  # nobody is asked: there is nothing to do
    with pytest.raises(ConflictError, match="bound to b"):
        PodToBind(asked(), pod(node="b"))
    with pytest.raises(StateError, match="another pod"):
        PodToBind(asked(), pod(uid="other"))


@pytest.mark.parametrize("name", ["../../nodes/a", "a?watch=1", "A", "", "a/binding"])
def test_a_name_is_no_path(name):
    with pytest.raises(ValidationError):
        asked(PodName=name)
    with pytest.raises(ValidationError):
        asked(PodNamespace=name)


def test_a_service_beside_no_kubernetes_binds_nothing(tmp_path, planners):
    with client(tmp_path / "s.db", planners) as http:
        answer = http.post("/v1/extender/bind", json=ASKED)
        assert answer.status_code == 200
        assert "does not read Kubernetes" in answer.json()["Error"]


@pytest.mark.parametrize("bound_to", [None, "a", "b", "gone"])
def test_a_pod_is_bound_by_one_binding_and_one_that_was_bound_meanwhile_is_as_well(monkeypatch, bound_to):
    messages, path = [], "/api/v1/namespaces/default/pods/train-0"

    def create(where, body):
        messages.append((where, body))
        if bound_to is not None:
            raise ConflictError("is bound", field="pod")

    result = pod(node=None if bound_to in (None, "gone") else bound_to)
    monkeypatch.setattr(kubernetes_api, "get", {path: result}.__getitem__)
    monkeypatch.setattr(kubernetes_api, "create", create)
    expected = PodToBind(asked(), pod())
    if bound_to in (None, "a"):
        expected.bind()
    else:
        with pytest.raises(ConflictError, match="is bound"):
            expected.bind()
    # Binding of the core API, version 1, whose target is a Node
    metadata = {"name": "train-0", "namespace": "default", "uid": "8f2"}
    target = {"apiVersion": "v1", "kind": "Node", "name": "a"}
    assert messages == [(f"{path}/binding", {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target})]
