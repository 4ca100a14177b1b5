"""Plans of the two phases of a masked job, chosen together: another one for each phase, or one for both.

Candidates are the fastest layouts of the whole job and of its core, each priced in both phases. Two plans pay twice a cycle to
move weights and optimizer from the places of one to those of the other. One plan for both pays nothing, so the best pair is
never worse than the best single plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...costs.process_groups.group_network import PlacedNetwork
from ...costs.training.masked import core_memory, core_work, cycle_s, masked_step, model_place, parameter_share, resharding_s
from ...costs.training.replicas import Replicas
from ...costs.training.synchronisation import synchronous_s
from ...costs.work.step_work import StepWork
from ...errors import GraphError, PlanError
from ...jobs.masked import Core
from ...planners.layouts.request import SearchRequest
from ...planners.layouts.results import RankedLayout
from ...plans.training import Masked
from ..job_work import JobWork
from ..training import TrainingPrice

NUM_LAYOUTS = 24
"""Of the fastest layouts of the whole job, and of its core, so many are priced in both phases."""


@dataclass(frozen=True)
class PhasePlan:
    """A layout as it is priced in both phases.

    Attributes:
        ranked: the layout, as the search ranked it.
        work: of the whole job.
        core: of the core under the same cuts; None where the layout cannot cut it.
        full_s, core_s: seconds of a step of each; infinite where it does not fit the memory of a device.
        full_bytes, core_bytes: that the fullest rank holds in each phase.
    """

    ranked: RankedLayout
    work: Any
    core: Any
    full_s: float
    core_s: float
    full_bytes: float
    core_bytes: float


class JointPlan(NamedTuple):
    """The chosen plans.

    Attributes:
        price: of the cycle.
        core, full: the plan of each phase.
        single_s: mean seconds of a step of the best plan for both.
    """

    price: TrainingPrice
    core: PhasePlan
    full: PhasePlan
    single_s: float

    def to_data(self) -> dict[str, Any]:
        """Return the core's layout, and what one plan for both would take."""
        result = self.core.ranked
        return {"core_layout": result.text, "core_order": result.order, "one_plan_step_s": self.single_s}


@dataclass(frozen=True)
class JointSearch:
    """Plans of masked jobs on some devices.

    Attributes:
        maker: the job on its cluster.
        request: what is kept of layouts, and the batch.
        device_counts: numbers of devices that are searched.
    """

    maker: JobWork
    request: SearchRequest
    device_counts: Sequence[int]
    _known: dict[Core, tuple[PhasePlan, ...]] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def whole(self) -> tuple[tuple[RankedLayout, Any], ...]:
        """The fastest layouts of the whole job, and what every rank does."""
        return tuple(self._ranked(self.maker, self.request))

    def plans(self, core: Core) -> tuple[PhasePlan, ...]:
        """Return the candidates for a core.

        Raises:
            GraphError: the job has no such core.
        """
        if core not in self._known:
            result = {_key(one, work): _phase_plan(self.maker, core, one, work) for one, work in self.whole}
            for one, cut in self._ranked(*self.maker.as_core(core, self.request)):
                result.setdefault(_key(one, cut), _phase_plan(self.maker, core, one, self.maker.work_as(cut)))
            self._known[core] = tuple(result.values())
        return self._known[core]

    def _ranked(self, maker: JobWork, request: SearchRequest) -> Iterator[tuple[RankedLayout, Any]]:
        search = maker.search(replace(request, top=NUM_LAYOUTS, on_best=SearchRequest.on_best))
        try:
            ranking = search.run(self.device_counts).ranking
        except PlanError:  # what fits in one phase only is no layout of the other
            return
        for result in ranking:
            yield result, search.work(result.layout, result.order)


def joint_plan(search: JointSearch, training: Masked) -> JointPlan:
    """Return the plans of both phases whose cycle takes least.

    Raises:
        GraphError, PlanError: the job has no such core, or no layout fits in both phases.
    """
    maker, plans = search.maker, search.plans(training.core)
    singles = [cycle_s(plan.core_s, plan.full_s, training) for plan in plans]
    if not plans:
        raise PlanError("no layout fits a device", field="training", value=training.text)
    at = int(np.argmin(singles))
    best_s, core, full, moved_s = singles[at], plans[at], plans[at], 0.0
    pairs = [(cycle_s(c.core_s, f.full_s, training), c, f) for c in plans for f in plans if c is not f and _may_change(c, f)]
    places: dict[int, Any] = {}
    for bound_s, first, last in sorted(pairs, key=lambda pair: pair[0]):
        if bound_s >= best_s:
            break
        for one in (first, last):
            places.setdefault(id(one), model_place(one.work, one.ranked.order, _hosts(maker, one)))
        try:
            seconds = resharding_s(places[id(first)], places[id(last)], maker.wires)
        except PlanError:
            continue
        if bound_s + 2 * seconds < best_s:
            best_s, core, full, moved_s = bound_s + 2 * seconds, first, last, seconds
    if not np.isfinite(best_s):
        raise PlanError("no plans of the two phases fit a device and go together", field="training", value=training.text)
    price = _price(maker, training, core, full, moved_s)
    return JointPlan(price, core, full, singles[at] / training.num_steps)


def _price(maker: JobWork, training: Masked, core: PhasePlan, full: PhasePlan, moved_s: float) -> TrainingPrice:
    whole, narrow = (
        Replicas(work, maker.pricer.in_order(one.ranked.order), maker.costs.straggler_sigma)
        for work, one in ((full.work, full), (core.core, core))
    )
    result = masked_step(training, whole, narrow, parameter_share(core.work, core.core))
    step_s = cycle_s(result.core.step_s, result.full.step_s, training, moved_s) / training.num_steps
    return TrainingPrice(
        training,
        None,
        step_s,
        result.full.step_s,
        max(0.0, core.core_bytes - full.full_bytes),
        result.sent_bytes,
        (result.remark(training),),
        (result.core, result.full),
        moved_s,
    )


def _key(ranked: RankedLayout, work: StepWork) -> tuple[str, str, tuple[int, ...]]:
    """Return the key of a candidate: the layout, its order, and where a job graph is cut."""
    return ranked.text, ranked.order, work.op_cuts


def _phase_plan(maker: JobWork, core: Core, ranked: RankedLayout, work: Any) -> PhasePlan:
    """Return a layout in both phases; one that cannot run the core, or whose ranks do not fit, takes for ever there."""
    pricer, never_s = maker.pricer.in_order(ranked.order), float("inf")
    wholes = [work.memory(stage) for stage in range(work.layout.pp)]
    needs = max(whole.total for whole in wholes)
    full_s = synchronous_s(Replicas(work, pricer, maker.costs.straggler_sigma)) if needs <= maker.capacity_bytes else never_s
    try:
        narrow = core_work(work, core, pricer.device.kernel_launch_s)
    except (GraphError, PlanError):
        return PhasePlan(ranked, work, None, full_s, never_s, needs, 0.0)
    cores = [narrow.memory(stage) for stage in range(work.layout.pp)]
    held = max(core_memory(whole, one).total for whole, one in zip(wholes, cores, strict=True))
    core_s = synchronous_s(Replicas(narrow, pricer, maker.costs.straggler_sigma)) if held <= maker.capacity_bytes else never_s
    return PhasePlan(ranked, work, narrow, full_s, core_s, needs, held)


def _may_change(core: PhasePlan, full: PhasePlan) -> bool:
    return core.ranked.devices == full.ranked.devices and bool(np.isfinite(core.core_s + full.full_s))


def _hosts(maker: JobWork, plan: PhasePlan) -> NDArray[np.int64]:
    if isinstance(maker.wires, PlacedNetwork):
        raise PlanError("both phases need one plan where hosts differ", field="training")
    return np.array(maker.hosts[: plan.work.layout.world])
