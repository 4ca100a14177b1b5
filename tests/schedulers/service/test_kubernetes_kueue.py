"""An admission check of Kueue at a real API server and scheduler; Kueue itself is not run, its part is played."""

import pytest

from meshwright.live.decisions import JobRequest

from .. import processes
from ..kubernetes import GPUS_PER_NODE
from .kubernetes_service import hosts_of, served_kubernetes
from .played_kueue import CHECK, PlayedKueue

pytestmark = pytest.mark.scheduler("kubernetes")

WIDE = "zoo:resnet50"
"""A job to which the policy gives as many devices as it wants, also of two hosts."""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    words = ["--set", "resync_s=0.5", "--set", f"kueue_check={CHECK}", "--policy", "max@best-fit"]
    with served_kubernetes(tmp_path_factory.mktemp("service"), [], *words) as made:
        yield made


@pytest.fixture(scope="module")
def kueue(served) -> PlayedKueue:
    made = PlayedKueue(served.server)
    processes.wait_for(made.is_active, "somebody who answers", told=lambda: served.told)
    return made


@pytest.fixture(autouse=True)
def _nothing_left(served, kueue):
    yield
    for one in served.server.listed("Workload"):
        kueue._delete_pods(one["metadata"]["name"])
        served.server.delete("Workload", one["metadata"]["name"])
    processes.wait_for(lambda: not served.client.cluster()["jobs"], "the end of all jobs", told=lambda: served.told)
    processes.wait_for(lambda: not labels(served), "nodes without labels")


def labels(served) -> dict[str, set[str]]:
    """The nodes that carry the label of a plan, by label."""
    result: dict[str, set[str]] = {}
    for node in served.server.listed("Node"):
        for key in node["metadata"]["labels"]:
            if key.startswith("plan.meshwright.dev/"):
                result.setdefault(key, set()).add(node["metadata"]["name"])
    return result


def wait_for_state(served, kueue, name, state):
    """Wait until the check of a Workload has a state, and return it; a new kind of job is priced first."""
    processes.wait_for(
        lambda: kueue.check(name)["state"] == state,
        f"{state} for {name}",
        limit_s=240,
        told=lambda: f"{kueue.check(name)} {served.told}",
    )
    return kueue.check(name)


def decided(served, check):
    """The decision that a Workload was given, and its hosts."""
    driver, worker = check["podSetUpdates"]
    assert driver == {"name": "driver"}
    name = worker["labels"]["meshwright.dev/decision"]
    assert worker["nodeSelector"] == {f"plan.meshwright.dev/{name}": "planned"}
    view = served.client.view(name)
    return view, {place["host"] for place in view["decision"]["places"]}


def test_pods_of_a_workload_come_to_the_planned_hosts_and_others_wait_for_theirs(served, kueue):
    kueue.create("first", 4, GPUS_PER_NODE // 2, WIDE)
    view, hosts = decided(served, wait_for_state(served, kueue, "first", "Ready"))
    assert len(hosts) == 2
    assert labels(served) == {f"plan.meshwright.dev/{view['decision']['id']}": hosts}
    assert view["status"] == "reserved"
    kueue.create("second", 2, GPUS_PER_NODE, WIDE)  # one host is left
    refused = wait_for_state(served, kueue, "second", "Retry")
    assert refused["requeueAfterSeconds"] > 0
    assert "podSetUpdates" not in refused
    kueue.admit("first")
    processes.wait_for(lambda: len(served.server.bound()) == 5, "bound pods")
    assert kueue.nodes_of("first") == hosts
    name = view["decision"]["id"]
    processes.wait_for(lambda: served.client.view(name)["status"] == "running", "a running decision")
    for _ in range(2):  # Kueue asks again and again, and as long as nothing is free one refusal is kept
        kueue.evict("second")
        kueue.reserve("second")
        wait_for_state(served, kueue, "second", "Retry")
    assert [row["name"] for row in served.client.rows()].count("second") == 1
    kueue.finish("first")
    kueue.evict("second")
    processes.wait_for(lambda: served.client.view(name)["status"] == "ended", "an ended decision")
    kueue.reserve("second")
    view, hosts = decided(served, wait_for_state(served, kueue, "second", "Ready"))
    kueue.admit("second")
    processes.wait_for(lambda: kueue.nodes_of("second") == hosts, "bound pods")


def test_a_workload_that_can_never_be_placed_is_rejected_and_one_that_is_not_ours_passes(served, kueue):
    kueue.create("huge", 4, GPUS_PER_NODE)
    assert "the cluster has 24" in wait_for_state(served, kueue, "huge", "Rejected")["message"]
    kueue.create("unknown", 1, 1, "zoo:no-such-model")
    assert "no-such-model" in wait_for_state(served, kueue, "unknown", "Rejected")["message"]
    kueue.create("foreign", 1, GPUS_PER_NODE, None)
    kueue.create("topology", 1, GPUS_PER_NODE, topologyRequest={"required": "kubernetes.io/hostname"})
    kueue.create("small", 1, 0)
    for name, why in (("foreign", "names no job"), ("topology", "topology-aware"), ("small", "no devices")):
        passed = wait_for_state(served, kueue, name, "Ready")
        assert why in passed["message"]
        assert "podSetUpdates" not in passed
    assert served.client.cluster()["jobs"] == []


def test_a_deleted_workload_and_one_without_quota_hold_nothing(served, kueue):
    kueue.create("deleted", 1, GPUS_PER_NODE)
    kueue.create("evicted", 1, GPUS_PER_NODE)
    result = {
        name: decided(served, wait_for_state(served, kueue, name, "Ready"))[0]["decision"]["id"]
        for name in ("deleted", "evicted")
    }
    served.server.delete("Workload", "deleted")
    kueue.evict("evicted")
    for name, why in (("deleted", "its Workload was deleted"), ("evicted", "its Workload has no quota any more")):
        processes.wait_for(lambda: served.client.view(result[name])["status"] == "released", "given back devices")  # noqa: B023
        assert served.client.view(result[name])["history"][-1]["detail"] == why
    kueue.reserve("evicted")
    view, _ = decided(served, wait_for_state(served, kueue, "evicted", "Ready"))
    assert view["decision"]["id"] not in result.values()


def test_a_service_that_is_started_again_goes_on_and_changes_nothing(served, kueue):
    kueue.create("kept", 1, GPUS_PER_NODE)
    view, hosts = decided(served, wait_for_state(served, kueue, "kept", "Ready"))
    before, changes = kueue.get("kept"), served.client.cluster()["seq"]
    served.kill()
    kueue.create("meanwhile", 1, GPUS_PER_NODE)
    served.start()
    _, others = decided(served, wait_for_state(served, kueue, "meanwhile", "Ready"))
    assert kueue.get("kept") == before
    assert served.client.view(view["decision"]["id"])["status"] == "reserved"
    assert not hosts & others
    assert served.client.cluster()["seq"] == changes + 1


def test_a_host_that_is_drained_before_the_start_has_kueue_ask_again(served, kueue):
    kueue.create("moved", 1, GPUS_PER_NODE)
    _, (host,) = decided(served, wait_for_state(served, kueue, "moved", "Ready"))
    served.server.patch("Node", host, {"spec": {"unschedulable": True}})
    assert host in wait_for_state(served, kueue, "moved", "Retry")["message"]
    kueue.evict("moved")
    kueue.reserve("moved")
    _, others = decided(served, wait_for_state(served, kueue, "moved", "Ready"))
    assert host not in others
    served.server.patch("Node", host, {"spec": {"unschedulable": False}})


def test_a_workload_of_an_exported_plan_gets_that_plan(served, kueue):
    decision = served.client.decide(JobRequest(job="zoo:alexnet", steps=100, devices=GPUS_PER_NODE)).decision
    kueue.create("exported", 1, GPUS_PER_NODE, None, labels={"meshwright.dev/decision": decision.id})
    view, hosts = decided(served, wait_for_state(served, kueue, "exported", "Ready"))
    assert view["decision"]["id"] == decision.id
    kueue.admit("exported")
    processes.wait_for(lambda: kueue.nodes_of("exported") == hosts == hosts_of(decision), "bound pods")
    processes.wait_for(lambda: served.client.view(decision.id)["status"] == "running", "a running decision")
