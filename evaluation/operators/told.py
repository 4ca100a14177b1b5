"""What the forms of saved results are made of: keys that are read, intervals and shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from ... import settings

Share = Annotated[float, Field(ge=0, le=1)]


class Told(settings.Settings):
    """Keys that are not read are passed over; numbers are numbers and no texts that read like them."""

    model_config = ConfigDict(extra="ignore", strict=True)


class Interval(Told):
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


def check_rows(episodes: Sequence[tuple[str, int]], num_seeds: int) -> None:
    """Refuse a policy that is named twice, or whose number of episodes is not that of the seeds."""
    names = [policy for policy, _ in episodes]
    for policy, num_episodes in episodes:
        if names.count(policy) > 1:
            raise ValueError(f"rows: {policy} stands twice")
        if num_episodes != num_seeds:
            raise ValueError(f"rows: {policy} has {num_episodes} episodes for {num_seeds} seeds")
