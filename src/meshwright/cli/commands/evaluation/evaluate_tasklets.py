"""``meshwright evaluate`` on a benchmark of tasklets."""

from __future__ import annotations

from .... import files
from ... import output
from .evaluate_fleet import EvaluationRequest, show_rows

TASKLET_FILES = ("results.json", "results.md", "report.html")


def evaluate_tasklet_policies(request: EvaluationRequest) -> None:
    """Evaluate, write what was asked for, and print the table and the verdict.

    Raises:
        MeshwrightError: an option is given that does not go with tasklets.
    """
    request.check("tasklets", TASKLET_FILES)
    from ....envs.tasklets.benchmark import load_tasklet_benchmark
    from ....evaluation.tasklets.evaluate import evaluate_tasklets
    from ....evaluation.tasklets.tables import tasklet_cells, tasklet_markdown, tasklet_title

    console = output.console(request.json_file)
    chosen = load_tasklet_benchmark(request.benchmark, changes=request.changes)
    with output.progress() as bars:
        found = evaluate_tasklets(chosen, request.policies, num_seeds=request.seeds, progress=output.phases(bars))
    if request.out is not None:
        from ....evaluation.report.compared import tasklet_report  # matplotlib takes a while

        files.write_json(request.out / TASKLET_FILES[0], found)
        files.write_text(request.out / TASKLET_FILES[1], tasklet_markdown(found))
        files.write_text(request.out / TASKLET_FILES[2], tasklet_report(found, command=request.command))
    output.write_json(request.json_file, found)
    show_rows(console, tasklet_title(found), tasklet_cells(found), found)
    output.print_written(console, request.json_file, request.out)
