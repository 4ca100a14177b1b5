"""Further tables of an evaluation, each from its results alone; one that has nothing to show is left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .metrics import METRICS
from .statistics import CHALLENGERS, NO_POLICY, joined, tied_groups
from .tables import Cells, Data, difference_cell, seconds_text, with_ends
from .verdict import paired_rows

MOST_SHARES = 8


def paired_cells(results: Data) -> Cells | None:
    """Return each policy against each learned one, by the objective, paired over the cases."""
    metric, groups = METRICS[results["objective"]], tied_groups(results["rows"])
    learned = [group[0] for group in groups if group[0]["kind"] in CHALLENGERS]
    if not learned or len(groups) < 3:
        return None
    rows = [
        [joined(group), *(difference_cell(paired_rows(group[0], row, metric), metric, has_words=True) for row in learned)]
        for group in groups
        if group[0]["kind"] not in NO_POLICY
    ]
    return ["against", *(str(row["policy"]) for row in learned)], rows


def class_cells(results: Data) -> Cells | None:
    """Return the objective of each policy on each class of cases."""
    classes, metric = results["classes"], METRICS[results["objective"]]
    if not classes:
        return None
    groups = tied_groups(results["rows"])
    head = ["policy", *(f"{one['dimension']}: {one['class']}" for one in classes)]
    rows = []
    for group in groups:
        values = group[0]["per_case"][metric.name]
        means = [np.mean(known) if (known := known_at(values, one["cases"])) else None for one in classes]
        rows.append([joined(group), *("-" if mean is None else f"{metric.scale * mean:.{metric.digits}f}" for mean in means)])
    return head, rows


def known_at(values: Sequence[float | None], places: Sequence[int]) -> list[float]:
    """Return the known values at some places."""
    return [value for place in places if (value := values[place]) is not None]


def budget_cells(results: Data) -> Cells | None:
    """Return searches by the time that they are given."""
    budgets = results["more"].get("budgets")
    if not budgets or not budgets["rows"]:
        return None
    rows = [[row["policy"], *(with_ends(each, 1.0, 3) for each in row["over_best_known"])] for row in budgets["rows"]]
    return ["policy", *map(seconds_text, budgets["seconds"])], rows


def left_out(trained: Data) -> tuple[str, ...]:
    """Return what the network of a graph policy leaves out."""
    return () if trained["network"].get("messages", True) else ("messages",)


def ablation_cells(results: Data) -> Cells | None:
    """Return learned policies whose networks leave something out, against the first that leaves out nothing."""
    trained = {name: one for name, one in results["more"].get("trained", {}).items() if one.get("network") and "@" not in name}
    rows = [row for row in results["rows"] if row["policy"] in trained]
    lacks = {row["policy"]: left_out(trained[row["policy"]]) for row in rows}
    whole = next((row for row in rows if not lacks[row["policy"]]), None)
    if whole is None or not any(lacks.values()):
        return None
    metric = METRICS[results["objective"]]
    cells = [
        [
            row["policy"],
            ", ".join(lacks[row["policy"]]) or "nothing",
            with_ends(row["metrics"][metric.name], metric.scale, metric.digits),
            difference_cell(paired_rows(row, whole, metric), metric, has_words=True),
        ]
        for row in sorted(rows, key=lambda each: each is not whole)
    ]
    return ["policy", "left out", metric.column, "paired"], cells


def tuned_cells(results: Data) -> Cells | None:
    """Return the validation values among which tuned baselines were chosen."""
    metric = METRICS[results["objective"]]
    rows = [
        [policy, name, f"{metric.scale * value:.{metric.digits}f}", "chosen" if name == one["chosen"] else ""]
        for policy, one in results["tuned"].items()
        for name, value in one["values"].items()
    ]
    return (["policy", "played", metric.column, ""], rows) if rows else None


def taken_cells(results: Data) -> Cells | None:
    """Return what jobs were given, as shares of jobs: devices and layouts."""
    rows = [
        [joined(group), _shares(details["degrees"]), _shares(details.get("layouts", details.get("shapes", {})))]
        for group in tied_groups(results["rows"])
        if (details := group[0]["details"]).get("degrees")
    ]
    return (["policy", "devices", "layouts"], rows) if rows else None


def entry_cells(results: Data) -> Cells | None:
    """Return the largest shares of named entries by policy and type of jobs."""
    rows = []
    for row in results["rows"]:
        details = row["details"]
        for kind, shares in (("all", details.get("entries", {})), *details.get("entries_by_type", {}).items()):
            if shares:
                rows.append([row["policy"], kind, ", ".join(f"{name}: {with_ends(s, 100, 0)} %" for name, s in shares.items())])
    return (["policy", "jobs", "entries"], rows) if rows else None


def break_even_cells(results: Data) -> Cells | None:
    """Return how many times the steps inexact entries may need and still pay off."""
    rows = [
        [
            one["job_type"],
            str(one["devices"]),
            one["entry"],
            f"{one['break_even_multiplier']:.3g}",
            "none" if one["multiplier"] is None else f"{one['multiplier']:g}",
        ]
        for one in results["more"].get("break_evens", ())
    ]
    return (["job type", "devices", "entry", "break-even", "declared"], rows) if rows else None


TABLES: dict[str, Callable[[Data], Cells | None]] = {
    "Against each learned policy": paired_cells,
    "By class": class_cells,
    "By time given": budget_cells,
    "Parts left out of the network": ablation_cells,
    "Shares of jobs": taken_cells,
    "Named entries": entry_cells,
    "Break-even of inexact entries": break_even_cells,
    "Validation of tuned baselines": tuned_cells,
}
"""By heading."""


def tables_of(results: Data) -> dict[str, Cells]:
    """Return the further tables of an evaluation by heading."""
    result = {heading: cells_of(results) for heading, cells_of in TABLES.items()}
    return {heading: cells for heading, cells in result.items() if cells is not None}


def _shares(shares: Mapping[str, Any]) -> str:
    largest = sorted(shares.items(), key=lambda one: -one[1])[:MOST_SHARES]
    return ", ".join(f"{name}: {100 * share:.0f} %" for name, share in largest if share > 0)
