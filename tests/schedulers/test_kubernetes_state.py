"""The state that is read from a real Kubernetes: nodes as they were registered, pods where the scheduler bound them, and no more.

API server, scheduler and controllers are real; no kubelet runs, so the tests say in their place how nodes and pods fare.
"""

import json
from copy import deepcopy
from typing import Any

import pytest

from meshwright.cli import run_command_line as meshwright
from meshwright.export.kubernetes.pods import DECISION_LABEL
from meshwright.live.keeping import KeptState
from meshwright.live.state import ClusterState

from . import processes
from .kubernetes import GPU, GPUS_PER_NODE, READY

pytestmark = pytest.mark.scheduler("kubernetes")

NODES = ("gpu-03", "gpu-05", "gpu-07", "gpu-11")


def pod_spec(*counts: int, on: str | None = None, init: tuple[int, ...] = ()) -> dict[str, Any]:
    """A pod of containers that want so many devices each, behind containers that run before them."""
    named = {
        part: [
            {"name": f"{part.lower()}-{number}", "image": "none", "resources": {"limits": {GPU: count}} if count else {}}
            for number, count in enumerate(expected)
        ]
        for part, expected in (("containers", counts), ("initContainers", init))
    }
    return (
        named
        | {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0}
        | ({"nodeSelector": {"kubernetes.io/hostname": on}} if on else {})
    )


def pod(name: str, *counts: int, on: str | None = None, init: tuple[int, ...] = ()) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"name": name}, "spec": pod_spec(*counts, on=on, init=init)}


def job(name: str, num_pods: int, count: int, labels: dict[str, str] | None = None) -> dict[str, Any]:
    template = {"metadata": {"labels": labels or {}}, "spec": pod_spec(count)}
    return {
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"parallelism": num_pods, "completions": num_pods, "template": template},
    }


@pytest.fixture
def ledger(tmp_path) -> KeptState:
    return KeptState(tmp_path / "state.db")


def read(ledger: KeptState, capsys) -> tuple[ClusterState, str]:
    """The state after the real kubectl was asked once more, and what our command printed."""
    assert meshwright(["state", "read", "kubernetes", "--set", "context=loopback", "--state", str(ledger.path)]) == 0, (
        capsys.readouterr().err
    )
    return ledger.read(), capsys.readouterr().out


def counts(state: ClusterState) -> dict[str, dict[str, int]]:
    return {one.id: {host: len(local) for host, local in one.devices.items()} for one in state.jobs}


@pytest.fixture
def busy(loopback_kubernetes):
    """Nodes of every kind; pods by themselves and of jobs, bound, waiting and ended."""
    server = loopback_kubernetes
    for name in NODES[1:]:
        server.add_node(name)
    server.add_node("gpu-03", allocatable=GPUS_PER_NODE - 1)
    server.add_node("gpu-13", is_ready=False)
    server.add_node("gpu-17", gpus=1)
    server.add_node("cpu-01", gpus=0)
    if "research" not in {one["metadata"]["name"] for one in server.listed("Namespace")}:
        server.create({"kind": "Namespace", "metadata": {"name": "research"}})
    server.create(pod("train", 1, 0, init=(3, 2), on="gpu-11"), "research")  # the first container that starts wants three
    server.create(pod("notebook", 2, on="gpu-05"))
    server.create(pod("no-device", 0))
    for name in ("done", "broken"):
        server.create(pod(name, 1))
    server.wait_until_bound(4)
    server.wait_until_bound(1, "research")
    for name, phase in (("done", "Succeeded"), ("broken", "Failed")):
        server.patch("Pod", name, {"status": {"phase": phase}}, part="/status")
    server.create(job("train", 3, 4, {DECISION_LABEL: "mine"}))
    server.create(job("train", 2, 1), "research")
    server.wait_until_bound(7)
    server.wait_until_bound(3, "research")
    server.patch("Node", "gpu-05", {"spec": {"unschedulable": True}})
    pressed = {"type": "DiskPressure", "status": "True"}
    server.patch("Node", "gpu-17", {"status": {"conditions": [READY, pressed]}}, part="/status")
    server.wait_for_taints("gpu-17", ["node.kubernetes.io/disk-pressure"])
    closed = ("gpu-05", "gpu-13", "gpu-17")
    for name in closed:
        server.create(pod(f"waits-{name}", 1, on=name))
    processes.wait_for(lambda: server.cannot_be_bound() == {f"waits-{name}" for name in closed}, "pods that find no node")
    return server


def test_the_state_is_what_was_created_and_bound_and_a_second_listing_changes_nothing(busy, ledger, capsys):
    state, message = read(ledger, capsys)
    where = {namespace: busy.bound(namespace) for namespace in ("default", "research")}
    expected: dict[str, dict[str, int]] = {"default/notebook": {"gpu-05": 2}, "unlisted/gpu-03": {"gpu-03": 1}}
    for kind, namespace, each in (("job-name", "default", 4), ("job-name", "research", 1)):
        name = "default/train" if namespace == "default" else f"research/train ({kind})"
        expected[name] = {}
        for one, node in where[namespace].items():
            if one.startswith("train-"):
                expected[name][node] = expected[name].get(node, 0) + each
    expected["research/train (pod)"] = {where["research"]["train"]: 3}
    assert sum(expected["default/train"].values()) == 12
    assert counts(state) == expected
    assert [(one.id, one.decision) for one in state.jobs if one.decision] == [("default/train", "mine")]
    hosts = {name: (host.condition, host.num_devices, host.reason) for name, host in state.hosts.items()}
    assert hosts == dict.fromkeys(("gpu-03", "gpu-07", "gpu-11"), ("up", 8, None)) | {
        "gpu-05": ("drained", 8, "cordoned"),
        "gpu-13": ("down", 8, "KubeletNotReady"),
        "gpu-17": ("drained", 1, "node.kubernetes.io/disk-pressure"),
        "cpu-01": ("up", None, None),
    }
    assert "5 jobs on 20 devices, 3 hosts closed" in message
    _, message = read(ledger, capsys)
    assert "nothing changed" in message
    assert len(ledger.changes()) == 1
    busy.delete("Pod", "notebook", grace_s=3600)  # it ends, which no kubelet confirms: the scheduler counts its devices still
    assert "nothing changed" in read(ledger, capsys)[1]
    busy.delete("Job", "train")
    processes.wait_for(lambda: not any(name.startswith("train") for name in busy.bound()), "the end of a job")
    after, _ = read(ledger, capsys)
    assert counts(after) == {name: held for name, held in expected.items() if name != "default/train"}
    assert {one.id: one.devices for one in after.jobs} == {one.id: one.devices for one in state.jobs if one.id != "default/train"}


def test_what_the_state_calls_free_the_scheduler_gives_and_no_device_more(busy, ledger, capsys):
    state, _ = read(ledger, capsys)
    free = {name: host.num_devices or 0 for name, host in state.hosts.items() if host.condition == "up"}
    for held in counts(state).values():
        for host in free.keys() & held:
            free[host] -= held[host]
    assert set(free) == {"gpu-03", "gpu-07", "gpu-11", "cpu-01"}
    assert max(free.values()) > 0
    for host, count in free.items():
        busy.create(pod(f"more-{host}", count + 1, on=host))
    expected = {f"more-{host}" for host in free}
    processes.wait_for(lambda: expected <= busy.cannot_be_bound(), "pods that want too much")
    for host, count in free.items():
        busy.create(pod(f"fills-{host}", count, on=host))
    processes.wait_for(lambda: {f"fills-{host}" for host in free} <= busy.bound().keys(), "pods that want what is free")
    state, _ = read(ledger, capsys)
    held = {host: sum(job.get(host, 0) for job in counts(state).values()) for host in free}
    assert held == {host: state.hosts[host].num_devices or 0 for host in free}


def test_a_node_that_is_deleted_takes_its_host_out_and_one_that_changes_is_told(loopback_kubernetes, ledger, capsys):
    for name in NODES:
        loopback_kubernetes.add_node(name)
    loopback_kubernetes.create(pod("stays", 4, on="gpu-11"))
    loopback_kubernetes.wait_until_bound(1)
    read(ledger, capsys)
    loopback_kubernetes.delete("Node", "gpu-03")
    loopback_kubernetes.patch("Node", "gpu-05", {"spec": {"unschedulable": True}})
    not_ready = {
        "type": "Ready",
        "status": "Unknown",
        "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting node status.",
    }
    loopback_kubernetes.patch("Node", "gpu-07", {"status": {"conditions": [not_ready]}}, part="/status")
    state, message = read(ledger, capsys)
    assert {name: host.condition for name, host in state.hosts.items()} == {"gpu-05": "drained", "gpu-07": "down", "gpu-11": "up"}
    for sentence in (
        "not as it was known: gpu-03 is listed no more, was up",
        "not as it was known: gpu-05 is drained, was up: cordoned",
        "not as it was known: gpu-07 is down, was up: NodeStatusUnknown: Kubelet stopped posting node status.",
    ):
        assert sentence in " ".join(message.split())
    # The pod of a node that is gone is still listed, until a controller removes it about a minute later.
    loopback_kubernetes.delete("Node", "gpu-11")
    state, message = read(ledger, capsys)
    assert "gpu-11" not in state.hosts
    loopback_kubernetes.delete("Pod", "stays")
    state, _ = read(ledger, capsys)
    assert state.jobs == ()


def test_a_server_that_is_gone_or_shows_a_part_leaves_the_state_as_it_was(
    loopback_kubernetes, ledger, tmp_path, monkeypatch, capsys
):
    loopback_kubernetes.add_node("gpu-07")
    before, _ = read(ledger, capsys)
    (port,) = processes.free_ports(1)
    known = json.loads(loopback_kubernetes.kubeconfig.read_text())
    gone, stranger = deepcopy(known), deepcopy(known)
    gone["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
    stranger["users"][0]["user"]["as"] = "stranger"
    rules = {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]}
    loopback_kubernetes.create({"kind": "ClusterRole", "metadata": {"name": "pods"}} | rules)
    subject = {"kind": "User", "name": "stranger", "apiGroup": "rbac.authorization.k8s.io"}
    role = {"kind": "ClusterRole", "name": "pods", "apiGroup": "rbac.authorization.k8s.io"}
    bound = {"kind": "ClusterRoleBinding", "metadata": {"name": "pods"}, "subjects": [subject], "roleRef": role}
    loopback_kubernetes.create(bound)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    for config, message in ((gone, "was refused"), (stranger, 'cannot list resource "nodes"')):
        (tmp_path / "kubeconfig").write_text(json.dumps(config))
        assert meshwright(["state", "read", "kubernetes", "--state", str(ledger.path)]) == 2
        error = capsys.readouterr().err
        assert "kubectl: ended with status 1" in error
        assert message in error
        assert ledger.read() == before
