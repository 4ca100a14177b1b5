"""Kueue's Workloads as an admission check reads them, and what it writes into their status.

A Workload is what Kueue makes of a job: sets of pods, each a template and a count. Once it has reserved quota for one, it asks
the checks of its queue, each by an entry of ``status.admissionChecks``. It starts the job when all are ``Ready``, with their
``podSetUpdates`` merged into the templates.

Source:
    Kueue's API ``kueue.x-k8s.io/v1beta2`` (0.19; ``v1beta1`` has the same fields): WorkloadStatus, AdmissionCheckState,
    PodSetUpdate. Its webhooks refuse updates for unknown sets, and other updates while a check stays ``Ready``.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Annotated, Any

from pydantic import Field

from ... import settings
from ...errors import ConfigError, MeshwrightError
from ...export.kubernetes.pods import DECISION_LABEL, GPU
from ..decisions import JobRequest
from ..sources.kubernetes import devices_wanted
from ..sources.listings import ReadPart, plain
from .kubernetes_extender import decision_named

CONTROLLER = "meshwright.dev/placement"
"""``spec.controllerName`` of the AdmissionChecks that are ours."""

ASKS = "meshwright.dev/"
"""Begins the annotations of a pod template that say what the job is, as keys of a `decisions.JobRequest`."""

PLAN_LABEL = "plan.meshwright.dev/"
"""Begins the label, named after a decision, of the nodes that its pods may go to."""

PLANNED = "planned"
"""Value of that label."""

RETRY_AFTER_S = 60
"""How long Kueue lets others try before it asks again; without it, Kueue asks again at once."""

MOST_MESSAGE = 1000
_WORDS = {"job": str, "steps": int, "batch": int, "sequence-length": int, "deadline-s": float}

Free = Annotated[dict[str, Any], Field(default_factory=dict)]


class _Metadata(ReadPart):
    name: str = Field(min_length=1, max_length=253)
    namespace: str = Field(min_length=1, max_length=253)
    uid: str = Field(min_length=1, max_length=253)
    generation: int = 1
    created: str = Field(default="", alias="creationTimestamp")
    deleted: str | None = Field(default=None, alias="deletionTimestamp")


class _Template(ReadPart):
    metadata: Free
    spec: Free


class _Pods(ReadPart):
    name: str = "main"
    count: int = Field(default=1, ge=0)
    template: _Template
    topology: dict[str, Any] | None = Field(default=None, alias="topologyRequest")


class _Spec(ReadPart):
    sets: list[_Pods] = Field(alias="podSets", min_length=1)
    active: bool = True


class _WorkloadCondition(ReadPart):
    type: str
    status: str


class _Assigned(ReadPart):
    name: str = "main"
    count: int | None = None
    topology: dict[str, Any] | None = Field(default=None, alias="topologyAssignment")
    delayed: str | None = Field(default=None, alias="delayedTopologyRequest")


class _Admission(ReadPart):
    assigned: list[_Assigned] = Field(default=[], alias="podSetAssignments")


class _Check(ReadPart):
    name: str
    state: str
    message: str = ""
    updates: list[dict[str, Any]] | None = Field(default=None, alias="podSetUpdates")


class _Status(ReadPart):
    conditions: list[_WorkloadCondition] = Field(default=[])
    admission: _Admission | None = None
    checks: list[_Check] = Field(default=[], alias="admissionChecks")


class _Workload(ReadPart):
    metadata: _Metadata
    spec: _Spec
    status: _Status = _Status()


@dataclass(frozen=True)
class CheckAnswer:
    """The answer of a check to a Workload.

    Attributes:
        state: ``Pending``, ``Ready``, ``Retry`` or ``Rejected``.
        message: why, for people.
        decision: id of the decision whose hosts its pods may go to; None where they are not pinned.
    """

    state: str
    message: str
    decision: str | None = None


class KueueWorkload:
    """A Workload and one check of it.

    Attributes:
        content: as the API has it.
        name, path: ``namespace/name`` of it, and its path below the API's version.
        uid: the identifier of this object, which no other object ever has.
        key: by which the same Workload gets the same decision again.
        order: of decisions: what was created first comes first.
        state, message: what the check says so far; the state is None where it is not asked.
        updates: id of the decision that it was given.
        named: id of the decision that its templates name by themselves, as exported plans do.
        may_hold: whether devices may be held for it: it has quota, and has neither ended nor been stopped.
        is_admitted: whether Kueue has started its job: from then on its pods are the truth.
        is_placed_by_kueue: whether Kueue's own topology-aware scheduling chooses the nodes.

    Args:
        content: as the API has it.
        check: name of the AdmissionCheck.

    Raises:
        ConfigError: of another form.
    """

    def __init__(self, content: Mapping[str, Any], check: str) -> None:
        self.content = content
        self._check = check
        self._read = read = settings.build_settings(_Workload, dict(content))
        metadata, sets, status = read.metadata, read.spec.sets, read.status
        self.name = plain(f"{metadata.namespace}/{metadata.name}")
        self.path = f"namespaces/{metadata.namespace}/workloads/{metadata.name}"
        self.uid = metadata.uid
        self.key = f"{self.uid}:{metadata.generation}"
        self.order = metadata.created, self.uid
        own_check = next((one for one in status.checks if one.name == check), None)
        self.state = None if own_check is None else own_check.state
        self.message = "" if own_check is None else own_check.message
        self.updates = _first_named([] if own_check is None else own_check.updates or [])
        self.named = _first_named(one.template.metadata for one in sets)
        holds = {condition.type for condition in status.conditions if condition.status == "True"}
        is_over = "Finished" in holds or metadata.deleted is not None or not read.spec.active
        self.may_hold = "QuotaReserved" in holds and not is_over
        self.is_admitted = "Admitted" in holds
        self._assigned = [] if status.admission is None else status.admission.assigned
        self.is_placed_by_kueue = any(one.topology for one in sets) or any(one.topology or one.delayed for one in self._assigned)

    @cached_property
    def sizes(self) -> tuple[tuple[str, int, int], ...]:
        """Name, pods, and devices of each pod, of each set of pods; where Kueue admitted a part of a set, that part.

        Raises:
            MeshwrightError: a set wants a part of a device.
        """
        counts = {one.name: one.count for one in self._assigned if one.count is not None}
        return tuple(
            (one.name, counts.get(one.name, one.count), devices_wanted(one.template.spec, GPU, f"pods {one.name}"))
            for one in self._read.spec.sets
        )

    @property
    def num_devices(self) -> int:
        """Number of devices that all its pods need together."""
        return sum(count * devices for _, count, devices in self.sizes)

    def request(self) -> JobRequest | None:
        """Return the job that its templates ask to be planned; None where they name none.

        Raises:
            ConfigError: an annotation that is unknown or cannot be.
        """
        results: dict[str, Any] = {}
        for one in self._read.spec.sets:
            for key, value in (one.template.metadata.get("annotations") or {}).items():
                if key.startswith(ASKS):
                    results.setdefault(key.removeprefix(ASKS), value)
        if "job" not in results:
            return None
        data: dict[str, Any] = {"name": self._read.metadata.name[:200], "owner": self._read.metadata.namespace[:200]}
        for word, value in results.items():
            if word not in _WORDS:
                raise ConfigError("has no such annotation", field=ASKS + word, choices=[ASKS + one for one in _WORDS])
            try:
                data[word.replace("-", "_")] = _WORDS[word](value)
            except ValueError:
                raise ConfigError("is no number", field=ASKS + word, value=value) from None
        return settings.build_settings(JobRequest, data | {"devices": self.num_devices, "max_devices": self.num_devices})

    def fits(self, plan: Mapping[str, Any]) -> bool:
        """Return whether its pods fill a plan's devices: the largest first, each on the host of least sufficient room."""
        left = Counter(rank["host"] for rank in plan["ranks"])
        for devices in sorted((size for _, count, size in self.sizes for _ in range(count) if size), reverse=True):
            host = min((name for name in left if left[name] >= devices), key=lambda name: (left[name], name), default=None)
            if host is None:
                return False
            left[host] -= devices
        return not any(left.values())

    def is_answered(self, answer: CheckAnswer) -> bool:
        """Return whether its status says that already."""
        return (self.state, self.message, self.updates) == (answer.state, answer.message[:MOST_MESSAGE], answer.decision)

    def answered(self, answer: CheckAnswer, now: datetime) -> dict[str, Any]:
        """Return the whole object with an answer in its status; other checks and unknown fields stay as they are."""
        whole = copy.deepcopy(dict(self.content))
        entry = next(one for one in whole["status"]["admissionChecks"] if one["name"] == self._check)
        for key in ("podSetUpdates", "requeueAfterSeconds"):
            entry.pop(key, None)
        if entry["state"] != answer.state:
            entry["lastTransitionTime"] = now.strftime("%Y-%m-%dT%H:%M:%SZ")
        entry |= {"state": answer.state, "message": answer.message[:MOST_MESSAGE]}
        if answer.state == "Retry":
            entry["requeueAfterSeconds"] = RETRY_AFTER_S
        if answer.decision is not None:
            # The label by which its pods are known, and the nodes that they may go to; pods without devices get neither.
            pinned = {"labels": {DECISION_LABEL: answer.decision}, "nodeSelector": {PLAN_LABEL + answer.decision: PLANNED}}
            entry["podSetUpdates"] = [{"name": name, **(pinned if devices else {})} for name, _, devices in self.sizes]
        return whole


def _first_named(metadata: Iterable[Mapping[str, Any]]) -> str | None:
    """Return the id of the decision that the first of some metadata with such a label names."""
    return next((name for one in metadata if (name := decision_named({"metadata": dict(one)})) is not None), None)


def workloads_of(listed: Mapping[str, Any], check: str) -> tuple[list[KueueWorkload], list[str]]:
    """Return the Workloads in a list that a check is asked about, the first first, each once, and what cannot be read.

    Args:
        listed: as the API lists them.
        check: name of the AdmissionCheck.

    Raises:
        ConfigError: a part of a list, or none.
    """
    items, metadata = listed.get("items"), listed.get("metadata") or {}
    if not isinstance(items, list) or metadata.get("continue") or metadata.get("remainingItemCount"):
        raise ConfigError("is no whole list of Workloads", field="items")
    workloads: dict[str, KueueWorkload] = {}
    unread = []
    for item in items:
        try:
            one = KueueWorkload(item, check)
        except MeshwrightError as error:
            unread.append(str(error))
            continue
        if one.state is not None:
            workloads[one.uid] = one
    return sorted(workloads.values(), key=lambda one: one.order), unread


def labelled_nodes(nodes: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return the nodes that carry the label of each decision, by the decision.

    Args:
        nodes: as the API lists them.
    """
    result: dict[str, set[str]] = {}
    for node in nodes.get("items") or ():
        metadata = node.get("metadata") or {}
        for key in metadata.get("labels") or {}:
            if key.startswith(PLAN_LABEL):
                result.setdefault(key.removeprefix(PLAN_LABEL), set()).add(str(metadata.get("name")))
    return result


def is_active(check: Mapping[str, Any]) -> bool:
    """Return whether the status of an AdmissionCheck says that a controller answers it."""
    conditions: Sequence[Mapping[str, Any]] = (check.get("status") or {}).get("conditions") or ()
    return any(condition.get("type") == "Active" and condition.get("status") == "True" for condition in conditions)


def activated(check: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Return an AdmissionCheck that says so."""
    whole = copy.deepcopy(dict(check))
    status = whole.setdefault("status", {})
    others = [one for one in status.get("conditions") or () if one.get("type") != "Active"]
    active = {
        "type": "Active",
        "status": "True",
        "reason": "Active",
        "message": "meshwright answers for it",
        "observedGeneration": (whole.get("metadata") or {}).get("generation", 1),
        "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    status["conditions"] = [*others, active]
    return whole
