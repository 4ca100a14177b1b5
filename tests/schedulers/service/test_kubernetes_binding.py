"""A real kube-scheduler lets the service bind: pods of a decision on planned hosts alone, others where it says."""

import json
import urllib.request

import pytest

from .. import processes
from ..kubernetes import GPUS_PER_NODE
from ..test_kubernetes_state import pod
from .kubernetes_service import BIND, LOOK_FIRST, WHOLE, hosts_of, labelled, served_kubernetes

pytestmark = pytest.mark.scheduler("kubernetes")


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Nobody lists by the clock here, so that what is known comes from binding."""
    with served_kubernetes(
        tmp_path_factory.mktemp("service"), [LOOK_FIRST, BIND], "--resync-s", "3600", "--max-age-s", "9000"
    ) as made:
        yield made


def ask_to_bind(served, name: str, node: str) -> str:
    """Ask as the scheduler does; why not, empty where it is bound."""
    result = served.server.ask("GET", f"/api/v1/namespaces/default/pods/{name}")
    body = {"PodName": name, "PodNamespace": "default", "PodUID": result["metadata"]["uid"], "Node": node}
    request = urllib.request.Request(
        f"http://127.0.0.1:{served.port}/v1/extender/bind", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())["Error"]


def refused_to_bind(served) -> set[str]:
    """Pods whose binding was refused, by the scheduler's events."""
    events = served.server.ask("GET", "/api/v1/namespaces/default/events")["items"]
    return {event["involvedObject"]["name"] for event in events if "is planned on" in event.get("message", "")}


def test_pods_are_bound_as_planned_confirmed_and_refused_elsewhere(served):
    server, client = served.server, served.client
    decision = client.decide(WHOLE).decision
    (host,) = hosts_of(decision)
    for part in range(2):
        server.create(labelled(f"part-{part}", GPUS_PER_NODE // 2, decision=decision.id))
    assert set(server.wait_until_bound(2).values()) == {host}
    processes.wait_for(lambda: client.view(decision.id)["status"] == "running", "a running decision")
    reserved, confirmed, *_ = client.view(decision.id)["history"]
    assert (reserved["status"], confirmed["status"]) == ("reserved", "confirmed")
    assert confirmed["detail"] in ("default/part-0", "default/part-1")  # whichever the scheduler took first
    assert ask_to_bind(served, "part-0", host) == ""
    assert f"the pod is bound to {host}" in ask_to_bind(served, "part-0", "another")

    taken = client.decide(WHOLE).decision
    (other,) = hosts_of(taken)
    server.create(pod("foreign", GPUS_PER_NODE, on=other))
    assert server.wait_until_bound(3)["foreign"] == other
    server.create(labelled("waits", 1, decision=taken.id))  # the filter lets it pass, as its host has no room
    processes.wait_for(lambda: "waits" in refused_to_bind(served), "a refused binding")
    assert "waits" not in server.bound()
    server.delete("Pod", "foreign")
    processes.wait_for(lambda: server.bound().get("waits") == other, "a pod on its planned host")


def test_without_the_service_pods_without_gpus_go_on_and_those_with_wait_for_it(served):
    server = served.server
    before = len(server.bound())
    served.kill()
    server.create(pod("no-gpu", 0))
    server.create(pod("gpu", 1))
    processes.wait_for(lambda: "no-gpu" in server.bound(), "a pod that no service is asked about")
    assert len(server.bound()) == before + 1
    served.start()
    processes.wait_for(lambda: "gpu" in server.bound(), "a pod that waited for the service", limit_s=120)
