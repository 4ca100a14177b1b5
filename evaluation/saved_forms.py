"""The forms of ``results.json`` and ``learning_curve.json`` by which `saved_results` checks files.

They say what tables and figures read, and no more: keys beside these are passed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Self

from pydantic import Field, field_validator, model_validator

from .. import settings
from .elastic.evaluate import ELASTIC_FORMAT_VERSION
from .fleet.evaluate import FLEET_FORMAT_VERSION
from .fleet.objectives import OBJECTIVES
from .operators.evaluate import OPERATORS_FORMAT_VERSION
from .operators.forms import OperatorResultsForm, TaskletResultsForm
from .operators.told import Interval, Share, Told, check_rows
from .tasklets.evaluate import TASKLETS_FORMAT_VERSION


class _PerSeed(Told):
    """Figures of single episodes."""

    blocking_rate: list[Share] = Field(min_length=1)


class _Row(Told):
    """One policy; figures are None where it placed no job."""

    policy: str
    kind: Literal["learned", "own", "baseline", "planner", "reference"]
    blocking_rate: Interval
    per_seed: _PerSeed
    mean_completion_s: Interval | None = None
    p95_completion_s: Interval | None = None
    mean_slack: Interval | None = None
    utilisation: Interval | None = None
    fragmentation: Interval | None = None
    mean_degree: Interval | None = None
    degrees: dict[str, float] = Field(default_factory=dict)
    states: dict[str, Any] = Field(default_factory=dict)


class _Scenario(Told):
    """What was played."""

    cluster: str
    num_devices: int = Field(ge=1)
    graphs: list[str] = Field(min_length=1)
    mean_interarrival_s: float = Field(gt=0)
    digest_but_arrivals: str | None = None


class _Tuned(Told):
    """What a tuned baseline chose."""

    chosen: str


class ResultsForm(Told):
    """The root of ``results.json``."""

    benchmark: str
    scenario: _Scenario
    seeds: list[int] = Field(min_length=1)
    best_fixed: dict[str, _Tuned] = Field(default_factory=dict)
    best_baseline: str | None = None
    rows: list[_Row] = Field(min_length=1)

    @model_validator(mode="after")
    def _every_policy_played_every_seed(self) -> Self:
        check_rows([(row.policy, len(row.per_seed.blocking_rate)) for row in self.rows], len(self.seeds))
        return self


class _FleetRow(Told):
    """One policy of a fleet; figures are None in episodes in which no job completed."""

    policy: str
    kind: Literal["learned", "own", "baseline", "planner", "reference"]
    per_seed: dict[str, list[float | None]]
    degrees: dict[str, float]
    layouts: dict[str, float]


class _Fleet(Told):
    """What was played."""

    cluster: str
    num_devices: int = Field(ge=1)


class FleetResultsForm(Told):
    """The root of a fleet's ``results.json``, as far as tables over several evaluations read it."""

    benchmark: str
    objective: str
    fleet: _Fleet
    seeds: list[int] = Field(min_length=1)
    best_fixed_entry: dict[str, _Tuned]
    rows: list[_FleetRow] = Field(min_length=1)

    @field_validator("objective")
    @classmethod
    def _is_known(cls, objective: str) -> str:
        if objective not in OBJECTIVES:
            raise ValueError(f"is none of {', '.join(OBJECTIVES)}")
        return objective

    @model_validator(mode="after")
    def _every_policy_played_every_seed(self) -> Self:
        check_rows([(row.policy, len(row.per_seed.get(self.objective, ()))) for row in self.rows], len(self.seeds))
        return self


class _FleetTableRow(_FleetRow):
    """The same with what a table of one evaluation reads; what the objective is must be there."""

    against_best_baseline: Interval | None
    mean_completion_s: Interval | None
    mean_wait_s: Interval | None
    blocking_rate: Interval | None
    devices_useful: Interval | None
    p95_completion_s: Interval | None = None
    makespan_s: Interval | None = None
    deadline_met_rate: Interval | None = None
    device_hours: Interval | None = None


class _TunedEntry(_Tuned):
    tied: settings.Switch


class _FleetTable(FleetResultsForm):
    """The root of a fleet's ``results.json``, as a table of it alone reads it."""

    verdict: str
    best_baselines: list[str]
    best_fixed_entry: dict[str, _TunedEntry] = Field(default_factory=dict)  # type: ignore[assignment]
    rows: list[_FleetTableRow] = Field(min_length=1)  # type: ignore[assignment]

    @model_validator(mode="after")
    def _every_policy_has_the_objective(self) -> Self:
        _check_objective(self.rows, self.objective)
        return self


class _ElasticRow(Told):
    """One scheduler of elastic jobs."""

    policy: str
    kind: Literal["learned", "own", "baseline", "planner", "published"]
    against_best_baseline: Interval | None
    against_published: Interval | None
    worst_against_published: float | None
    mean_completion_s: Interval
    p95_completion_s: Interval | None
    makespan_s: Interval | None
    devices_held: Interval | None
    restarts_per_job: Interval | None


class _Elastic(Told):
    """What was played."""

    load: str
    against: str
    num_devices: int = Field(ge=1)
    num_jobs: list[int]


class _Timing(Told):
    """Seconds of a decision by policy."""

    decision_s: dict[str, float]


class _ElasticResults(Told):
    """The root of ``results.json`` of elastic jobs."""

    benchmark: str
    objective: Literal["mean_completion_s"]
    verdict: str
    elastic: _Elastic
    workloads: list[str]
    best_baselines: list[str]
    timing: _Timing
    rows: list[_ElasticRow] = Field(min_length=1)


class _ElasticFigures(Told):
    """One scheduler with the figures of every workload."""

    policy: str
    kind: Literal["learned", "own", "baseline", "planner", "published"]
    per_seed: dict[str, list[float | None]]


class ElasticResultsForm(Told):
    """The root of ``results.json`` of elastic jobs, as tables over several evaluations read it."""

    benchmark: str
    objective: Literal["mean_completion_s"]
    elastic: _Elastic
    workloads: list[str] = Field(min_length=1)
    rows: list[_ElasticFigures] = Field(min_length=1)

    @model_validator(mode="after")
    def _every_policy_played_every_workload(self) -> Self:
        check_rows([(row.policy, len(row.per_seed.get(self.objective, ()))) for row in self.rows], len(self.workloads))
        return self


class _Look(Told):
    """A row of ``learning_curve.json``."""

    steps: int = Field(ge=0)
    generation: int | None = Field(default=None, ge=0)
    validation_blocking_rate: Share | None
    training_blocking_rate: Share | None = None
    elapsed_s: float = Field(default=0.0, ge=0)


class CurveForm(Told):
    """A ``learning_curve.json`` of blocking rates."""

    looks: list[_Look]


class _FleetLook(Told):
    """A row of a fleet's ``learning_curve.json``."""

    steps: int = Field(ge=0)
    validation: float
    elapsed_s: float = Field(ge=0)


class _FleetCurve(Told):
    looks: list[_FleetLook]


class _ElasticLook(Told):
    """A row of the ``learning_curve.json`` of weights for elastic jobs."""

    generation: int = Field(ge=0)
    validation_mean_completion_s: float


class _ElasticCurve(Told):
    looks: list[_ElasticLook]


class _OperatorLook(Told):
    """A row of the ``learning_curve.json`` of a policy of operator placement or of tasklets."""

    update: int = Field(ge=0)
    validation: float
    elapsed_s: float = Field(default=0.0, ge=0)


class _OperatorCurve(Told):
    looks: list[_OperatorLook]


class OtherForm(NamedTuple):
    """Results of another kind than a scenario's.

    Attributes:
        key: by which they are known.
        words: what they are called.
        version: of their format.
        model: their form.
    """

    key: str
    words: str
    version: int
    model: type[settings.Settings]


OTHERS = {
    "fleet": OtherForm("fleet", "a fleet", FLEET_FORMAT_VERSION, _FleetTable),
    "elastic": OtherForm("elastic", "elastic jobs", ELASTIC_FORMAT_VERSION, _ElasticResults),
    "operators": OtherForm("placement", "operator placement", OPERATORS_FORMAT_VERSION, OperatorResultsForm),
    "tasklets": OtherForm("tasklets", "tasklets", TASKLETS_FORMAT_VERSION, TaskletResultsForm),
}
_OPS = dict.fromkeys(("operators", "tasklets"), _OperatorCurve)
CURVES: dict[str, type[settings.Settings]] = {"fleet": _FleetCurve, "elastic": _ElasticCurve, **_OPS}


def _check_objective(rows: Sequence[_FleetTableRow], objective: str) -> None:
    """Refuse a policy without a figure, or None in its place, of the objective."""
    for row in rows:
        if objective not in row.model_fields_set:
            raise ValueError(f"rows: {row.policy} has no {objective}")
