"""``meshwright evaluate``."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ... import inputs
from ...errors import ConfigError, InputFileError, MeshwrightError, nearest
from .. import output
from ..options import Changes, GraphsDir, JsonFile, argument, option

if TYPE_CHECKING:
    from ...evaluation.evaluate import Evaluation
    from ...evaluation.worlds.evaluated_world import EvaluatedWorld

MOST_DECISIONS = 12
"""Of an instance that is shown, on the terminal."""


def evaluate_policies(
    policies: Annotated[
        list[str] | None, argument("POLICY", "Compared with those of the benchmark; a folder with --summarise.")
    ] = None,
    benchmark: Annotated[
        str, option("NAME", "preset:NAME or its bare name, or a path to YAML; of a family NAME/VARIANT too.")
    ] = "quickstart",
    seeds: Annotated[int | None, option("N", "Test episodes, workloads or instances; by default as the benchmark says.")] = None,
    jobs: Annotated[str, option("N|RAY", "Episodes at a time; or a Ray cluster: HOST:PORT, or local:N for N CPUs.")] = "1",
    changes: Changes = None,
    graphs: GraphsDir = None,
    trace: Annotated[
        Path | None, option("FILE", "The CSV file of the trace that the jobs of the benchmark follow.", hidden=True)
    ] = None,
    out: Annotated[Path | None, option("DIR", "Write results, report and the plans of one episode there.")] = None,
    show_instances: Annotated[
        list[int] | None, option("N", "Of placed ops: instance N in detail, against HEFT; repeatable.", "--show", hidden=True)
    ] = None,
    dump: Annotated[
        Path | None, option("DIR", "Times of each job as CSV; of placed ops instances and placements as JSON.", hidden=True)
    ] = None,
    summarises: Annotated[
        bool, typer.Option("--summarise", help="Put the evaluations and training runs below a folder on one page.")
    ] = False,
    against: Annotated[str | None, option("POLICY", "With --summarise: compare every learned policy with this one.")] = None,
    json_file: JsonFile = None,
) -> None:
    """Compare policies on a benchmark, with paired seeds and 95 % intervals.

    A policy is a run folder, shipped:NAME, python:MODULE:NAME (a class of your own), or a rule. Rules are random, max, min,
    cheapest-feasible, fastest-feasible, acceptable-jct, fixed-K, ladder-K-K or best-fixed, with an optional @PLACEMENT.
    `meshwright list policies` has those of other benchmarks.

    Examples:
      meshwright evaluate shipped:quickstart --out runs/quickstart
      meshwright evaluate runs/mine sjf bound --benchmark preset:llm-256 --jobs 4
      meshwright evaluate --summarise runs --out page
    """
    if summarises:
        others = {"--seeds": seeds, "--set": changes, "--graphs": graphs, "--trace": trace, "--show": show_instances}
        output.refuse({**others, "--dump": dump}, "does not go with --summarise")
        if len(policies or ()) != 1:
            raise MeshwrightError("name one folder", field="POLICY", value=" ".join(policies or ()))
        summarise_results(Path(*(policies or ())), against, out, json_file)
        return
    output.refuse({"--against": against}, "goes with --summarise only")
    from ...evaluation.cluster import episodes
    from ...evaluation.evaluate import check, evaluate
    from ...evaluation.workers import worker_count
    from ...evaluation.worlds.evaluated_world import Options
    from ...evaluation.worlds.registry import load_worlds
    from ...models.policy_files import NETWORK

    named = tuple(spec for spec in policies or () if episodes.is_reference(spec) or nearest(spec, episodes.NAMES))
    policies, workers = [spec for spec in policies or () if spec not in named], worker_count(jobs)
    worlds = load_worlds(benchmark, changes or [], Options(named, graphs, trace, tuple(show_instances or ()), dump))
    if jobs != "1" and not worlds[0].is_parallel:
        raise ConfigError(f"does not go with a benchmark of {worlds[0].words}", field="--jobs", value=jobs)
    output.check_folder("--dump", dump, markers=("instance-0/*.json", f"jobs-{worlds[0].benchmark.name}.csv"))
    folders = _folders(out, worlds)
    console = output.console(json_file)
    removed: set[str] = set()
    evaluations: list[Evaluation] = []
    with output.progress() as bars:
        for world in worlds:
            world.note_files([spec.removeprefix(NETWORK) for spec in (*policies, *world.benchmark.policies)])
            with output.set_up(bars) as report:
                world.build(report)
            if len(worlds) > 1:  # what does not fit the last one is refused before the first one is played
                check(world, policies)
        with workers as players:
            for world, folder in zip(worlds, folders, strict=True):
                evaluations.append(evaluate(world, policies, num_seeds=seeds, workers=players, progress=output.phases(bars)))
                if folder is not None:
                    from ...evaluation.result_folder import write_evaluation

                    before = _exports(folder)
                    write_evaluation(evaluations[-1], folder, command=shlex.join(["meshwright", *sys.argv[1:]]))
                    removed |= before - _exports(folder)
    results = [one.results for one in evaluations]
    if len(worlds) == 1:
        output.write_json(json_file, results[0])
    else:
        from ...evaluation.families import combined

        output.write_json(json_file, combined(worlds[0].benchmark.name.partition("/")[0], results))
        if out is not None:
            from ...evaluation.report import summary

            summary.write(summary.read(out), out)
    for result in results:
        show(console, result)
    if len(worlds) > 1:
        from ...evaluation.families import family_standings, standing_cells

        head, rows = standing_cells(family_standings(results))
        if rows:
            output.table(console, f"Learned policies over {len(results)} benchmarks", head, rows, numbers_from=2)
    output.print_written(console, json_file, out, dump)
    for name in sorted(removed):
        console.print(f"removed, an export of the plans before: {name}", soft_wrap=True)


def _folders(out: Path | None, worlds: Sequence[EvaluatedWorld]) -> list[Path | None]:
    """Return where the results of each benchmark go: ``out``, or a folder below it for each variant of a family."""
    if out is None:
        return [None] * len(worlds)
    from ...evaluation.result_folder import FILES, PLANS, TRACE
    from ...training.run_folder import resumed_files

    folders = [out] if len(worlds) == 1 else [out / world.benchmark.name.partition("/")[2] for world in worlds]
    if len(worlds) > 1:
        from ...evaluation.report import summary

        output.check_folder("--out", out, markers=("summary.html", *(f"{folder.name}/results.json" for folder in folders)))
        output.check_files_in(out, summary.FILES)
    for world, folder in zip(worlds, folders, strict=True):
        output.check_folder("--out", folder, markers=("results.json", "config.yaml"))
        output.check_files_in(folder, (*FILES, TRACE) if world.name == "cluster" else FILES)
        if world.name == "cluster":
            output.check_folder("--out", folder / PLANS, markers=("index.json",), is_replaced=True)
        for path in resumed_files(folder):  # the report shows a training run that lies there
            inputs.note(path)
    return [*folders]


def _exports(out: Path) -> set[str]:
    return {str(path) for path in (out / "export").glob("*")}


def show(out: Any, results: dict[str, Any]) -> None:
    """Print the table of an evaluation, its verdict and remarks, and instances that are shown in detail."""
    from ...evaluation.operators.differences import difference_cells, difference_words
    from ...evaluation.tables import result_cells

    output.table(out, results["title"], *result_cells(results))
    for sentence in (results["verdict"], *results["remarks"]):
        out.print(sentence)
    for one in results["more"].get("shown", ()):
        title, head, rows = difference_cells(one)
        output.table(out, title, head, rows[:MOST_DECISIONS], numbers_from=3)
        out.print(difference_words(one))
        if len(rows) > MOST_DECISIONS:
            out.print(f"The table has the {MOST_DECISIONS} that matter most; --out and --json have all.")


def summarise_results(folder: Path, against: str | None, out: Path | None, json_file: str | None) -> None:
    """Put several evaluations and training runs on one page, without playing anything again.

    The page has a table of all policies on all benchmarks with one objective, and load curves where one cluster was evaluated at
    several loads. It has learning curves of training runs that differ in their seed, and an ablation table. For operator
    placement it has a table of training against test benchmarks.
    """
    from ...evaluation.report import summary

    output.check_folder("--out", out, markers=("summary.html",))
    output.check_files_in(out, summary.FILES)
    if folder.is_file():
        raise InputFileError("is a file, a folder is wanted", field="POLICY", value=str(folder))
    if not folder.is_dir():
        raise InputFileError("no such folder", field="POLICY", value=str(folder))
    result = summary.read(folder)
    learned = summary.learned_names(result)
    if against is not None and against not in learned:
        raise InputFileError("no learned policy of this name was evaluated", field="--against", value=against, choices=learned)
    if out is not None:
        summary.write(result, out, against)
    data = summary.to_data(result, against)
    output.write_json(json_file, data)
    console = output.console(json_file)
    for title, cells in {**data["evaluations"], **data["tables"]}.items():
        output.table(console, title, cells["head"], cells["rows"])
    for sentence in data["made"]:
        console.print(sentence)
    output.print_written(console, json_file, out)
