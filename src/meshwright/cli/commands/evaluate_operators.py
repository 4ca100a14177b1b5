"""``meshwright evaluate`` on a benchmark of operator placement."""

from __future__ import annotations

from pathlib import Path

from ... import files
from .. import output
from .evaluate_fleet import check_request, show_rows

OPERATOR_FILES = ("results.json", "results.md", "report.html")


def evaluate_operator_policies(
    policies: list[str],
    benchmark: str,
    seeds: int | None,
    changes: list[str],
    out: Path | None,
    json_file: str | None,
    not_taken: dict[str, object],
) -> None:
    """Evaluate, write what was asked for, and print the table and the verdict.

    Raises:
        MeshwrightError: an option is given that does not go with operator placement.
    """
    check_request("operator placement", not_taken, out, json_file, OPERATOR_FILES)
    from ...envs.operators.benchmark import load_placement_benchmark
    from ...evaluation.operators.evaluate import evaluate_operators
    from ...evaluation.operators.tables import operator_cells, operator_markdown, operator_title

    console = output.console(json_file)
    chosen = load_placement_benchmark(benchmark, changes=changes)
    with output.progress() as bars:
        found = evaluate_operators(chosen, policies, num_seeds=seeds, progress=output.phases(bars))
    if out is not None:
        from ...evaluation.report.compared import operator_report  # matplotlib takes a while

        files.write_json(out / OPERATOR_FILES[0], found)
        files.write_text(out / OPERATOR_FILES[1], operator_markdown(found))
        files.write_text(out / OPERATOR_FILES[2], operator_report(found))
    output.write_json(json_file, found)
    show_rows(console, operator_title(found), operator_cells(found), found)
    output.print_written(console, json_file, out)
