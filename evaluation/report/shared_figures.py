"""Figures that every evaluation has: the objective of each policy, and two metrics that policies trade against each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..metrics import METRICS, Metric
from ..plots.policies import bars_figure
from ..plots.trade_off import FRONT, policies_figure
from ..statistics import CHALLENGERS, NO_POLICY, joined, tied_groups
from ..tables import chosen_for
from ..worlds.evaluated_world import TIME
from ..worlds.registry import WORLDS
from .pages import Drawn

Data = Mapping[str, Any]


def drawn_rows(results: Data) -> list[dict[str, Any]]:
    """Return one row for all policies with the same results, with metrics and details as keys, as figures read them."""
    took = results["timing"]["decision_s"]
    times = {name: {"mean": one.get("median", one.get("mean")), "low": None, "high": None} for name, one in took.items()}
    return [
        {
            TIME: times.get(group[0]["policy"]),
            **group[0]["details"],
            **group[0]["metrics"],
            "kind": group[0]["kind"],
            "first": group[0]["policy"],
            "policy": joined(group, lambda name: name + chosen_for(results, name)),
        }
        for group in tied_groups(results["rows"])
    ]


def figures_of(results: Data) -> list[Drawn]:
    """Return the figures of an evaluation."""
    objective, rows = METRICS[results["objective"]], drawn_rows(results)
    title, direction = objective.words.capitalize(), "less" if objective.sign > 0 else "more"
    caption = (
        f"{title}: {direction} is better. Bars are means over the {results['case']}s, whiskers 95 % intervals. Compare "
        f"policies by the paired difference in the table: all met the same {results['case']}s."
    )
    return [Drawn(bars_figure(rows, objective, f"{title} of each policy"), caption), *_trade_off(results, rows)]


def _trade_off(results: Data, rows: Sequence[Data]) -> list[Drawn]:
    playing = [row for row in rows if row["kind"] not in NO_POLICY]
    for pair in WORLDS[results["world"]].trade_offs:
        if all(len({row[name]["mean"] for row in playing if row.get(name) is not None}) > 1 for name in pair):
            x, y = (_TIME if name == TIME else METRICS[name] for name in pair)
            title = f"Policies by {x.words} and {y.words}"
            chart = policies_figure(title, playing, x, y, is_log=(x is _TIME, False))
            if chart is not None:
                caption = f"{title}, means over the {results['case']}s. {FRONT}"
                return [Drawn(chart, caption)]
    return []


_TIME = Metric(TIME, {}, "decision", "ms", 1e3, 2, "time of a decision")


def shown_policies(results: Mapping[str, Any], most: int) -> list[str]:
    """Return the best learned policy, the best baseline, then others, best first; one of several with the same results."""
    rows = [row for row in results["rows"] if row["kind"] not in NO_POLICY]
    first = [row["policy"] for row in rows if row["kind"] in CHALLENGERS][:1]
    groups = [[row["policy"] for row in group] for group in tied_groups(results["rows"])]
    once: dict[int, str] = {}
    for name in (*first, *results["best_baselines"][:1], *(row["policy"] for row in rows)):
        once.setdefault(next(number for number, group in enumerate(groups) if name in group), name)
    return list(once.values())[:most]
