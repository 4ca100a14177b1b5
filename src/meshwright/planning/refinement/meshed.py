"""A search whose stages may have meshes of their own: those of the best layouts are chosen again.

The search itself gives all stages one mesh. For each ranked pipeline, all meshes of its stages on the same number of devices
get a lower bound. They are priced by rising bound until none of the rest can be better.
"""

from __future__ import annotations

from dataclasses import replace

from ...costs.process_groups.group_network import PlacedNetwork
from ...errors import PlanError
from ...planners.layouts.results import Front, RankedLayout, Searched
from ...planners.layouts.search import LayoutSearch
from ...planners.layouts.stage_choices import StageChoice, stage_choices
from ...plans.frameworks.names import build_of_plan
from ...plans.partition import Layout
from ...plans.rank_order import DEFAULT_ORDER
from ..search_table import RankedLayouts

MOST_PRICED = 300
"""Meshes of a layout that are priced at most."""

ROUNDING = 1e-9
"""Share by which a bound may be off."""


def with_meshes(result: RankedLayouts) -> RankedLayouts:
    """Return the result of a search with other meshes of its ranked layouts where that shortens the step; none is lost.

    Args:
        result: what was found with one mesh for all stages.

    Raises:
        PlanError: a job without layers, or hosts that differ.
    """
    if not result.request.frees_meshes:
        return result
    if not isinstance(result.search, LayoutSearch):
        raise PlanError("cuts layers, which a graph of ops does not have", field="keep.stage_meshes", value="free")
    if isinstance(result.maker.wires, PlacedNetwork):
        problem = "stages of unequal meshes need equal hosts"
        raise PlanError(problem, field="keep.stage_meshes", value="free")
    made, count, proven, pipelines = [], 0, 0, 0
    for one in result.searched.ranking:
        if one.layout.pp > 1 and one.order == DEFAULT_ORDER and not one.layout.is_bidirectional:
            better, tried, is_proven = _best_meshes(result, result.search, one)
            count, proven, pipelines = count + tried, proven + is_proven, pipelines + 1
            made += [] if better is one else [better]
    ranking = sorted({one.text: one for one in (*result.searched.ranking, *made)}.values(), key=lambda one: one[:4])
    front = Front()
    for one in (*result.searched.front, *made):
        front.add(one)
    searched = Searched(
        tuple(ranking[: result.request.top]), front.members(), (*result.searched.examined, *made), result.searched.counts
    )
    note = f"meshes of stages: {count} priced, {len(made)} of {len(result.searched.ranking)} layouts gained"
    if pipelines:
        note += f"; no better ones are left of {proven} of {pipelines} pipelines, each choice with its layers spread in one way"
    return replace(result, searched=searched, sizes=(*result.sizes, note))


def _best_meshes(ranking: RankedLayouts, search: LayoutSearch, ranked: RankedLayout) -> tuple[RankedLayout, int, bool]:
    """A layout with its best meshes, how many were priced, and whether bounds say that none of the others is better."""
    kept_values, pricer = ranking.request.kept_values, search.pricer(ranked.order)
    choices = stage_choices(ranked.layout, ranking.maker.work, pricer, tp=kept_values.get("tp"), dp=kept_values.get("dp"))
    best, tried = ranked, 0
    for choice in choices.layouts:
        if choice.bound_s * (1 - ROUNDING) >= best.step_s:
            break
        if tried == MOST_PRICED:
            return best, tried, False
        if len(set(choice.meshes)) == 1:
            continue
        priced = _priced(ranking, ranked, choice)
        tried += priced is not None
        if priced is not None and priced.step_s < best.step_s * (1 - 1e-9):
            best = priced
    return best, tried, choices.are_all


def _priced(ranking: RankedLayouts, ranked: RankedLayout, choice: StageChoice) -> RankedLayout | None:
    """A layout with other meshes; None where it is not legal, is not run by the framework asked for, or does not fit."""
    (tp, dp), samples = choice.meshes[0], ranked.layout.micro_batch * ranked.layout.dp
    keys = {"tp": tp, "dp": dp, "micro_batch": samples // dp, "stage_meshes": choice.meshes, "stage_layers": choice.layers}
    try:
        return ranking.at(build_of_plan(Layout, ranked.layout.model_dump() | keys), ranked.order)
    except PlanError:
        return None
