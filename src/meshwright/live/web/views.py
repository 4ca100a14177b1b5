"""Answers of the service, as documents."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from ...clusters.cluster import Cluster
from ..decisions import JobDecision, JobRequest, KeptDecision, Outcome, Status
from ..feedback.alarm import slow_stretch
from ..feedback.runs import median_step_s
from ..ledger import Ledger
from ..state import ClusterState, Condition, HeldDevices, numbered_hosts


class HostDevices(BaseModel):
    """Devices of a host, by their indices in it."""

    host: str
    devices: list[int]


class DecisionAnswer(BaseModel):
    """A decision as it was made; it stays as it is.

    Attributes:
        places: the hosts and devices of its ranks.
        predicted: figures by name, with their units in the names.
        plan: without job graph and cluster, which ``/plan`` has.
    """

    id: str
    outcome: Outcome
    request: JobRequest
    why: str
    field: str | None = None
    places: list[HostDevices] = []
    predicted: dict[str, float] = {}
    candidates: list[dict[str, Any]] = []
    plan: dict[str, Any] | None = None
    inputs: dict[str, Any] | None = None


class HistoryEntry(BaseModel):
    """An event of a decision, with the number of the change."""

    seq: int
    at: str
    status: Status
    detail: str


class Observed(BaseModel):
    """Measured step times: how many, their median, it over the predicted one, and an alarm where many steps on end were slow."""

    count: int
    median_step_s: float
    ratio: float | None = None
    alarm: str | None = None


class DecisionView(BaseModel):
    """A decision, and what became of it."""

    number: int
    at: str
    key: str | None = None
    status: Status
    detail: str = ""
    decision: DecisionAnswer
    history: list[HistoryEntry] = []
    observed: Observed | None = None


class DecisionRow(BaseModel):
    """A decision in a list."""

    number: int
    id: str
    at: str
    name: str
    owner: str | None = None
    status: Status
    detail: str = ""
    num_devices: int
    step_s: float | None = None
    why: str


class DecisionList(BaseModel):
    """Decisions, the last one first; ``before`` of the next page, absent on the last one."""

    decisions: list[DecisionRow]
    before: int | None = None


class SourceView(BaseModel):
    """A source and the age of its last listing."""

    name: str
    listed_at: datetime | None = None
    age_s: float | None = None
    num_listings: int
    num_failures: int
    num_drifts: int
    problem: str | None = None
    remarks: list[str] = []


class HostView(BaseModel):
    """A host of the cluster: whether it takes jobs, and for each device the job that holds it; null where none does."""

    name: str
    condition: Condition
    reason: str | None = None
    held_by: list[str | None]


class JobView(BaseModel):
    """A job that holds devices."""

    id: str
    name: str | None = None
    source: str
    decision: str | None = None
    confirmed_as: str | None = None
    places: list[HostDevices]
    whole_hosts: bool
    ends_at: datetime | None = None


class ClusterView(BaseModel):
    """The state of the cluster after a change; ``problems`` are those other than of decisions and sources."""

    name: str
    seq: int
    policy: str
    devices: dict[str, int]
    is_stale: bool
    sources: list[SourceView]
    hosts: list[HostView]
    jobs: list[JobView]
    remarks: list[str] = []
    problems: list[str] = []


class EventView(BaseModel):
    """A change."""

    seq: int
    at: str
    change: dict[str, Any]


class EventList(BaseModel):
    """Changes, the first one first; ``last`` is the number of the last one that there is, and after ``floor`` they are kept."""

    events: list[EventView]
    last: int
    floor: int


class Confirmation(BaseModel):
    """The scheduler's id of a job that was handed to it."""

    job_id: Annotated[str, Field(min_length=1, max_length=300, pattern=r"^[^\x00-\x1f\x7f]+$")]


class ReasonGiven(BaseModel):
    """Why, for people."""

    reason: Annotated[str, Field(max_length=1000, pattern=r"^[^\x00-\x1f\x7f]*$")] | None = None


class StatusAnswer(BaseModel):
    """The status of a decision."""

    id: str
    status: Status
    detail: str = ""


class Counted(BaseModel):
    """How many were new."""

    new: int


class Health(BaseModel):
    """Whether the service is alive, or ready."""

    status: Literal["ok", "degraded", "stale", "full", "starting"]
    detail: str | None = None


def answer_of(decision: JobDecision) -> DecisionAnswer:
    """Return a decision as an answer."""
    return DecisionAnswer.model_construct(
        id=decision.id,
        outcome=decision.outcome,
        request=decision.request,
        why=decision.why,
        field=decision.field,
        places=[HostDevices.model_construct(host=host, devices=sorted(local)) for host, local in decision.devices.items()],
        predicted=decision.predicted,
        candidates=list(decision.candidates),
        plan=decision.plan,
        inputs=None if decision.inputs is None else decision.inputs.model_dump(mode="json", exclude={"request"}),
    )


def view_of(store: Ledger, record: KeptDecision) -> DecisionView:
    """Return a decision and what became of it."""
    mentions, observations = store.mentions(record.decision.id), store.observations(record.decision.id)
    if mentions and record.decision.outcome == "preparing":  # it was decided since it was read
        record = store.decision(record.decision.id) or record
    status, detail = record.decision.status(mentions)
    predicted_s, median_s, observed = record.decision.predicted.get("step_s"), median_step_s(observations), None
    if median_s is not None:
        observed = Observed(
            count=len(observations),
            median_step_s=median_s,
            ratio=median_s / predicted_s if predicted_s else None,
            alarm=slow_stretch(record.decision, observations),
        )
    return DecisionView(
        number=record.number,
        at=record.at,
        key=record.key,
        status=status,
        detail=detail,
        decision=answer_of(record.decision),
        history=[HistoryEntry(**mention._asdict()) for mention in mentions],
        observed=observed,
    )


def host_views(cluster: Cluster, state: ClusterState, taken: HeldDevices) -> list[HostView]:
    """Return the hosts of a cluster: which take jobs, and who holds their devices."""
    index, sizes, first = numbered_hosts(cluster)
    holders = [None if holder < 0 else state.jobs[holder].id for holder in taken.holder.tolist()]
    hosts = []
    for name, size, begin in zip(index, sizes.tolist(), first.tolist(), strict=True):
        known, takes_jobs = state.hosts.get(name), bool(taken.is_up[begin])
        condition = known.condition if known is not None else ("up" if takes_jobs else "down")
        reason = known.reason if known is not None else (None if takes_jobs else "not listed")
        held_by = holders[begin : begin + size]
        hosts.append(HostView.model_construct(name=name, condition=condition, reason=reason, held_by=held_by))
    return hosts


def decision_list(store: Ledger, before: int | None, limit: int) -> DecisionList:
    """Return a page of decisions, the last one first."""
    result = store.decisions(before, limit)
    more = result[-1].number if len(result) == limit and result[-1].number > 1 else None
    return DecisionList(decisions=[row_of(store, one) for one in result], before=more)


def row_of(store: Ledger, record: KeptDecision) -> DecisionRow:
    """Return a decision in a list."""
    decision = record.decision
    status, detail = decision.status(store.mentions(decision.id))
    return DecisionRow(
        number=record.number,
        id=decision.id,
        at=record.at,
        name=decision.job_name,
        owner=decision.request.owner,
        status=status,
        detail=detail,
        num_devices=len(decision.plan["ranks"]) if decision.plan is not None else 0,
        step_s=decision.predicted.get("step_s"),
        why=decision.why,
    )
