"""Strategies compared with a ranking of layouts: each with its best layout, and only where a multiplier is declared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from ..errors import MeshwrightError, PlanError
from ..planners.layouts.request import SearchRequest
from ..planners.layouts.results import RankedLayout
from ..plans import PlacementPlan, check
from ..plans.compression import Quantise
from ..plans.document import PlannedPhase
from ..plans.training import Masked, Synchronous
from .job_work import JobWork
from .phases.joint import JointPlan, JointSearch, joint_plan
from .training import TrainingPrice, price_training, strategies_of

NUM_LAYOUTS = 48
"""Of the fastest synchronous layouts whose replicas are whole, so many are priced for each strategy."""

OF_SYNCHRONOUS_STEPS = ("bubble_share", "bubble_time_fraction", "exposed_communication_share")
"""Figures of a plan on the waits of a synchronous step; other strategies have none."""


OF_WHOLE_MODELS = ("mfu", "hfu")
"""Figures of steps that all compute the whole model."""


class StrategyRow(NamedTuple):
    """A strategy with its best layout.

    Attributes:
        price: the strategy.
        ranked: the layout, as it is ranked synchronously; of a job of two phases that of the whole model.
        joint: plans of both phases, where there are two.
    """

    price: TrainingPrice
    ranked: RankedLayout
    joint: JointPlan | None = None

    @property
    def text(self) -> str:
        """The layout, or those of both phases, for people."""
        if self.joint is None or self.joint.core is self.joint.full:
            return self.ranked.text
        return f"{self.ranked.text}; core {self.joint.core.ranked.text}"


class Strategies(NamedTuple):
    """The gain of strategies over the best exact layout.

    Attributes:
        exact_s: seconds of a step of that one.
        rows: the strategies, those with a multiplier first, by their effective step; then the others as they were asked for.
        refused: why a strategy has no layout, for people.
    """

    exact_s: float
    rows: tuple[StrategyRow, ...]
    refused: tuple[str, ...]

    @property
    def winner(self) -> StrategyRow | None:
        """The strategy whose declared effective step is less than that of the best exact layout; None without one."""
        first = next(iter(self.rows), None)
        seconds = None if first is None else first.price.effective_s
        return first if seconds is not None and seconds < self.exact_s and not (first and first.price.is_exact) else None


def price_strategies(
    maker: JobWork,
    request: SearchRequest,
    best: RankedLayout,
    work: Callable[[RankedLayout], object],
    device_counts: Sequence[int],
) -> Strategies:
    """Price all strategies of a request, each with the layout under which its step is shortest.

    Args:
        maker: the job on its cluster.
        request: with the strategies.
        best: the best exact layout.
        work: what every rank of a layout does.
        device_counts: numbers of devices that are searched.
    """
    exact_s = price_training(maker, work(best), Synchronous(), order=best.order).step_s
    requested = strategies_of(request.training, request.compression)
    if not requested:
        return Strategies(exact_s, (), ())
    kept_values = dict(request.kept_values)
    is_sharded = all(isinstance(code, Quantise) and code.what != "gradients" for _, code in requested)
    target = ("zero", "3" if is_sharded else "0"), ("distributed_optimizer", "false")
    whole = [f"{key}={value}" for key, value in target if key not in kept_values]
    keep = ",".join(filter(None, [request.keep, *whole]))
    layouts = [best]
    refused: list[str] = []
    try:
        if any(not isinstance(training, Masked) for training, _ in requested):
            asked_whole = replace(request, keep=keep, top=NUM_LAYOUTS, on_best=SearchRequest.on_best)
            layouts += maker.search(asked_whole).run(device_counts).ranking
    except PlanError as error:
        refused.append(f"layouts with whole replicas: {error}")
    rows: list[StrategyRow] = []
    masked = JointSearch(maker, request, device_counts)
    for training, code in requested:
        if isinstance(training, Masked):
            try:
                joint = joint_plan(masked, training)
                rows.append(StrategyRow(joint.price, joint.full.ranked, joint))
            except MeshwrightError as error:
                refused.append(f"{training.text}: {error}")
            continue
        strategy_row: StrategyRow | None = None
        why = ""
        for layout in layouts:
            try:
                price = price_training(maker, work(layout), training, code, layout.order)
            except PlanError as error:
                why = why or str(error)
                continue
            if layout.memory_bytes + price.extra_bytes > maker.capacity_bytes:
                why = why or f"{price.text} does not fit the memory of a device"
            elif strategy_row is None or price.step_s < strategy_row.price.step_s:
                strategy_row = StrategyRow(price, layout)
        if strategy_row is None:
            refused.append(why)
        else:
            rows.append(strategy_row)
    ranked = [row for row in rows if row.price.effective_s is not None]
    others = [row for row in rows if row.price.effective_s is None]
    return Strategies(exact_s, (*sorted(ranked, key=lambda row: row.price.effective_s or 0.0), *others), tuple(refused))


def with_phases(plan: PlacementPlan, core: PlacementPlan, training: Masked) -> PlacementPlan:
    """Return the plan of the whole model with those of both phases.

    Raises:
        PlanError: the phases have other devices.
    """
    phases = tuple(
        PlannedPhase(name=name, steps=steps, partition=one.partition, ranks=one.ranks, stages=one.stages)
        for name, steps, one in (("core", training.core_steps, core), ("full", training.full_steps, plan))
    )
    made = plan.model_copy(update={"training": training, "phases": phases})
    check(made)
    return made


def with_strategy(plan: PlacementPlan, price: TrainingPrice) -> PlacementPlan:
    """Return a plan that is trained by a strategy; its figures are those of the strategy."""
    figures = []
    speed_up = next(figure.value for figure in plan.predicted if figure.name == "step_s") / price.step_s
    for figure in plan.predicted:
        if figure.name in OF_SYNCHRONOUS_STEPS or (price.phases and figure.name in OF_WHOLE_MODELS):
            continue
        value = figure.value
        if figure.name == "step_s":
            value = price.step_s
        elif figure.name == "memory_bytes":
            value += price.extra_bytes
        elif figure.name in ("mfu", "hfu") or figure.name.endswith("_per_s"):
            value *= speed_up
        figures.append(figure.model_copy(update={"value": value}))
    training = None if isinstance(price.training, Synchronous) else price.training
    update = {"training": training, "compression": price.compression, "predicted": (*figures, *price.figures())}
    return plan.model_copy(update=update)
