"""Volcano: a job for its gang scheduler, and the cluster's tiers as HyperNodes.

Where tensor-parallel groups span hosts, a task holds the hosts of one pipeline stage. Its partitions are the groups, each kept
inside a HyperNode. Otherwise every host is a task of its own, pinned to its node. The forms are ``batch.volcano.sh/v1alpha1``
and ``topology.volcano.sh/v1alpha1`` as of Volcano 1.15.
"""

from __future__ import annotations

from typing import Any

from ...plans.document import PlacementPlan
from ..host_domains import Domains, domains_of, hosts_by_stage, hosts_per_group
from ..launchers.torchrun import node_words
from ..options import ExportOptions
from ..target import Files, dns_label
from . import pods

JOB = "volcano-job.yaml"
HYPERNODES = "hypernodes.yaml"

NOT_GUARANTEED = (
    "Order in a task (Volcano): pods of a task with more than one take its nodes in an order that Volcano chooses; tasks of one "
    "pod are on their planned node.",
    "HyperNodes (Volcano): the job stays pending until hypernodes.yaml is applied; HyperNodes that the cluster has already may "
    "contradict it.",
    "Plugins (Volcano): the job wants the plugins env and svc, and the scheduler's plugin network-topology-aware.",
)


def render(plan: PlacementPlan, options: ExportOptions) -> Files:
    """Return the job and, where the plan embeds its cluster, the HyperNodes.

    Raises:
        ExportError: as for a JobSet; also devices in another order from host to host of one task.
    """
    pods.check_nodes(plan, "Volcano job")
    name = options.job_name(plan)
    tiers = domains_of(plan) if plan.cluster is not None else None
    size = hosts_per_group(plan)
    if size == 1:
        templates = pods.pinned(plan, options, _pod_name(name, "node0"))
        tasks = [{"name": node, "replicas": 1, "template": template} for node, template in templates]
    else:
        tasks = _stage_tasks(plan, options, size, tiers)
    spec: dict[str, Any] = {
        "schedulerName": "volcano",
        "queue": options.queue,
        "minAvailable": len(plan.host_order),
        "maxRetry": 0,
        "plugins": {"env": [], "svc": []},
        "policies": [{"event": "PodEvicted", "action": "AbortJob"}, {"event": "PodFailed", "action": "AbortJob"}],
        "tasks": tasks,
    }
    if tiers is not None:
        spec["networkTopology"] = _within(tiers.tier_of(plan.host_order))
    job = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
    sentences = (*pods.NOT_GUARANTEED[:1], *NOT_GUARANTEED, *pods.NOT_GUARANTEED[1:])
    rendered: Files = {JOB: pods.document(plan, options, sentences, job)}
    if tiers is not None:
        rendered[HYPERNODES] = pods.document(plan, options, sentences, *_hypernodes(tiers))
    return rendered


def _stage_tasks(plan: PlacementPlan, options: ExportOptions, size: int, tiers: Domains | None) -> list[dict[str, Any]]:
    """Return a task for each pipeline stage with a partition for each tensor-parallel group."""
    name = options.job_name(plan)
    devices = pods.order_on_all(plan, "Volcano task")
    words = node_words(plan, options, None, _pod_name(name, "stage0"))
    tasks, first = [], 0
    for stage, hosts in enumerate(hosts_by_stage(plan)):
        affinity = pods.one_on_each(hosts, {"volcano.sh/job-name": name})
        pod = pods.pod(options, pods.ranked_by("VC_TASK_INDEX", first, words), devices, affinity)
        template = pods.template(options, pod)
        partition: dict[str, Any] = {"totalPartitions": len(hosts) // size, "partitionSize": size}
        if tiers is not None:
            groups = [hosts[start : start + size] for start in range(0, len(hosts), size)]
            partition["networkTopology"] = _within(max(tiers.tier_of(group) for group in groups))
        task = {"name": f"stage{stage}", "replicas": len(hosts), "partitionPolicy": partition, "template": template}
        tasks.append(task)
        first += len(hosts)
    return tasks


def _within(tier: int) -> dict[str, Any]:
    return {"mode": "hard", "highestTierAllowed": tier}


def _pod_name(name: str, task: str) -> str:
    """Name in DNS of a task's first pod, as the plugin svc gives it."""
    return f"{name}-{task}-0.{name}"


def _hypernodes(tiers: Domains) -> list[dict[str, Any]]:
    """Return a HyperNode for each domain of the cluster, narrowest first."""
    prefix = dns_label(tiers.cluster)
    objects = []
    for tier in range(1, tiers.num_tiers + 1):
        for domain in range(int(tiers.label[tier - 1].max()) + 1):
            inside = tiers.members(tier, domain)
            kind = "Node" if tier == 1 else "HyperNode"
            names = inside if tier == 1 else [f"{prefix}-tier{tier - 1}-{number}" for number in inside]
            members = [{"type": kind, "selector": {"exactMatch": {"name": member}}} for member in names]
            objects.append(
                {
                    "apiVersion": "topology.volcano.sh/v1alpha1",
                    "kind": "HyperNode",
                    "metadata": {"name": f"{prefix}-tier{tier}-{domain}"},
                    "spec": {"tier": tier, "members": members},
                }
            )
    return objects
