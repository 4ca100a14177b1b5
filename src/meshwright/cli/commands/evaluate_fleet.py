"""``meshwright evaluate`` on a benchmark of a fleet."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ... import files
from ...errors import MeshwrightError
from .. import output

if TYPE_CHECKING:
    from ...evaluation.workers.workers import Workers

FLEET_FILES = ("results.json", "results.md", "report.html")


def evaluate_fleet_policies(
    policies: list[str],
    benchmark: str,
    seeds: int | None,
    workers: AbstractContextManager[Workers],
    changes: list[str],
    out: Path | None,
    json_file: str | None,
    not_for_fleets: dict[str, object],
) -> None:
    """Evaluate, write what was asked for, and print the table and the verdict.

    Raises:
        MeshwrightError: an option is given that does not go with a fleet.
    """
    check_request("a fleet", not_for_fleets, out, json_file, FLEET_FILES)
    from ...envs.fleet.benchmark import load_fleet_benchmark
    from ...evaluation.fleet.evaluate import evaluate_fleet
    from ...evaluation.fleet.tables import fleet_markdown

    console = output.console(json_file)
    chosen = load_fleet_benchmark(benchmark, changes=changes)
    with output.progress() as bars:
        with output.set_up(bars) as priced:
            fleet = chosen.build(progress=priced)
        with workers as players:
            evaluation = evaluate_fleet(
                chosen, policies, num_seeds=seeds, workers=players, fleet=fleet, progress=output.phases(bars)
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


def check_request(
    of: str, not_taken: dict[str, object], out: Path | None, json_file: str | None, written: tuple[str, ...]
) -> None:
    """Refuse options that no benchmark ``of`` this kind takes, and places that may not be written to.

    Raises:
        MeshwrightError: so it is.
    """
    for option, value in not_taken.items():
        if value is not None:
            raise MeshwrightError(f"does not go with a benchmark of {of}", field=option, value=str(value))
    output.check_file("--json", json_file)
    output.check_folder("--out", out, markers=("results.json", "config.yaml"))
    output.check_files_in("--out", out, written)


def show_fleet(out: Any, results: dict[str, Any]) -> None:
    """Print the table of an evaluation, its verdict and remarks."""
    from ...evaluation.fleet.tables import fleet_cells, fleet_title

    show_rows(out, fleet_title(results), fleet_cells(results), results)


def show_rows(out: Any, title: str, cells: tuple[list[str], list[list[str]]], results: dict[str, Any]) -> None:
    """Print a table, the verdict and remarks."""
    output.table(out, title, *cells)
    for sentence in (results["verdict"], *results["remarks"]):
        out.print(sentence, markup=False)
