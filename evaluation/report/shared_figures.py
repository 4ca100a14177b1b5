"""Figures that every evaluation has: the objective of each policy, and two metrics that policies trade against each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..alike import alike, joined
from ..metrics import METRICS, Metric
from ..plots.charts import BarRow, bars_svg
from ..plots.interactive.gantt_charts import Chart
from ..plots.interactive.scatter_charts import FRONT, PolicyFigure, policies_chart
from ..plots.interactive.scatter_plot import scatter_svg
from ..statistics import NO_POLICY
from ..tables import chosen_for
from ..worlds.registry import WORLDS
from .pages import Drawn

Data = Mapping[str, Any]


def drawn_rows(results: Data) -> list[dict[str, Any]]:
    """Return a row for all policies that played alike, with metrics and details as keys of the row, as figures read them."""
    return [
        {
            **group[0]["details"],
            **group[0]["metrics"],
            "kind": group[0]["kind"],
            "first": group[0]["policy"],
            "policy": joined(group, lambda name: name + chosen_for(results, name)),
        }
        for group in alike(results["rows"])
    ]


def figures_of(results: Data, mark: str = "") -> list[Drawn]:
    """Return the figures of an evaluation.

    Args:
        results: of it.
        mark: ends the names of its drawings, where several evaluations are on one page.
    """
    objective, rows = METRICS[results["objective"]], drawn_rows(results)
    figure, start = policy_figure(objective), 1.0 if objective.name.startswith("over_") else 0.0
    bars = [
        BarRow(str(row["policy"]), str(row["kind"]), figure.of(row), figure.of(row, "low"), figure.of(row, "high"))
        for row in rows
    ]
    title, direction = objective.words.capitalize(), "less" if objective.sign > 0 else "more"
    caption = (
        f"{title}: the {direction} the better. Bars are means over the {results['case']}s, whiskers 95 % intervals. Compare "
        f"policies by the paired difference in the table: all met the same {results['case']}s."
    )
    svg = bars_svg(bars, objective.axis, f"objective{mark}", f"{title} of each policy", start, objective.digits)
    return [Drawn([svg], caption), *_trade_off(results, rows, mark)]


def policy_figure(metric: Metric) -> PolicyFigure:
    """Return a metric as an axis of a chart."""
    return PolicyFigure(metric.name, metric.axis, metric.scale, metric.sign < 0)


def _trade_off(results: Data, rows: Sequence[Data], mark: str) -> list[Drawn]:
    playing = [row for row in rows if row["kind"] not in NO_POLICY]
    differing = [
        metric
        for metric in (METRICS[name] for name in WORLDS[results["world"]].trade_off)
        if len({row[metric.name]["mean"] for row in playing if row.get(metric.name) is not None}) > 1
    ]
    if len(differing) < 2:
        return []
    x, y, *_ = differing
    title = f"Policies by {x.words} and {y.words}"
    chart: Chart | None = policies_chart(title, playing, policy_figure(x), policy_figure(y))
    if chart is None:
        return []
    return [Drawn([scatter_svg(chart, f"trade-off{mark}")], f"{title}, means over the {results['case']}s. {FRONT}", chart)]
