"""Sections of operator placement in a report: value by time and class, and instances in detail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...planners.policy_names import parsed
from ..evaluate import Evaluation
from ..operators.differences import difference_cells, difference_words
from ..plots.operators import budgets_figure, classes_figure, schedules_figure, shown_figure
from ..sections import known_at
from .pages import Drawn, PageTable, Part, Sections, figure_cells
from .shared_figures import drawn_rows

Data = Mapping[str, Any]


def operator_sections(evaluation: Evaluation) -> Sections:
    """Return the sections of an evaluation."""
    results = evaluation.results
    parts: list[Part] = []
    for one in results["more"]["shown"]:
        title, head, rows = difference_cells(one)
        table = PageTable(head, [figure_cells(row) for row in rows])
        folded = f"{len(rows)} ops or groups of ops on another device"
        parts.append((title, difference_words(one), [(folded, table)] if rows else []))
    blocks = [("Decisions against HEFT's", "", parts)] if parts else []
    return Sections("", [*_budgets(results), *_classes(results), *_shown(results)], blocks)


def _rows(results: Data) -> list[dict[str, Any]]:
    """Return a row for each point of a figure, as figures of operator placement read them."""
    took = results["timing"]["decision_s"]
    rows = [row for row in drawn_rows(results) if row["over_best_known"] is not None]
    return [{**row, "seconds": took[row["first"]]} for row in rows]


def _budgets(results: Data) -> list[Drawn]:
    budgets = results["more"]["budgets"]
    if not budgets["rows"]:
        return []
    searches = {parsed(row["policy"]).whole for row in budgets["rows"] if row["kind"] == "planner"}
    others = [row for row in _rows(results) if parsed(row["first"]).whole not in searches]
    words = "Value over the best known against the time that a placement takes: searches with several budgets as lines, with "
    return [Drawn(budgets_figure(budgets, others), words + "95 % intervals, all others as points.")]


def _classes(results: Data) -> list[Drawn]:
    if not results["classes"]:
        return []
    per_case = {row["policy"]: row["per_case"]["over_best_known"] for row in results["rows"]}
    values = {}
    for row in _rows(results):
        known = (known_at(per_case[row["first"]], one["cases"]) for one in results["classes"])
        values[row["policy"]] = [sum(each) / len(each) for each in known]
    words = "Mean value over the best known on the instances of each class; the deeper the colour, the further above it."
    return [Drawn(classes_figure(values, [(one["dimension"], one["class"]) for one in results["classes"]]), words)]


def _shown(results: Data) -> list[Drawn]:
    drawn = []
    for one in results["more"]["shown"]:
        name = f"Instance {one['number']}"
        words = f"{name}: when each device runs its ops, as {one['policy']} and as HEFT places them."
        drawn += [
            Drawn(shown_figure(one), f"{name}: its ops on their devices, and the tensors that cross."),
            Drawn(schedules_figure(one), words),
        ]
    return drawn
