"""``meshwright evaluate`` on a benchmark of a fleet or of published elastic workloads: one table, two files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ... import files
from ...envs.benchmark_files import ELASTIC, FLEET
from ...errors import MeshwrightError
from .. import output

RESULT_FILES = ("results.json", "results.md")

Results = dict[str, Any]


@dataclass(frozen=True)
class World:
    """What is evaluated, and how it is shown.

    Attributes:
        of: what its benchmarks are of, for errors.
        evaluate: from benchmark, changes, policies, number of episodes, of processes and progress bars to results.
        title: of the table on the screen.
        cells: its headings and rows.
        markdown: the whole page.
    """

    of: str
    evaluate: Callable[[str, list[str], list[str], int | None, int, Any], Results]
    title: Callable[[Results], str]
    cells: Callable[[Results], tuple[list[str], list[list[str]]]]
    markdown: Callable[[Results], str]


def evaluate_and_show(
    world: Callable[[], World],
    policies: list[str],
    benchmark: str,
    seeds: int | None,
    jobs: int,
    changes: list[str],
    out: Path | None,
    json_file: str | None,
    not_taken: dict[str, object],
) -> None:
    """Evaluate, write what was asked for, and print the table and the verdict.

    Raises:
        MeshwrightError: an option is given that does not go with such a benchmark.
    """
    output.check_file("--json", json_file)
    output.check_folder("--out", out, markers=("results.json", "config.yaml"))
    output.check_files_in("--out", out, RESULT_FILES)
    chosen = world()
    for option, value in not_taken.items():
        if value is not None:
            raise MeshwrightError(f"does not go with a benchmark of {chosen.of}", field=option, value=str(value))
    console = output.console(json_file)
    with output.progress() as bars:
        found = chosen.evaluate(benchmark, changes, policies, seeds, jobs, bars)
    if out is not None:
        files.write_json(out / RESULT_FILES[0], found)
        files.write_text(out / RESULT_FILES[1], chosen.markdown(found))
    output.write_json(json_file, found)
    output.table(console, chosen.title(found), *chosen.cells(found))
    for sentence in (found["verdict"], *found["remarks"]):
        console.print(sentence, markup=False)
    output.print_written(console, json_file, out)


def _fleet() -> World:
    from ...envs.fleet.benchmark import load_fleet_benchmark
    from ...evaluation.evaluate import check_num_processes
    from ...evaluation.fleet.evaluate import evaluate_fleet
    from ...evaluation.fleet.tables import fleet_cells, fleet_markdown, fleet_title

    def evaluate(benchmark: str, changes: list[str], policies: list[str], seeds: int | None, jobs: int, bars: Any) -> Results:
        check_num_processes(jobs)
        chosen = load_fleet_benchmark(benchmark, changes=changes)
        with output.set_up(bars) as priced:
            fleet = chosen.build(progress=priced)
        progress = output.phases(bars)
        return evaluate_fleet(chosen, policies, num_seeds=seeds, num_processes=jobs, fleet=fleet, progress=progress).results

    return World("a fleet", evaluate, fleet_title, fleet_cells, fleet_markdown)


def _elastic() -> World:
    from ...envs.elastic_benchmark import load_elastic_benchmark
    from ...evaluation.elastic.evaluate import evaluate_elastic
    from ...evaluation.elastic.tables import elastic_cells, elastic_markdown, elastic_title

    def evaluate(benchmark: str, changes: list[str], policies: list[str], seeds: int | None, jobs: int, bars: Any) -> Results:
        chosen = load_elastic_benchmark(benchmark, changes=changes)
        return evaluate_elastic(chosen, policies, num_workloads=seeds, num_processes=jobs, progress=output.phases(bars))

    return World("elastic jobs", evaluate, elastic_title, elastic_cells, elastic_markdown)


WORLDS: dict[str, Callable[[], World]] = {FLEET: _fleet, ELASTIC: _elastic}
"""By the kind of a benchmark."""
