"""The rows of an evaluation of operator placement as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..alike import alike, joined
from ..tables import escaped, table
from .evaluate import Data

Cells = tuple[list[str], list[list[str]]]


def operator_title(results: Data) -> str:
    """What was placed, in a line."""
    return f"{results['benchmark']}: {results['objective']}, {results['num_instances']} instances"


def operator_cells(results: Data) -> Cells:
    """Headings and rows, the best first; policies that place alike share a row, with the times of the first."""
    head = ["policy", "over best known", "against best rule, %", "over bound", "best, %", "median, ms", "99 %, ms"]
    rows = []
    for group in ranked(results):
        row = group[0]
        rows.append(
            [
                joined(group),
                _interval(row["over_best_known"], 1.0, ".3f"),
                _interval(row["against_best_rule"], 100.0, "+.1f"),
                f"{row['over_bound']['mean']:.2f}",
                f"{100 * row['won']:.0f}",
                f"{1000 * row['seconds']['median']:.1f}",
                f"{1000 * row['seconds']['p99']:.1f}",
            ]
        )
    return head, rows


def ranked(results: Data) -> list[list[Mapping[str, Any]]]:
    """The rows, the best first, those of policies that place alike together."""
    return alike(sorted(results["rows"], key=lambda each: float(each["over_best_known"]["mean"])))


def operator_markdown(results: Data) -> str:
    """A heading, a table with a line per policy, and the verdict."""
    head, rows = operator_cells(results)
    lines = [
        f"# Benchmark {escaped(results['benchmark'])}",
        "",
        f"{results['num_instances']} instances, objective {results['objective']}; values are means of ratios with 95 % bootstrap "
        f"intervals over the instances. The best known of an instance is the best of all policies here and of annealing for "
        f"{results['best_known_s']:g} s; the best rule is the best of all that neither learn, search nor prove, instance by "
        "instance.",
        "",
        *table(head, [[escaped(cell) for cell in row] for row in rows]),
        "",
        escaped(results["verdict"]),
        "",
    ]
    return "\n".join(lines)


def _interval(found: Data | None, scale: float, form: str) -> str:
    if found is None:
        return "-"
    mean = format(scale * found["mean"], form)
    return (
        mean if found["low"] is None else f"{mean} [{format(scale * found['low'], form)}, {format(scale * found['high'], form)}]"
    )
