"""Requests, decisions and their history: the documents that a store keeps."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import AwareDatetime, Field, StringConstraints, model_validator

from .. import files, settings
from ..jobs.job import MAX_STEPS
from ..planners.menu.listed import listed_of_menu
from ..plans.frameworks.defaults import LauncherName
from ..settings import Index
from .changes import Change, JobAdded, JobConfirmed, JobRemoved
from .state import ClusterState

Word = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
"""A short text on one line."""

MOST_INLINE_BYTES = 4 * 2**20
MOST_LEVELS = 32
"""Of a job that a request brings along."""


class JobRequest(settings.Settings):
    """A job that asks for devices.

    Attributes:
        job: ``zoo:NAME``, a name in the service's folder of graphs, or a file's content: a model's ``config.json`` or a saved
            job graph.
        name: for people; by default the job's.
        owner: for people.
        steps: training steps.
        batch, sequence_length: samples of a step and tokens of a sequence, where the policy picks from a menu of layouts.
        deadline_s: seconds from the decision within which it must have ended.
        devices: the only number of devices that will do.
        max_devices: most devices.
        framework: framework that runs the layout, where the policy is ``menu:RULE``.
    """

    job: Word | dict[str, Any]
    name: Word | None = None
    owner: Word | None = None
    steps: Annotated[int, Field(strict=True, ge=1, le=MAX_STEPS)] = 10_000
    batch: Annotated[int, Field(strict=True, ge=1, le=2**31)] | None = None
    sequence_length: Annotated[int, Field(strict=True, ge=1, le=2**31)] | None = None
    deadline_s: Annotated[float, Field(gt=0, le=1e12)] | None = None
    devices: Annotated[int, Field(strict=True, ge=1, le=2**20)] | None = None
    max_devices: Annotated[int, Field(strict=True, ge=1, le=2**20)] | None = None
    framework: LauncherName | None = Field(default=None, exclude_if=lambda framework: framework is None)

    @model_validator(mode="after")
    def _can_be(self) -> JobRequest:
        if isinstance(self.job, dict):
            _check_depth(self.job)
            text = json.dumps(self.job, allow_nan=False, ensure_ascii=False)
            if len(text.encode()) > MOST_INLINE_BYTES:  # a letter that is none is refused here too
                raise ValueError(f"job: is longer than {MOST_INLINE_BYTES >> 20} MiB")
        if self.devices is not None and self.max_devices is not None and self.devices > self.max_devices:
            raise ValueError(f"devices: {self.devices} is above max_devices {self.max_devices}")
        return self

    @property
    def job_name(self) -> str:
        """The job's name: what the request calls it, or its model."""
        if self.name is not None or isinstance(self.job, str):
            return self.name or str(self.job)
        return str(self.job.get("name") or self.job.get("model_type") or "job")

    @property
    def digest(self) -> str:
        """A hash of all of it."""
        return files.digest(json.dumps(self.model_dump(mode="json"), sort_keys=True))


def _check_depth(value: Any) -> None:
    """Refuse JSON that is nested too deep to be a job."""
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MOST_LEVELS:
            raise ValueError(f"job: is nested deeper than {MOST_LEVELS} levels")
        level = [
            one for part in level for one in (part.values() if isinstance(part, dict) else part) if isinstance(one, dict | list)
        ]


class FreeRun(NamedTuple):
    """Devices in a row that become free together.

    Attributes:
        number: how many.
        free_in_s: seconds from the decision; None: never, so far as is known.
    """

    number: int
    free_in_s: float | None


def free_runs(free_at_s: NDArray[np.float64]) -> tuple[FreeRun, ...]:
    """Return the times at which devices become free, ``(n,)``, as runs."""
    runs = itertools.groupby(free_at_s.tolist())
    return tuple(FreeRun(len(list(group)), None if math.isinf(at) else at) for at, group in runs)


def free_at_s(runs: Sequence[FreeRun]) -> NDArray[np.float64]:
    """Return the seconds from the decision until each device becomes free, infinite where that is unknown, ``(n,)``."""
    values = np.array([math.inf if run.free_in_s is None else run.free_in_s for run in runs], np.float64)
    return np.repeat(values, [run.number for run in runs])


class ObservedFactor(NamedTuple):
    """How much longer a job's steps took than predicted, as its runs so far showed; made by `feedback.calibration.calibration`.

    Attributes:
        num_devices: of the plan.
        is_on_one_host: whether all of them were one host's.
        factor: observed over predicted step time.
    """

    num_devices: int
    is_on_one_host: bool
    factor: float


class DecisionInputs(settings.Settings):
    """All inputs of a decision.

    Attributes:
        request: the job.
        policy: who chose, as `planning.policies` and `planning.menu_plan` spell it.
        digest: a hash of job, cluster, cost model and the policy's weights.
        seq: the last change in the state.
        now: the time, by which limits of running jobs count.
        free: when each device of the cluster becomes free.
        seed: of a policy that draws.
        whole_hosts: whether the job will hold its hosts to the exclusion of others; then it gets wholly free hosts only.
        graph: a hash of what the job computes in a step, by which its runs are known again.
        factors: what its runs so far add to the predicted times; none where nothing is known or the layer is off.
    """

    request: JobRequest
    policy: str
    digest: str
    seq: Index
    now: AwareDatetime
    free: tuple[FreeRun, ...]
    seed: Index = 0
    whole_hosts: bool = False
    graph: str | None = None
    factors: tuple[ObservedFactor, ...] = ()


Outcome = Literal["preparing", "placed", "refused", "failed"]
"""Of a decision: its job is read and priced first; it has devices; the policy gives none now; the job cannot be planned."""

Status = Literal["preparing", "refused", "failed", "reserved", "confirmed", "running", "ended", "released"]
"""The status of a decision: its outcome, or with a plan the state of the job."""


class JobDecision(settings.Settings):
    """A decision about a job, as it is stored.

    Attributes:
        id: of it.
        request: the job.
        outcome: see `Outcome`.
        inputs: what it was made from; None while it is prepared, or where it failed before.
        why: a sentence.
        field: the key of the request that is wrong, where it failed.
        predicted: figures of the plan by name, with their units in the names.
        candidates: what there was to choose from, a row each.
        plan: without the job graph and the cluster in it, which `documents` hold.
        documents: by part of the plan, the digest under which a store keeps it.
    """

    id: str
    request: JobRequest
    outcome: Outcome
    inputs: DecisionInputs | None = None
    why: str = ""
    field: str | None = None
    predicted: dict[str, float] = Field(default={})
    candidates: tuple[dict[str, Any], ...] = ()
    plan: dict[str, Any] | None = None
    documents: dict[str, str] = Field(default={})

    @property
    def job_name(self) -> str:
        """The job's name: what the request or, where it names none, the plan calls it."""
        if self.request.name is None and self.plan is not None:
            return str(self.plan["job"]["name"])
        return self.request.job_name

    @property
    def devices(self) -> dict[str, list[int]]:
        """Indices of the devices of its plan on each host, in the order of the ranks."""
        result: dict[str, list[int]] = {}
        for rank in () if self.plan is None else self.plan["ranks"]:
            result.setdefault(str(rank["host"]), []).append(rank["local_rank"])
        return result

    @property
    def listed(self) -> str:
        """Which of all candidates are kept, in words; empty where all are, as of policies that pick from no menu."""
        if not any("layout" in row for row in self.candidates):
            return ""
        framework = None if self.plan is None else self.plan.get("framework")
        return listed_of_menu(has_deadline=self.request.deadline_s is not None, framework=framework)

    def status(self, mentions: Sequence[Mention]) -> tuple[Status, str]:
        """Return the current status of the decision, and a detail.

        Args:
            mentions: the changes about it, the first one first.
        """
        if mentions:
            return mentions[-1].status, mentions[-1].detail
        return ("reserved" if self.outcome == "placed" else self.outcome), (self.why if self.outcome == "failed" else "")


class KeptDecision(NamedTuple):
    """A decision in a store.

    Attributes:
        number: rising from 1 in the order of requests.
        key: by which the client may ask again; None where it named none.
        at: when it was asked for (UTC), for people.
        decision: what was decided.
    """

    number: int
    key: str | None
    at: str
    decision: JobDecision


class Mention(NamedTuple):
    """A change that is about a decision.

    Attributes:
        seq, at: of the change.
        status: what the decision is from then on.
        detail: of it, for people.
    """

    seq: int
    at: str
    status: Status
    detail: str


class Observation(settings.Settings):
    """How long a step of a running job took.

    Attributes:
        step: its number, from 0.
        step_s: seconds.
        rank: that measured it.
    """

    step: Annotated[int, Field(strict=True, ge=0, le=2**53)]
    step_s: Annotated[float, Field(gt=0, le=1e9)]
    rank: Annotated[int, Field(strict=True, ge=0, le=2**31)] = 0


def mentioned(before: ClusterState, after: ClusterState) -> tuple[str, ...]:
    """Return the ids of the decisions whose jobs a change began, ended or changed."""
    old, new = {job.id: job for job in before.jobs}, {job.id: job for job in after.jobs}
    if len(old) == len(new) and all(one is new.get(name) for name, one in old.items()):
        return ()
    other = [job for name, job in old.items() if new.get(name) is not job and new.get(name) != job]
    other += [job for name, job in new.items() if old.get(name) is not job and old.get(name) != job]
    return tuple(dict.fromkeys(job.of_decision for job in other if job.of_decision is not None))


def status_after(decision: str, change: Change, before: ClusterState, after: ClusterState) -> tuple[Status, str]:
    """Return the status of a decision after a change to it, and a detail."""
    if isinstance(change, JobAdded):
        return "reserved", ""
    if isinstance(change, JobConfirmed):
        return "confirmed", change.confirmed_as
    if isinstance(change, JobRemoved):
        return "ended" if change.has_ended else "released", change.reason or ""
    was, now = ([job for job in state.jobs if job.of_decision == decision] for state in (before, after))
    if now:
        return ("running", now[0].id) if now[0].source != "plan" else ("reserved", "")
    if was and was[0].source == "plan":
        gone = was[0].confirmed_as
        return ("ended", f"{gone} is known no more") if gone else ("released", "others run on its devices")
    return "ended", ""
