"""``meshwright evaluate`` on a benchmark of operator placement."""

from __future__ import annotations

from ... import files
from .. import output
from .evaluate_fleet import EvaluationRequest, show_rows

OPERATOR_FILES = ("results.json", "results.md", "report.html")


def evaluate_operator_policies(request: EvaluationRequest) -> None:
    """Evaluate, write what was asked for, and print the table and the verdict.

    Raises:
        MeshwrightError: an option is given that does not go with operator placement.
    """
    request.check("operator placement", OPERATOR_FILES)
    from ...envs.operators.benchmark import load_placement_benchmark
    from ...evaluation.operators.evaluate import evaluate_operators
    from ...evaluation.operators.tables import operator_cells, operator_markdown, operator_title

    console = output.console(request.json_file)
    chosen = load_placement_benchmark(request.benchmark, changes=request.changes)
    with output.progress() as bars:
        found = evaluate_operators(chosen, request.policies, num_seeds=request.seeds, progress=output.phases(bars))
    if request.out is not None:
        from ...evaluation.report.compared import operator_report  # matplotlib takes a while

        files.write_json(request.out / OPERATOR_FILES[0], found)
        files.write_text(request.out / OPERATOR_FILES[1], operator_markdown(found))
        files.write_text(request.out / OPERATOR_FILES[2], operator_report(found, command=request.command))
    output.write_json(request.json_file, found)
    show_rows(console, operator_title(found), operator_cells(found), found)
    output.print_written(console, request.json_file, request.out)
