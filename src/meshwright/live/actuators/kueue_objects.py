"""Kueue's Workloads as an admission check reads them, and what it writes into their status.

A Workload is what Kueue makes of a job: sets of pods, each a template and a count. Once it has reserved quota for one it asks the
checks of its queue, each by an entry of ``status.admissionChecks``, and starts the job when all are ``Ready``, with what they
say in ``podSetUpdates`` put into the templates.

Source:
    Kueue's API ``kueue.x-k8s.io/v1beta2`` (0.19; ``v1beta1`` has the same fields): WorkloadStatus, AdmissionCheckState,
    PodSetUpdate; its webhooks refuse updates for sets that there are not, and other updates while a check stays ``Ready``.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Annotated, Any

from pydantic import Field

from ... import settings
from ...errors import ConfigError, MeshwrightError
from ...export.kubernetes.pods import DECISION_LABEL, GPU
from ..decisions import JobRequest
from ..sources.kubernetes import ReadPart, devices_wanted
from ..sources.listings import plain
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
class PodSetSize:
    """A set of pods.

    Attributes:
        name: of it.
        count: pods.
        devices: that each wants.
    """

    name: str
    count: int
    devices: int


@dataclass(frozen=True)
class CheckAnswer:
    """What a check says of a Workload.

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

    Args:
        content: as the API has it.
        check: name of the AdmissionCheck.

    Raises:
        ConfigError: of another form.
    """

    def __init__(self, content: Mapping[str, Any], check: str) -> None:
        self.content = content
        self._check = check
        self._read = settings.build_settings(_Workload, dict(content))
        self._asked = next((one for one in self._read.status.checks if one.name == check), None)

    @property
    def name(self) -> str:
        """The name of the object, ``namespace/name``."""
        return plain(f"{self._read.metadata.namespace}/{self._read.metadata.name}")

    @property
    def path(self) -> str:
        """Below the API's version."""
        return f"namespaces/{self._read.metadata.namespace}/workloads/{self._read.metadata.name}"

    @property
    def uid(self) -> str:
        """The identifier of this object, which no other object ever has."""
        return self._read.metadata.uid

    @property
    def key(self) -> str:
        """The key by which the same Workload gets the same decision again."""
        return f"{self.uid}:{self._read.metadata.generation}"

    @property
    def order(self) -> tuple[str, str]:
        """The order of decisions: what was created first comes first."""
        return self._read.metadata.created, self.uid

    @property
    def state(self) -> str | None:
        """What the check says so far; None where it is not asked."""
        return None if self._asked is None else self._asked.state

    @property
    def message(self) -> str:
        """Why, so far."""
        return "" if self._asked is None else self._asked.message

    @property
    def given(self) -> str | None:
        """Id of the decision that it was given."""
        updates = [] if self._asked is None else self._asked.updates or []
        return next((name for one in updates if (name := decision_named({"metadata": one})) is not None), None)

    @property
    def named(self) -> str | None:
        """Id of the decision that its templates name by themselves, as exported plans do."""
        templates = ({"metadata": one.template.metadata} for one in self._read.spec.sets)
        return next((name for one in templates if (name := decision_named(one)) is not None), None)

    @property
    def may_hold(self) -> bool:
        """Whether devices may be held for it: it has quota, and has neither ended nor been stopped."""
        is_over = self._is("Finished") or self._read.metadata.deleted is not None or not self._read.spec.active
        return self._is("QuotaReserved") and not is_over

    @property
    def is_admitted(self) -> bool:
        """Whether Kueue has started its job: from then on its pods are the truth."""
        return self._is("Admitted")

    @property
    def is_placed_by_kueue(self) -> bool:
        """Whether Kueue's own topology-aware scheduling chooses the nodes."""
        admission = self._read.status.admission
        assigned = [] if admission is None else admission.assigned
        return any(one.topology for one in self._read.spec.sets) or any(one.topology or one.delayed for one in assigned)

    @cached_property
    def sizes(self) -> tuple[PodSetSize, ...]:
        """The sets of pods of the Workload; where Kueue admitted a part of a set, that part.

        Raises:
            MeshwrightError: a set wants a part of a device.
        """
        admission = self._read.status.admission
        counts = {} if admission is None else {one.name: one.count for one in admission.assigned if one.count is not None}
        return tuple(
            PodSetSize(one.name, counts.get(one.name, one.count), devices_wanted(one.template.spec, GPU, f"pods {one.name}"))
            for one in self._read.spec.sets
        )

    @property
    def num_devices(self) -> int:
        """Number of devices that all its pods need together."""
        return sum(one.count * one.devices for one in self.sizes)

    def request(self) -> JobRequest | None:
        """The job that its templates ask to be planned; None where they name none.

        Raises:
            ConfigError: an annotation that is unknown or cannot be.
        """
        found: dict[str, Any] = {}
        for one in self._read.spec.sets:
            for key, value in (one.template.metadata.get("annotations") or {}).items():
                if key.startswith(ASKS):
                    found.setdefault(key.removeprefix(ASKS), value)
        if "job" not in found:
            return None
        data: dict[str, Any] = {"name": self._read.metadata.name[:200], "owner": self._read.metadata.namespace[:200]}
        for word, value in found.items():
            if word not in _WORDS:
                raise ConfigError("has no such annotation", field=ASKS + word, choices=[ASKS + one for one in _WORDS])
            try:
                data[word.replace("-", "_")] = _WORDS[word](value)
            except ValueError:
                raise ConfigError("is no number", field=ASKS + word, value=value) from None
        return settings.build_settings(JobRequest, data | {"devices": self.num_devices, "max_devices": self.num_devices})

    def fits(self, plan: Mapping[str, Any]) -> bool:
        """Whether its pods, whole, fill the devices of a plan: the largest first, each on the host with the least that is enough.

        Args:
            plan: plain data of it.
        """
        left: dict[str, int] = {}
        for rank in plan["ranks"]:
            left[rank["host"]] = left.get(rank["host"], 0) + 1
        for devices in sorted((one.devices for one in self.sizes for _ in range(one.count) if one.devices), reverse=True):
            host = min((name for name in left if left[name] >= devices), key=lambda name: (left[name], name), default=None)
            if host is None:
                return False
            left[host] -= devices
        return not any(left.values())

    def is_answered(self, answer: CheckAnswer) -> bool:
        """Whether its status says that already."""
        return (self.state, self.message, self.given) == (answer.state, answer.message[:MOST_MESSAGE], answer.decision)

    def answered(self, answer: CheckAnswer, now: datetime) -> dict[str, Any]:
        """The whole object with an answer in its status; other checks and unknown fields stay as they are.

        Args:
            answer: of the check.
            now: the time, for people.
        """
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
            entry["podSetUpdates"] = self._updates(answer.decision)
        return whole

    def _updates(self, decision: str) -> list[dict[str, Any]]:
        """The label by which its pods are known, and the nodes that they may go to; of pods without devices neither."""
        pinned = {"labels": {DECISION_LABEL: decision}, "nodeSelector": {PLAN_LABEL + decision: PLANNED}}
        return [{"name": one.name, **(pinned if one.devices else {})} for one in self.sizes]

    def _is(self, condition: str) -> bool:
        return any(one.type == condition and one.status == "True" for one in self._read.status.conditions)


def workloads_of(listed: Mapping[str, Any], check: str) -> tuple[list[KueueWorkload], list[str]]:
    """The Workloads in a list that a check is asked about, the first first, each once, and what cannot be read.

    Args:
        listed: as the API lists them.
        check: name of the AdmissionCheck.

    Raises:
        ConfigError: a part of a list, or none.
    """
    items, metadata = listed.get("items"), listed.get("metadata") or {}
    if not isinstance(items, list) or metadata.get("continue") or metadata.get("remainingItemCount"):
        raise ConfigError("is no whole list of Workloads", field="items")
    found: dict[str, KueueWorkload] = {}
    unread = []
    for item in items:
        try:
            one = KueueWorkload(item, check)
        except MeshwrightError as error:
            unread.append(str(error))
            continue
        if one.state is not None:
            found[one.uid] = one
    return sorted(found.values(), key=lambda one: one.order), unread


def labelled_nodes(nodes: Mapping[str, Any]) -> dict[str, set[str]]:
    """The nodes that carry the label of each decision, by the decision.

    Args:
        nodes: as the API lists them.
    """
    found: dict[str, set[str]] = {}
    for node in nodes.get("items") or ():
        metadata = node.get("metadata") or {}
        for key in metadata.get("labels") or {}:
            if key.startswith(PLAN_LABEL):
                found.setdefault(key.removeprefix(PLAN_LABEL), set()).add(str(metadata.get("name")))
    return found


def is_active(check: Mapping[str, Any]) -> bool:
    """Whether the status of an AdmissionCheck says that a controller answers it."""
    conditions: Sequence[Mapping[str, Any]] = (check.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == "Active" and one.get("status") == "True" for one in conditions)


def activated(check: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """An AdmissionCheck that says so."""
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
