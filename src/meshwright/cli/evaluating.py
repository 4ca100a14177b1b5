"""``meshwright evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..jobs.load import profile_names
from . import output


def run(
    policies: list[str],
    benchmark: str,
    seeds: int | None,
    jobs: int,
    changes: list[str],
    graphs: Path | None,
    out: Path | None,
    json_file: str | None,
    references: str | None = None,
) -> None:
    """Evaluate, write what was asked for, and print the table and the verdict."""
    output.check_file("--json", json_file)
    output.check_folder("--out", out, markers=("results.json", "config.yaml"))
    output.check_folder("--out", None if out is None else out / "plans", markers=("index.json",))
    if graphs is not None:
        profile_names(graphs)  # refuses a folder without any
    from ..envs.benchmark import load_benchmark
    from ..evaluation.evaluate import evaluate

    with output.progress() as bars:
        chosen = load_benchmark(benchmark, changes=changes)
        with output.set_up(bars) as simulated:
            scenario = chosen.build(graphs_dir=graphs, progress=simulated)
        found = evaluate(
            chosen,
            policies,
            references=() if references is None else references.split(","),
            num_seeds=seeds,
            num_processes=jobs,
            graphs_dir=graphs,
            scenario=scenario,
            progress=output.phases(bars),
        )
    removed: set[str] = set()
    if out is not None:
        from ..evaluation.pages import write_evaluation

        exported = _exports(out)
        write_evaluation(found, out)
        removed = exported - _exports(out)
    output.write_json(json_file, found.results)
    console = output.console(json_file)
    show(console, found.results)
    output.tell_written(console, json_file, out)
    for name in sorted(removed):
        console.print(f"removed, an export of the plans before: {name}", markup=False, soft_wrap=True)


def _exports(out: Path) -> set[str]:
    return {str(path) for path in (out / "export").glob("*")}


def show(out: Any, results: dict[str, Any]) -> None:
    """Print the table of an evaluation and its verdict."""
    rows = []
    for row in results["rows"]:
        against = row["against_best_baseline"] if row["kind"] != "reference" else None
        chosen = results["best_fixed"].get(row["policy"], {}).get("chosen")
        rows.append(
            [
                row["policy"] + (f" ({chosen})" if chosen else "") + (" (reference)" if row["kind"] == "reference" else ""),
                percent(row["blocking_rate"]),
                "" if against is None else f"{100 * against['mean']:+.1f}" + ends(against, "+.1f"),
                "-" if row["mean_completion_s"] is None else f"{row['mean_completion_s']['mean'] / 3600:.2f}",
                "-" if row["utilisation"] is None else f"{100 * row['utilisation']['mean']:.0f}",
                "-" if row["mean_degree"] is None else f"{row['mean_degree']['mean']:.1f}",
            ]
        )
    scenario = results["scenario"]
    title = f"{results['benchmark']}: {scenario['cluster']}, {scenario['num_devices']} devices, {len(results['seeds'])} episodes"
    columns = ["policy", "blocked %", "against best baseline, points", "completion h", "held %", "ranks"]
    output.table(out, title, columns, rows)
    out.print(results["verdict"], markup=False)


def percent(interval: dict[str, Any]) -> str:
    """A share with its interval, in per cent."""
    return f"{100 * interval['mean']:.1f}" + ends(interval, ".1f")


def ends(interval: dict[str, Any], form: str) -> str:
    """The ends of an interval of shares in per cent; nothing where a single episode has none."""
    if interval["low"] is None:
        return ""
    return f" [{format(100 * interval['low'], form)}, {format(100 * interval['high'], form)}]"
