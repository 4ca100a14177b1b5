"""A search on an uneven network that also chooses places.

The hosts of the best layouts change places, also with free ones. So do devices within hosts where each pair of devices has a
link of its own. Then layouts are searched again on the best places.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ...clusters.topologies.matrix import MatrixTopology
from ...costs.collectives.groups import placed
from ...costs.process_groups.group_network import PlacedNetwork
from ...costs.training_step.step_pricer import StepPricer
from ...errors import MeshwrightError, PlanError
from ...planners.arrangement.arrange import ArrangementRequest, arrange
from ...planners.arrangement.rank_devices import ArrangedRanks, arrange_ranks
from ...planners.layouts.results import RankedLayout
from ...plans.rank_order import numbers
from ...simulation.tasklets.instance import TaskletInstance
from ..job_work import JobWork
from ..search_table import RankedLayouts

EFFORTS = {"none": (0, 0, 0), "fast": (3, 150, 1), "thorough": (6, 1_500, 3)}
"""By name: layouts of different degrees whose hosts are arranged, orders that are tried for each, and searches after that."""

MIN_GAIN = 0.01
"""Share of the step by which another order must be shorter before layouts are searched again; predictions resolve no less."""

MOST_HOSTS = 128
"""Of more hosts none is arranged."""

SMALL_BYTES, LARGE_BYTES = 1.0, 1e9
"""Sizes of two messages that give the latency and bandwidth of a pair of hosts."""


def arranged(ranking: RankedLayouts, effort: str) -> RankedLayouts:
    """Return the result of a search with hosts in a better order, where there is one; unchanged where hosts are equal.

    Args:
        ranking: what was found with hosts in order.
        effort: one of `EFFORTS`.

    Raises:
        PlanError: no such effort.
    """
    if effort not in EFFORTS:
        raise PlanError("no such effort", field="--set arrange", value=effort, choices=EFFORTS)
    num_layouts, num_trials, num_searches = EFFORTS[effort]
    first_s, count = ranking.best.step_s, 0
    if not isinstance(ranking.maker.wires, PlacedNetwork) or num_layouts == 0 or ranking.best.devices < 2:
        return ranking
    if ranking.best.devices // ranking.maker.devices_per_host > MOST_HOSTS:
        return replace(ranking, sizes=(*ranking.sizes, f"more than {MOST_HOSTS} hosts are left in order"))
    if len(ranking.device_counts) > 1:
        left = "hosts are left in order, since several numbers of devices are ranked; --devices names one"
        return replace(ranking, sizes=(*ranking.sizes, left))
    may_choose = ranking.maker.allocation is None and ranking.maker.stage_devices is None
    for _ in range(num_searches):
        tried = [_arranged_ranks(ranking, one, num_trials, may_choose) for one in _unlike(ranking, num_layouts)]
        count += sum(one.num_priced for one in tried)
        best = min(tried, key=lambda one: one.step_s)
        if best.step_s > (1 - MIN_GAIN) * ranking.best.step_s:
            break
        maker = ranking.maker.on(best.devices)
        again = RankedLayouts.from_request(maker, ranking.request, [ranking.best.devices])
        ranking = replace(again, sizes=ranking.sizes, others=ranking.others)
    note = f"ranks on other devices: {ranking.best.step_s:.4g} s, in order {first_s:.4g} s"
    if ranking.best.step_s >= first_s:
        note = f"no other devices make the step shorter by {MIN_GAIN:.0%}"
    return replace(ranking, sizes=(*ranking.sizes, f"{note}; {count} arrangements priced"))


def _unlike(ranking: RankedLayouts, most: int) -> list[RankedLayout]:
    """Return the best layouts of different degrees."""
    known: dict[tuple[int, ...], RankedLayout] = {}
    for one in ranking.searched.ranking:
        layout = one.layout
        if one.devices == ranking.best.devices:
            known.setdefault((layout.tp, layout.cp, layout.pp, layout.dp, layout.ep), one)
    return list(known.values())[:most]


def _arranged_ranks(ranking: RankedLayouts, ranked: RankedLayout, num_trials: int, may_choose: bool) -> ArrangedRanks:
    """Return the devices of one layout of the shortest step; of all devices of the cluster where they may be chosen."""
    maker, work = ranking.maker, ranking.search.work(ranked.layout, ranked.order)
    pricer: StepPricer = ranking.search.pricer(ranked.order)
    wires = maker.wires
    assert isinstance(wires, PlacedNetwork), "hosts differ"
    hosts = maker.devices(ranked.devices).reshape(-1, min(ranked.devices, maker.devices_per_host))
    every = _with_free(hosts, maker) if may_choose else list(hosts)
    within = isinstance(maker.cluster.topology, MatrixTopology) and max(map(len, every)) > 1

    def step_s(devices: NDArray[np.int64]) -> float:
        return pricer.in_order(ranked.order, wires.on(devices)).step_s(work)

    starts, (count, width) = _starts(ranked, wires, hosts), hosts.shape
    return arrange_ranks(step_s, every, starts, num_trials, count=count, width=width, within=within)


def _with_free(hosts: NDArray[np.int64], maker: JobWork) -> list[NDArray[np.int64]]:
    """Return the devices of the job's hosts, the job's own first, and of hosts on which it might be."""
    device_host, every = maker.cluster.device_host, replace(maker, allocation=None).devices(maker.cluster.num_devices)
    is_free = np.ones(len(every), np.bool_)
    is_free[hosts] = False
    results = []
    for row in hosts:
        left = np.flatnonzero(is_free & (device_host == device_host[row[0]]))
        is_free[left] = False
        results.append(np.concatenate([row, left]))
    others = (np.flatnonzero(is_free & (device_host == host)) for host in dict.fromkeys(device_host[every].tolist()))
    return [*results, *(one for one in others if len(one) >= hosts.shape[1])]


def _starts(ranked: RankedLayout, wires: PlacedNetwork, hosts: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Yield orders of hosts by the published surrogate, with few and with many bytes between stages, each host one place."""
    layout = ranked.layout
    count, width = len(hosts), hosts.shape[1]
    if width != layout.tp * layout.cp or layout.pp * layout.dp != count or count < 4 or layout.pp == 1:
        return
    own = numbers(layout, ranked.order)[:: layout.tp * layout.cp] // width  # the host of each stage and replica
    if len(set(own.tolist())) != count:
        return
    pairs = np.array([(hosts[i, 0], hosts[j, 0]) for i in range(count) for j in range(count) if i != j])
    seconds = np.zeros((2, count, count))
    apart = ~np.eye(count, dtype=np.bool_)
    for group, (i, j) in zip(placed(wires.fabric.cluster, pairs[:, None], wires.fabric.routing), np.argwhere(apart), strict=True):
        price = wires.fabric.seconds("send_recv", group)
        seconds[:, i, j] = price(SMALL_BYTES), price(LARGE_BYTES)
    rates = (LARGE_BYTES - SMALL_BYTES) / np.maximum(seconds[1] - seconds[0], 1e-12)
    np.fill_diagonal(rates, 1.0)
    for ratio in (0.1, 1.0, 10.0):
        try:
            gradient_bytes = 1e9
            instance = TaskletInstance("", ("",) * count, seconds[0], rates, layout.pp, gradient_bytes, ratio * gradient_bytes)
        except MeshwrightError:
            return
        order = np.empty(count, np.int64)
        order[own] = arrange(instance, ArrangementRequest()).device_of.reshape(-1)
        yield order
