"""The config of a search for weights of elastic shares."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ... import settings
from ..hooks.names import RunSettings


class ElasticTrainSettings(RunSettings):
    """Settings of a search for weights of elastic jobs.

    Attributes:
        method: ``elastic``.
        trace: CSV of the trace that workloads are drawn from; null: ``traces/philly.csv`` of what MESHWRIGHT_REFERENCE names.
        rule: whose weights are searched for (see `planners.elastic.saved_shares`).
        generations: how often a population is drawn.
        population: sets of weights that are tried in a generation.
        spread: standard deviation of each weight at the start.
        num_jobs: of each training workload; those of equal size are played side by side.
        validation_num_jobs: of each validation workload.
        validate_every_generations: generations between two validations; the best mean on them is kept.
    """

    method: Literal["elastic"] = "elastic"
    trace: str | None = None
    rule: Literal["shortest-remaining", "expected-remaining"] = "shortest-remaining"
    generations: int = Field(default=12, ge=1, le=100_000)
    population: int = Field(default=10, ge=2, le=10_000)
    spread: float = Field(default=0.3, gt=0)
    num_jobs: tuple[settings.Count, ...] = Field(default=(160, 160, 160, 160, 80, 80), min_length=1)
    validation_num_jobs: tuple[settings.Count, ...] = Field(default=(160, 160, 160, 160, 80, 80), min_length=1)
    validate_every_generations: int = Field(default=3, ge=1)
