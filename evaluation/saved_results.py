"""Results of evaluations and learning curves as they lie on disk: read back, and what later pages take for granted checked.

A file may have been edited, cut short or written by another version. Here it is held against the form that `evaluation.evaluate`
and the training loops write, as far as tables and figures read it, so that nothing beyond has to doubt it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from .. import files, settings
from ..errors import ConfigError, InputFileError
from .evaluate import FORMAT_VERSION
from .fleet.evaluate import FLEET_FORMAT_VERSION
from .fleet.objectives import OBJECTIVES
from .operators.evaluate import OPERATORS_FORMAT_VERSION

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


class _Results(_Told):
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


class _FleetResults(_Told):
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


class _OperatorRow(_Told):
    """One policy of operator placement; ``against_best_rule`` is None where no rule, or none of them, placed every instance."""

    policy: str
    kind: Literal["planner", "constant", "learned"]
    is_rule: bool
    infeasible: Share
    against_best_rule: _Interval | None
    values_s: list[Annotated[float, Field(ge=0)]]


class _OperatorResults(_Told):
    """The root of ``results.json`` of operator placement."""

    benchmark: str
    objective: Literal["latency", "throughput"]
    bounds_s: list[Annotated[float, Field(gt=0)]] = Field(min_length=1)
    rows: list[_OperatorRow] = Field(min_length=1)

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


class _Curve(_Told):
    looks: list[_Look]


class _FleetLook(_Told):
    """A row of a fleet's ``learning_curve.json``."""

    steps: int = Field(ge=0)
    validation: float
    elapsed_s: float = Field(ge=0)


class _FleetCurve(_Told):
    looks: list[_FleetLook]


class _OperatorLook(_Told):
    """A row of ``learning_curve.json`` of operator placement."""

    update: int = Field(ge=0)
    validation: float
    elapsed_s: float = Field(ge=0)


class _OperatorCurve(_Told):
    looks: list[_OperatorLook]


def read_results(path: Path) -> dict[str, Any]:
    """What an evaluation wrote into ``results.json``.

    Raises:
        InputFileError: missing, not JSON, of another version, or not of the form; the field is named.
    """
    found = files.read_json(path)
    for key, of in {"fleet": "a fleet", "elastic": "elastic jobs"}.items():
        if isinstance(found, dict) and key in found:
            raise InputFileError(f"is an evaluation of {of}, which has no page beside those of scenarios", file=path)
    if not isinstance(found, dict) or found.get("format_version") != FORMAT_VERSION or not found.get("rows"):
        raise InputFileError(f"is no result of evaluate of format {FORMAT_VERSION}; evaluate again", file=path)
    _check(_Results, found, path)
    return found


def read_fleet_results(path: Path) -> dict[str, Any]:
    """What an evaluation of a fleet wrote into ``results.json``.

    Raises:
        InputFileError: missing, not JSON, of another version, or not of the form; the field is named.
    """
    return _results_with("fleet", "a fleet", FLEET_FORMAT_VERSION, _FleetResults, path)


def read_operator_results(path: Path) -> dict[str, Any]:
    """What an evaluation of operator placement wrote into ``results.json``.

    Raises:
        InputFileError: missing, not JSON, of another version, or not of the form; the field is named.
    """
    return _results_with("placement", "operator placement", OPERATORS_FORMAT_VERSION, _OperatorResults, path)


def read_curve(path: Path) -> list[dict[str, Any]]:
    """The rows that a training run wrote into ``learning_curve.json``.

    Raises:
        InputFileError: missing, not JSON, or not of the form; the field is named.
    """
    return _looks(path, _Curve)


def read_fleet_curve(path: Path) -> list[dict[str, Any]]:
    """The same of a fleet's policy; see `read_curve`."""
    return _looks(path, _FleetCurve)


def read_operator_curve(path: Path) -> list[dict[str, Any]]:
    """The same of a policy of operator placement; see `read_curve`."""
    return _looks(path, _OperatorCurve)


def _results_with(key: str, of: str, version: int, model: type[settings.Settings], path: Path) -> dict[str, Any]:
    """Results of a kind that a key of the root tells from others."""
    found = files.read_json(path)
    if not isinstance(found, dict) or found.get("format_version") != version or key not in found:
        raise InputFileError(f"is no evaluation of {of} of format {version}; evaluate again", file=path)
    _check(model, found, path)
    return found


def _looks(path: Path, model: type[settings.Settings]) -> list[dict[str, Any]]:
    found = files.read_json(path)
    if not isinstance(found, list):
        raise InputFileError("is no learning curve: a list of rows is wanted", file=path)
    _check(model, {"looks": found}, path)
    return found


def _check_rows(episodes: Sequence[tuple[str, int]], num_seeds: int) -> None:
    """Refuse a policy that stands twice, or whose number of episodes is not that of the seeds."""
    names = [policy for policy, _ in episodes]
    for policy, num_episodes in episodes:
        if names.count(policy) > 1:
            raise ValueError(f"rows: {policy} stands twice")
        if num_episodes != num_seeds:
            raise ValueError(f"rows: {policy} has {num_episodes} episodes for {num_seeds} seeds")


def _check(model: type[settings.Settings], data: Any, path: Path) -> None:
    try:
        settings.build_settings(model, data, file=path)
    except ConfigError as error:
        raise InputFileError(error.problem, file=path, field=error.field, value=error.value, choices=error.choices) from None
