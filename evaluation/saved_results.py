"""Results of evaluations and learning curves as they lie on disk: read back, and checked as far as tables and figures read them.

A file may have been edited, cut short or written by another version. Results of version 1, when each world had a layout of its
own, are converted by `former_results`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import ConfigDict, Field, model_validator

from .. import files, settings
from ..errors import InputFileError
from .evaluate import FORMAT, FORMAT_VERSION
from .former_results import converted, former_world
from .metrics import METRICS


class _Read(settings.Settings):
    """Keys that are not read are passed over; numbers are numbers and no texts that read like them."""

    model_config = ConfigDict(extra="ignore", strict=True)


class _Interval(_Read):
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


_Figure = Annotated[float, Field(ge=-1e100, le=1e100)]
"""Of a case; squares of its differences are numbers."""


class _Details(_Read):
    """Shares of jobs that tables show."""

    degrees: dict[str, float] = Field(default_factory=dict)
    layouts: dict[str, float] = Field(default_factory=dict)
    shapes: dict[str, float] = Field(default_factory=dict)
    entries: dict[str, _Interval | None] = Field(default_factory=dict)
    entries_by_type: dict[str, dict[str, _Interval | None]] = Field(default_factory=dict)


class _Row(_Read):
    policy: str
    kind: Literal["learned", "own", "baseline", "planner", "reference", "published"]
    metrics: dict[str, _Interval | None]
    per_case: dict[str, list[_Figure | None]]
    against: dict[str, _Interval]
    details: _Details


class _Tuned(_Read):
    chosen: str
    tied: list[str]
    values: dict[str, float]


class _Timing(_Read):
    decision_s: dict[str, dict[str, float]]


class _About(_Read):
    mean_interarrival_s: float | None = None
    jobs: list[str] = Field(default_factory=list)


class _BudgetRow(_Read):
    policy: str
    over_best_known: list[_Interval | None]


class _Budgets(_Read):
    seconds: list[float]
    rows: list[_BudgetRow]


class _BreakEven(_Read):
    job_type: str
    devices: int
    entry: str
    break_even_multiplier: float
    multiplier: float | None


class _Network(_Read):
    without: list[str] = Field(default_factory=list)
    rounds: int = 0
    walks: int = 0


class _Trained(_Read):
    changes: list[str] = Field(default_factory=list)
    network: _Network | None = None


class _More(_Read):
    budgets: _Budgets | None = None
    break_evens: list[_BreakEven] = Field(default_factory=list)
    trained: dict[str, _Trained] = Field(default_factory=dict)


class _Class(_Read):
    dimension: str
    name: str = Field(alias="class")
    cases: list[int]


class ResultsForm(_Read):
    """The root of ``results.json``."""

    world: Literal["cluster", "fleet", "elastic", "operators", "tasklets", "world"]
    benchmark: str
    title: str
    about: _About
    case: str
    cases: list[int | str] = Field(min_length=1)
    classes: list[_Class]
    objective: str
    rows: list[_Row] = Field(min_length=1)
    tuned: dict[str, _Tuned]
    best_baseline: str | None
    best_baselines: list[str]
    verdict: str
    made: list[str]
    remarks: list[str]
    more: _More
    timing: _Timing

    @model_validator(mode="after")
    def _every_policy_has_every_case(self) -> Self:
        if self.objective not in METRICS or self.world not in METRICS[self.objective].worlds:
            raise ValueError(f"objective: {self.objective} is no metric of {self.world}")
        names = [row.policy for row in self.rows]
        for row in self.rows:
            if names.count(row.policy) > 1:
                raise ValueError(f"rows: {row.policy} appears twice")
            if self.objective not in row.per_case or self.objective not in row.metrics:
                raise ValueError(f"rows: {row.policy} has no {self.objective}")
            for name, values in row.per_case.items():
                if len(values) != len(self.cases):
                    raise ValueError(f"rows: {row.policy} has {len(values)} values of {name} for {len(self.cases)} {self.case}s")
        places = [place for one in self.classes for place in one.cases]
        if places and not 0 <= min(places) <= max(places) < len(self.cases):
            raise ValueError("classes: a place is that of no case")
        return self


class _Look(_Read):
    """A row of ``learning_curve.json``; each method of training counts and validates by keys of its own."""

    steps: int | None = Field(default=None, ge=0)
    generation: int | None = Field(default=None, ge=0)
    update: int | None = Field(default=None, ge=0)
    validation: float | None = None
    validation_blocking_rate: float | None = Field(default=None, ge=0, le=1)
    validation_mean_completion_s: float | None = None
    training_blocking_rate: float | None = Field(default=None, ge=0, le=1)
    elapsed_s: float = Field(default=0.0, ge=0)


class CurveForm(_Read):
    """A ``learning_curve.json`` below a key."""

    looks: list[_Look]


def read_results(path: Path) -> dict[str, Any]:
    """Return the content of a ``results.json``, of version 1 as version 2 has it.

    Raises:
        InputFileError: missing, not JSON, of another version, or not of the form; the field is named.
    """
    data = files.read_json(path)
    world = former_world(data) if isinstance(data, dict) else None
    if world is not None:
        try:
            with np.errstate(over="raise", invalid="raise"):
                data = converted(data, world)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise InputFileError(f"is a result of format 1 that lacks something ({error})", file=path) from None
    if not isinstance(data, dict) or data.get("format") != FORMAT or data.get("format_version") != FORMAT_VERSION:
        raise InputFileError(f"is no result of evaluate of format {FORMAT_VERSION}; evaluate again", file=path)
    settings.build_read(ResultsForm, data, path)
    return data


def read_curve(path: Path, keys: tuple[str, str]) -> list[Mapping[str, Any]]:
    """Return the rows that a training run wrote into ``learning_curve.json``.

    Args:
        path: the file.
        keys: by which it counts and validates.

    Raises:
        InputFileError: missing, not JSON, or not of the form; the field is named.
    """
    data = files.read_json(path)
    if not isinstance(data, list):
        raise InputFileError("is no learning curve: a list of rows is wanted", file=path)
    settings.build_read(CurveForm, {"looks": data}, path)
    for number, row in enumerate(data):
        for key in keys:
            if key not in row or (key == keys[0] and row[key] is None):
                raise InputFileError("lacks a key", file=path, field=f"looks[{number}]", value=key)
    return data
