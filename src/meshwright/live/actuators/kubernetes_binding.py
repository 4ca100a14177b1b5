"""kube-scheduler has chosen a node for a pod and lets us bind it: the verb ``bind`` of an extender.

A pod of a decision that holds devices is bound to a planned host or not at all, and its first pod confirms the decision. All
other pods are bound where the scheduler says. A pod that is bound to that node already is bound.

Source:
    ``k8s.io/kube-scheduler/extender/v1``: ExtenderBindingArgs, ExtenderBindingResult; ``POST .../pods/NAME/binding`` of the
    API. Kubernetes 1.20.2 was seen to send these fields with capital letters and to try a pod again after an ``Error``. It
    leaves a pod unbound where nobody answers, ``ignorable`` or not.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from ...errors import ConflictError, StateError
from ..controller import Controller
from ..sources.kubernetes import JOB_LABELS
from ..sources.listings import plain
from ..state import some
from . import kubernetes_api
from .kubernetes_extender import NodeName, decision_named, hosts_of

Name = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
"""Of an object of Kubernetes, which becomes a part of a path: RFC 1123."""


class ExtenderBindingArgs(BaseModel):
    """A pod and the node that was chosen for it.

    Attributes:
        pod_name, pod_namespace, pod_uid: of the pod.
        node: name of the node.
    """

    model_config = ConfigDict(extra="ignore", populate_by_name=True)

    pod_name: Name = Field(alias="PodName")
    pod_namespace: Name = Field(alias="PodNamespace")
    pod_uid: Annotated[str, Field(max_length=253)] = Field(alias="PodUID")
    node: NodeName = Field(alias="Node")

    @property
    def path(self) -> str:
        """Path of the pod in the API."""
        return f"/api/v1/namespaces/{self.pod_namespace}/pods/{self.pod_name}"


class ExtenderBindingResult(BaseModel):
    """Why a pod was not bound; empty where it was."""

    model_config = ConfigDict(populate_by_name=True)

    error: str = Field(default="", alias="Error")


class PodToBind:
    """A pod as the API has it now.

    Attributes:
        decision: id of the decision that it names; None where it names none.
        job: how a listing calls the job that it is of.

    Args:
        request: the pod and the node.
        result: the pod.

    Raises:
        StateError: it is another one of that name.
        ConflictError: it is bound to another node.
    """

    def __init__(self, request: ExtenderBindingArgs, result: dict[str, Any]) -> None:
        metadata = result.get("metadata") or {}
        if request.pod_uid and metadata.get("uid") != request.pod_uid:
            raise StateError("there is another pod of that name", field="PodUID", value=request.pod_uid)
        node = (result.get("spec") or {}).get("nodeName") or None
        if node not in (None, request.node):
            raise ConflictError(f"the pod is bound to {plain(str(node), 253)}", field="Node", value=request.node)
        self._request = request
        self._uid = metadata.get("uid")
        self._is_bound = node is not None
        labels = metadata.get("labels") or {}
        self.decision = decision_named(result)
        named = next((labels[label] for label in JOB_LABELS if labels.get(label)), request.pod_name)
        self.job = plain(f"{request.pod_namespace}/{named}")

    @classmethod
    def from_request(cls, request: ExtenderBindingArgs) -> PodToBind:
        """Return the pod that is asked about.

        Raises:
            StateError: it is not there, or is another one of that name.
            ConflictError: it is bound to another node.
            InputFileError: the API cannot be asked.
        """
        return cls(request, kubernetes_api.get(request.path))

    def bind(self) -> None:
        """Bind it, unless it is.

        Raises:
            StateError: it is there no more, or was bound to another node meanwhile.
            InputFileError: the API cannot be asked, or refuses.
        """
        if self._is_bound:
            return
        request = self._request
        metadata = {"name": request.pod_name, "namespace": request.pod_namespace, "uid": self._uid}
        target = {"apiVersion": "v1", "kind": "Node", "name": request.node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        try:
            kubernetes_api.create(f"{request.path}/binding", binding)
        except ConflictError:
            if not PodToBind.from_request(request)._is_bound:  # as it is being deleted; else somebody bound it a moment ago
                raise


def refusal(controller: Controller, decision: str | None, node: str) -> str | None:
    """Return why a pod of a decision may not be bound to a node; None where it may.

    As of `kubernetes_extender.hosts_of`, so that no pod is refused where the filter let it go.

    Args:
        controller: who decided.
        decision: id of the decision that the pod names.
        node: that was chosen for it.
    """
    hosts = hosts_of(controller.store, decision)
    if not hosts or node in hosts:
        return None
    return f"decision {decision} is planned on {some(hosts, 3)}, not on {node}"


def confirmed(controller: Controller, pod: PodToBind) -> bool:
    """Say that the scheduler has the job of a pod that was bound; whether that is new."""
    planned = None if pod.decision is None else controller.store.last()[1].planned(pod.decision)
    if planned is None or planned.confirmed_as is not None:
        return False
    controller.confirm(planned.id, pod.job)
    return True
