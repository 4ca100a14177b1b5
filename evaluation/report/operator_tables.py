"""Tables over several evaluations of operator placement: trained on rows and tested on columns, and what an ablation costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..operators.tables import left_out
from ..tables import with_ends, with_verdict

Data = Mapping[str, Any]
Evaluations = Mapping[str, tuple[str, dict[str, Any]]]
"""Kind and content of each ``results.json`` by its folder, as `summary.Summary.others`."""


def transfer_cells(others: Evaluations) -> tuple[list[str], list[list[str]]] | None:
    """Value over the best known of each learned policy on each evaluation of its objective; None where there are no two.

    A row says what a policy was trained on; policies that are asked in another way than greedily are left out. The last row has
    the best planner of each evaluation.
    """
    tested = {folder: result for folder, (kind, result) in others.items() if kind == "operators"}
    learned: dict[str, dict[str, Data]] = {}
    for folder, result in tested.items():
        for row in result["rows"]:
            if row["kind"] == "learned" and "@" not in row["policy"]:
                learned.setdefault(row["policy"], {})[folder] = row
    columns = [folder for folder in tested if any(folder in of for of in learned.values())]
    if len(columns) < 2:
        return None
    rows = [
        [name, trained_on(next(iter(of.values()))), *(_told(of.get(folder)) for folder in columns)]
        for name, of in learned.items()
    ]
    planners = []
    for folder in columns:
        known = [row for row in tested[folder]["rows"] if row["kind"] == "planner"]
        best = min(known, key=lambda row: float(row["over_best_known"]["mean"]), default=None)
        planners.append("-" if best is None else f"{_told(best)} {best['policy']}")
    return ["policy", "trained on", *columns], [*rows, ["best planner", "", *planners]]


def trained_on(row: Data) -> str:
    """What a learned policy was trained on: its benchmark and the changes to its instances and devices."""
    trained = row.get("trained") or {}
    changes = [str(each).removeprefix("placement.") for each in trained.get("changes", ()) if str(each).startswith("placement.")]
    return "; ".join([str(trained.get("benchmark", "not told")), *changes])


def operator_ablations(others: Evaluations, against: str) -> dict[str, list[list[str]]]:
    """Each learned policy compared with one of them, by evaluation: what it leaves out, value, paired difference."""
    found = {}
    for folder, (kind, result) in others.items():
        rows = {row["policy"]: row for row in result["rows"] if row["kind"] == "learned"} if kind == "operators" else {}
        if against not in rows or len(rows) < 2:
            continue
        first = [rows.pop(against)]
        found[f"{result['benchmark']} ({folder})"] = [_compared(row, against) for row in [*first, *rows.values()]]
    return found


def _compared(row: Data, against: str) -> list[str]:
    difference = with_verdict(row.get("against", {}).get(against), 1.0, 3)
    network = (row.get("trained") or {}).get("network")
    without = "not told" if network is None else ", ".join(left_out(row)) or "nothing"
    return [row["policy"], without, with_ends(row["over_best_known"], 1.0, 3), difference]


def _told(row: Data | None) -> str:
    return "-" if row is None else with_ends(row["over_best_known"], 1.0, 3)
