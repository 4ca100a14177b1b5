"""The request to every planner of operator placement."""

from __future__ import annotations

from dataclasses import dataclass

from ...simulation.operators.placement import OperatorObjective


@dataclass(frozen=True)
class PlacementRequest:
    """How to place an instance.

    Attributes:
        objective: what is to be small.
        budget_s: seconds that planners of `place.TIMED` may take; others take the time that they need. None: until the planner
            stops by itself.
        seed: for planners that draw; the same seed gives the same placement where no budget cuts the search.
        max_ideals: planners over downsets of the graph refuse more of them than this.
        max_placements: `exhaustive` refuses more placements than this.
    """

    objective: OperatorObjective = "latency"
    budget_s: float | None = None
    seed: int = 0
    max_ideals: int = 50_000
    max_placements: int = 5_000_000
