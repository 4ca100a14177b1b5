"""``meshwright evaluate`` on a benchmark of published elastic workloads."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from ... import output
from .evaluate_fleet import EvaluationRequest, show_rows

if TYPE_CHECKING:
    from ....evaluation.workers import Workers


def evaluate_elastic_policies(request: EvaluationRequest, workers: AbstractContextManager[Workers]) -> None:
    """Evaluate, write what was asked for, and print the table and the verdict.

    Raises:
        MeshwrightError: an option is given that does not go with elastic jobs.
    """
    request.check("elastic jobs")
    from ....envs.elastic.benchmark import load_elastic_benchmark
    from ....evaluation.elastic.evaluate import evaluate_elastic
    from ....evaluation.elastic.tables import elastic_cells, elastic_markdown, elastic_title

    console = output.console(request.json_file)
    chosen = load_elastic_benchmark(request.benchmark, changes=request.changes)
    with output.progress() as bars, workers as players:
        found = evaluate_elastic(
            chosen, request.policies, num_workloads=request.seeds, workers=players, progress=output.phases(bars)
        )

    def page() -> str:
        from ....evaluation.report.compared import elastic_report  # matplotlib takes a while

        return elastic_report(found, command=request.command)

    request.write(found, elastic_markdown, page)
    show_rows(console, elastic_title(found), elastic_cells(found), found)
    output.print_written(console, request.json_file, request.out)
