"""Reports of evaluations that leave figures alone and no episodes: elastic jobs, and operator placement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..alike import alike, joined
from ..elastic.tables import elastic_cells
from ..operators.tables import operator_cells, ranked
from ..plots.charts import BarRow, bars_svg
from ..plots.gantt_charts import Chart
from ..plots.scatter_charts import PolicyFigure, policies_chart
from ..plots.scatter_plot import scatter_svg
from ..statistics import interval
from .pages import Cell, Drawn, PageTable, Row, cells, figure_cells, page

Data = Mapping[str, Any]


def elastic_report(results: Data) -> str:
    """The page of an evaluation on published elastic workloads."""
    elastic, counts = results["elastic"], results["elastic"]["num_jobs"]
    head, rows = elastic_cells(results, has_words=True)
    groups = alike(results["rows"])
    named = [{**group[0], "policy": joined(group)} for group in groups]
    x = PolicyFigure("makespan_s", "makespan, h", 1 / 3600)
    y = PolicyFigure("mean_completion_s", "mean completion time, min", 1 / 60)
    chart = policies_chart("Schedulers by mean completion time and makespan", named, x, y)
    drawn = Drawn(
        [bars_svg(_bars(named, y), "mean completion time (min)", "completion", "Mean completion time of each scheduler")],
        "Mean completion time of jobs, the less the better; means over the workloads, whiskers are 95 % intervals. "
        "Compare schedulers by the "
        "paired differences in the table, since all met the same jobs.",
    )
    return page(
        "compared.html",
        title=results["benchmark"],
        heading=f"Benchmark {results['benchmark']}: which scheduler completes elastic jobs first?",
        facts=f"{elastic['num_devices']} devices; {len(counts)} published workload{'s' * (len(counts) != 1)} of {sum(counts)} "
        f"jobs in all: {', '.join(results['workloads'])}.",
        verdict=results["verdict"],
        remarks=results["remarks"],
        policies=_table(head, rows, groups),
        legend="Means over the workloads, 95 % bootstrap intervals in brackets, differences paired. A name that begins with "
        "published: is of times that were published with the workloads. Learned policies are shaded.",
        tables=[],
        drawn=[
            drawn,
            *_trade_off(chart, "Mean completion time against the time until the last job ends, means over the workloads."),
        ],
    )


def operator_report(results: dict[str, Any]) -> str:
    """The page of an evaluation of operator placement."""
    groups = ranked(results)
    head, rows = operator_cells(results)
    named = [{**group[0], "policy": joined(group), "time_s": interval([group[0]["seconds"]["median"]])} for group in groups]
    y = PolicyFigure("over_best_known", "step over the best known", 1.0)
    x = PolicyFigure("time_s", "time of a placement, ms, median", 1e3)
    chart = policies_chart("Policies by value and time of a placement", named, x, y, is_log=(True, False))
    drawn = Drawn(
        [
            bars_svg(
                _bars(named, y),
                "value over the best known (1 is as good)",
                "over-best",
                "Each policy over the best known",
                1.0,
                3,
            )
        ],
        "Value of each policy's placements over the best known of the same instance: 1 is as good, 1.1 is 10 % worse. "
        "Means over the "
        "instances, whiskers are 95 % intervals.",
    )
    sizes = list(dict.fromkeys(size for group in groups for size in group[0]["by_size"]))
    by_size = PageTable(
        (Cell("policy"), *cells(sizes)),
        [_row([row["policy"], *(_mean(row["by_size"].get(size)) for size in sizes)], row["kind"]) for row in named],
    )
    return page(
        "compared.html",
        title=results["benchmark"],
        heading=f"Benchmark {results['benchmark']}: who places ops best?",
        facts=f"{results['num_instances']} instances; objective: {results['objective']}.",
        verdict=results["verdict"],
        remarks=results["remarks"],
        policies=_table(head, rows, groups),
        legend="Means of ratios over the instances, 95 % bootstrap intervals in brackets. The best known of an instance is the "
        f"best of all policies here and of annealing for {results['best_known_s']:g} s; the best rule is the best of all that "
        f"neither learn, "
        "search nor prove, instance by instance. Policies that place alike share a row. Learned policies are shaded.",
        tables=[("Over the best known, by size", by_size)] if len(sizes) > 1 else [],
        drawn=[drawn, *_trade_off(chart, "Value over the best known against the time that a placement takes, in the median.")],
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], groups: Sequence[Sequence[Data]]) -> PageTable:
    return PageTable(cells(head), [_row(row, group[0]["kind"]) for row, group in zip(rows, groups, strict=True)], "wide")


def _trade_off(chart: Chart | None, caption: str) -> list[Drawn]:
    if chart is None:
        return []
    told = f"{caption} Down and to the left is better; a line joins those that no other one beats in both."
    return [Drawn([scatter_svg(chart, "trade-off")], told, chart)]


def _row(texts: Sequence[str], kind: str) -> Row:
    return Row(figure_cells(texts), is_learned=kind == "learned")


def _mean(value: Data | None) -> str:
    return "-" if value is None else f"{value['mean']:.3f}"


def _bars(rows: Sequence[Data], figure: PolicyFigure) -> list[BarRow]:
    return [
        BarRow(str(row["policy"]), str(row["kind"]), figure.of(row), figure.of(row, "low"), figure.of(row, "high"))
        for row in rows
    ]
