"""Requests of kube-scheduler to an extender, and its answers: the pods of a decision go to its hosts, all others anywhere.

An answer comes from a decision that is kept, never from a new one, and a pod of no decision passes at once. Where none of the
planned hosts can have the pod it passes too: without the extender it would have been placed as well. A decision that holds
nothing any more, or whose hosts are all closed, pins no pod (`hosts_of`).

Source:
    ``k8s.io/kube-scheduler/extender/v1``: ExtenderArgs, ExtenderFilterResult, HostPriorityList. Kubernetes 1.20.2 was seen to
    send these fields with capital letters, ``NodeNames`` where ``nodeCacheCapable`` is set, and to take scores of 0 to 10.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from ...export.kubernetes.pods import DECISION_LABEL
from ..ledger import Ledger

BEST = 10
"""Score of a planned host."""

_ID = re.compile(r"[0-9a-z-]{1,100}")

NodeName = Annotated[str, Field(max_length=253)]


class ExtenderArgs(BaseModel):
    """A pod, and the nodes that could have it.

    Attributes:
        pod: as the API has it.
        node_names: of the nodes.
        nodes: the nodes themselves, where the scheduler's configuration does not say that we know them.
    """

    model_config = ConfigDict(extra="ignore", populate_by_name=True)

    pod: dict[str, Any] = Field(alias="Pod")
    node_names: Annotated[list[NodeName], Field(max_length=20_000)] | None = Field(default=None, alias="NodeNames")
    nodes: dict[str, Any] | None = Field(default=None, alias="Nodes")


class FilterResult(BaseModel):
    """The nodes that may have the pod, and why others may not."""

    model_config = ConfigDict(populate_by_name=True)

    node_names: list[str] | None = Field(alias="NodeNames")
    failed_nodes: dict[str, str] = Field(default={}, alias="FailedNodes")
    nodes: dict[str, Any] | None = Field(default=None, alias="Nodes")
    error: str = Field(default="", alias="Error")


class HostPriority(BaseModel):
    """How well a node suits the pod, from 0 to `BEST`."""

    model_config = ConfigDict(populate_by_name=True)

    host: str = Field(alias="Host")
    score: int = Field(alias="Score")


def decision_named(pod: dict[str, Any]) -> str | None:
    """Return the id of the decision that a pod, or a template of pods, names by its label; None where it names none."""
    metadata = pod.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    result = labels.get(DECISION_LABEL) if isinstance(labels, dict) else None
    return result if isinstance(result, str) and _ID.fullmatch(result) else None


def hosts_of(store: Ledger, name: str | None) -> tuple[str, ...]:
    """Return the hosts to which the pods of a decision belong; none where it holds nothing any more, or all of them are closed.

    Args:
        store: of the decisions.
        name: id of the decision that a pod names; None where it names none.
    """
    record, state = None if name is None else store.decision(name), store.last()[1]
    if record is None or record.decision.plan is None or all(job.of_decision != name for job in state.jobs):
        return ()
    hosts = tuple(sorted(record.decision.devices))
    return () if all(state.is_closed(host) for host in hosts) else hosts


def filtered(request: ExtenderArgs, planned: Collection[str]) -> FilterResult:
    """Return the nodes that may have a pod.

    Args:
        request: the pod and the nodes.
        planned: the hosts to which it belongs, see `hosts_of`; none where it may go anywhere.
    """
    names = request.node_names
    passing = None if names is None else [name for name in names if name in planned]
    if not passing:
        return FilterResult(node_names=names, nodes=request.nodes)
    failed = {name: "not a host of the plan" for name in names or () if name not in planned}
    return FilterResult(node_names=passing, failed_nodes=failed)


def prioritized(request: ExtenderArgs, planned: Collection[str]) -> list[HostPriority]:
    """Return how well each node suits a pod; arguments as of `filtered`."""
    return [HostPriority(host=name, score=BEST if name in planned else 0) for name in request.node_names or ()]
