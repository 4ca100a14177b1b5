"""The config of a linear scorer that is tuned by trying weights."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from ... import settings
from ..hooks.names import RunSettings


class SearchSettings(settings.Settings):
    """How weights of a linear scorer are searched for.

    Attributes:
        strategy: ``cross-entropy`` draws every weight by itself; ``cma-es`` learns which weights go together, and gets further
            with more generations.
        generations: how often a population is drawn.
        population: sets of weights that are tried in a generation.
        elite: the best of them, to whose mean and spread the next generation is drawn (``cross-entropy``).
        num_episodes: new training episodes of each generation, the same for its whole population.
        spread: standard deviation of each weight at the start.
        added_spread: added to that of the elite, so that the search does not end early; it falls linearly to none
            (``cross-entropy``).
        validate_every_generations: generations between two validations.
        num_validation_seeds: validation episodes (seeds 100, 101, ...); the best mean on them is kept.

    Source:
        See `training.search`.
    """

    strategy: Literal["cross-entropy", "cma-es"] = "cross-entropy"
    generations: int = Field(default=40, ge=1, le=100_000)
    population: int = Field(default=48, ge=2, le=10_000)
    elite: int = Field(default=8, ge=1)
    num_episodes: int = Field(default=4, ge=1, le=1_000)
    spread: float = Field(default=0.5, gt=0)
    added_spread: float = Field(default=0.15, ge=0)
    validate_every_generations: int = Field(default=5, ge=1)
    num_validation_seeds: int = Field(default=20, ge=1, le=100)

    @model_validator(mode="after")
    def _elite_is_a_part(self) -> Self:
        if self.strategy == "cross-entropy" and self.elite >= self.population:
            raise ValueError(f"elite ({self.elite}) must be less than population ({self.population})")
        return self


class LinearSettings(RunSettings, SearchSettings):
    """A tuning run.

    Attributes:
        method: ``linear``.
        placement_rules: rules among whose candidates the scorer chooses. null: ``all-blocks`` where the scenario has it, else
            all of its rules by which a job holds one block.
    """

    method: Literal["linear"] = "linear"
    placement_rules: tuple[str, ...] | None = Field(default=None, min_length=1)
