"""The forms of ``results.json`` of operator placement and of tasklets (see `evaluation.saved_forms`)."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from .told import Interval, Share, Told, check_rows


class _Seconds(Told):
    """Time of a placement."""

    median: float
    p99: float


class _Network(Told):
    """Of a learned policy of operator placement, what an ablation leaves out."""

    without: list[str]
    rounds: int
    walks: int


class _Trained(Told):
    """How a learned policy of operator placement came about."""

    benchmark: str | None = None
    changes: list[str] = Field(default_factory=list)
    network: _Network | None = None


class _PlacedRow(Told):
    """One policy that placed instances."""

    policy: str
    kind: str
    over_best_known: Interval
    won: float
    seconds: _Seconds


class _PlacedResults(Told):
    """The root of ``results.json`` of operator placement and of tasklets."""

    benchmark: str
    verdict: str
    num_instances: int = Field(ge=1)
    best_known_s: float


class _OperatorRow(_PlacedRow):
    over_bound: Interval
    against_best_rule: Interval | None
    infeasible: Share = 0.0
    without_form: Share = 0.0
    trained: _Trained | None = None
    against: dict[str, Interval] = Field(default_factory=dict)


class OperatorResultsForm(_PlacedResults):
    """The root of ``results.json`` of operator placement, as summaries read it."""

    objective: str
    rows: list[_OperatorRow] = Field(min_length=1)


class _TaskletRow(_PlacedRow):
    by_kind: dict[str, Interval]
    against: dict[str, dict[str, Interval]]


class TaskletResultsForm(_PlacedResults):
    """The root of ``results.json`` of tasklets."""

    kinds: list[str] = Field(min_length=1)
    rows: list[_TaskletRow] = Field(min_length=1)


class _OperatorValues(Told):
    """One policy with the value of every instance; ``against_best_rule`` is None where no rule placed all of them."""

    policy: str
    kind: Literal["planner", "constant", "learned", "own"]
    against_best_rule: Interval | None
    is_rule: bool
    infeasible: Share
    values_s: list[Annotated[float, Field(ge=0)]]


class OperatorValuesForm(Told):
    """The root of ``results.json`` of operator placement, as tables over several evaluations read it."""

    benchmark: str
    objective: Literal["latency", "throughput"]
    bounds_s: list[Annotated[float, Field(gt=0)]] = Field(min_length=1)
    rows: list[_OperatorValues] = Field(min_length=1)

    @model_validator(mode="after")
    def _every_policy_placed_every_instance(self) -> Self:
        check_rows([(row.policy, len(row.values_s)) for row in self.rows], len(self.bounds_s))
        return self
