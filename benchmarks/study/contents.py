"""The tables and figures of a study as YAML. Names that hold ``<column>`` stand for one thing in each column."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from meshwright import settings
from meshwright.envs.benchmark_files import FLEET, SCENARIO

COLUMN = "<column>"
GREEDY = "greedy"
"""How trained policies are asked where nothing else is said: each decision is the likeliest."""


class RowSettings(settings.Settings):
    """One row of a comparison; exactly one of policy, trained, pretrained, planned and quoted tells what it shows.

    Attributes:
        label: its name.
        columns: those of the table in which it is shown; none: all.
        against: whether a row at the end holds ours against it.
        policy: a policy of the evaluations, as they spell it.
        trained: a training: the mean of its policies.
        asked: how these are asked, as evaluations name it.
        pretrained: a training: the mean of its networks before PPO; a baseline.
        planned: a training: the mean of the rollout planners over its linear scorers.
        quoted: cells by column, from elsewhere (see ``source`` of the table).
    """

    label: str
    columns: tuple[str, ...] = ()
    against: bool = False
    policy: str | None = None
    trained: str | None = None
    asked: str = GREEDY
    pretrained: str | None = None
    planned: str | None = None
    quoted: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _shows_one_thing(self) -> Self:
        if sum(map(bool, (self.policy, self.trained, self.pretrained, self.planned, self.quoted))) != 1:
            raise ValueError("a row shows exactly one of policy, trained, pretrained, planned and quoted")
        if self.asked != GREEDY and self.trained is None:
            raise ValueError("asked goes with trained")
        return self

    @property
    def kind(self) -> str:
        """What it counts as: ``learned``, ``planner`` or ``baseline``."""
        return "learned" if self.trained or self.pretrained else "planner" if self.planned else "baseline"

    @property
    def training(self) -> str | None:
        """What is trained for it; None where nothing is."""
        return self.trained or self.pretrained or self.planned


class TableSettings(settings.Settings):
    """What all kinds have.

    Attributes:
        columns: labels; none: the table is about one thing.
        evaluations: where the figures of a column come from; of a policy that is in several, the first counts.
        ours: the training whose policies the table is about, or the parent of variants.
        world: the one that all of it must be of, by its key in a benchmark; None: any.
    """

    world: ClassVar[str | None] = None

    columns: tuple[str, ...] = ()
    evaluations: tuple[str, ...] = ()
    ours: str | None = None

    def trainings_of(self, column: str) -> tuple[str, ...]:
        """Everything trained that a column names."""
        shown = [row.training for row in self._rows_of(column)]
        named = (self.ours, getattr(self, "whole", None), *shown)
        return tuple(name.replace(COLUMN, column) for name in named if name)

    def asked_of(self, column: str) -> tuple[str, ...]:
        """How the trained policies that a column names are asked, where that is said."""
        named = (getattr(self, "asked", GREEDY), *(row.asked for row in self._rows_of(column)))
        return tuple(how for how in named if how != GREEDY)

    def evaluations_of(self, column: str) -> tuple[str, ...]:
        """Where the figures of a column come from."""
        return tuple(name.replace(COLUMN, column) for name in self.evaluations)

    @cached_property
    def named(self) -> frozenset[str]:
        """Trainings and evaluations of all columns."""
        columns = self.columns or ("",)
        return frozenset(name for one in columns for name in (*self.trainings_of(one), *self.evaluations_of(one)))

    def _rows_of(self, column: str) -> list[RowSettings]:
        rows: tuple[RowSettings, ...] = (*getattr(self, "rows", ()), *getattr(self, "references", ()))
        return [row for row in rows if not row.columns or column in row.columns]


class _Columns(TableSettings):
    """A training in each of some columns."""

    columns: tuple[str, ...] = Field(min_length=1)
    ours: str


class _Variants(TableSettings):
    """A training on the variants of a family."""

    evaluations: tuple[str, ...] = Field(min_length=1)
    ours: str


class ComparisonTable(TableSettings):
    """Policies by benchmark: what it is about, ours by training seed and in the mean, and what they differ by.

    Attributes:
        policy: what the table is about where that is no training: a policy of the evaluations, as they spell it.
        asked: how ours are asked.
        rows: above and below ours.
        references: the same, below all others.
        source: where quoted cells come from.
    """

    kind: Literal["comparison"]
    columns: tuple[str, ...] = Field(min_length=1)
    policy: str | None = None
    asked: str = GREEDY
    rows: tuple[RowSettings, ...] = ()
    references: tuple[RowSettings, ...] = ()
    source: str | None = None

    @model_validator(mode="after")
    def _is_about_one_thing(self) -> Self:
        if (self.ours is None) == (self.policy is None):
            raise ValueError("a comparison is about exactly one of ours and policy")
        return self

    @model_validator(mode="after")
    def _quotes_have_a_column_and_a_source(self) -> Self:
        for row in (*self.rows, *self.references):
            for column in (*row.columns, *row.quoted):
                if column not in self.columns:
                    said = "quoted" if column in row.quoted else "shown"
                    raise ValueError(f"{row.label}: {said} for {column}, which is no column")
            if row.quoted and self.source is None:
                raise ValueError(f"{row.label}: quoted figures need a source")
        return self


class Transfer(_Variants):
    """One policy on each variant of a family, against the best fixed degree there."""

    kind: Literal["transfer"]
    world = SCENARIO


class Loads(_Variants):
    """Blocking against load over the variants of a family, drawn and as a table; rows below ours and the best fixed degree."""

    kind: Literal["loads"]
    world = SCENARIO
    rows: tuple[RowSettings, ...] = ()


class Seeds(_Columns):
    """What the runs of one training reach, run by run."""

    kind: Literal["seeds"]


class Learning(_Columns):
    """Learning curves of the runs of one training, a figure for each column."""

    kind: Literal["learning"]
    world = SCENARIO


class Ablations(_Columns):
    """The variants of a training beside one of them.

    Attributes:
        full: label of the variant that nothing was taken from.
        whole: in the place of such a variant, another training: its runs with the seeds that variants have.
        labels: what each variant is called, by its label.
        pretrained: name of a row for the network that the full variant had before PPO; null: no such row.
    """

    kind: Literal["ablations"]
    full: str = "full"
    whole: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    pretrained: str | None = None


class Degrees(_Columns):
    """Into how many ranks a policy cuts jobs, by the state in which it decides; of the first run of each training."""

    kind: Literal["degrees"]
    world = SCENARIO


class Entries(_Columns):
    """Which layouts, and how many devices, policies of fleets give to jobs.

    Attributes:
        least_share: of the jobs; what is taken for fewer is left out.
    """

    kind: Literal["entries"]
    world = FLEET
    least_share: float = Field(default=0.05, gt=0, lt=1)


class Latency(_Columns):
    """How long policies take to decide."""

    kind: Literal["latency"]
    world = SCENARIO


class Durations(TableSettings):
    """How long every training run of the study took."""

    kind: Literal["durations"]


Contents = Annotated[
    ComparisonTable | Transfer | Loads | Seeds | Learning | Ablations | Degrees | Entries | Latency | Durations,
    Field(discriminator="kind"),
]
