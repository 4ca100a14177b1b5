"""The page of an evaluation of operator placement: the comparison, value by time and by class, ablations, single instances."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...planners.policy_names import parsed
from ...quantities import counted
from ..operators.tables import (
    ablation_cells,
    budget_cells,
    difference_cells,
    difference_words,
    figure_rows,
    objective_words,
    paired_cells,
)
from ..plots.operators import budgets_figure, classes_figure, schedules_figure, shown_figure
from .compared import compared_operators, policy_row
from .pages import Cell, Drawn, PageTable, cells, page

Data = Mapping[str, Any]


def operator_report(results: dict[str, Any], *, command: str = "") -> str:
    """The page, and the command that made it."""
    shown = compared_operators(results)
    return page(
        "operators.html",
        title=results["benchmark"],
        heading=f"Benchmark {results['benchmark']}: who places ops best?",
        facts=f"{counted(results['num_instances'], 'instance')}; objective: {objective_words(results)}.",
        verdict=results["verdict"],
        remarks=results["remarks"],
        policies=shown.table,
        legend="Means of ratios over the instances, 95 % bootstrap intervals in brackets. The best known of an instance is the "
        f"best of all policies here and of annealing for {results['best_known_s']:g} s; the best rule is the best of all that "
        f"neither learn, "
        "search nor prove, instance by instance. Policies that place alike share a row. Learned policies are shaded.",
        tables=_tables(results),
        decisions=_decisions(results),
        drawn=[*shown.drawn, *_budgets(results), *_classes(results), *_shown(results)],
        command=command,
    )


def _tables(results: dict[str, Any]) -> list[tuple[str, PageTable]]:
    placed = figure_rows(results)
    sizes = list(dict.fromkeys(size for row in placed for size in row["by_size"]))
    tables = []
    if len(sizes) > 1:
        rows = [policy_row([row["policy"], *(_mean(row["by_size"].get(size)) for size in sizes)], row["kind"]) for row in placed]
        tables.append(("Over the best known, by size", PageTable((Cell("policy"), *cells(sizes)), rows)))
    kinds = {row["policy"]: row["kind"] for row in results["rows"]}
    told = (
        ("Learned policies against each, paired over the best known", paired_cells(results)),
        ("Over the best known, by time given", budget_cells(results)),
        ("What the networks leave out", ablation_cells(results)),
    )
    for title, found in told:
        if found is not None:
            head, rows_of = found
            tables.append((title, PageTable(cells(head), [policy_row(row, kinds.get(row[0], "")) for row in rows_of])))
    return tables


def _decisions(results: dict[str, Any]) -> list[tuple[str, str, PageTable]]:
    """Of each shown instance a title, what its decisions amount to, and a table of them."""
    found = []
    for one in results.get("shown", []):
        title, head, rows = difference_cells(one)
        found.append((title, difference_words(one), PageTable(cells(head), [policy_row(row, "") for row in rows])))
    return found


def _budgets(results: dict[str, Any]) -> list[Drawn]:
    budgets = results.get("budgets", {"rows": []})
    if not budgets["rows"]:
        return []
    searches = {parsed(row["policy"]).whole for row in budgets["rows"] if row["kind"] == "planner"}
    others = [row for row in figure_rows(results) if parsed(row["policy"]).whole not in searches]
    told = "Value over the best known against the time that a placement takes: searches with several budgets as lines, with "
    return [Drawn(budgets_figure(budgets, others), told + "95 % intervals, all others as points.")]


def _classes(results: dict[str, Any]) -> list[Drawn]:
    rows = figure_rows(results)
    if not results.get("classes"):
        return []
    told = "Mean value over the best known on the instances of each class; the deeper the colour, the further above it."
    return [Drawn(classes_figure(rows, results["classes"]), told)]


def _shown(results: dict[str, Any]) -> list[Drawn]:
    drawn = []
    for one in results.get("shown", []):
        name = f"{one['number']}"
        drawn += [
            Drawn(shown_figure(one), f"Instance {name}: its ops on their devices, and the tensors that cross."),
            Drawn(
                schedules_figure(one),
                f"Instance {name}: when each device runs its ops, as {one['policy']} and as HEFT places them.",
            ),
        ]
    return drawn


def _mean(value: Data | None) -> str:
    return "-" if value is None else f"{value['mean']:.3f}"
