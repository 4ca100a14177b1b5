"""``meshwright evaluate`` on a benchmark of published elastic workloads."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from ... import files
from .. import output
from .evaluate_fleet import check_request, show_rows

if TYPE_CHECKING:
    from ...evaluation.workers.workers import Workers

ELASTIC_FILES = ("results.json", "results.md", "report.html")


def evaluate_elastic_policies(
    policies: list[str],
    benchmark: str,
    seeds: int | None,
    workers: AbstractContextManager[Workers],
    changes: list[str],
    out: Path | None,
    json_file: str | None,
    not_for_elastic: dict[str, object],
) -> None:
    """Evaluate, write what was asked for, and print the table and the verdict.

    Raises:
        MeshwrightError: an option is given that does not go with elastic jobs.
    """
    check_request("elastic jobs", not_for_elastic, out, json_file, ELASTIC_FILES)
    from ...envs.elastic_benchmark import load_elastic_benchmark
    from ...evaluation.elastic.evaluate import evaluate_elastic
    from ...evaluation.elastic.tables import elastic_cells, elastic_markdown, elastic_title

    console = output.console(json_file)
    chosen = load_elastic_benchmark(benchmark, changes=changes)
    with output.progress() as bars, workers as players:
        found = evaluate_elastic(chosen, policies, num_workloads=seeds, workers=players, progress=output.phases(bars))
    if out is not None:
        from ...evaluation.report.compared import elastic_report  # matplotlib takes a while

        files.write_json(out / ELASTIC_FILES[0], found)
        files.write_text(out / ELASTIC_FILES[1], elastic_markdown(found))
        files.write_text(out / ELASTIC_FILES[2], elastic_report(found))
    output.write_json(json_file, found)
    show_rows(console, elastic_title(found), elastic_cells(found), found)
    output.print_written(console, json_file, out)
