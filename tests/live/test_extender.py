"""The answers to kube-scheduler, by forms that Kubernetes 1.20.2 was seen to send."""

from meshwright.live.actuators.kubernetes_binding import refusal
from meshwright.live.actuators.kubernetes_extender import ExtenderArgs, decision_named, filtered, prioritized
from meshwright.live.state import HostState

from .controller_samples import JOB, all_up
from .web.web_samples import client

ASKED = {
    "Pod": {
        "metadata": {"name": "one", "namespace": "default", "labels": {"meshwright.dev/decision": "a1-1"}},
        "spec": {"containers": [{"name": "c", "image": "none"}], "schedulerName": "default-scheduler"},
        "status": {"phase": "Pending"},
    },
    "Nodes": None,
    "NodeNames": ["gpu-a", "gpu-b", "gpu-c"],
}


def test_a_pod_of_a_decision_gets_its_hosts_and_another_one_all():
    request = ExtenderArgs.model_validate(ASKED)
    assert decision_named(request.pod) == "a1-1"
    answer = filtered(request, ("gpu-b", "gpu-x")).model_dump(by_alias=True)
    assert answer["NodeNames"] == ["gpu-b"]
    assert answer["FailedNodes"] == dict.fromkeys(("gpu-a", "gpu-c"), "not a host of the plan")
    assert [one.score for one in prioritized(request, ("gpu-b",))] == [0, 10, 0]
    for planned in ((), ("gpu-x",)):
        assert filtered(request, planned).model_dump(by_alias=True)["NodeNames"] == ASKED["NodeNames"]
        assert {one.score for one in prioritized(request, planned)} == {0}


def test_what_holds_nothing_or_has_no_host_left_pins_nobody_and_filter_and_bind_agree(tmp_path, planners):
    with client(tmp_path / "s.db", planners) as http:
        made = http.service.controller

        def call(function, *words):
            """Something of the controller, on its own thread."""
            return http.portal.call(http.service.write, function, *words)

        def answers(name):
            """The nodes that may have the pod by ``filter`` and by ``bind``, and those that ``prioritize`` prefers."""
            pod = {"metadata": {"labels": {"meshwright.dev/decision": name}}}
            request = {"Pod": pod, "NodeNames": ["a", "b", "c"]}
            stored = http.post("/v1/extender/filter", json=request).json()["NodeNames"]
            scores = http.post("/v1/extender/prioritize", json=request).json()
            assert stored == [host for host in "abc" if call(refusal, made, name, host) is None]
            return stored, [score["Host"] for score in scores if score["Score"]]

        first, second = (call(made.decide, JOB.model_copy(update={"devices": 4})).decision for _ in range(2))
        (host,), (other,) = ({rank["host"] for rank in one.plan["ranks"]} for one in (first, second))
        assert answers(first.id) == ([host], [host])
        call(made.release, first.id)
        assert answers(first.id) == (["a", "b", "c"], [])
        assert answers("no-such") == (["a", "b", "c"], [])
        call(made.confirm, second.id, "default/train")  # else the listing gives it back
        drained = {other: HostState(num_devices=4, condition="drained")}
        call(made.take, all_up(waiting=[second.id], **drained), call(made.handed_over))
        assert answers(second.id) == (["a", "b", "c"], [])
        call(made.take, all_up(waiting=[second.id]), call(made.handed_over))
        assert answers(second.id) == ([other], [other])


def test_pods_that_name_no_decision_and_forms_without_names():
    for metadata in ({}, {"labels": None}, {"labels": {"meshwright.dev/decision": ""}}, {"labels": {"x": "y"}}, None):
        assert decision_named({"metadata": metadata}) is None
    nodes = {"items": []}
    whole = ExtenderArgs.model_validate({"Pod": ASKED["Pod"], "Nodes": nodes})
    assert filtered(whole, ("gpu-b",)).nodes == nodes
    assert prioritized(whole, ("gpu-b",)) == []
