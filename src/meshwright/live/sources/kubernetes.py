"""Kubernetes: nodes and pods as ``kubectl`` lists them.

A pod holds the devices that its containers ask for, from when it is bound to a node until it has ended. Kubernetes gives their
number, not their indices. The lowest free indices are taken, so counts are right and indices are assumed. Pods that carry the
same label of a job are one job. Devices that a node has and cannot give (capacity less allocatable), such as broken ones, are
held by a job called ``unlisted/NODE``.

Slices of GPUs are no devices: neither those of MIG (``nvidia.com/mig-1g.10gb``, or a product ``...-MIG-1g.10gb``) nor replicas
that share a GPU (label ``nvidia.com/gpu.replicas``). A node that has nothing else takes no jobs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import Field

from ... import files, settings, yaml12
from ...errors import ConfigError, StateError
from ...export.kubernetes.pods import DECISION_LABEL
from ..state import ClusterState, some
from .listings import EMPTY, FreeDevices, Listing, ReadPart, assumed, listed, plain, unlisted
from .programs import answer

PROGRAM = "kubectl"
NVIDIA = "nvidia.com/gpu"

JOB_LABELS = (
    "jobset.sigs.k8s.io/jobset-name",
    "training.kubeflow.org/job-name",
    "volcano.sh/job-name",
    "batch.kubernetes.io/job-name",
    "job-name",
    "leaderworkerset.sigs.k8s.io/name",
    "ray.io/cluster",
)
"""Labels that mark the pods of one job. The first on a pod counts, since a pod of a JobSet is one of a Job too.

Before Kubernetes 1.27 a Job gives its pods the last one alone.
"""

OWN_TAINTS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""How taints begin by which Kubernetes itself keeps pods from a node, as ``disk-pressure``; others are for some pods to bear."""

_CLOSING = ("NoSchedule", "NoExecute")
_ENDED = ("Succeeded", "Failed")
_QUANTITY = re.compile(r"([0-9]{1,9}?)(?:000m)?")
"""A whole number, or the same in thousandths."""

_BETWEEN = re.compile(r'(?<=\})\s*(?=\{\s*"\w)')
"""Between two objects that follow each other; no text inside of an object can look so."""

_SLICE = re.compile(r"nvidia\.com/(mig-.*|gpu\.shared)")
"""Resources that are parts of a GPU."""

_REPLICAS = "nvidia.com/gpu.replicas"
_PRODUCT = "nvidia.com/gpu.product"
"""Labels of GPU feature discovery: in how many each GPU is shared, and the GPUs' name with ``-MIG-`` where all are slices."""


class _Metadata(ReadPart):
    name: str = Field(min_length=1)
    namespace: str = "default"
    labels: dict[str, str] | None = None


class _Taken(ReadPart):
    """Resources of a container; of devices both are equal, and the server fills in the one that is left out."""

    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class _Container(ReadPart):
    name: str = ""
    resources: _Taken | None = None
    restart_policy: str | None = Field(default=None, alias="restartPolicy")


class _PodSpec(ReadPart):
    node_name: str | None = Field(default=None, alias="nodeName")
    containers: list[_Container] = Field(default=[])
    init_containers: list[_Container] | None = Field(default=None, alias="initContainers")
    claims: list[Any] | None = Field(default=None, alias="resourceClaims")


class _PodStatus(ReadPart):
    phase: str


class _Pod(ReadPart):
    kind: Literal["Pod"]
    metadata: _Metadata
    spec: _PodSpec
    status: _PodStatus


class _Taint(ReadPart):
    key: str
    effect: str


class _NodeSpec(ReadPart):
    unschedulable: bool = False
    taints: list[_Taint] = Field(default=[])


class _NodeCondition(ReadPart):
    type: str
    status: str
    reason: str | None = None
    message: str | None = None


class _NodeStatus(ReadPart):
    capacity: dict[str, str | int | float] = Field(default={})
    allocatable: dict[str, str | int | float] = Field(default={})
    conditions: list[_NodeCondition] = Field(default=[])


class _Node(ReadPart):
    kind: Literal["Node"]
    metadata: _Metadata
    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus


class _ListMetadata(ReadPart):
    rest: str | None = Field(default=None, alias="continue")
    num_left: int | None = Field(default=None, alias="remainingItemCount")


class _List(ReadPart):
    kind: Literal["List"]
    metadata: _ListMetadata = _ListMetadata()
    items: list[Annotated[_Node | _Pod, Field(discriminator="kind")]]


def ask(context: str | None = None) -> str:
    """Return the current listing of ``kubectl``.

    Args:
        context: of kubectl's configuration; None: the current one.

    Raises:
        InputFileError: it is not there, fails or takes too long.
    """
    words = [PROGRAM, "get", "nodes,pods", "--all-namespaces", "--output=json", "--request-timeout=45s"]
    return answer(words if context is None else [*words, f"--context={context}"])


def devices_wanted(spec: dict[str, Any], resource: str, what: str) -> int:
    """Return the devices that the containers of a pod hold at once, from the pod's ``spec``.

    Args:
        spec: of a pod, or of a template of pods.
        resource: name of a node's devices.
        what: the pod in words, for messages.

    Raises:
        ConfigError: no such specification.
        StateError: a part of a device.
    """
    return _devices(settings.build_settings(_PodSpec, spec), resource, what)


def read(text: str, resource: str = NVIDIA, known: ClusterState = EMPTY, *, is_whole: bool = False) -> Listing:
    """Read a list of nodes and pods.

    Args:
        text: JSON or YAML of kind List, NodeList, PodList, Node or Pod, as ``kubectl get nodes,pods --all-namespaces --output
            json`` prints it. It may hold several, one after the other, as of nodes and of pods.
        resource: name of a node's devices.
        known: the state so far, from which assumed indices are kept.
        is_whole: whether it is the answer of `ask`; a list without pods then means an empty cluster.

    Raises:
        InputFileError: no JSON.
        ConfigError: JSON of another form, or a resource that is a part of a device.
        StateError: a part of a list, no node, no pod unless ``is_whole``, or more devices in use than a node has.
    """
    if _SLICE.fullmatch(resource):
        raise ConfigError("is a part of a GPU; a job is planned on whole devices", field="--resource", value=resource)
    lists = [settings.build_settings(_List, _as_list(one)) for one in _documents(text)]
    if any(one.metadata.rest or one.metadata.num_left for one in lists):
        raise StateError("is a part of a list; all nodes and pods are wanted", field="metadata")
    items = [item for one in lists for item in one.items]
    nodes = [item for item in items if isinstance(item, _Node)]
    if not nodes:
        raise StateError("lists no node; nodes and pods are wanted", field="items")
    if len(nodes) == len(items) and not is_whole:
        problem = "lists no pod, so pods are missing; `kubectl get nodes,pods --all-namespaces --output json` lists both"
        raise StateError(problem, field="items")
    hosts: dict[str, dict[str, Any]] = {}
    broken: dict[str, int] = {}
    cut: list[str] = []
    for node in nodes:
        name, what = node.metadata.name, f"node {plain(node.metadata.name, 80)}"
        if name in hosts:
            raise StateError("the node appears twice", field="items", value=name)
        usable = _quantity(node.status.allocatable.get(resource, 0), what)
        size = max(_quantity(node.status.capacity.get(resource, 0), what), usable)
        hosts[name] = _host(node)
        is_cut = resource == NVIDIA and _is_cut(node)
        if is_cut or any(_SLICE.fullmatch(one) and str(count) != "0" for one, count in node.status.capacity.items()):
            cut.append(name)
        if size and not is_cut:
            hosts[name]["num_devices"] = size
            broken[name] = size - usable
        elif name in cut and hosts[name]["condition"] == "up":
            hosts[name] |= {"condition": "drained", "reason": "its GPUs are cut into slices or shared"}
    alive = [pod for pod in items if isinstance(pod, _Pod) and pod.status.phase not in _ENDED]
    without = [name for name in cut if "num_devices" not in hosts[name]]
    pods = [pod for pod in alive if pod.spec.node_name and pod.spec.node_name not in without]
    waiting = {(pod.metadata.labels or {}).get(DECISION_LABEL) for pod in alive if not pod.spec.node_name}
    free = FreeDevices({name: host.get("num_devices", 0) for name, host in hosts.items()})
    jobs = _jobs(pods, resource, free, known)
    remarks = ["Kubernetes reports how many devices of a node a pod holds, not which: indices are assumed"] if jobs else []
    if cut:
        named = some([plain(one, 80) for one in cut], 3)
        remarks.append(f"MIG slices and shared GPUs are no devices and are left out: {named}")
    claimed = [_named(pod) for pod in pods if pod.spec.claims]
    if claimed:
        remarks.append(f"devices that pods hold by resource claims are not seen: {some(claimed, 3)}")
    in_use = {name: (count + free.num_held(name), ()) for name, count in broken.items() if count}
    plans = sorted(plain(one) for one in waiting if one)
    return listed("kubernetes", hosts, [*jobs, *unlisted(in_use, free, known)], remarks, plans)


def _documents(text: str) -> list[Any]:
    """Return the objects of a stream: JSON one after the other, or YAML between lines of three hyphens."""
    results: list[Any] = []
    for part in re.split(r"(?m)^---[ \t]*(?:#.*)?\r?$", text):
        if part.lstrip().startswith("{"):
            results += [files.parse_json(one) for one in _BETWEEN.split(part)]
        elif not all(line.lstrip().startswith("#") for line in part.splitlines() if line.strip()):
            results.append(yaml12.parse(part)[0])
    return results or [files.parse_json(text)]


def _as_list(result: Any) -> Any:
    """Return an object as a list of kind List: one of a kind's own lists, whose items leave the kind out, or one object."""
    kind = result.get("kind") if isinstance(result, dict) else None
    if kind in ("Node", "Pod"):
        return {"kind": "List", "items": [result]}
    if kind in ("NodeList", "PodList") and isinstance(items := result.get("items") or [], list):  # a Go list of none is null
        member = {"kind": kind.removesuffix("List")}
        return result | {"kind": "List", "items": [member | item if isinstance(item, dict) else item for item in items]}
    return result


def _host(node: _Node) -> dict[str, Any]:
    """Return whether a node takes pods, and why not."""
    ready = next((condition for condition in node.status.conditions if condition.type == "Ready"), None)
    if ready is None or ready.status != "True":
        reasons = [plain(text) for text in (ready.reason, ready.message) if text] if ready is not None else []
        return {"condition": "down", "reason": ": ".join(reasons) or "not ready"}
    if node.spec.unschedulable:
        return {"condition": "drained", "reason": "cordoned"}
    closing = [taint.key for taint in node.spec.taints if taint.key.startswith(OWN_TAINTS) and taint.effect in _CLOSING]
    return {"condition": "drained", "reason": plain(", ".join(sorted(closing)))} if closing else {"condition": "up"}


def _is_cut(node: _Node) -> bool:
    """Return whether what a node counts as GPUs are slices of them, by the labels of GPU feature discovery."""
    labels = node.metadata.labels or {}
    return "-MIG-" in labels.get(_PRODUCT, "") or labels.get(_REPLICAS, "1") not in ("0", "1")


def _jobs(pods: Iterable[_Pod], resource: str, free: FreeDevices, known: ClusterState) -> list[dict[str, Any]]:
    """Return the jobs that hold devices, pods of one job together; the order of the list does not matter."""
    jobs: dict[tuple[str, str, str], dict[str, Any]] = {}
    for pod in sorted(pods, key=_named):
        count = _devices(pod.spec, resource, f"pod {plain(_named(pod), 160)}")
        if not count:
            continue
        labels = pod.metadata.labels or {}
        label = next((one for one in JOB_LABELS if labels.get(one)), "")
        key = (pod.metadata.namespace, labels[label] if label else pod.metadata.name, label)
        job = jobs.setdefault(key, {"decision": None, "counts": Counter[str]()})
        job["decision"] = job["decision"] or plain(labels.get(DECISION_LABEL, "")) or None
        job["counts"][pod.spec.node_name] += count
    # A pod may be called as a job is; then the kind of the job is said too.
    shared = Counter((namespace, name) for namespace, name, _ in jobs)
    for (namespace, name, label), job in jobs.items():
        kind = f" ({label.partition('/')[0] or 'pod'})" if shared[namespace, name] > 1 else ""
        job |= {"id": plain(f"{namespace}/{name}{kind}"), "name": plain(name)}
    return assumed(list(jobs.values()), free, known)


def _devices(spec: _PodSpec, resource: str, what: str) -> int:
    """Return the devices that the containers of a pod hold at once; ``what`` is the pod in words.

    Containers run together with the sidecars, the init containers that are always restarted. The other init containers run
    before them, one at a time, each with the sidecars that were started before it.

    Source:
        KEP-753, "Sidecar containers", resources calculation for scheduling and pod admission.
    """
    sidecars, most = 0, 0
    for container in spec.init_containers or ():
        count = _of_container(container, resource, what)
        if container.restart_policy == "Always":
            sidecars += count
            most = max(most, sidecars)
        else:
            most = max(most, sidecars + count)
    return max(most, sidecars + sum(_of_container(one, resource, what) for one in spec.containers))


def _of_container(container: _Container, resource: str, what: str) -> int:
    taken = container.resources or _Taken()
    requested = {**(taken.limits or {}), **(taken.requests or {})}.get(resource, 0)
    return _quantity(requested, what)


def _quantity(value: str | float, what: str) -> int:
    """Return a number of devices; Kubernetes allows only whole ones, which it may write in thousandths.

    Raises:
        StateError: no such number.
    """
    number = _QUANTITY.fullmatch(str(value))
    if number is None:
        raise StateError(f"{what}: a number of devices must be a whole number", value=value)
    return int(number[1])


def _named(pod: _Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"
