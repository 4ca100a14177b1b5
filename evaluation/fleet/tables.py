"""The rows of an evaluation of a fleet as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...quantities import counted
from ..alike import alike, joined
from ..tables import escaped, table, with_ends, with_verdict
from .menu_choices import choice_rows
from .objectives import OBJECTIVES, Objective

Data = Mapping[str, Any]
Cells = tuple[list[str], list[list[str]]]

MINUTE = 1 / 60
COLUMNS = (
    ("mean_completion_s", "completion, min", MINUTE, 1),
    ("mean_wait_s", "wait, min", MINUTE, 1),
    ("blocking_rate", "blocked, %", 100.0, 1),
    ("devices_useful", "useful, %", 100.0, 0),
)
"""What is told beside the objective: metric, heading, scale, digits."""
MORE_COLUMNS = (
    ("p50_completion_s", "50 %, min", MINUTE, 1),
    ("p95_completion_s", "95 %, min", MINUTE, 1),
    ("p99_completion_s", "99 %, min", MINUTE, 1),
    ("makespan_s", "makespan, h", 1 / 3600, 2),
    ("deadline_met_rate", "deadline met, %", 100.0, 1),
    ("mean_finish_time_fairness", "finish-time fairness", 1.0, 2),
    ("devices_held", "held, %", 100.0, 0),
    ("sharing_slowdown", "slower by sharing, %", 100.0, 1),
    ("restarts_per_job", "restarts a job", 1.0, 2),
    ("mean_devices", "devices", 1.0, 1),
)
"""What Markdown tells too."""
FAILURE_COLUMNS = (
    ("failures_per_job", "failures a job", 1.0, 2),
    ("devices_out", "out of order, %", 100.0, 1),
    ("lost_device_hours", "lost, device-hours", 1.0, 1),
)
"""And where hosts fail."""


def fleet_title(results: Data) -> str:
    """What was played, in a line."""
    fleet = results["fleet"]
    devices, episodes = counted(fleet["num_devices"], "device"), counted(len(results["seeds"]), "episode")
    return f"{results['benchmark']}: {fleet['cluster']}, {devices}, {episodes}"


def fleet_cells(
    results: Data,
    columns: Sequence[tuple[str, str, float, int]] = COLUMNS,
    *,
    has_words: bool = False,
    objectives: Mapping[str, Objective] = OBJECTIVES,
) -> Cells:
    """Headings and rows: policy, objective with its interval, difference to the best baseline, other figures.

    Policies that played alike share a row; rows are as many and in the order of `alike.alike`.

    Args:
        results: what `evaluation.fleet.evaluate` found.
        columns: the other figures.
        has_words: whether a difference is called better, worse or unclear.
        objectives: what they are called, and in which unit they are told.
    """
    objective = objectives[results["objective"]]
    unit = "points" if objective.unit == "%" else objective.unit
    shown = [column for column in columns if column[0] != objective.metric]
    head = [
        "policy",
        f"{objective.words}, {objective.unit}",
        f"against best baseline, {unit}",
        *(name for _, name, _, _ in shown),
    ]
    rows = []
    for group in alike(results["rows"]):
        row = group[0]
        rows.append(
            [
                joined(group, lambda name: name + _chosen(results, name)),
                with_ends(row[objective.metric], objective.scale, objective.digits),
                _beside(results, row, objective, has_words=has_words),
                *("-" if row[m] is None else f"{scale * row[m]['mean']:.{digits}f}" for m, _, scale, digits in shown),
            ]
        )
    return head, rows


def fleet_markdown(results: Data) -> str:
    """A heading, a table with a line per policy, the verdict, and what entries were taken."""
    fleet, seeds = results["fleet"], results["seeds"]
    failures = FAILURE_COLUMNS if "failures" in fleet else ()
    head, rows = fleet_cells(results, (*COLUMNS, *MORE_COLUMNS, *failures), has_words=True)
    shares = [
        [escaped(joined(group)), _shares(group[0]["degrees"]), _shares(group[0]["layouts"])]
        for group in alike(results["rows"])
        if group[0]["degrees"]
    ]
    lines = [
        f"# Benchmark {escaped(results['benchmark'])}",
        "",
        f"Cluster {escaped(fleet['cluster'])}, {counted(fleet['num_devices'], 'device')}; "
        f"{counted(len(seeds), 'episode')} of {fleet['num_jobs']} jobs "
        f"(seeds {min(seeds)} to {max(seeds)}); 95 % bootstrap intervals over the episodes, differences paired.",
        "",
        *table(head, [[escaped(cell) for cell in row] for row in rows]),
        "",
        *(line for sentence in (results["verdict"], *results["remarks"]) for line in (escaped(sentence), "")),
        "## Entries",
        "",
        *table(["policy", "devices: share of jobs", "layouts: share of jobs"], shares),
        "",
    ]
    chosen = [[escaped(cell) for cell in row] for row in choice_rows(results)]
    if chosen:
        lines += ["## What was chosen", "", *table(["policy", "jobs", "entries: share of jobs"], chosen), ""]
    if results.get("break_evens"):
        head = ["job type", "devices", "entry", "break-even", "declared"]
        lines += ["## Break-even of inexact entries", "", *table(head, _break_even_rows(results["break_evens"])), ""]
    return "\n".join(lines)


def _break_even_rows(found: Sequence[Data]) -> list[list[str]]:
    return [
        [
            escaped(one["job_type"]),
            str(one["devices"]),
            escaped(one["entry"]),
            f"{one['break_even_multiplier']:.3g}",
            "none" if one["multiplier"] is None else f"{one['multiplier']:g}",
        ]
        for one in found
    ]


def _beside(results: Data, row: Data, objective: Objective, *, has_words: bool) -> str:
    """A row's difference to the best baseline, or what it is in its place."""
    if row["kind"] == "reference":
        return "lower bound"
    if row["policy"] in results["best_baselines"]:
        num_best = len(alike([each for each in results["rows"] if each["policy"] in results["best_baselines"]]))
        return "best baseline" if num_best == 1 else "best baseline, tied"
    return difference_cell(row["against_best_baseline"], objective, has_words=has_words)


def difference_cell(against: dict[str, Any] | None, objective: Objective, *, has_words: bool) -> str:
    """A paired difference with its interval, in words too whether it is better, worse or unclear."""
    if has_words:
        return with_verdict(against, objective.scale, objective.digits, sign=objective.sign)
    return with_ends(against, objective.scale, objective.digits, sign="+")


def _chosen(results: Data, policy: str) -> str:
    """In brackets what was chosen for a tuned baseline."""
    tuned = results.get("best_fixed_entry", {}).get(policy)
    return "" if tuned is None else f" ({tuned['chosen']}{', tied' if tuned['tied'] else ''})"


def _shares(shares: Data) -> str:
    """The largest shares of what was taken, in per cent."""
    return ", ".join(f"{escaped(name)}: {100 * share:.0f} %" for name, share in list(shares.items())[:8])
