"""Figures of a plan from earlier runs of its job, next to the predicted ones, and deadlines by them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from ... import settings
from ...errors import PlanError
from ...plans import PlacementPlan
from ...plans.document import Figure
from ..decisions import ObservedFactor

if TYPE_CHECKING:
    from ...planning.menu_plan import PlannedFromMenu
    from ...planning.plan import Planned

OBSERVED = "observed"
"""Provenance of such figures, whose names begin with it."""

ROUNDING = 1e-9


Made = TypeVar("Made", "Planned", "PlannedFromMenu")


def plan_as_observed(
    make: Callable[[float | None], Made], deadline_s: float | None, factors: Sequence[ObservedFactor]
) -> tuple[Made, PlacementPlan]:
    """Return a plan whose time as observed, not as predicted, meets a deadline.

    The planner is asked for plans that end sooner and sooner as predicted, until one ends in time as observed. Where runs were
    faster than predicted it is first asked for plans that end so much later.

    Args:
        make: plans so that a job ends in time as predicted.
        deadline_s: None: there is none.
        factors: of the job; none: nothing is known.

    Returns:
        What the planner gave, and its plan with the observed figures.

    Raises:
        PlanError: as of the planner, or no plan ends in time as observed.
    """
    if not factors:
        made = make(deadline_s)
        return made, made.plan
    allowed_s = None if deadline_s is None else deadline_s / min(1.0, *(factor.factor for factor in factors))
    note = ""
    while True:
        try:
            made = make(allowed_s)
        except PlanError as error:
            raise PlanError(error.problem + note, field=error.field, value=error.value) from None
        plan = with_observed(made.plan, factors)
        figures = {figure.name: figure.value for figure in plan.predicted}
        if deadline_s is None or allowed_s is None:
            return made, plan
        if figures.get("observed_completion_s", figures["completion_s"]) <= deadline_s:
            if plan.job.deadline_s is not None:  # whatever the planner was asked for
                plan = plan.model_copy(update={"job": plan.job.model_copy(update={"deadline_s": deadline_s})})
            return made, plan
        note = f"; it must end within {deadline_s:g} s by what earlier runs took, not by the prediction"
        allowed_s = min(allowed_s, figures["completion_s"]) * (1.0 - ROUNDING)


def with_observed(plan: PlacementPlan, factors: Sequence[ObservedFactor]) -> PlacementPlan:
    """Return the plan with its times as observed added to the predicted ones, where earlier runs show them."""
    is_on_one_host = len({rank.host for rank in plan.ranks}) == 1
    factor = next(
        (one.factor for one in factors if (one.num_devices, one.is_on_one_host) == (plan.num_ranks, is_on_one_host)), None
    )
    if factor is None:
        return plan
    observed = tuple(
        settings.build_settings(
            Figure,
            {"name": f"{OBSERVED}_{one.name}", "value": one.value * factor, "unit": one.unit, "provenance": OBSERVED},
        )
        for one in plan.predicted
        if one.name in ("step_s", "completion_s")
    )
    return plan.model_copy(update={"predicted": (*plan.predicted, *observed)})
