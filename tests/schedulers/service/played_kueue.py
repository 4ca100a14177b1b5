"""Kueue's objects on a real API server, without Kueue: its part is played here, so far as an admission check meets it.

Today's Kueue wants a newer API server than the one that is built here. So a few fields define
the two kinds, with the status as a part of its own, and calls of `PlayedKueue` do Kueue's part. It reserves quota for a
Workload and takes it back. Once the check is ready it starts the job, with the updates of the check put into the pods.
"""

import copy
from datetime import UTC, datetime
from typing import Any

from .. import processes
from ..kubernetes import LoopbackKubernetes, Object
from ..test_kubernetes_state import pod_spec

CHECK = "meshwright"
GROUP, VERSION = "kueue.x-k8s.io", "v1beta2"

_ANY: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_TEXTS: Object = {"type": "object", "additionalProperties": {"type": "string"}}
_UPDATE: Object = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "labels": _TEXTS, "annotations": _TEXTS, "nodeSelector": _TEXTS},
}
_CHECK: Object = {
    "type": "object",
    "required": ["name", "state", "message", "lastTransitionTime"],
    "properties": {
        "name": {"type": "string"},
        "state": {"type": "string", "enum": ["Pending", "Ready", "Retry", "Rejected"]},
        "message": {"type": "string", "maxLength": 32768},
        "lastTransitionTime": {"type": "string", "format": "date-time"},
        "requeueAfterSeconds": {"type": "integer", "minimum": 0},
        "retryCount": {"type": "integer", "minimum": 0},
        "podSetUpdates": {"type": "array", "maxItems": 8, "items": _UPDATE},
    },
}
_CHECKS = {"type": "array", "maxItems": 8, "items": _CHECK}
_STATUS = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"admissionChecks": _CHECKS}}


def definition(kind: str, plural: str, scope: str, status: Object) -> Object:
    """The definition of a kind of Kueue's."""
    schema = {"type": "object", "properties": {"spec": _ANY, "status": status}}
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{GROUP}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, written for a test"},
        },
        "spec": {
            "group": GROUP,
            "scope": scope,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [version],
        },
    }


class PlayedKueue:
    """See the module.

    Args:
        server: gets the definitions and an AdmissionCheck of our controller.
    """

    def __init__(self, server: LoopbackKubernetes) -> None:
        self.server = server
        server.create(definition("Workload", "workloads", "Namespaced", _STATUS))
        server.create(definition("AdmissionCheck", "admissionchecks", "Cluster", _ANY))
        processes.wait_for(self._is_served, "Kueue's kinds", told=server.daemons.told)
        head = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "AdmissionCheck", "metadata": {"name": CHECK}}
        server.create({**head, "spec": {"controllerName": "meshwright.dev/placement"}})

    def _is_served(self) -> bool:
        try:
            self.server.listed("Workload")
            self.server.listed("AdmissionCheck")
        except Exception:
            return False
        return True

    def is_active(self) -> bool:
        """Whether somebody says that it answers for the check, without which Kueue admits nothing."""
        (check,) = self.server.listed("AdmissionCheck")
        return [one["status"] for one in check.get("status", {}).get("conditions", ()) if one["type"] == "Active"] == ["True"]

    def create(
        self,
        name: str,
        count: int,
        devices: int,
        job: str | None = "zoo:alexnet",
        labels: dict[str, str] | None = None,
        **more: Any,
    ) -> None:
        """A Workload of so many pods of so many devices each, behind one that wants none, with quota.

        Args:
            name: of it.
            count: pods.
            devices: of each.
            job: what it asks to be planned as; None: nothing.
            labels: of these pods.
            more: keys of their set.
        """
        annotations = {} if job is None else {"meshwright.dev/job": job, "meshwright.dev/steps": "100"}
        sets = [
            {"name": "driver", "count": 1, "template": {"spec": pod_spec(0)}},
            {
                "name": "worker",
                "count": count,
                "template": {"metadata": {"annotations": annotations, "labels": labels or {}}, "spec": pod_spec(devices)},
                **more,
            },
        ]
        head = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Workload", "metadata": {"name": name}}
        self.server.create({**head, "spec": {"active": True, "queueName": "main", "podSets": sets}})
        self.reserve(name)

    def get(self, name: str) -> Object:
        """A Workload."""
        return self.server.ask("GET", f"/apis/{GROUP}/{VERSION}/namespaces/default/workloads/{name}")

    def check(self, name: str) -> Object:
        """The state of its check."""
        (result,) = self.get(name)["status"]["admissionChecks"]
        assert isinstance(result, dict)
        return result

    def reserve(self, name: str) -> None:
        """Reserve quota, and ask the check."""
        admission = {"clusterQueue": "main", "podSetAssignments": [{"name": "driver"}, {"name": "worker"}]}
        self._write(name, {"QuotaReserved": True}, "Pending", admission)

    def evict(self, name: str) -> None:
        """Take quota back, and ask the check anew later; its pods end."""
        self._write(name, {"QuotaReserved": False, "Admitted": False, "Evicted": True}, "Pending", None)
        self._delete_pods(name)

    def finish(self, name: str) -> None:
        """The job has ended."""
        self.server.patch("Workload", name, {"status": {"conditions": self._conditions({"Finished": True})}}, part="/status")
        self._delete_pods(name)

    def admit(self, name: str) -> None:
        """Start the job of a Workload whose check is ready."""
        whole, check = self.get(name), self.check(name)
        assert check["state"] == "Ready"
        updates = {one["name"]: one for one in check.get("podSetUpdates", ())}
        conditions = self._conditions({"QuotaReserved": True, "Admitted": True})
        self.server.patch("Workload", name, {"status": {"conditions": conditions}}, part="/status")
        for one in whole["spec"]["podSets"]:
            update = updates.get(one["name"], {})
            for number in range(one["count"]):
                spec = copy.deepcopy(one["template"]["spec"])
                spec["nodeSelector"] = {**spec.get("nodeSelector", {}), **update.get("nodeSelector", {})}
                labels = {"job-name": name, **update.get("labels", {})}
                metadata = {"name": f"{name}-{one['name']}-{number}", "labels": labels}
                self.server.create({"kind": "Pod", "metadata": metadata, "spec": spec})

    def nodes_of(self, name: str) -> set[str]:
        """The nodes that have its pods with devices."""
        return {node for one, node in self.server.bound().items() if one.startswith(f"{name}-worker-")}

    def _delete_pods(self, name: str) -> None:
        for one in self.server.listed("Pod"):
            if one["metadata"].get("labels", {}).get("job-name") == name:
                self.server.delete("Pod", one["metadata"]["name"])

    def _write(self, name: str, conditions: dict[str, bool], state: str, admission: Object | None) -> None:
        check = {"name": CHECK, "state": state, "message": "asked", "lastTransitionTime": _now()}
        status = {"conditions": self._conditions(conditions), "admission": admission, "admissionChecks": [check]}
        self.server.patch("Workload", name, {"status": status}, part="/status")

    def _conditions(self, expected: dict[str, bool]) -> list[Object]:
        common = {"reason": "Played", "message": "", "lastTransitionTime": _now()}
        return [{"type": name, "status": "True" if value else "False", **common} for name, value in expected.items()]


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
