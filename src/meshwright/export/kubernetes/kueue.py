"""Kueue's topology-aware scheduling: the cluster's tiers as a Topology, and a JobSet that asks for domains of it.

Kueue computes which pod goes where and takes no assignment from outside; pinning pods to nodes would fight it. So the JobSet
asks for a domain that is no wider than the planned one. Where tensor-parallel groups span hosts, it also asks for slices of a
group's size. Forms: ``kueue.x-k8s.io/v1beta2`` as of Kueue 0.19.
"""

from __future__ import annotations

from typing import Any

from ...plans.document import PlacementPlan
from ..host_domains import Domains, domains_of, hosts_per_group
from ..launchers.torchrun import node_words
from ..options import ExportOptions
from ..requirements import devices_to_request
from ..target import Files, dns_label, header
from . import pods

TOPOLOGY = "kueue-topology.yaml"
JOBSET = "kueue-jobset.yaml"
LABELS = "label-nodes.sh"

NOT_GUARANTEED = (
    "Order of hosts (Kueue): Kueue deals the planned hosts to the pods in an order of its own; only slices stay together. The "
    "plain JobSet keeps the order.",
    "Labels (Kueue): Kueue sees the topology by node labels, which label-nodes.sh sets; the label kubernetes.io/hostname must "
    "be the node's name.",
    "Quota (Kueue): the ClusterQueue behind the local queue must offer the ResourceFlavor of kueue-topology.yaml; quotas are "
    "the administrator's.",
)

_HOST_LABEL = "kubernetes.io/hostname"
_CLUSTER_LABEL = "meshwright/cluster"


def render(plan: PlacementPlan, options: ExportOptions) -> Files:
    """Return the topology with flavor, the JobSet, and a script that labels the nodes.

    Raises:
        ExportError: as for a JobSet; also devices in another order from host to host, or no embedded cluster.
    """
    pods.check_nodes(plan, "Kueue JobSet")
    tiers = domains_of(plan)
    flavor = dns_label(tiers.cluster)
    name = options.job_name(plan)
    command = pods.ranked_by("JOB_COMPLETION_INDEX", 0, node_words(plan, options, None, pods.pod_name(name, "node", 0)))
    pod = pods.pod(options, command, pods.order_on_all(plan, "Kueue JobSet", list), _on_hosts(plan))
    pod["containers"][0]["resources"]["limits"][pods.GPU] = devices_to_request(plan)
    template = pods.template(options, pod, _annotations(plan, tiers))
    job = pods.jobset(
        name, [pods.replicated_job("node", len(plan.host_order), template)], {"kueue.x-k8s.io/queue-name": options.queue}
    )
    topology = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Topology",
        "metadata": {"name": flavor},
        "spec": {"levels": [{"nodeLabel": label} for label in _levels(tiers)]},
    }
    resources = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {"name": flavor},
        "spec": {"nodeLabels": {_CLUSTER_LABEL: flavor}, "topologyName": flavor},
    }
    sentences = (*pods.NOT_GUARANTEED[:1], *NOT_GUARANTEED, *pods.NOT_GUARANTEED[1:])
    return {
        TOPOLOGY: pods.document(plan, options, sentences, topology, resources),
        JOBSET: pods.document(plan, options, sentences, job),
        LABELS: f"#!/bin/bash\n{header(name, plan, 'Kubernetes', sentences)}{_labelling(tiers, flavor)}",
    }


def _tier_label(tier: int) -> str:
    return f"meshwright/tier-{tier}"


def _levels(tiers: Domains) -> list[str]:
    """Return the labels from the widest tier down to the host."""
    return [*(_tier_label(tier) for tier in range(tiers.num_tiers, 0, -1)), _HOST_LABEL]


def _annotations(plan: PlacementPlan, tiers: Domains) -> dict[str, str]:
    """Return the common domain of the plan's places as Kueue's annotations."""
    target = {"kueue.x-k8s.io/podset-required-topology": _tier_label(tiers.tier_of(plan.host_order))}
    size = hosts_per_group(plan)
    if size > 1:
        groups = [plan.host_order[first : first + size] for first in range(0, len(plan.host_order), size)]
        target["kueue.x-k8s.io/podset-slice-required-topology"] = _tier_label(max(tiers.tier_of(group) for group in groups))
        target["kueue.x-k8s.io/podset-slice-size"] = str(size)
    return target


def _on_hosts(plan: PlacementPlan) -> dict[str, Any]:
    """Return the affinity to the plan's hosts by the label that is Kueue's lowest level."""
    term = {"matchExpressions": [{"key": _HOST_LABEL, "operator": "In", "values": list(plan.host_order)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def _labelling(tiers: Domains, flavor: str) -> str:
    lines = ["set -euo pipefail\n"]
    for host, labels in zip(tiers.host_names, tiers.label.T.tolist(), strict=True):
        words = [f"{_tier_label(tier)}=d{label}" for tier, label in enumerate(labels, start=1)]
        lines.append(f"kubectl label --overwrite node {host} {_CLUSTER_LABEL}={flavor} {' '.join(words)}\n")
    return "".join(lines)
