"""Pods for Kubernetes: the container of one host, the nodes that it may go to, its network, and YAML that stays text.

RDMA is requested as NVIDIA's network operator offers it. It needs a device plugin's resource, whose name the cluster chooses
(``rdma/hca_shared_devices_a``), and the capability ``IPC_LOCK`` to pin memory for the card.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import yaml

from ... import files
from ...errors import ExportError
from ...plans.document import PlacementPlan
from ..launchers.torchrun import node_words
from ..options import ExportOptions
from ..requirements import check_contiguous, comma_separated, hosts_of
from ..target import FrameworkFile, header

GPU = "nvidia.com/gpu"

NOT_GUARANTEED = (
    "GPU choice: the device plugin decides which of a node's GPUs a pod gets. CUDA_VISIBLE_DEVICES orders those it got; they "
    "are the planned ones only where the pod takes all GPUs of the node.",
    "Exclusiveness: other pods may run on the same nodes.",
    "Node names: they must be the plan's host names; a pod whose node does not exist stays pending.",
    "Restarts: there are none; static rendezvous has no elastic restarts.",
    "Network: the network between pods is what the cluster gives. Without --set rdma_resource=NAME pods get no RDMA (InfiniBand, "
    "RoCE), and collectives go over TCP in silence; --set host_network=true, networks=NAME and tolerations=KEY ask for the rest.",
    "Image: by default pytorch/pytorch:latest, an example whose version moves; name yours by --set image=.",
)

NETWORKS = "k8s.v1.cni.cncf.io/networks"
"""Annotation by which Multus gives a pod further networks."""

PLAIN_BYTES_PER_S = 12.5e9
"""Above 100 Gb/s between hosts a plan counts on more than TCP in a pod is likely to reach."""

DECISION_LABEL = "meshwright.dev/decision"
"""Label of a pod that names the plan it came from."""

_SHARED_MEMORY = "shared-memory"
_FILES, _FILES_AT = "framework-files", "/etc/meshwright"


def check_nodes(plan: PlacementPlan, kind: str) -> None:
    """Refuse what pods that each run one host's torchrun cannot express.

    Raises:
        ExportError: unequal ranks per host, ranks of a host that do not follow one another, a host name that no node has.
    """
    check_contiguous(plan, f"the {kind}'s torchrun")
    for rank in plan.ranks:
        if rank.host != rank.host.lower():
            raise ExportError("a Kubernetes node has no capitals in its name", field=f"rank {rank.rank}", value=rank.host)


def visible(devices: list[int]) -> list[int]:
    """Return a host's devices in rank order, as a pod numbers the GPUs that it got: from 0, in PCI order."""
    return [sorted(devices).index(device) for device in devices]


def order_on_all(plan: PlacementPlan, kind: str, numbered: Callable[[list[int]], list[int]] = visible) -> list[int]:
    """Return the devices of each pod where all pods share a template, and so an order.

    Args:
        plan: what is exported.
        kind: of the object, for messages.
        numbered: a host's devices as its pod numbers them; unchanged where the pod takes all of the host.

    Raises:
        ExportError: a host whose devices come in another order than those of the first.
    """
    orders = {host: numbered(devices) for host, devices in hosts_of(plan).items()}
    first = orders[plan.host_order[0]]
    for rank in plan.ranks:
        if orders[rank.host] != first:
            problem = (
                f"pods of a {kind} share one order of devices, that of {plan.host_order[0]} ({comma_separated(first)}); "
                f"here it is {comma_separated(orders[rank.host])}"
            )
            raise ExportError(problem, field=f"rank {rank.rank}", value=rank.host)
    return first


def pod(options: ExportOptions, command: Sequence[str], devices: Sequence[int], affinity: dict[str, Any]) -> dict[str, Any]:
    """Return the spec of a pod that runs one host's command on as many GPUs as there are devices."""
    container = {
        "name": "node",
        "image": options.image,
        "command": escaped(command),
        "env": environment(options, devices),
        "ports": [{"containerPort": options.master_port}],
        "resources": {"limits": limits(options, len(devices))},
        "volumeMounts": mounts(options),
        **may_lock(options),
    }
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "affinity": affinity,
        "containers": [container],
        "volumes": volumes(options),
    }
    if options.host_network:
        spec |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    if options.priority is not None:
        spec["priorityClassName"] = options.priority
    return spec | account_and_tolerations(options)


def pinned(plan: PlacementPlan, options: ExportOptions, master: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield for each host the name and the template of its pod, pinned to its node; the first has the address ``master``."""
    for node_rank, (host, devices) in enumerate(hosts_of(plan).items()):
        command = node_words(plan, options, node_rank, master)
        yield f"node{node_rank}", template(options, pod(options, command, visible(devices), on_nodes([host])))


def limits(options: ExportOptions, num_gpus: int) -> dict[str, int | str]:
    """Return the limits of a container: GPUs, cards for RDMA, and those of the options."""
    results: dict[str, int | str] = {GPU: num_gpus}
    if options.rdma_resource is not None:
        name, _, count = options.rdma_resource.partition("=")
        results[name] = int(count or 1)
    return results | dict(one.split("=", 1) for one in _items(options.resources))


def may_lock(options: ExportOptions) -> dict[str, Any]:
    """Return, of a container that has cards for RDMA: it may pin memory."""
    return {"securityContext": {"capabilities": {"add": ["IPC_LOCK"]}}} if options.rdma_resource is not None else {}


def account_and_tolerations(options: ExportOptions) -> dict[str, Any]:
    """Return the account of pods, and the taints that they tolerate, of ``KEY[=VALUE][:EFFECT]``."""
    results = []
    for text in _items(options.tolerations):
        taint, _, effect = text.partition(":")
        key, equals, value = taint.partition("=")
        one = {"key": key, "operator": "Equal", "value": value} if equals else {"key": key, "operator": "Exists"}
        results.append(one | ({"effect": effect} if effect else {}))
    account = {} if options.service_account is None else {"serviceAccountName": options.service_account}
    return account | ({"tolerations": results} if results else {})


def _items(text: str | None) -> list[str]:
    return [] if text is None else text.split(",")


def template(options: ExportOptions, spec: dict[str, Any], annotations: dict[str, str] | None = None) -> dict[str, Any]:
    """Return a pod template, whose pods name the decision where there is one, and the networks that Multus gives them."""
    labels = {DECISION_LABEL: options.decision} if options.decision is not None else None
    annotated = {**(annotations or {}), **({NETWORKS: options.networks} if options.networks is not None else {})}
    metadata = {key: value for key, value in (("labels", labels), ("annotations", annotated)) if value}
    return ({"metadata": metadata} if metadata else {}) | {"spec": spec}


def environment(options: ExportOptions, devices: Sequence[int]) -> list[dict[str, Any]]:
    """Return the order of the GPUs, the name of the node for the probe, and a framework's variables."""
    return [
        {"name": "CUDA_DEVICE_ORDER", "value": "PCI_BUS_ID"},
        {"name": "CUDA_VISIBLE_DEVICES", "value": comma_separated(list(devices))},
        {"name": "MESHWRIGHT_HOST", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        *({"name": name, "value": value.replace("$", "$$")} for name, value in options.environment.items()),
    ]


def mounts(options: ExportOptions) -> list[dict[str, Any]]:
    """Return the shared memory of collective libraries within a host (64 MB by default, too small), files, and volumes."""
    result: list[dict[str, Any]] = [{"name": _SHARED_MEMORY, "mountPath": "/dev/shm"}]  # noqa: S108 - a mount point in the pod
    if options.carried:
        result.append({"name": _FILES, "mountPath": _FILES_AT, "readOnly": True})
    for number, text in enumerate(_items(options.volumes)):
        _, path, *mode = text.split(":")
        result.append({"name": f"volume{number}", "mountPath": path, **({"readOnly": True} if mode else {})})
    return result


def volumes(options: ExportOptions) -> list[dict[str, Any]]:
    """Return the volumes behind `mounts`."""
    result: list[dict[str, Any]] = [{"name": _SHARED_MEMORY, "emptyDir": {"medium": "Memory"}}]
    if options.carried:
        result.append({"name": _FILES, "configMap": {"name": _files_name(options)}})
    for number, text in enumerate(_items(options.volumes)):
        source = text.partition(":")[0]
        is_path = source.startswith("/")
        held = {"hostPath": {"path": source}} if is_path else {"persistentVolumeClaim": {"claimName": source}}
        result.append({"name": f"volume{number}", **held})
    return result


def config_map(options: ExportOptions) -> dict[str, Any]:
    """Return the files that a framework's arguments name, for `volumes`."""
    metadata = {"name": _files_name(options)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(options.carried)}


def _files_name(options: ExportOptions) -> str:
    """Return a name for these contents and no others, as jobs share a namespace."""
    return f"meshwright-{files.digest(files.json_text(options.carried))[:8]}"


def escaped(words: Sequence[str]) -> list[str]:
    """Return a container's command: Kubernetes reads ``$(NAME)`` in it as a variable, and ``$$`` as ``$``."""
    at = {True: f"{_FILES_AT}/", False: ""}
    return [at[isinstance(word, FrameworkFile)] + word.replace("$", "$$") for word in words]


def on_nodes(hosts: Sequence[str]) -> dict[str, Any]:
    """Return affinity to nodes by name, not by the hostname label, which may differ. A field takes one value, so a term each."""
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [host]}]} for host in hosts]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def one_on_each(hosts: Sequence[str], labels: dict[str, str]) -> dict[str, Any]:
    """Return the affinity of pods to nodes, as `on_nodes`, that allows no two pods with these labels on one node."""
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    return on_nodes(hosts) | {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def jobset(name: str, jobs: list[dict[str, Any]], labels: dict[str, str] | None = None) -> dict[str, Any]:
    """Return a JobSet (``v1alpha2``) that does not restart and whose pods have names in DNS before they are ready.

    With ``enableDNSHostnames`` JobSet makes the headless service that gives pods their names.
    """
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name} | ({"labels": labels} if labels else {}),
        "spec": {
            "network": {"enableDNSHostnames": True, "subdomain": name, "publishNotReadyAddresses": True},
            "failurePolicy": {"maxRestarts": 0},
            "replicatedJobs": jobs,
        },
    }


def replicated_job(name: str, num_pods: int, template: dict[str, Any]) -> dict[str, Any]:
    """Return an indexed job of some pods, which all run or fail together."""
    indexed = {"parallelism": num_pods, "completions": num_pods, "completionMode": "Indexed", "backoffLimit": 0}
    return {"name": name, "replicas": 1, "template": {"spec": {**indexed, "template": template}}}


def pod_name(name: str, job: str, index: int) -> str:
    """Name in DNS of a pod: ``<jobset>-<replicated job>-<job index>-<pod index>.<subdomain>``."""
    return f"{name}-{job}-0-{index}.{name}"


def ranked_by(variable: str, first: int, words: Sequence[str]) -> list[str]:
    """Return torchrun's words with the node rank from a variable in which the controller counts pods from 0.

    Args:
        variable: its name.
        first: node rank of pod 0.
        words: ``torchrun`` and what follows it, without a node rank.
    """
    return ["sh", "-c", f'exec torchrun --node-rank="$(({first} + {variable}))" "$@"', *words]


def document(plan: PlacementPlan, options: ExportOptions, not_guaranteed: Sequence[str], *objects: dict[str, Any]) -> str:
    """Return a YAML file of one or more objects, headed by what is not guaranteed."""
    head = header(options.job_name(plan), plan, "Kubernetes", not_guaranteed)
    return head + yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, width=120)


def remark(plan: PlacementPlan, options: ExportOptions) -> str | None:
    """Return a remark on an export whose pods may be slower than planned; None where there is none."""
    cluster = plan.embedded_cluster()
    if cluster is None or options.rdma_resource is not None or len(plan.host_order) == 1:
        return None
    device = {rank.host: rank.device for rank in reversed(plan.ranks)}
    first, *others = (device[host] for host in plan.host_order)
    fastest = max(float(cluster.bandwidth_bytes_per_s(first, other)) for other in others)
    if fastest <= PLAIN_BYTES_PER_S:
        return None
    return (
        f"the plan counts on {fastest / 1e9:.4g} GB/s between hosts, and its pods ask for no RDMA: "
        "name the cluster's resource by --set rdma_resource=NAME, as rdma/hca_shared_devices_a"
    )


class _Dumper(yaml.SafeDumper):
    """SafeDumper that also quotes what other readers take for a number, as ``1e3`` for a host, or for a truth, as ``y``."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write no anchors: Kubernetes reads them, people do not."""
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="'" if re.match(r"[-+.]?[0-9]|[yYnN]$", text) else None)


_Dumper.add_representer(str, _represent_text)
