"""The answers to kube-scheduler, by forms that Kubernetes 1.20.2 was seen to send."""

from meshwright.live.actuators.kubernetes_extender import ExtenderArgs, filtered, prioritized
from meshwright.live.decisions import JobDecision, JobRequest

ASKED = {
    "Pod": {
        "metadata": {"name": "one", "namespace": "default", "labels": {"meshwright.dev/decision": "a1-1"}},
        "spec": {"containers": [{"name": "c", "image": "none"}], "schedulerName": "default-scheduler"},
        "status": {"phase": "Pending"},
    },
    "Nodes": None,
    "NodeNames": ["gpu-a", "gpu-b", "gpu-c"],
}


def decision(*hosts):
    plan = {"ranks": [{"host": host, "local_rank": 0} for host in hosts]}
    return JobDecision(id="a1-1", request=JobRequest(job="zoo:alexnet"), outcome="placed", plan=plan)


def test_a_pod_of_a_decision_gets_its_hosts_and_another_one_all():
    asked = ExtenderArgs.model_validate(ASKED)
    assert asked.decision == "a1-1"
    answer = filtered(asked, decision("gpu-b", "gpu-x")).model_dump(by_alias=True)
    assert answer["NodeNames"] == ["gpu-b"]
    assert answer["FailedNodes"] == dict.fromkeys(("gpu-a", "gpu-c"), "not a host of the plan")
    assert [one.score for one in prioritized(asked, decision("gpu-b"))] == [0, 10, 0]
    for none in (None, decision("gpu-x"), JobDecision(id="a", request=JobRequest(job="zoo:alexnet"), outcome="refused")):
        assert filtered(asked, none).model_dump(by_alias=True)["NodeNames"] == ASKED["NodeNames"]
        assert {one.score for one in prioritized(asked, none)} == {0}


def test_pods_that_name_no_decision_and_forms_without_names():
    for metadata in ({}, {"labels": None}, {"labels": {"meshwright.dev/decision": ""}}, {"labels": {"x": "y"}}, None):
        assert ExtenderArgs.model_validate({**ASKED, "Pod": {"metadata": metadata}}).decision is None
    nodes = {"items": []}
    whole = ExtenderArgs.model_validate({"Pod": ASKED["Pod"], "Nodes": nodes})
    assert filtered(whole, decision("gpu-b")).nodes == nodes
    assert prioritized(whole, decision("gpu-b")) == []
