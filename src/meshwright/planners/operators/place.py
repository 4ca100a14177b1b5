"""Planners by name, and one way to call them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...errors import PolicyError
from ...simulation.operators.instance import OperatorInstance
from ...simulation.operators.placement import OperatorObjective, OperatorPlacement
from .exhaustive import exhaustive
from .request import PlacementRequest
from .rules.etf import m_etf, m_sct
from .rules.heft import heft
from .search.annealing import anneal
from .search.multilevel import multilevel
from .stages.ideals import ideals, linear
from .stages.milp import milp, milp_contiguous
from .stages.one_replica import pipedream_stages

Place = Callable[[OperatorInstance, PlacementRequest], OperatorPlacement]


@dataclass(frozen=True)
class PlacementPlanner:
    """A planner of operator placement.

    Attributes:
        place: places an instance; raises `PlanError` where it finds no legal placement or the instance is beyond it.
        objectives: those that it can plan for.
        rule: what it does, as a phrase for tables.
        is_exact: whether it proves that no placement of its family is better.
        is_search: whether it runs until its budget ends, and so must be given one.
        is_published: whether it minimises its published form of the value, not the one that is compared. It runs by name only.
    """

    place: Place
    objectives: tuple[OperatorObjective, ...]
    rule: str
    is_exact: bool = False
    is_search: bool = False
    is_published: bool = False


_BOTH: tuple[OperatorObjective, ...] = ("latency", "throughput")

PLACEMENT_PLANNERS: dict[str, PlacementPlanner] = {
    "heft": PlacementPlanner(heft, _BOTH, "by falling upward rank where each op ends first, gaps filled"),
    "m-etf": PlacementPlanner(m_etf, _BOTH, "the ready op and the device that start first"),
    "m-sct": PlacementPlanner(m_sct, _BOTH, "earliest start, devices kept for the favourite children of a linear program"),
    "multilevel": PlacementPlanner(
        multilevel, _BOTH, "heavy edges joined, the coarse graph placed, refined while made fine again"
    ),
    "annealing": PlacementPlanner(anneal, _BOTH, "moves and swaps, accepted by a falling temperature", is_search=True),
    "exhaustive": PlacementPlanner(exhaustive, _BOTH, "every placement, for a latency every order", is_exact=True),
    "ideals": PlacementPlanner(ideals, ("throughput",), "stages between all downsets of the graph", is_exact=True),
    "milp": PlacementPlanner(milp, ("throughput",), "HiGHS over all placements", is_exact=True),
    "milp-contiguous": PlacementPlanner(milp_contiguous, ("throughput",), "HiGHS over contiguous devices", is_exact=True),
    "linear": PlacementPlanner(linear, ("throughput",), "stages along a few orders of the ops"),
    "pipedream": PlacementPlanner(
        pipedream_stages, ("throughput",), "PipeDream's recurrence, one replica a stage", is_exact=True, is_published=True
    ),
}
TIMED = ("annealing", "milp", "milp-contiguous")
"""Planners that a budget ends; the others take the time that they need."""


def place(instance: OperatorInstance, planner: str, request: PlacementRequest) -> OperatorPlacement:
    """Place an instance by the planner of a name.

    Raises:
        PolicyError: no such planner, or not for this objective.
        PlanError: no legal placement was found, or the instance is beyond the planner.
    """
    if planner not in PLACEMENT_PLANNERS:
        raise PolicyError("no such planner", field="planner", value=planner, choices=PLACEMENT_PLANNERS)
    result = PLACEMENT_PLANNERS[planner]
    if request.objective not in result.objectives:
        able = [name for name, each in PLACEMENT_PLANNERS.items() if request.objective in each.objectives]
        raise PolicyError(f"does not plan for {request.objective}", field="planner", value=planner, choices=able)
    return result.place(instance, request)
