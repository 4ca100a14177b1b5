"""The forms of ``results.json`` and ``learning_curve.json`` as `saved_results` holds files against them.

They say what tables and figures read, and no more: keys beside these are passed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from .. import settings
from .elastic.evaluate import ELASTIC_FORMAT_VERSION
from .fleet.evaluate import FLEET_FORMAT_VERSION
from .fleet.objectives import OBJECTIVES
from .operators.evaluate import OPERATORS_FORMAT_VERSION
from .tasklets.evaluate import TASKLETS_FORMAT_VERSION

Share = Annotated[float, Field(ge=0, le=1)]


class _Told(settings.Settings):
    """Keys that are not read are passed over; numbers are numbers and no texts that read like them."""

    model_config = ConfigDict(extra="ignore", strict=True)


class _Interval(_Told):
    """Mean and 95 % interval; a single value has no ends."""

    mean: float
    # By other names here: `quantities` holds `low` and `high` to what ends of a configured range can be, and an end that a
    # bootstrap rounds to 1e-20 is none of these.
    lower_end: float | None = Field(alias="low")
    upper_end: float | None = Field(alias="high")

    @model_validator(mode="after")
    def _has_both_ends(self) -> Self:
        if (self.lower_end is None) != (self.upper_end is None):
            raise ValueError("an interval has two ends, or none")
        return self


class _PerSeed(_Told):
    """Figures of single episodes."""

    blocking_rate: list[Share] = Field(min_length=1)


class _Row(_Told):
    """One policy; figures are None where it placed no job."""

    policy: str
    kind: Literal["learned", "baseline", "planner", "reference"]
    blocking_rate: _Interval
    per_seed: _PerSeed
    mean_completion_s: _Interval | None = None
    p95_completion_s: _Interval | None = None
    mean_slack: _Interval | None = None
    utilisation: _Interval | None = None
    fragmentation: _Interval | None = None
    mean_degree: _Interval | None = None
    degrees: dict[str, float] = Field(default_factory=dict)
    states: dict[str, Any] = Field(default_factory=dict)


class _Scenario(_Told):
    """What was played."""

    cluster: str
    num_devices: int = Field(ge=1)
    graphs: list[str] = Field(min_length=1)
    mean_interarrival_s: float = Field(gt=0)
    digest_but_arrivals: str | None = None


class _Tuned(_Told):
    """What a tuned baseline chose."""

    chosen: str


class ResultsForm(_Told):
    """The root of ``results.json``."""

    benchmark: str
    scenario: _Scenario
    seeds: list[int] = Field(min_length=1)
    best_fixed: dict[str, _Tuned] = Field(default_factory=dict)
    best_baseline: str | None = None
    rows: list[_Row] = Field(min_length=1)

    @model_validator(mode="after")
    def _every_policy_played_every_seed(self) -> Self:
        _check_rows([(row.policy, len(row.per_seed.blocking_rate)) for row in self.rows], len(self.seeds))
        return self


class _FleetRow(_Told):
    """One policy of a fleet; figures are None in episodes in which no job completed."""

    policy: str
    kind: Literal["learned", "baseline", "planner", "reference"]
    per_seed: dict[str, list[float | None]]
    degrees: dict[str, float]
    layouts: dict[str, float]


class _Fleet(_Told):
    """What was played."""

    cluster: str
    num_devices: int = Field(ge=1)


class FleetResultsForm(_Told):
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
        _check_rows([(row.policy, len(row.per_seed.get(self.objective, ()))) for row in self.rows], len(self.seeds))
        return self


class _FleetTableRow(_FleetRow):
    """The same with what a table of one evaluation reads; what the objective is must be there."""

    against_best_baseline: _Interval | None
    mean_completion_s: _Interval | None
    mean_wait_s: _Interval | None
    blocking_rate: _Interval | None
    devices_useful: _Interval | None
    p95_completion_s: _Interval | None = None
    makespan_s: _Interval | None = None
    deadline_met_rate: _Interval | None = None
    device_hours: _Interval | None = None


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


class _ElasticRow(_Told):
    """One scheduler of elastic jobs."""

    policy: str
    kind: Literal["learned", "baseline", "planner", "published"]
    against_best_baseline: _Interval | None
    against_published: _Interval | None
    worst_against_published: float | None
    mean_completion_s: _Interval
    p95_completion_s: _Interval | None
    makespan_s: _Interval | None
    devices_held: _Interval | None
    restarts_per_job: _Interval | None


class _Elastic(_Told):
    """What was played."""

    load: str
    against: str
    num_devices: int = Field(ge=1)
    num_jobs: list[int]


class _Timing(_Told):
    """Seconds of a decision by policy."""

    decision_s: dict[str, float]


class _ElasticResults(_Told):
    """The root of ``results.json`` of elastic jobs."""

    benchmark: str
    objective: Literal["mean_completion_s"]
    verdict: str
    elastic: _Elastic
    workloads: list[str]
    best_baselines: list[str]
    timing: _Timing
    rows: list[_ElasticRow] = Field(min_length=1)


class _ElasticFigures(_Told):
    """One scheduler with the figures of every workload."""

    policy: str
    kind: Literal["learned", "baseline", "planner", "published"]
    per_seed: dict[str, list[float | None]]


class ElasticResultsForm(_Told):
    """The root of ``results.json`` of elastic jobs, as tables over several evaluations read it."""

    benchmark: str
    objective: Literal["mean_completion_s"]
    elastic: _Elastic
    workloads: list[str] = Field(min_length=1)
    rows: list[_ElasticFigures] = Field(min_length=1)

    @model_validator(mode="after")
    def _every_policy_played_every_workload(self) -> Self:
        _check_rows([(row.policy, len(row.per_seed.get(self.objective, ()))) for row in self.rows], len(self.workloads))
        return self


class _Seconds(_Told):
    """Time of a placement."""

    median: float
    p99: float


class _Network(_Told):
    """Of a learned policy of operator placement, what an ablation leaves out."""

    without: list[str]
    rounds: int
    walks: int


class _Trained(_Told):
    """How a learned policy of operator placement came about."""

    benchmark: str | None = None
    changes: list[str] = Field(default_factory=list)
    network: _Network | None = None


class _PlacedRow(_Told):
    """One policy that placed instances."""

    policy: str
    kind: str
    over_best_known: _Interval
    won: float
    seconds: _Seconds


class _PlacedResults(_Told):
    """The root of ``results.json`` of operator placement and of tasklets."""

    benchmark: str
    verdict: str
    num_instances: int = Field(ge=1)
    best_known_s: float


class _OperatorRow(_PlacedRow):
    over_bound: _Interval
    against_best_rule: _Interval | None
    trained: _Trained | None = None
    against: dict[str, _Interval] = Field(default_factory=dict)


class _OperatorResults(_PlacedResults):
    objective: str
    rows: list[_OperatorRow] = Field(min_length=1)


class _TaskletRow(_PlacedRow):
    by_kind: dict[str, _Interval]
    against: dict[str, dict[str, _Interval]]


class _TaskletResults(_PlacedResults):
    kinds: list[str] = Field(min_length=1)
    rows: list[_TaskletRow] = Field(min_length=1)


class _OperatorValues(_Told):
    """One policy with the value of every instance; ``against_best_rule`` is None where no rule placed all of them."""

    policy: str
    kind: Literal["planner", "constant", "learned"]
    against_best_rule: _Interval | None
    is_rule: bool
    infeasible: Share
    values_s: list[Annotated[float, Field(ge=0)]]


class OperatorValuesForm(_Told):
    """The root of ``results.json`` of operator placement, as tables over several evaluations read it."""

    benchmark: str
    objective: Literal["latency", "throughput"]
    bounds_s: list[Annotated[float, Field(gt=0)]] = Field(min_length=1)
    rows: list[_OperatorValues] = Field(min_length=1)

    @model_validator(mode="after")
    def _every_policy_placed_every_instance(self) -> Self:
        _check_rows([(row.policy, len(row.values_s)) for row in self.rows], len(self.bounds_s))
        return self


class _Look(_Told):
    """A row of ``learning_curve.json``."""

    steps: int = Field(ge=0)
    generation: int | None = Field(default=None, ge=0)
    validation_blocking_rate: Share | None
    training_blocking_rate: Share | None = None
    elapsed_s: float = Field(default=0.0, ge=0)


class CurveForm(_Told):
    """A ``learning_curve.json`` of blocking rates."""

    looks: list[_Look]


class _FleetLook(_Told):
    """A row of a fleet's ``learning_curve.json``."""

    steps: int = Field(ge=0)
    validation: float
    elapsed_s: float = Field(ge=0)


class _FleetCurve(_Told):
    looks: list[_FleetLook]


class _ElasticLook(_Told):
    """A row of the ``learning_curve.json`` of weights for elastic jobs."""

    generation: int = Field(ge=0)
    validation_mean_completion_s: float


class _ElasticCurve(_Told):
    looks: list[_ElasticLook]


class _OperatorLook(_Told):
    """A row of the ``learning_curve.json`` of a policy of operator placement or of tasklets."""

    update: int = Field(ge=0)
    validation: float
    elapsed_s: float = Field(default=0.0, ge=0)


class _OperatorCurve(_Told):
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
    "operators": OtherForm("placement", "operator placement", OPERATORS_FORMAT_VERSION, _OperatorResults),
    "tasklets": OtherForm("tasklets", "tasklets", TASKLETS_FORMAT_VERSION, _TaskletResults),
}
_OPS = dict.fromkeys(("operators", "tasklets"), _OperatorCurve)
CURVES: dict[str, type[settings.Settings]] = {"fleet": _FleetCurve, "elastic": _ElasticCurve, **_OPS}


def _check_rows(episodes: Sequence[tuple[str, int]], num_seeds: int) -> None:
    """Refuse a policy that stands twice, or whose number of episodes is not that of the seeds."""
    names = [policy for policy, _ in episodes]
    for policy, num_episodes in episodes:
        if names.count(policy) > 1:
            raise ValueError(f"rows: {policy} stands twice")
        if num_episodes != num_seeds:
            raise ValueError(f"rows: {policy} has {num_episodes} episodes for {num_seeds} seeds")


def _check_objective(rows: Sequence[_FleetTableRow], objective: str) -> None:
    """Refuse a policy without a figure, or None in its place, of the objective."""
    for row in rows:
        if objective not in row.model_fields_set:
            raise ValueError(f"rows: {row.policy} has no {objective}")
