"""A search whose stages may have meshes of their own: those of the best layouts are changed stage by stage.

The search itself gives all stages one mesh. Of each ranked pipeline the mesh of one stage after the other is then exchanged for
every other one of as many ranks, as long as that shortens the step; no proof is given that nothing better is left.
"""

from __future__ import annotations

from dataclasses import replace

from ...costs.process_groups.group_network import PlacedNetwork
from ...errors import PlanError
from ...planners.layouts.results import Front, RankedLayout, Searched, layout_text
from ...planners.layouts.search import LayoutSearch
from ...planners.layouts.space import LayoutSpace, divisors
from ...plans.partition import Layout, build_of_plan
from ...plans.rank_order import DEFAULT_ORDER
from ..search_table import RankedLayouts


def with_meshes(found: RankedLayouts) -> RankedLayouts:
    """The same search with the meshes of its ranked layouts changed where that shortens the step; none is lost.

    Args:
        found: what was found with one mesh for all stages.

    Raises:
        PlanError: a job without layers, or hosts that are not alike.
    """
    if not found.request.frees_meshes:
        return found
    if not isinstance(found.search, LayoutSearch):
        raise PlanError("cuts layers, which a graph of ops does not tell", field="keep.stage_meshes", value="free")
    if isinstance(found.maker.wires, PlacedNetwork) or found.maker.stage_devices is not None:
        problem = "stages of unequal meshes are priced where hosts and devices are alike"
        raise PlanError(problem, field="keep.stage_meshes", value="free")
    made, count = [], 0
    for one in found.searched.ranking:
        if one.layout.pp > 1 and one.order == DEFAULT_ORDER:
            better, tried = _changed(found, found.search.space, one)
            count += tried
            made += [] if better is one else [better]
    ranking = sorted({one.text: one for one in (*found.searched.ranking, *made)}.values(), key=lambda one: one[:4])
    front = Front()
    for one in (*found.searched.front, *made):
        front.add(one)
    searched = Searched(
        tuple(ranking[: found.request.top]), front.members(), (*found.searched.examined, *made), found.searched.counts
    )
    told = f"meshes of stages: {count} priced, {len(made)} of {len(found.searched.ranking)} layouts gained"
    return replace(found, searched=searched, sizes=(*found.sizes, told))


def _changed(found: RankedLayouts, space: LayoutSpace, one: RankedLayout) -> tuple[RankedLayout, int]:
    """A layout with the best meshes that single changes lead to, and how many were priced."""
    best, tried, has_gained = one, 0, True
    ranks, kept = one.layout.tp * one.layout.dp, found.request.kept
    degrees = [tp for tp in divisors(ranks) if tp in kept.get("tp", (tp,)) and ranks // tp in kept.get("dp", (ranks // tp,))]
    while has_gained:
        has_gained = False
        for stage in range(one.layout.pp):
            for tp in degrees:
                meshes = list(best.layout.stage_meshes or [(one.layout.tp, one.layout.dp)] * one.layout.pp)
                if meshes[stage] == (tp, ranks // tp):
                    continue
                meshes[stage] = (tp, ranks // tp)
                priced = _priced(found, space, best, meshes)
                tried += priced is not None
                if priced is not None and priced.step_s < best.step_s * (1 - 1e-9):
                    best, has_gained = priced, True
    return best, tried


def _priced(found: RankedLayouts, space: LayoutSpace, one: RankedLayout, meshes: list[tuple[int, int]]) -> RankedLayout | None:
    """A layout with other meshes; None where it is not legal, is not run by the framework asked for, or does not fit."""
    (tp, dp), samples = meshes[0], one.layout.micro_batch * one.layout.dp
    if samples % dp:
        return None
    keys = {"tp": tp, "dp": dp, "micro_batch": samples // dp, "stage_meshes": meshes if len(set(meshes)) > 1 else None}
    try:
        layout = build_of_plan(Layout, one.layout.model_dump() | keys)
        if not space.is_run(layout):
            return None
        work = found.maker.work(layout)
        memory_bytes = found.maker.peak_memory(work)[1].total
        if memory_bytes > found.maker.capacity_bytes:
            return None
        step_s = found.search.pricer(one.order).step_s(work)
    except PlanError:
        return None
    return RankedLayout(step_s, memory_bytes, one.devices, layout_text(layout), layout, one.order)
