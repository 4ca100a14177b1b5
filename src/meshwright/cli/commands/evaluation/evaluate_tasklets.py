"""``meshwright evaluate`` on a benchmark of tasklets."""

from __future__ import annotations

from ... import output
from .evaluate_fleet import EvaluationRequest, show_rows


def evaluate_tasklet_policies(request: EvaluationRequest) -> None:
    """Evaluate, write what was asked for, and print the table and the verdict.

    Raises:
        MeshwrightError: an option is given that does not go with tasklets.
    """
    request.check("tasklets")
    from ....envs.tasklets.benchmark import load_tasklet_benchmark
    from ....evaluation.tasklets.evaluate import evaluate_tasklets
    from ....evaluation.tasklets.tables import tasklet_cells, tasklet_markdown, tasklet_title

    console = output.console(request.json_file)
    chosen = load_tasklet_benchmark(request.benchmark, changes=request.changes)
    with output.progress() as bars:
        found = evaluate_tasklets(chosen, request.policies, num_seeds=request.seeds, progress=output.phases(bars))

    def page() -> str:
        from ....evaluation.report.compared import tasklet_report  # matplotlib takes a while

        return tasklet_report(found, command=request.command)

    request.write(found, tasklet_markdown, page)
    show_rows(console, tasklet_title(found), tasklet_cells(found), found)
    output.print_written(console, request.json_file, request.out)
