"""``meshwright evaluate`` on a benchmark of a fleet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ... import files
from ...errors import MeshwrightError
from .. import output

FLEET_FILES = ("results.json", "results.md", "report.html")


def evaluate_fleet_policies(
    policies: list[str],
    benchmark: str,
    seeds: int | None,
    jobs: int,
    changes: list[str],
    out: Path | None,
    json_file: str | None,
    not_for_fleets: dict[str, object],
) -> None:
    """Evaluate, write what was asked for, and print the table and the verdict.

    Raises:
        MeshwrightError: an option is given that does not go with a fleet.
    """
    for option, value in not_for_fleets.items():
        if value is not None:
            raise MeshwrightError("does not go with a benchmark of a fleet", field=option, value=str(value))
    output.check_file("--json", json_file)
    output.check_folder("--out", out, markers=("results.json", "config.yaml"))
    output.check_files_in("--out", out, FLEET_FILES)
    from ...envs.fleet.benchmark import load_fleet_benchmark
    from ...evaluation.evaluate import check_num_processes
    from ...evaluation.fleet.evaluate import evaluate_fleet
    from ...evaluation.fleet.tables import fleet_markdown

    check_num_processes(jobs)
    console = output.console(json_file)
    chosen = load_fleet_benchmark(benchmark, changes=changes)
    with output.progress() as bars:
        with output.set_up(bars) as priced:
            fleet = chosen.build(progress=priced)
        evaluation = evaluate_fleet(
            chosen, policies, num_seeds=seeds, num_processes=jobs, fleet=fleet, progress=output.phases(bars)
        )
    found = evaluation.results
    if out is not None:
        from ...evaluation.report.fleet_report import fleet_report  # matplotlib takes a while

        results_file, markdown_file, report_file = (out / name for name in FLEET_FILES)
        files.write_json(results_file, found)
        files.write_text(markdown_file, fleet_markdown(found))
        files.write_text(report_file, fleet_report(evaluation))
    output.write_json(json_file, found)
    show_fleet(console, found)
    output.print_written(console, json_file, out)


def show_fleet(out: Any, results: dict[str, Any]) -> None:
    """Print the table of an evaluation, its verdict and remarks."""
    from ...evaluation.fleet.tables import fleet_cells, fleet_title

    output.table(out, fleet_title(results), *fleet_cells(results))
    for sentence in (results["verdict"], *results["remarks"]):
        out.print(sentence, markup=False)
