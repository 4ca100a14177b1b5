"""``meshwright evaluate`` on a benchmark of a fleet."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .... import files
from ....errors import MeshwrightError
from ... import output

if TYPE_CHECKING:
    from ....evaluation.workers import Workers

RESULT_FILES = ("results.json", "results.md", "report.html")


@dataclass(frozen=True)
class EvaluationRequest:
    """What a command asks of an evaluation of any kind of benchmark.

    Attributes:
        policies: compared beside those of the benchmark.
        benchmark: which one.
        seeds: how many episodes; None: as many as it says.
        changes: ``key=value`` texts that change its keys.
        out: the folder of the results.
        json_file: as of ``--json``.
        others: options that another kind of benchmark takes, by name; None where they are not given.
    """

    policies: list[str]
    benchmark: str
    seeds: int | None
    changes: list[str]
    out: Path | None
    json_file: str | None
    others: dict[str, object]

    @property
    def command(self) -> str:
        """What was typed, to be typed again."""
        return shlex.join(["meshwright", *sys.argv[1:]])

    def check(self, of: str) -> None:
        """Refuse options that no benchmark ``of`` this kind takes, and places that may not be written to.

        Raises:
            MeshwrightError: so it is.
        """
        for option, value in self.others.items():
            if value is not None:
                raise MeshwrightError(f"does not go with a benchmark of {of}", field=option, value=str(value))
        output.check_file("--json", self.json_file)
        output.check_folder("--out", self.out, markers=("results.json", "config.yaml"))
        output.check_files_in("--out", self.out, RESULT_FILES)

    def write(self, found: dict[str, Any], markdown: Callable[[dict[str, Any]], str], page: Callable[[], str]) -> None:
        """Write results, their tables and the page, which takes a while, into the folder, and the JSON; all where asked for."""
        if self.out is not None:
            results_file, markdown_file, page_file = (self.out / name for name in RESULT_FILES)
            files.write_json(results_file, found)
            files.write_text(markdown_file, markdown(found))
            files.write_text(page_file, page())
        output.write_json(self.json_file, found)


def evaluate_fleet_policies(request: EvaluationRequest, workers: AbstractContextManager[Workers]) -> None:
    """Evaluate, write what was asked for, and print the table and the verdict.

    Raises:
        MeshwrightError: an option is given that does not go with a fleet.
    """
    request.check("a fleet")
    from ....envs.fleet.benchmark import load_fleet_benchmark
    from ....evaluation.fleet.evaluate import evaluate_fleet
    from ....evaluation.fleet.tables import fleet_markdown

    console = output.console(request.json_file)
    chosen = load_fleet_benchmark(request.benchmark, changes=request.changes)
    with output.progress() as bars:
        with output.set_up(bars) as priced:
            fleet = chosen.build(progress=priced)
        with workers as players:
            evaluation = evaluate_fleet(
                chosen, request.policies, num_seeds=request.seeds, workers=players, fleet=fleet, progress=output.phases(bars)
            )

    def page() -> str:
        from ....evaluation.report.fleet_report import fleet_report  # matplotlib takes a while

        return fleet_report(evaluation, command=request.command)

    request.write(evaluation.results, fleet_markdown, page)
    show_fleet(console, evaluation.results)
    output.print_written(console, request.json_file, request.out)


def show_fleet(out: Any, results: dict[str, Any]) -> None:
    """Print the table of an evaluation, its verdict and remarks."""
    from ....evaluation.fleet.tables import fleet_cells, fleet_title

    show_rows(out, fleet_title(results), fleet_cells(results), results)


def show_rows(out: Any, title: str, cells: tuple[list[str], list[list[str]]], results: dict[str, Any]) -> None:
    """Print a table, the verdict and remarks."""
    output.table(out, title, *cells)
    for sentence in (results["verdict"], *results["remarks"]):
        out.print(sentence, markup=False)
