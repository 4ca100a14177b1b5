"""``meshwright evaluate``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .... import inputs
from ....errors import ConfigError
from ....quantities import counted
from ... import output
from ...options import Changes, GraphsDir, JsonFile

if TYPE_CHECKING:
    from ....envs.benchmark import BenchmarkSettings


def evaluate_policies(
    policies: Annotated[
        list[str] | None,
        typer.Argument(metavar="POLICY", help="Compared beside those that the benchmark names."),
    ] = None,
    benchmark: Annotated[
        str,
        typer.Option(metavar="NAME", help="preset:NAME, a preset's bare name, or a path to YAML; of a family NAME/VARIANT too."),
    ] = "quickstart",
    seeds: Annotated[
        int | None, typer.Option(metavar="N", help="Test episodes, 1 to 100; by default as the benchmark says.")
    ] = None,
    jobs: Annotated[int, typer.Option(metavar="N", help="Episodes played at a time; results do not depend on it.")] = 1,
    ray: Annotated[
        str | None,
        typer.Option(metavar="CLUSTER", help="Play on a Ray cluster: HOST:PORT, or local:N for N CPUs of this machine."),
    ] = None,
    changes: Changes = None,
    references: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Clairvoyant references to show too: linear-programme, clairvoyant-beam, or both."),
    ] = None,
    graphs: GraphsDir = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The CSV file of the trace that the jobs of the benchmark follow.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write results, report and the plans of one episode there.")
    ] = None,
    show_instances: Annotated[
        list[int] | None,
        typer.Option("--show", metavar="N", help="Of operator placement: instance N in detail, beside HEFT; as often as needed."),
    ] = None,
    dump: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Of operator placement: instances and placements as JSON.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Compare policies on a benchmark, with paired seeds and 95 % intervals.

    A policy is a run folder, a policy.pt, shipped:NAME, python:MODULE:NAME, or one of the baselines random, max, min,
    cheapest-feasible, fastest-feasible, acceptable-jct, fixed-K, ladder-K-K and best-fixed, each with an optional @PLACEMENT,
    as in min@aligned. python:MODULE:NAME, a class of your own, plays every benchmark; meshwright list policies names all others.

    Of a family of benchmarks, such as load-sweep, every variant is evaluated, and a page shows them side by side.

    On published elastic workloads, such as preset:elastic-published-1.0, a policy is a run folder, its policy.json, shipped:NAME,
    tiresias, optimus, pollux, expected-remaining or shortest-remaining; --seeds takes the first workloads alone.

    On a fleet, such as preset:llm-256, a policy is a run folder, a rule such as fifo, sjf+backfill, sjf:fixed-16 or
    goodput-shares, best-fixed-entry, random, rollout:RULE, or bound, a lower bound on mean completion time.

    On operator placement, such as preset:latency-tight, a policy is a run folder or shipped:NAME, with @sample-K or
    @search-SECONDS behind it, a planner such as heft or annealing@0.1, fastest-device or round-robin.

    On distant devices, such as preset:tasklets-64, a policy is a run folder or shipped:NAME, with @sample-K or
    @search-SECONDS behind it, or a solver of meshwright arrange such as chain@0.1.
    """
    from ....envs.benchmark_files import ELASTIC, FLEET, PLACEMENT, TASKLETS, kind_of
    from ....evaluation.workers import chosen_workers
    from .evaluate_fleet import EvaluationRequest, evaluate_fleet_policies

    policies, changes = policies or [], changes or []
    others: dict[str, object] = {"--references": references, "--graphs": graphs, "--trace": trace}
    workers = chosen_workers(jobs, ray)
    kind = kind_of(benchmark)
    for option, value in (("--show", show_instances), ("--dump", dump)):
        if value is not None and kind != PLACEMENT:
            raise ConfigError("goes with a benchmark of operator placement alone", field=option, value=str(value))
    request = EvaluationRequest(policies, benchmark, seeds, changes, out, json_file, others)
    if kind == FLEET:
        evaluate_fleet_policies(request, workers)
        return
    if kind == ELASTIC:
        from .evaluate_elastic import evaluate_elastic_policies

        evaluate_elastic_policies(request, workers)
        return
    if kind == PLACEMENT:
        from .evaluate_operators import evaluate_operator_policies

        request.others.update({"--ray": ray, "--jobs": None if jobs == 1 else jobs})
        evaluate_operator_policies(request, show_instances or [], dump)
        return
    if kind == TASKLETS:
        from .evaluate_tasklets import evaluate_tasklet_policies

        request.others.update({"--ray": ray, "--jobs": None if jobs == 1 else jobs})
        evaluate_tasklet_policies(request)
        return
    output.check_file("--json", json_file)
    if graphs is not None:
        from ....jobs.load import profile_names

        profile_names(graphs)  # refuses a folder without any
    from ....envs.benchmark import load_variants
    from ....evaluation.evaluate import Evaluation, check_fit, evaluate
    from ....evaluation.families import combined
    from ....planning.policies import note_files

    wanted = [] if references is None else references.split(",")
    console = output.console(json_file)
    chosen = load_variants(benchmark, changes=changes, trace=trace)
    folders = _folders(out, chosen)
    note_files([*policies, *(spec for each in chosen for spec in each.policies)])
    removed: set[str] = set()
    results: list[dict[str, Any]] = []
    with output.progress() as bars:
        scenarios = []
        for each in chosen:
            with output.set_up(bars) as simulated:
                scenarios.append(each.build(graphs_dir=graphs, progress=simulated))
            if len(chosen) > 1:  # what does not fit the last one is refused before the first one is played
                check_fit(each, policies, scenarios[-1], wanted)
        with workers as players:
            for each, scenario, folder in zip(chosen, scenarios, folders, strict=True):
                found: Evaluation = evaluate(
                    each,
                    policies,
                    references=wanted,
                    num_seeds=seeds,
                    workers=players,
                    graphs_dir=graphs,
                    scenario=scenario,
                    progress=output.phases(bars),
                )
                results.append(found.results)
                if folder is not None:
                    removed |= _write(found, folder)
    if len(chosen) == 1:
        output.write_json(json_file, results[0])
    else:
        output.write_json(json_file, combined(chosen[0].name.partition("/")[0], results))
        if out is not None:
            _summarise(out)
    for result in results:
        show(console, result)
    if len(chosen) > 1:
        _show_standings(console, results)
    output.print_written(console, json_file, out)
    for name in sorted(removed):
        console.print(f"removed, an export of the plans before: {name}", markup=False, soft_wrap=True)


def _folders(out: Path | None, chosen: Sequence[BenchmarkSettings]) -> list[Path | None]:
    """Where the results of each benchmark go: ``out``, or a folder below it for each variant of a family."""
    if out is None:
        return [None] * len(chosen)
    from ....evaluation.report import summary
    from ....evaluation.result_folder import FILES, PLANS
    from ....training.run_folder import resumed_files

    folders = [out] if len(chosen) == 1 else [out / each.name.partition("/")[2] for each in chosen]
    if len(chosen) > 1:
        output.check_folder("--out", out, markers=("summary.html", *(f"{folder.name}/results.json" for folder in folders)))
        output.check_files_in("--out", out, summary.FILES)
    for folder in folders:
        output.check_folder("--out", folder, markers=("results.json", "config.yaml"))
        output.check_files_in("--out", folder, FILES)
        output.check_folder("--out", folder / PLANS, markers=("index.json",), is_replaced=True)
        for path in resumed_files(folder):  # the report shows a training run that lies there
            inputs.note(path)
    return [*folders]


def _write(found: Any, folder: Path) -> set[str]:
    """Write an evaluation; returns the exports of former plans that were removed."""
    from ....evaluation.result_folder import write_evaluation

    exported = _exports(folder)
    write_evaluation(found, folder)
    return exported - _exports(folder)


def _summarise(out: Path) -> None:
    """The variants of a family on one page, as ``meshwright summarise`` writes it."""
    from ....evaluation.report import summary

    summary.write(summary.read(out), out)


def _show_standings(out: Any, results: Sequence[dict[str, Any]]) -> None:
    from ....evaluation.families import family_standings, standing_cells

    head, rows = standing_cells(family_standings(results))
    if rows:
        output.table(out, f"Learned policies over {len(results)} benchmarks", head, rows, numbers_from=2)


def _exports(out: Path) -> set[str]:
    return {str(path) for path in (out / "export").glob("*")}


def show(out: Any, results: dict[str, Any]) -> None:
    """Print the table of an evaluation and its verdict."""
    from ....evaluation.alike import alike, joined
    from ....evaluation.tables import beside, chosen_for, remarks, with_ends

    rows = []
    for group in alike(results["rows"]):
        row = group[0]
        is_reference = row["kind"] == "reference"
        told = "" if is_reference else beside(results, row)
        rows.append(
            [
                joined(group, lambda name: name + chosen_for(results, name)) + (" (reference)" if is_reference else ""),
                with_ends(row["blocking_rate"], 100.0, 1),
                with_ends(row["against_best_baseline"], 100.0, 1, sign="+") if told is None else told,
                "-" if row["mean_completion_s"] is None else f"{row['mean_completion_s']['mean'] / 3600:.2f}",
                "-" if row["utilisation"] is None else f"{100 * row['utilisation']['mean']:.0f}",
                "-" if row["mean_degree"] is None else f"{row['mean_degree']['mean']:.1f}",
            ]
        )
    scenario = results["scenario"]
    devices, episodes = counted(scenario["num_devices"], "device"), counted(len(results["seeds"]), "episode")
    title = f"{results['benchmark']}: {scenario['cluster']}, {devices}, {episodes}"
    columns = ["policy", "blocked %", "against best baseline, points", "completion h", "held %", "ranks"]
    output.table(out, title, columns, rows)
    for sentence in (results["verdict"], *(f"{told}." for told in remarks(results))):
        out.print(sentence, markup=False)
