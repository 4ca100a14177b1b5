"""Evaluations of other kinds than a scenario's: pages of elastic jobs, ops and tasklets, and parts of a page of several."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...quantities import counted, things
from ..alike import alike, joined
from ..elastic.tables import elastic_cells, elastic_title
from ..fleet.objectives import OBJECTIVES
from ..fleet.tables import fleet_cells, fleet_title
from ..operators.tables import figure_rows, operator_cells, operator_title, ranked
from ..plots.figure import Figure
from ..plots.policies import BarRow, bars_figure
from ..plots.trade_off import FRONT, PolicyFigure, policies_figure
from ..statistics import CHALLENGERS, interval
from ..tasklets.tables import tasklet_cells, tasklet_title
from .pages import Drawn, PageTable, Row, cells, figure_cells, page

Data = Mapping[str, Any]


class Compared(NamedTuple):
    """One evaluation on a page.

    Attributes:
        title: benchmark and what was played, in a line.
        verdict: who won.
        table: a row for each policy.
        drawn: its figures.
    """

    title: str
    verdict: str
    table: PageTable
    drawn: list[Drawn]


def elastic_report(results: Data, *, command: str = "") -> str:
    """The page of an evaluation on published elastic workloads, and the command that made it."""
    elastic, counts = results["elastic"], results["elastic"]["num_jobs"]
    shown = compared_elastic(results)
    return page(
        "compared.html",
        title=results["benchmark"],
        heading=f"Benchmark {results['benchmark']}: which scheduler completes elastic jobs first?",
        facts=f"{counted(elastic['num_devices'], 'device')}; "
        f"{len(counts)} published {things(len(counts), 'workload')} of {sum(counts)} "
        f"jobs in all: {', '.join(results['workloads'])}.",
        verdict=results["verdict"],
        remarks=results["remarks"],
        policies=shown.table,
        legend="Means over the workloads, 95 % bootstrap intervals in brackets, differences paired. A name "
        "after published: stands for the completion times that were published with the workloads. Learned policies are shaded.",
        tables=[],
        drawn=shown.drawn,
        command=command,
    )


def compared_elastic(results: Data) -> Compared:
    """An evaluation on published elastic workloads.

    Args:
        results: of it.
    """
    head, rows = elastic_cells(results, has_words=True)
    groups = alike(results["rows"])
    named = [{**group[0], "policy": joined(group)} for group in groups]
    x = PolicyFigure("makespan_s", "makespan, h", 1 / 3600)
    y = PolicyFigure("mean_completion_s", "mean completion time, min", 1 / 60)
    chart = policies_figure("Schedulers by mean completion time and makespan", named, x, y)
    bars = bars_figure(_bars(named, y), "mean completion time (min)", "Mean completion time of each scheduler")
    drawn = Drawn(
        bars,
        "Mean completion time of jobs, the less the better; means over the workloads, whiskers are 95 % intervals. "
        "Compare schedulers by the "
        "paired differences in the table, since all met the same jobs.",
    )
    caption = "Mean completion time against the time until the last job ends, means over the workloads."
    return Compared(elastic_title(results), results["verdict"], _table(head, rows, groups), [drawn, *_trade_off(chart, caption)])


def compared_operators(results: dict[str, Any]) -> Compared:
    """An evaluation of operator placement; arguments as of `compared_elastic`."""
    told = (
        "Value of each policy's placements over the best known of the same instance: 1 is as good, 1.1 is 10 % worse. "
        "Means over the instances, whiskers are 95 % intervals."
    )
    return _compared_placements(results, operator_cells(results), operator_title(results), "step", "placement", told)


def tasklet_report(results: dict[str, Any], *, command: str = "") -> str:
    """The page of an evaluation on networks of distant devices, and the command that made it."""
    shown, tasklets = compared_tasklets(results), results["tasklets"]
    sizes = (" or ".join(map(str, tasklets[key])) for key in ("num_devices", "num_stages"))
    return page(
        "compared.html",
        title=results["benchmark"],
        heading=f"Benchmark {results['benchmark']}: who groups distant devices best?",
        facts="{} networks; {} devices in {} stages.".format(results["num_instances"], *sizes),
        verdict=results["verdict"],
        remarks=results["remarks"],
        policies=shown.table,
        legend="Means over the networks, 95 % bootstrap intervals in brackets, differences paired. The best known of a network "
        f"is the best of all here and of chain for {results['best_known_s']:g} s with a seed of its own. Learned policies are "
        "shaded.",
        tables=[],
        drawn=shown.drawn,
        command=command,
    )


def compared_tasklets(results: dict[str, Any]) -> Compared:
    """An evaluation on networks of distant devices; arguments as of `compared_elastic`."""
    told = (
        "Communication of a step as each policy groups the devices, over the best known of the same network: 1 is as good. Means "
        "over the networks, whiskers are 95 % intervals."
    )
    cells = tasklet_cells(results)
    return _compared_placements(results, cells, tasklet_title(results), "communication", "grouping", told)


def _compared_placements(
    results: dict[str, Any], cells: tuple[list[str], list[list[str]]], title: str, what: str, one: str, told: str
) -> Compared:
    """Policies by value over the best known and by time.

    Args:
        results: as of `compared_elastic`.
        cells: of the table, head and rows.
        title: of the table.
        what: is compared, on an axis.
        one: what a policy makes.
        told: below the bars.
    """
    groups = ranked(results)
    named = [{**row, "time_s": interval([row["seconds"]["median"]])} for row in figure_rows(results)]
    y = PolicyFigure("over_best_known", f"{what} over the best known", 1.0)
    x = PolicyFigure("time_s", f"time of a {one}, ms, median", 1e3)
    chart = policies_figure(f"Policies by value and time of a {one}", named, x, y, is_log=(True, False))
    axis = "value over the best known (1 is as good)"
    drawn = Drawn(bars_figure(_bars(named, y), axis, "Each policy over the best known", 1.0, 3), told)
    caption = f"Value over the best known against the time that a {one} takes, in the median."
    table = _table(*cells, groups)
    return Compared(title, results["verdict"], table, [drawn, *_trade_off(chart, caption)])


def compared_fleet(results: Data) -> Compared:
    """An evaluation of a fleet, without its episodes; arguments as of `compared_elastic`."""
    groups, objective = alike(results["rows"]), OBJECTIVES[results["objective"]]
    head, rows = fleet_cells(results, has_words=True)
    named = [{**group[0], "policy": joined(group)} for group in groups]
    figure = PolicyFigure(objective.metric, f"{objective.words}, {objective.unit}", objective.scale, objective.sign < 0)
    bars = bars_figure(
        _bars(named, figure),
        f"{objective.words} ({objective.unit})",
        f"{objective.words.capitalize()} of each policy",
        digits=objective.digits,
    )
    direction = "the less the better" if objective.sign > 0 else "the more the better"
    caption = f"{objective.words.capitalize()}, {direction}; means over the episodes, whiskers are 95 % intervals."
    x = PolicyFigure("mean_completion_s", "mean completion time, min", 1 / 60)
    y = PolicyFigure("blocking_rate", "blocked, % of jobs", 100.0)
    playing = [row for row in named if row["kind"] != "reference"]
    has_two = len({row["blocking_rate"]["mean"] for row in playing if row["blocking_rate"] is not None}) > 1
    chart = policies_figure("Policies by jobs blocked and completion time", playing, x, y) if has_two else None
    trade_off = _trade_off(chart, "Jobs blocked against the mean completion time, means over the episodes.")
    return Compared(fleet_title(results), results["verdict"], _table(head, rows, groups), [Drawn(bars, caption), *trade_off])


COMPARED: dict[str, Callable[..., Compared]] = {
    "fleet": compared_fleet,
    "elastic": compared_elastic,
    "operators": compared_operators,
    "tasklets": compared_tasklets,
}
"""By the kind of results, as `evaluation.saved_results.read_any_results` tells it."""


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], groups: Sequence[Sequence[Data]]) -> PageTable:
    return PageTable(cells(head), [policy_row(row, group[0]["kind"]) for row, group in zip(rows, groups, strict=True)], "wide")


def _trade_off(figure: Figure | None, caption: str) -> list[Drawn]:
    return [] if figure is None else [Drawn(figure, f"{caption} {FRONT}")]


def policy_row(texts: Sequence[str], kind: str) -> Row:
    """A row of a table, shaded where it is a learned policy's."""
    return Row(figure_cells(texts), is_learned=kind in CHALLENGERS)


def _bars(rows: Sequence[Data], figure: PolicyFigure) -> list[BarRow]:
    return [
        BarRow(str(row["policy"]), str(row["kind"]), figure.of(row), figure.of(row, "low"), figure.of(row, "high"))
        for row in rows
    ]
