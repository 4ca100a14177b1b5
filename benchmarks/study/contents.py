"""The tables and figures of a study as YAML. Names that hold ``<column>`` stand for one thing in each column."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from meshwright import settings

COLUMN = "<column>"


class RowSettings(settings.Settings):
    """One row of a comparison; exactly one of the last five tells what it shows.

    Attributes:
        label: its name.
        policy: a policy of the evaluations, as they spell it.
        trained: a training: the mean of its policies.
        pretrained: a training: the mean of its networks before PPO; a baseline.
        planned: a training: the mean of the rollout planners over its linear scorers.
        quoted: cells by column, from elsewhere (see ``source`` of the table).
    """

    label: str
    policy: str | None = None
    trained: str | None = None
    pretrained: str | None = None
    planned: str | None = None
    quoted: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _shows_one_thing(self) -> Self:
        if sum(map(bool, (self.policy, self.trained, self.pretrained, self.planned, self.quoted))) != 1:
            raise ValueError("a row shows exactly one of policy, trained, pretrained, planned and quoted")
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
    """

    columns: tuple[str, ...] = ()
    evaluations: tuple[str, ...] = ()
    ours: str | None = None

    @property
    def trainings(self) -> tuple[str, ...]:
        """Everything trained that the table names."""
        rows: tuple[RowSettings, ...] = (*getattr(self, "rows", ()), *getattr(self, "references", ()))
        return tuple(name for name in (self.ours, *(row.training for row in rows)) if name)


class _Columns(TableSettings):
    """A training in each of some columns."""

    columns: tuple[str, ...] = Field(min_length=1)
    ours: str


class _Variants(TableSettings):
    """A training on the variants of a family."""

    evaluations: tuple[str, ...] = Field(min_length=1)
    ours: str


class ComparisonTable(_Columns):
    """Policies by benchmark: blocking rates, ours by training seed and in the mean, and what they differ by.

    Attributes:
        rows: above and below ours.
        references: the same, below all others.
        source: where quoted cells come from.
    """

    kind: Literal["comparison"]
    rows: tuple[RowSettings, ...] = ()
    references: tuple[RowSettings, ...] = ()
    source: str | None = None

    @model_validator(mode="after")
    def _quotes_have_a_column_and_a_source(self) -> Self:
        for row in (*self.rows, *self.references):
            for column in row.quoted:
                if column not in self.columns:
                    raise ValueError(f"{row.label}: quoted for {column}, which is no column")
            if row.quoted and self.source is None:
                raise ValueError(f"{row.label}: quoted figures need a source")
        return self


class Transfer(_Variants):
    """One policy on each variant of a family, against the best fixed degree there."""

    kind: Literal["transfer"]


class Loads(_Variants):
    """Blocking against load over the variants of a family, drawn and as a table; rows below ours and the best fixed degree."""

    kind: Literal["loads"]
    rows: tuple[RowSettings, ...] = ()


class Seeds(_Columns):
    """What the runs of one training reach, run by run."""

    kind: Literal["seeds"]


class Learning(_Columns):
    """Learning curves of the runs of one training, a figure for each column."""

    kind: Literal["learning"]


class Ablations(_Columns):
    """The variants of a training beside one of them.

    Attributes:
        full: label of the variant that nothing was taken from.
        labels: what each variant is called, by its label.
        pretrained: name of a row for the network that the full variant had before PPO; null: no such row.
    """

    kind: Literal["ablations"]
    full: str = "full"
    labels: dict[str, str] = Field(default_factory=dict)
    pretrained: str | None = None


class Degrees(_Columns):
    """Into how many ranks a policy cuts jobs, by the state in which it decides; of the first run of each training."""

    kind: Literal["degrees"]


class Latency(_Columns):
    """How long policies take to decide."""

    kind: Literal["latency"]


class Durations(TableSettings):
    """How long every training run of the study took."""

    kind: Literal["durations"]


Contents = Annotated[
    ComparisonTable | Transfer | Loads | Seeds | Learning | Ablations | Degrees | Latency | Durations, Field(discriminator="kind")
]
