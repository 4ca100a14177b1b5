"""The request to every planner of tasklets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TaskletRequest:
    """How to place tasklets.

    Attributes:
        budget_s: seconds that a search may take; None: until the planner stops by itself.
        seed: for planners that draw; the same seed gives the same placement where no budget cuts the search.
        num_evaluations: groupings that a genetic search values.
    """

    budget_s: float | None = None
    seed: int = 0
    num_evaluations: int = 5_000
