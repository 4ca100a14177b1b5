"""JobSet: one replicated job for each host, pinned to its node. The one form in Kubernetes that keeps the order.

A pod template is shared by all pods of a job, so pinning each host wants a job of its own. Nodes are named by
``metadata.name``: the hostname label may differ from the node's name. The form is JobSet's ``v1alpha2``; with
``enableDNSHostnames`` JobSet makes the headless service that gives pods their names.
"""

from __future__ import annotations

from typing import Any

from ...plans.document import PlacementPlan
from ..launchers.torchrun import node_words
from ..options import ExportOptions
from ..requirements import hosts_of
from ..target import Files
from . import pods

FILE_NAME = "jobset.yaml"

NOT_GUARANTEED = (
    "Gang start (JobSet): pods start as their nodes have room; without a queue such as Kueue some may wait while others hold "
    "theirs.",
)


def render(plan: PlacementPlan, options: ExportOptions) -> Files:
    """The files of a JobSet.

    Raises:
        ExportError: unequal ranks per host, ranks of a host that do not follow one another, or a host name with capitals.
    """
    pods.check_nodes(plan, "JobSet")
    name = options.job_name(plan)
    jobs = []
    for node_rank, (host, devices) in enumerate(hosts_of(plan).items()):
        command = node_words(plan, options, node_rank, pod_name(name, "node0", 0))
        pod = pods.pod(options, command, pods.visible(devices), pods.on_nodes([host]))
        jobs.append(replicated_job(f"node{node_rank}", 1, pods.template(options, pod)))
    return {FILE_NAME: pods.document(plan, options, (*pods.NOT_GUARANTEED, *NOT_GUARANTEED), jobset(name, jobs))}


def jobset(name: str, jobs: list[dict[str, Any]], labels: dict[str, str] | None = None) -> dict[str, Any]:
    """A JobSet that does not restart and whose pods have names in DNS before they are ready."""
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
    """An indexed job of some pods, which all run or fail together."""
    indexed = {"parallelism": num_pods, "completions": num_pods, "completionMode": "Indexed", "backoffLimit": 0}
    return {"name": name, "replicas": 1, "template": {"spec": {**indexed, "template": template}}}


def pod_name(name: str, job: str, index: int) -> str:
    """Name in DNS of a pod: ``<jobset>-<replicated job>-<job index>-<pod index>.<subdomain>``."""
    return f"{name}-{job}-0-{index}.{name}"
