"""The network of pods: cards for RDMA, the host's own network, further networks, and tainted nodes.

RDMA is asked for as NVIDIA's network operator offers it: a device plugin's resource, whose name the cluster chooses
(``rdma/hca_shared_devices_a``), and the capability ``IPC_LOCK``, without which no memory is pinned for the card.
"""

from __future__ import annotations

from typing import Any

from ...plans.document import PlacementPlan
from ..options import ExportOptions

NETWORKS = "k8s.v1.cni.cncf.io/networks"
"""Annotation by which Multus gives a pod further networks."""

PLAIN_BYTES_PER_S = 12.5e9
"""Above 100 Gb/s between hosts a plan counts on more than TCP in a pod is likely to reach."""

NOT_GUARANTEED = (
    "Network: the network between pods is what the cluster gives. Without --set rdma_resource=NAME pods get no RDMA (InfiniBand, "
    "RoCE), and collectives go over TCP in silence; --set host_network=true, networks=NAME and tolerations=KEY ask for the rest.",
    "Image: by default pytorch/pytorch:latest, an example whose version moves; name yours by --set image=.",
)


def limits(options: ExportOptions) -> dict[str, int]:
    """The resource of RDMA cards and how many, to stand beside the GPUs; empty where none is asked for."""
    if options.rdma_resource is None:
        return {}
    name, _, count = options.rdma_resource.partition("=")
    return {name: int(count or 1)}


def container(options: ExportOptions) -> dict[str, Any]:
    """What a container has besides its resources."""
    return {"securityContext": {"capabilities": {"add": ["IPC_LOCK"]}}} if options.rdma_resource is not None else {}


def pod(options: ExportOptions) -> dict[str, Any]:
    """What the spec of a pod has besides its containers."""
    found: dict[str, Any] = {}
    if options.host_network:
        found |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    return found | tolerations(options)


def tolerations(options: ExportOptions) -> dict[str, Any]:
    """The taints that the pods tolerate, of ``KEY[=VALUE][:EFFECT]``."""
    found = []
    for text in options.tolerations.split(",") if options.tolerations is not None else ():
        taint, _, effect = text.partition(":")
        key, equals, value = taint.partition("=")
        one = {"key": key, "operator": "Equal", "value": value} if equals else {"key": key, "operator": "Exists"}
        found.append(one | ({"effect": effect} if effect else {}))
    return {"tolerations": found} if found else {}


def pod_annotations(options: ExportOptions) -> dict[str, str]:
    """Of the pod template."""
    return {NETWORKS: options.networks} if options.networks is not None else {}


def remark(plan: PlacementPlan, options: ExportOptions) -> str | None:
    """What to say of an export whose pods may be slower than planned; None where there is nothing to say."""
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
