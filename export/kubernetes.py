"""Kubernetes: a JobSet with one replicated job for each host, pinned to its node, and torchrun inside.

A pod template is shared by all pods of a job, so pinning each host wants a job of its own. Nodes are named by
``metadata.name``: the hostname label may differ from the node's name. The form is JobSet's ``v1alpha2``.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from ..errors import ExportError
from ..plans.document import PlacementPlan
from .expressible import check_contiguous, comma_separated, hosts_of
from .target import ExportOptions, Target, header
from .torchrun import node_words

FILE_NAME = "jobset.yaml"

_NOT_GUARANTEED = (
    "GPU choice: the device plugin decides which of a node's GPUs a pod gets. CUDA_VISIBLE_DEVICES orders those it got; they "
    "are the planned ones only where the pod takes all GPUs of the node.",
    "Gang start: pods start as their nodes have room; without a queue such as Kueue some may wait while others hold theirs.",
    "Exclusiveness: other pods may run on the same nodes.",
    "Node names: they must be the plan's host names; a pod whose node does not exist stays pending.",
    "Restarts: maxRestarts is 0; static rendezvous has no elastic restarts.",
)


def render(plan: PlacementPlan, options: ExportOptions) -> dict[str, str]:
    """The JobSet.

    Raises:
        ExportError: unequal ranks per host, ranks of a host that do not follow one another, or a host name with capitals.
    """
    per_host = check_contiguous(plan, "the JobSet's torchrun")
    for rank in plan.ranks:
        if rank.host != rank.host.lower():
            raise ExportError("a Kubernetes node has no capitals in its name", field=f"rank {rank.rank}", value=rank.host)
    name = options.job_name(plan)
    master = f"{name}-node0-0-0.{name}"  # <jobset>-<replicated job>-<job index>-<pod index>.<subdomain>
    jobs = []
    for node_rank, (host, devices) in enumerate(hosts_of(plan).items()):
        # Kubernetes reads $(NAME) in a command as a variable, and $$ as $.
        command = [word.replace("$", "$$") for word in node_words(plan, options, node_rank, per_host, master)]
        jobs.append(_replicated_job(f"node{node_rank}", host, devices, command, options))
    jobset = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {
            "network": {"enableDNSHostnames": True, "subdomain": name, "publishNotReadyAddresses": True},
            "failurePolicy": {"maxRestarts": 0},
            "replicatedJobs": jobs,
        },
    }
    body = yaml.dump(jobset, Dumper=_Dumper, sort_keys=False, width=120)
    return {FILE_NAME: header(name, plan, "Kubernetes", _NOT_GUARANTEED) + body}


def _replicated_job(name: str, host: str, devices: list[int], command: list[str], options: ExportOptions) -> dict[str, Any]:
    pinned = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [host]}]}
    container = {
        "name": "node",
        "image": options.image,
        "command": command,
        "env": [
            {"name": "CUDA_DEVICE_ORDER", "value": "PCI_BUS_ID"},
            # The pod numbers the GPUs that it got from 0, in PCI order.
            {"name": "CUDA_VISIBLE_DEVICES", "value": comma_separated([sorted(devices).index(device) for device in devices])},
        ],
        "ports": [{"containerPort": options.master_port}],
        "resources": {"limits": {"nvidia.com/gpu": len(devices)}},
        "volumeMounts": [{"name": "shared-memory", "mountPath": "/dev/shm"}],  # noqa: S108 - a mount point in the pod
    }
    pod = {
        "restartPolicy": "Never",
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [pinned]}}},
        "containers": [container],
        # Collective libraries exchange data of one host through it; a container's default of 64 MB is too small.
        "volumes": [{"name": "shared-memory", "emptyDir": {"medium": "Memory"}}],
    }
    job = {"parallelism": 1, "completions": 1, "completionMode": "Indexed", "backoffLimit": 0, "template": {"spec": pod}}
    return {"name": name, "replicas": 1, "template": {"spec": job}}


class _Dumper(yaml.SafeDumper):
    """SafeDumper that also quotes what only newer YAML reads as a number, such as ``1e3`` for a host."""


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="'" if re.match(r"[-+.]?[0-9]", text) else None)


_Dumper.add_representer(str, _represent_text)

TARGET = Target(
    name="kubernetes",
    summary="a JobSet with one replicated job for each host, pinned to its node",
    guaranteed=(
        "Each host's ranks run on the node of that name.",
        "Ranks are numbered host by host in the plan's host order.",
        "The master address is the pod on the host of rank 0.",
    ),
    not_guaranteed=_NOT_GUARANTEED,
    render=render,
)
