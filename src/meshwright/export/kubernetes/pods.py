"""Pods for Kubernetes: the container of one host, the nodes that it may go to, and YAML that stays text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import yaml

from ... import files
from ...errors import ExportError
from ...plans.document import PlacementPlan
from ..options import ExportOptions
from ..requirements import check_contiguous, comma_separated, hosts_of
from ..target import FrameworkFile, header
from . import network

GPU = "nvidia.com/gpu"

NOT_GUARANTEED = (
    "GPU choice: the device plugin decides which of a node's GPUs a pod gets. CUDA_VISIBLE_DEVICES orders those it got; they "
    "are the planned ones only where the pod takes all GPUs of the node.",
    "Exclusiveness: other pods may run on the same nodes.",
    "Node names: they must be the plan's host names; a pod whose node does not exist stays pending.",
    "Restarts: there are none; static rendezvous has no elastic restarts.",
    *network.NOT_GUARANTEED,
)

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
    """A host's devices in rank order, as a pod numbers the GPUs that it got: from 0, in PCI order."""
    return [sorted(devices).index(device) for device in devices]


def visible_on_all(plan: PlacementPlan, kind: str) -> list[int]:
    """The visible devices of each pod where all pods share a template, and so an order; see `visible`.

    Raises:
        ExportError: a host whose devices come in another order than those of the first.
    """
    orders = {host: visible(devices) for host, devices in hosts_of(plan).items()}
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
    """The spec of a pod that runs one host's command on as many GPUs as there are devices."""
    container = {
        "name": "node",
        "image": options.image,
        "command": escaped(command),
        "env": environment(options, devices),
        "ports": [{"containerPort": options.master_port}],
        "resources": {"limits": {GPU: len(devices), **network.limits(options)}},
        "volumeMounts": mounts(options),
        **network.container(options),
    }
    return {
        "restartPolicy": "Never",
        "affinity": affinity,
        "containers": [container],
        "volumes": volumes(options),
        **network.pod(options),
    }


def template(options: ExportOptions, spec: dict[str, Any], annotations: dict[str, str] | None = None) -> dict[str, Any]:
    """A pod template, whose pods name the decision where there is one."""
    labels = {DECISION_LABEL: options.decision} if options.decision is not None else None
    told = {**(annotations or {}), **network.pod_annotations(options)}
    metadata = {key: value for key, value in (("labels", labels), ("annotations", told)) if value}
    return ({"metadata": metadata} if metadata else {}) | {"spec": spec}


def environment(options: ExportOptions, devices: Sequence[int]) -> list[dict[str, Any]]:
    """Order of the GPUs, the name of the node for the probe, and a framework's variables."""
    return [
        {"name": "CUDA_DEVICE_ORDER", "value": "PCI_BUS_ID"},
        {"name": "CUDA_VISIBLE_DEVICES", "value": comma_separated(list(devices))},
        {"name": "MESHWRIGHT_HOST", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        *({"name": name, "value": value} for name, value in options.environment.items()),
    ]


def mounts(options: ExportOptions) -> list[dict[str, Any]]:
    """Memory in which collective libraries exchange data of one host (the default of 64 MB is too small), and files."""
    memory = {"name": _SHARED_MEMORY, "mountPath": "/dev/shm"}  # noqa: S108 - a mount point in the pod
    return [memory, *([{"name": _FILES, "mountPath": _FILES_AT, "readOnly": True}] if options.carried else [])]


def volumes(options: ExportOptions) -> list[dict[str, Any]]:
    """The volumes behind `mounts`."""
    held = {"name": _FILES, "configMap": {"name": _files_name(options)}}
    return [{"name": _SHARED_MEMORY, "emptyDir": {"medium": "Memory"}}, *([held] if options.carried else [])]


def config_map(options: ExportOptions) -> dict[str, Any]:
    """The files that a framework's arguments name, for `volumes`."""
    metadata = {"name": _files_name(options)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(options.carried)}


def _files_name(options: ExportOptions) -> str:
    """A name for these contents and no others, as jobs share a namespace."""
    return f"meshwright-{files.digest(files.json_text(options.carried))[:8]}"


def escaped(words: Sequence[str]) -> list[str]:
    """A container's command: Kubernetes reads ``$(NAME)`` in it as a variable, and ``$$`` as ``$``."""
    at = {True: f"{_FILES_AT}/", False: ""}
    return [at[isinstance(word, FrameworkFile)] + word.replace("$", "$$") for word in words]


def on_nodes(hosts: Sequence[str]) -> dict[str, Any]:
    """Affinity to nodes by name, not by the hostname label, which may differ. A field takes one value, so a term each."""
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [host]}]} for host in hosts]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def one_on_each(hosts: Sequence[str], labels: dict[str, str]) -> dict[str, Any]:
    """The affinity of pods to nodes, as `on_nodes`, that allows no two pods with these labels on one node."""
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    return on_nodes(hosts) | {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def ranked_by(variable: str, first: int, words: Sequence[str]) -> list[str]:
    """torchrun's words with the node rank from a variable in which the controller counts pods from 0.

    Args:
        variable: its name.
        first: node rank of pod 0.
        words: ``torchrun`` and what follows it, without a node rank.
    """
    return ["sh", "-c", f'exec torchrun --node-rank="$(({first} + {variable}))" "$@"', *words]


def document(plan: PlacementPlan, options: ExportOptions, not_guaranteed: Sequence[str], *objects: dict[str, Any]) -> str:
    """A YAML file of one or more objects, headed by what is not guaranteed."""
    head = header(options.job_name(plan), plan, "Kubernetes", not_guaranteed)
    return head + yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, width=120)


class _Dumper(yaml.SafeDumper):
    """SafeDumper that also quotes what other readers take for a number, as ``1e3`` for a host, or for a truth, as ``y``."""

    def ignore_aliases(self, data: Any) -> bool:
        """No anchors: Kubernetes reads them, people do not."""
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="'" if re.match(r"[-+.]?[0-9]|[yYnN]$", text) else None)


_Dumper.add_representer(str, _represent_text)
