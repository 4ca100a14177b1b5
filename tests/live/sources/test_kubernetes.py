"""Laws of reading Kubernetes: what pods hold and where, jobs by their labels, nodes that take no pods."""

import json
import random
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import kubernetes_validate
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright import yaml12
from meshwright.errors import ConfigError, MeshwrightError, StateError
from meshwright.export.kubernetes.pods import DECISION_LABEL
from meshwright.live.sources import kubernetes
from meshwright.live.sources.listings import EMPTY
from meshwright.live.sources.source import source

from ...draws import draws

MADE = json.loads((Path(__file__).parent / "data" / "kubernetes.json").read_text())
"""Made by hand in the form that ``kubectl get nodes,pods -A -o json`` prints; each object is one that Kubernetes knows."""


def read(items, **others):
    """The state read from items and a pod without devices, as every cluster has some."""
    return kubernetes.read(listed(*items, pod("proxy", [])), **others)


def listed(*items):
    return json.dumps({"kind": "List", "items": items})


def node(name, count=8, labels=None, **slices):
    """A node; ``slices`` are counts of MIG resources, as ``g1=4``."""
    resources = {"nvidia.com/gpu": str(count), "amd.com/gpu": "2"}
    resources |= {f"nvidia.com/mig-{kind}.10gb": str(number) for kind, number in slices.items()}
    status = {"capacity": resources, "allocatable": resources, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}


def pod(name, counts, on="a", init=(), labels=None, phase="Running", **spec):
    """A pod; ``init`` holds the devices of each init container, and whether it is a sidecar."""
    containers = [{"name": str(count), "resources": {"limits": {"nvidia.com/gpu": count}}} for count in counts]
    before = [
        {"name": "i", "resources": {"requests": {"nvidia.com/gpu": str(one)}}} | ({"restartPolicy": "Always"} if beside else {})
        for one, beside in init
    ]
    meta = {"name": name, "namespace": "ns", "labels": labels or {}}
    spec = {"nodeName": on, "containers": containers, "initContainers": before} | spec
    return {"kind": "Pod", "metadata": meta, "spec": spec, "status": {"phase": phase}}


def held(*items, **others):
    return {job.id: dict(job.devices) for job in read(items, **others).state.jobs}


def test_what_a_cluster_lists():
    for item in MADE["items"]:
        kubernetes_validate.validate(item, "1.32", strict=False)
    listing = kubernetes.read(json.dumps(MADE))
    assert {job.id: dict(job.devices) for job in listing.state.jobs} == {
        "research/llama": {"gpu-a": tuple(range(8)), "gpu-b": (0, 1, 2, 3)},  # a JobSet of two pods
        "research/tune (batch.kubernetes.io)": {"gpu-b": (4, 5)},  # two containers of one device
        "research/tune (pod)": {"gpu-e": (0, 1)},  # an init container wants two, the container one
        "research/notebook": {"gpu-c": (0,)},  # bound, not yet running
        "unlisted/gpu-e": {"gpu-e": (2,)},  # eight devices, seven allocatable
    }
    assert {job.id: job.decision for job in listing.state.jobs if job.decision} == {"research/llama": "3f2a"}
    hosts = {name: (host.condition, host.num_devices, host.reason) for name, host in listing.state.hosts.items()}
    assert hosts == {
        "gpu-a": ("up", 8, None),
        "gpu-b": ("up", 8, None),
        "gpu-c": ("drained", 8, "cordoned"),
        "gpu-d": ("down", 8, "NodeStatusUnknown: Kubelet stopped posting node status."),
        "gpu-e": ("up", 8, None),
        "cpu-a": ("up", None, None),
    }
    assert listing.remarks == ("Kubernetes reports how many devices of a node a pod holds, not which: indices are assumed",)


@pytest.mark.parametrize(
    ("counts", "init", "together"),
    [
        ([1, 2], [], 3),
        ([1], [(4, False), (2, False)], 4),  # one before the other, then the container
        ([3], [(4, False)], 4),
        ([3], [(1, True)], 4),  # a sidecar runs beside it
        ([1], [(2, True), (3, False)], 5),  # the sidecar runs while the second starts
        ([1], [(3, False), (2, True)], 3),  # the sidecar starts after the first has ended
    ],
)
def test_devices_of_a_pod_are_those_that_it_holds_at_once(counts, init, together):
    assert held(node("a"), pod("p", counts, init=init)) == {"ns/p": {"a": tuple(range(together))}}


def test_a_pod_holds_from_when_it_is_bound_until_it_has_ended():
    for phase, holds in (("Pending", True), ("Running", True), ("Unknown", True), ("Succeeded", False), ("Failed", False)):
        assert bool(held(node("a"), pod("p", [1], phase=phase))) == holds
    assert held(node("a"), pod("p", [8], on=None, phase="Pending")) == {}


@pytest.mark.parametrize(
    ("key", "effect", "condition"),
    [
        ("node.kubernetes.io/disk-pressure", "NoSchedule", "drained"),
        ("node.cloudprovider.kubernetes.io/uninitialized", "NoExecute", "drained"),
        ("node.kubernetes.io/disk-pressure", "PreferNoSchedule", "up"),
        ("nvidia.com/gpu", "NoSchedule", "up"),  # pods that want GPUs bear it
    ],
)
def test_a_node_that_kubernetes_itself_keeps_pods_from_is_closed(key, effect, condition):
    tainted = node("a") | {"spec": {"taints": [{"key": "other/x", "effect": "NoSchedule"}, {"key": key, "effect": effect}]}}
    result = read([tainted]).state.hosts["a"]
    assert (result.condition, result.reason) == (condition, key if condition == "drained" else None)
    taints = [{"key": f"node.kubernetes.io/{one}-pressure", "effect": effect} for one in ("pid", "disk")]
    reason = read([node("a") | {"spec": {"taints": taints}}]).state.hosts["a"].reason
    closed = "node.kubernetes.io/disk-pressure, node.kubernetes.io/pid-pressure"
    assert reason == (None if effect == "PreferNoSchedule" else closed)


@pytest.mark.parametrize("label", kubernetes.JOB_LABELS)
def test_pods_of_one_job_are_one_job(label):
    pods = [pod(f"p{number}", [2], on=host, labels={label: "j"}) for number, host in enumerate("aab")]
    assert held(node("a"), node("b"), *pods) == {"ns/j": {"a": (0, 1, 2, 3), "b": (0, 1)}}


def test_another_resource_is_counted_by_its_name():
    own = {"kind": "Pod", "metadata": {"name": "p"}, "status": {"phase": "Running"}}
    own["spec"] = {"nodeName": "a", "containers": [{"name": "c", "resources": {"limits": {"amd.com/gpu": "2"}}}]}
    assert held(node("a"), own, resource="amd.com/gpu") == {"default/p": {"a": (0, 1)}}
    assert held(node("a"), own) == {}


def test_more_devices_than_a_node_has_are_refused_with_its_name():
    with pytest.raises(StateError, match=r"hosts.a: ns/q holds 3 more devices than the host has; 6 of its 8 devices"):
        held(node("a"), pod("p", [6]), pod("q", [3]))


@pytest.mark.parametrize(
    ("result", "condition", "num_devices"),
    [
        (node("a", 4, g1=4), "up", 4),
        (node("a", 8, g1=0), "up", 8),
        (node("a", 0, g1=7), "drained", None),
        (node("a", 7, labels={"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb"}), "drained", None),
        (node("a", 32, labels={"nvidia.com/gpu.replicas": "4"}), "drained", None),
        (node("a", 8, labels={"nvidia.com/gpu.replicas": "1"}), "up", 8),
    ],
)
def test_slices_and_shared_gpus_are_no_devices(result, condition, num_devices):
    listing = read([result, node("b"), pod("p", [1])])
    host = listing.state.hosts["a"]
    assert (host.condition, host.num_devices) == (condition, num_devices)
    assert len(listing.state.jobs) == (num_devices is not None)
    remark = "MIG slices and shared GPUs are no devices and are left out: a"
    assert (remark in listing.remarks) == (num_devices != 8)
    with pytest.raises(ConfigError, match=r"--resource: is a part of a GPU"):
        read([result], resource="nvidia.com/mig-1g.10gb")


def test_lists_that_follow_each_other_are_one():
    items = node("a"), pod("p", ["2000m"]), pod('q } {"kind', [1])
    whole = read(items)
    assert {job.id: dict(job.devices) for job in whole.state.jobs}["ns/p"] == {"a": (0, 1)}
    for between in ("", "\n", " \n\n"):
        assert kubernetes.read(between.join(map(listed, items))) == whole


def test_lists_of_a_kind_and_objects_one_after_the_other_are_read_in_json_and_yaml():
    items = [node("a"), node("b"), pod("p", [4])]
    whole = kubernetes.read(listed(*items))
    bare = [{key: value for key, value in item.items() if key != "kind"} for item in items]
    of_kinds = [{"kind": "NodeList", "items": bare[:2]}, {"kind": "PodList", "items": bare[2:]}]
    for documents in (of_kinds, items, [{"kind": "List", "items": items}]):
        assert kubernetes.read("\n".join(map(json.dumps, documents))) == whole
        stream = "--- # more\n".join(["# all of it\n", *map(yaml12.dump, documents)])
        assert kubernetes.read(stream) == kubernetes.read(stream.replace("\n", "\r\n")) == whole
    for text, message in (
        (yaml12.dump(of_kinds[0]) + "---\nkind: PodList\nitems:\n", "items: lists no pod"),
        ("kind: [", "not valid YAML"),
        ("kind: Job", "kind: "),
    ):
        with pytest.raises(MeshwrightError, match=message):
            kubernetes.read(text)


def test_a_list_of_nodes_alone_is_no_empty_cluster(cases):
    for text in (listed(node("a")), (cases / "kubernetes" / "k8s_nodes_only.json").read_text()):
        with pytest.raises(StateError, match="items: lists no pod, so pods are missing"):
            kubernetes.read(text)
    asked = replace(source("kubernetes"), ask=lambda: listed(node("a")))
    assert (list(asked.listing(EMPTY).state.hosts), asked.listing(EMPTY).state.jobs) == (["a"], ())  # kubectl was asked for both
    with pytest.raises(StateError, match=r"saved\.json: items: lists no pod"):
        asked.said(listed(node("a")), EMPTY, Path("saved.json"))


def test_what_cannot_be_seen_is_said():
    (remark,) = read([node("a"), pod("p", [], resourceClaims=[{"name": "gpu"}])]).remarks
    assert remark == "devices that pods hold by resource claims are not seen: ns/p"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not valid JSON"),
        ("[]", "must be a mapping"),
        ('{"kind": "Table", "items": []}', "kind"),
        ('{"kind": "List", "items": []}', "lists no node"),
        ('{"kind": "List", "items": [{"kind": "Service"}]}', "kind"),
        ('{"kind": "List", "metadata": {"continue": "abc"}, "items": []}', "is a part of a list"),
        (listed(node("a"), node("a"), pod("p", [])), "the node appears twice"),
        (listed(node("a", "8k"), pod("p", [])), "must be a whole number"),
        (listed(node("a", -1), pod("p", [])), "must be a whole number"),
        (listed(node("a", 5000), pod("p", [])), "at most 4,096 devices"),
    ],
)
def test_what_is_no_list_of_nodes_and_pods_is_refused(text, message):
    with pytest.raises(MeshwrightError, match=message) as error:
        kubernetes.read(text)
    assert "\n" not in str(error.value)


@draws(10)
@given(seed=st.integers(0, 2**32), num_gone=st.integers(0, 3))
def test_devices_stay_with_their_jobs_whatever_the_order_and_whoever_goes(seed, num_gone):
    rng = random.Random(seed)
    items = deepcopy(MADE["items"])
    before = read(items).state
    rng.shuffle(items)
    assert read(items, known=before).state == before
    pods = [item for item in items if item["kind"] == "Pod"]
    gone = rng.sample(pods, num_gone)
    known = {job.id: job for job in before.jobs}
    for job in read([item for item in items if item not in gone], known=before).state.jobs:
        counts = {host: len(devices) for host, devices in job.devices.items()}
        was = known.get(job.id)
        if was is not None and counts == {host: len(devices) for host, devices in was.devices.items()}:
            assert job == was


@draws(10)
@given(planned=st.sets(st.integers(0, 7), min_size=4, max_size=4))
def test_a_job_gets_the_devices_that_it_was_planned_on(planned):
    data = {"jobs": [{"id": "mine", "devices": {"a": sorted(planned)}, "source": "plan"}]}
    known = type(kubernetes.EMPTY).model_validate(data)
    pods = [pod("other", [4]), pod("p", [4], labels={DECISION_LABEL: "mine"})]
    result = held(node("a"), *pods, known=known)
    assert result["ns/p"] == {"a": tuple(sorted(planned))}
    assert result["ns/other"] == {"a": tuple(sorted(set(range(8)) - planned))}


def test_devices_that_are_planned_for_a_job_still_to_come_are_assumed_last():
    known = type(kubernetes.EMPTY).model_validate({"jobs": [{"id": "mine", "devices": {"a": [0, 1]}, "source": "plan"}]})
    assert held(node("a"), pod("p", [3]), known=known) == {"ns/p": {"a": (2, 3, 4)}}
    assert held(node("a"), pod("p", [7]), known=known) == {"ns/p": {"a": (0, 2, 3, 4, 5, 6, 7)}}
