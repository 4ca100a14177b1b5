"""`plan --search`: every parallel layout of a job on a cluster, the best first, and a plan of the winner.

The search itself is in `planners.layouts`, and its view of a job in `job_work`. `search_table` makes tables and a
`PlacementPlan` of the results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import quantities
from ..clusters import load_cluster
from ..clusters.cluster import Cluster
from ..costs.process_groups.group_network import PlacedNetwork
from ..costs.settings import CostSettings
from ..errors import PlanError
from ..jobs.load import JobSource
from ..planners.free_devices import find_allocations, most_free
from ..planners.layouts.request import SearchRequest
from ..planners.layouts.results import Front, RankedLayout, Searched
from ..planners.layouts.search import LayoutSearch
from ..planners.layouts.stage_choices import StageChoice, stage_choices
from ..planners.layouts.ties import FARTHEST, are_tied
from ..plans import PlacementPlan
from ..plans.frameworks.names import build_of_plan
from ..plans.frameworks.recipes import load_recipes
from ..plans.partition import Layout
from ..plans.rank_order import DEFAULT_ORDER
from .comparisons.references import check_take
from .estimate import in_type_orders
from .job_work import JobWork
from .op_graph_work import work_of
from .refinement.arranged import arranged
from .search_table import RankedLayouts
from .training import check_trained_on, strategies_of


def search_layouts(
    job: str,
    cluster: str | Cluster,
    request: SearchRequest | None = None,
    *,
    is_free: NDArray[np.bool_] | None = None,
    costs: CostSettings | None = None,
    graphs_dir: str | Path | None = None,
    keep_input_ops: bool = False,
    profile_batch: int | None = None,
    **options: Any,
) -> RankedLayouts:
    """Search all layouts.

    Args:
        job: as `load_graph` reads it. A transformer (``zoo:NAME`` or the path of a ``config.json``) is cut along all axes, any
            other job graph by ``dp`` and ``pp``.
        cluster: ``preset:NAME``, a path, or a cluster of equal devices.
        request: batch, devices, what is kept, and how many layouts are ranked.
        is_free: which devices the job may have, ``(n,)``; by default all. Then of several numbers of devices each is searched
            by itself, on the devices of `find_allocations`, and the fastest is ranked.
        costs: choices of the cost model, as for `estimate.estimate`.
        graphs_dir: where bare names are looked up.
        keep_input_ops: whether the ``Input`` ops of a profile, which time the data loader, count.
        profile_batch: samples for which the figures of a profile hold; by default the batch.
        options: in place of a request the fields of `SearchRequest`, as ``batch=64, devices="8,16"``.

    Raises:
        PlanError: no batch, an impossible number of devices, or no layout is legal or fits.
        MeshwrightError: job, cluster or a file that the costs name are missing or wrong.
    """
    request = request or SearchRequest(**options)
    check_take(request)
    load_recipes(request.recipes)
    where = load_cluster(cluster) if isinstance(cluster, str) else cluster
    layout_costs = (costs or CostSettings()).of_layouts
    most = where.num_devices if is_free is None else most_free(where, is_free)
    if most == 0:
        raise PlanError(f"no device of {where.name} is free", field="--state")
    counts = device_counts([most] if request.devices is None else request.devices, where, most)
    source, length = JobSource(job, graphs_dir, keep_input_ops, profile_batch), request.sequence_length
    maker = work_of(source, where, layout_costs, sequence_length=length, batch_size=request.batch)
    if maker.stage_devices is not None and (request.training or request.compression):
        check_trained_on(maker, strategies_of(request.training, request.compression))
    if is_free is None or is_free.all():
        return with_meshes(arranged(_fastest(in_type_orders(maker), request, counts), request.arrange))
    return with_meshes(arranged(_on_free(maker, request, counts, is_free), request.arrange))


def _fastest(makers: Sequence[JobWork], request: SearchRequest, counts: Sequence[int]) -> RankedLayouts:
    """Return the fastest of the searches of a job, each on other devices or in another order of them.

    Raises:
        PlanError: no layout is legal or fits in any of them; that of the first.
    """
    rankings: list[RankedLayouts] = []
    refused: PlanError | None = None
    for one in makers:
        try:
            rankings.append(RankedLayouts.from_request(one, request, counts))
        except PlanError as error:
            refused = refused or error
    if not rankings:
        assert refused is not None
        raise refused
    return min(rankings, key=lambda one: one.best[:4])


def _on_free(maker: JobWork, request: SearchRequest, counts: Sequence[int], is_free: NDArray[np.bool_]) -> RankedLayouts:
    """Return the fastest of several searches, for each number of devices on those of `find_allocations`.

    Raises:
        PlanError: no number is free, or no layout is legal or fits on any.
    """
    rankings: list[RankedLayouts] = []
    remarks: list[str] = []
    refused: PlanError | None = None
    for count in counts:
        allocations = find_allocations(maker.cluster, maker.costs, is_free, count)
        if not allocations:
            remarks.append(f"{count} devices are not free, equally many on each host")
            continue
        try:
            makers = [made for each in allocations for made in in_type_orders(replace(maker, allocation=each))]
            one = _fastest(makers, request, [count])
        except PlanError as error:
            refused = error
            remarks.append(f"on {count} free devices: {error}")
            continue
        rankings.append(one)
        remarks.append(f"on {count} free devices {one.best.step_s:.4g} s with {one.best.text}")
    if rankings:
        best = min(rankings, key=lambda one: one.best.step_s)
        others = tuple(one for one in rankings if one is not best)
        return replace(best, sizes=tuple(remarks) if len(counts) > 1 else (), others=others)
    if refused is not None:
        raise refused
    problem = f"{int(is_free.sum())} of {len(is_free)} devices of {maker.cluster.name} are free, but not so many as are wanted"
    raise PlanError(f"{problem}, equally many on each host", field="--devices", value=", ".join(map(str, counts)))


def device_counts(target: str | Sequence[int], cluster: Cluster, num_free: int) -> list[int]:
    """Return how many devices to try, rising: whole hosts, or a part of one.

    Args:
        target: as `SearchRequest.devices` says.
        cluster: whose first devices are taken.
        num_free: devices that a job can have now; an error proposes no more.

    Raises:
        PlanError: not a number or range, none or more than the cluster has, part of a host next to whole ones, or unequal
            hosts.
    """
    sizes = np.bincount(cluster.device_host, minlength=cluster.num_hosts)
    per_host, most = int(sizes[0]), cluster.num_devices
    if (sizes != per_host).any():
        raise PlanError(f"a search wants equally many devices on each host of {cluster.name}", field="cluster")
    possible = [n for n in range(1, most + 1) if n < per_host or n % per_host == 0]
    result: set[int] = set()
    for part in target.split(",") if isinstance(target, str) else [str(number) for number in target]:
        low, dash, high = part.partition("-")
        try:
            first, last = quantities.whole(low), quantities.whole(high if dash else low)
        except ValueError:
            problem = "must be a number, several with commas between, or a range A-B; without the option all are used"
            raise PlanError(problem, field="--devices", value=part) from None
        if not 1 <= first <= last <= most:
            raise PlanError(f"{cluster.name} has 1 to {most} devices", field="--devices", value=part)
        inside = [n for n in possible if first <= n <= last]
        if not inside:
            near = sorted((n for n in possible if n <= num_free), key=lambda n: abs(n - first))[:2]
            problem = f"whole hosts of {per_host} are wanted; next are {' and '.join(map(str, sorted(near)))}"
            raise PlanError(problem, field="--devices", value=part)
        result.update(inside)
    return sorted(result)


def plans_by_devices(ranking: RankedLayouts) -> tuple[dict[int, PlacementPlan], tuple[str, ...]]:
    """Return the plan of the fastest layout, or the plain one where that is taken, on each other searched number of devices.

    Numbers without a plan come second, each with the reason, for people.
    """
    plans: dict[int, PlacementPlan] = {}
    left_out: list[str] = []
    searches = {one.best.devices: one for one in ranking.others}
    take = "plain" if ranking.request.take == "plain" else "fastest"
    request = replace(ranking.request, take=take, training=None, compression=None, arrange="none")
    for number in sorted({*ranking.device_counts, *searches} - {ranking.planned.devices}):
        try:
            one = searches.get(number) or _of_number(ranking, number)
            plans[number] = replace(one, request=request).plan
        except PlanError as error:
            left_out.append(f"no plan of {number} devices: {error}")
    return plans, tuple(left_out)


def _of_number(ranking: RankedLayouts, number: int) -> RankedLayouts:
    """Return the result on one number of devices, searched again where the search may have skipped the fastest or its ties.

    It has priced every layout that is within `FARTHEST` of the fastest of all.

    Raises:
        PlanError: nothing is legal or fits.
    """
    rows = tuple(one for one in ranking.by_time if one.devices == number)
    if ranking.request.take != "plain" and rows and are_tied(ranking.best.step_s, rows[0].step_s, FARTHEST):
        searched = replace(ranking.searched, ranking=rows[:1], examined=rows)
        return replace(ranking, searched=searched, device_counts=(number,))
    return RankedLayouts.from_request(ranking.maker, replace(ranking.request, top=1), [number])


MOST_PRICED = 300
"""Meshes of a layout that are priced at most."""

ROUNDING = 1e-9
"""Share by which a bound may be off."""


def with_meshes(result: RankedLayouts) -> RankedLayouts:
    """Return the result of a search with other meshes of its ranked layouts where that shortens the step; none is lost.

    The search itself gives all stages one mesh. For each ranked pipeline, all meshes of its stages on the same number of devices
    get a lower bound. They are priced by rising bound until none of the rest can be better.

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
    """Return a layout with its best meshes, how many were priced, and whether bounds say that none of the others is better."""
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
    """Return a layout with other meshes; None where it is not legal, is not run by the framework asked for, or does not fit."""
    (tp, dp), samples = choice.meshes[0], ranked.layout.micro_batch * ranked.layout.dp
    keys = {"tp": tp, "dp": dp, "micro_batch": samples // dp, "stage_meshes": choice.meshes, "stage_layers": choice.layers}
    try:
        return ranking.at(build_of_plan(Layout, ranked.layout.model_dump() | keys), ranked.order)
    except PlanError:
        return None
