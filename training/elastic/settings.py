"""The config of a search for weights of elastic shares."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ... import settings
from ..hooks.names import LogName, Minutes


class ElasticTrainSettings(settings.Settings):
    """Settings of a search for weights of elastic jobs.

    Attributes:
        method: ``elastic``.
        name: for tables and the run folder.
        benchmark: ``preset:NAME`` or a path: measured applications and cluster are taken from it, its workloads are not.
        changes: ``key=value`` texts applied to the benchmark.
        trace: CSV of the trace that workloads are drawn from; null: ``traces/philly.csv`` of what MESHWRIGHT_REFERENCE names.
        rule: whose weights are searched for (see `planners.elastic.saved_shares`).
        log: writers of the validations (see `training.hooks.names`).
        minutes: of CPU time, see `training.hooks.names`.
        seed: of the weights that are tried and of the training workloads.
        generations: how often a population is drawn.
        population: sets of weights that are tried in a generation.
        spread: standard deviation of each weight at the start.
        num_jobs: of each training workload; those of equal size are played side by side.
        validation_num_jobs: of each validation workload.
        validate_every_generations: generations between two validations; the best mean on them is kept.
    """

    method: Literal["elastic"] = "elastic"
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")
    benchmark: str
    changes: tuple[str, ...] = ()
    trace: str | None = None
    rule: Literal["shortest-remaining", "expected-remaining"] = "shortest-remaining"
    log: tuple[LogName, ...] = ()
    minutes: Minutes = None
    seed: int = Field(default=0, ge=0, le=1_000_000)
    generations: int = Field(default=12, ge=1, le=100_000)
    population: int = Field(default=10, ge=2, le=10_000)
    spread: float = Field(default=0.3, gt=0)
    num_jobs: tuple[settings.Count, ...] = Field(default=(160, 160, 160, 160, 80, 80), min_length=1)
    validation_num_jobs: tuple[settings.Count, ...] = Field(default=(160, 160, 160, 160, 80, 80), min_length=1)
    validate_every_generations: int = Field(default=3, ge=1)
