"""The rows of an evaluation of elastic jobs as text."""

from __future__ import annotations

from ...quantities import counted, things
from ..alike import alike
from ..fleet.tables import Cells, Data, difference_cell, fleet_cells
from ..tables import escaped, table
from .evaluate import OBJECTIVE

MINUTE = 1 / 60
COLUMNS = (
    ("p95_completion_s", "95th percentile, min", MINUTE, 0),
    ("makespan_s", "makespan, h", 1 / 3600, 1),
    ("devices_held", "held, %", 100.0, 0),
    ("restarts_per_job", "restarts a job", 1.0, 1),
)


def elastic_title(results: Data) -> str:
    """What was played, in a line."""
    elastic = results["elastic"]
    devices, workloads = counted(elastic["num_devices"], "device"), counted(len(results["workloads"]), "workload")
    return f"{results['benchmark']}: {devices}, {workloads} of {elastic['load']}"


def elastic_cells(results: Data, *, has_words: bool = False) -> Cells:
    """Headings and rows: those of a fleet, with the difference to a published scheduler and the time of a decision.

    Args:
        results: what `evaluation.elastic.evaluate` found.
        has_words: whether a difference is called better, worse or unclear.
    """
    head, cells = fleet_cells(results, COLUMNS, has_words=has_words, objectives={OBJECTIVE.metric: OBJECTIVE})
    head[3:3] = [f"against published {results['elastic']['against']}, s", "worst workload, %"]
    head.append("decision, ms")
    for (row, *_), line in zip(alike(results["rows"]), cells, strict=True):
        worst, decision_s = row["worst_against_published"], results["timing"]["decision_s"].get(row["policy"])
        told = difference_cell(row["against_published"], OBJECTIVE, has_words=has_words)
        line[3:3] = [told, "-" if worst is None else f"{100 * worst:+.1f}"]
        line.append("-" if decision_s is None else f"{1000 * decision_s:.2f}")
    return head, cells


def elastic_markdown(results: Data) -> str:
    """A heading, a table with a line per policy, and the verdict."""
    elastic, counts = results["elastic"], results["elastic"]["num_jobs"]
    head, rows = elastic_cells(results, has_words=True)
    lines = [
        f"# Benchmark {escaped(results['benchmark'])}",
        "",
        f"{counted(elastic['num_devices'], 'device')}; "
        f"{len(counts)} published {things(len(counts), 'workload')} of {sum(counts)} jobs in all "
        f"({', '.join(map(escaped, results['workloads']))}); 95 % bootstrap intervals over the workloads, differences paired. "
        "The worst workload is told beside the same published times.",
        "",
        *table(head, [[escaped(cell) for cell in row] for row in rows]),
        "",
        escaped(results["verdict"]),
        "",
    ]
    return "\n".join(lines)
