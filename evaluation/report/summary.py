"""Several evaluations and training runs on one page: benchmarks next to each other, load curves, ablations, training seeds.

Everything is read from the folders that ``meshwright evaluate --out`` and ``meshwright train`` left below one folder; nothing is
played again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ... import files, yaml12
from ...envs.fleet.benchmark import load_fleet_benchmark
from ...errors import InputFileError, MeshwrightError
from ...quantities import counted
from ..metrics import METRICS
from ..plots import curves
from ..plots.curves import BLOCKING, LearningMeasure
from ..saved_results import read_curve, read_results
from ..sections import left_out
from ..statistics import CHALLENGERS, tied_groups
from ..tables import Cells, difference_cell, escaped, result_cells, table, value_cell
from ..verdict import paired_rows
from .pages import Drawn, PageTable, page
from .report import policy_table, text_table
from .shared_figures import figures_of

Data = Mapping[str, Any]

TRANSFER = "Trained on rows, tested on columns"
FILES = ("summary.html", "summary.md")


@dataclass(frozen=True)
class Summary:
    """Results and training runs below a folder.

    Attributes:
        results: content of each ``results.json`` by its folder.
        learning: rows of ``learning_curve.json`` of training runs that differ in nothing but seed and name, by what they trained
            on; groups of two or more.
        measures: by which the runs of each group validate.
    """

    results: dict[str, Data]
    learning: dict[str, dict[str, list[Data]]]
    measures: dict[str, LearningMeasure] = field(default_factory=dict)


def read(folder: Path) -> Summary:
    """Read all evaluations and training runs below a folder.

    Raises:
        InputFileError: there is none, or a file is not what its name says.
    """
    results: dict[str, Data] = {
        path.parent.relative_to(folder).as_posix(): read_results(path) for path in sorted(folder.rglob("results.json"))
    }
    groups: dict[str, dict[str, list[Data]]] = {}
    names: dict[str, str] = {}
    measures: dict[str, LearningMeasure] = {}
    for path in sorted(folder.rglob("learning_curve.json")):
        file = path.parent / "config.yaml"
        if not file.is_file():
            continue
        parsed, _ = yaml12.parse(files.read_text(file), file=file)
        config = parsed if isinstance(parsed, dict) else {}
        digest = files.digest({key: value for key, value in config.items() if key not in ("name", "seed")})
        names.setdefault(digest, f"{config.get('benchmark', '')} ({path.parent.name})")
        if digest not in measures:
            measures[digest] = _measure(config)
        curve = read_curve(path, (measures[digest].step_key, measures[digest].key))
        groups.setdefault(digest, {})[path.parent.relative_to(folder).as_posix()] = list(curve)
    if not results and not groups:
        raise InputFileError("nothing below it was evaluated or trained (no results.json, no learning_curve.json)", file=folder)
    several = [digest for digest, runs in groups.items() if len(runs) > 1]
    return Summary(results, {names[one]: groups[one] for one in several}, {names[one]: measures[one] for one in several})


def _measure(config: Data) -> LearningMeasure:
    """Return the measure by which a method of training validates; of a fleet, the objective of its benchmark."""
    method = config.get("method")
    if method == "elastic":
        key = "validation_mean_completion_s"
        return LearningMeasure("generation", "generations", 1.0, key, "mean completion time (min)", 1 / 60)
    if method in ("operators", "graph"):
        return LearningMeasure("update", "updates", 1.0, "validation", "value over the reference (1 is as good)", 1.0, 3)
    if method != "fleet":
        return BLOCKING
    try:
        changes = [str(change) for change in config.get("changes", [])]
        one = METRICS[load_fleet_benchmark(str(config.get("benchmark")), changes=changes).fleet.objective]
    except MeshwrightError:  # its file is not here
        return LearningMeasure(key="validation", name="objective", scale=1.0, digits=3)
    name = f"{one.words} ({one.unit})"
    return LearningMeasure(key="validation", name=name, scale=one.scale, digits=one.digits, is_less_better=one.sign > 0)


def labels(summary: Summary) -> dict[str, str]:
    """Return the name of each result by its folder: the benchmark, and the folder too where several have this name."""
    names = [str(result["benchmark"]) for result in summary.results.values()]
    return {
        folder: f"{result['benchmark']} ({folder})" if names.count(str(result["benchmark"])) > 1 else str(result["benchmark"])
        for folder, result in summary.results.items()
    }


def together(summary: Summary) -> dict[str, dict[str, Data]]:
    """Return the evaluations that met the same cases by what they are called, each by its folder.

    The name is the benchmark, and the first folder too where several have this benchmark.
    """
    groups: dict[str, dict[str, Data]] = {}
    for folder, result in summary.results.items():
        met = [result[key] for key in ("world", "benchmark", "about", "cases", "objective")]
        groups.setdefault(files.digest([*met, result["more"].get("known_s")]), {})[folder] = result
    names = [str(next(iter(group.values()))["benchmark"]) for group in groups.values()]
    return {
        name if names.count(name) == 1 else f"{name} ({next(iter(group))})": group
        for name, group in zip(names, groups.values(), strict=True)
    }


def learned_names(summary: Summary) -> list[str]:
    """Return the learned policies that were evaluated."""
    return list(dict.fromkeys(str(row["policy"]) for row in _rows(summary) if row["kind"] in CHALLENGERS))


def made(summary: Summary) -> list[str]:
    """Return how the trained policies were made, in sentences."""
    return list(dict.fromkeys(sentence for result in summary.results.values() for sentence in result["made"]))


def _rows(summary: Summary) -> list[Data]:
    return [row for result in summary.results.values() for row in result["rows"]]


def across(summary: Summary) -> dict[str, Cells]:
    """Return for each world and objective of several evaluations a table of all policies, by heading.

    Policies with the same figures wherever they were evaluated share a row. Of a policy that met the same cases twice, the first
    evaluation counts.
    """
    kinds: dict[tuple[str, str], dict[str, dict[str, Data]]] = {}
    for label, group in together(summary).items():
        result = next(iter(group.values()))
        kinds.setdefault((result["world"], result["objective"]), {})[label] = group
    results = {}
    for (world, objective), of in kinds.items():
        if sum(map(len, of.values())) < 2:
            continue
        metric = METRICS[objective]
        cells: dict[str, dict[str, str]] = {}
        played: dict[str, dict[str, str]] = {}
        for label, group in of.items():
            for folder, result in group.items():
                for number, same in enumerate(tied_groups(result["rows"])):
                    for row in same:
                        cells.setdefault(str(row["policy"]), {}).setdefault(label, value_cell(row, metric))
                        played.setdefault(str(row["policy"]), {}).setdefault(label, f"{folder} {number}")
        once: dict[str, list[str]] = {}
        for policy, places in played.items():
            once.setdefault(files.digest(places), []).append(policy)
        rows = [[", ".join(each), *(cells[each[0]].get(label, "-") for label in of)] for each in once.values()]
        results[f"{metric.axis.capitalize()} ({world})"] = ["policy", *of], rows
    return results


def ablations(summary: Summary, against: str) -> dict[str, Cells]:
    """Return each learned policy compared with one of them, by benchmark.

    Args:
        summary: of several evaluations.
        against: name of the policy that nothing was taken from.
    """
    results: dict[str, Cells] = {}
    for label, group in together(summary).items():
        metric = METRICS[next(iter(group.values()))["objective"]]
        trained: dict[str, Data] = {}
        rows: dict[str, Data] = {}
        for result in group.values():
            trained = result["more"].get("trained", {}) | trained
            rows = {str(row["policy"]): row for row in result["rows"] if row["kind"] in CHALLENGERS} | rows
        if against not in rows or len(rows) < 2:
            continue
        whole = rows.pop(against)
        lacks = {name: ", ".join(left_out(one)) or "nothing" for name, one in trained.items() if one.get("network")}
        cells = [
            [
                name,
                *([lacks.get(name, "-")] if lacks else []),
                value_cell(row, metric),
                difference_cell(paired_rows(row, whole, metric), metric, has_words=True),
            ]
            for name, row in {against: whole, **rows}.items()
        ]
        unit = f", {metric.difference_unit}" if metric.difference_unit else ""
        head = ["policy", *(["left out"] if lacks else []), metric.column, f"against {against}{unit}"]
        results[f"Ablations on {label}"] = head, cells
    return results


def transfers(summary: Summary) -> Cells | None:
    """Return learned policies by the benchmark that they were trained on, tested on several; None where there are no two."""
    tested = {folder: result for folder, result in summary.results.items() if result["more"].get("trained")}
    learned: dict[str, dict[str, Data]] = {}
    trained_on: dict[str, str] = {}
    for folder, result in tested.items():
        for row in result["rows"]:
            trained = result["more"]["trained"].get(row["policy"])
            if trained is not None and "@" not in row["policy"]:
                learned.setdefault(row["policy"], {})[folder] = row
                changes = [
                    str(one).removeprefix("placement.") for one in trained.get("changes", ()) if str(one).startswith("placement.")
                ]
                trained_on.setdefault(row["policy"], "; ".join([str(trained.get("benchmark", "unknown")), *changes]))
    columns = [folder for folder in tested if any(folder in of for of in learned.values())]
    if len(columns) < 2 or len({tested[folder]["world"] for folder in columns}) > 1:
        return None
    metrics = {folder: METRICS[tested[folder]["objective"]] for folder in columns}
    rows = [
        [name, trained_on[name], *(value_cell(of[folder], metrics[folder]) if folder in of else "-" for folder in columns)]
        for name, of in learned.items()
    ]
    planners = []
    for folder in columns:
        known = [row for row in tested[folder]["rows"] if row["kind"] in ("planner", "baseline")]
        best = min(known, key=metrics[folder].cost, default=None)
        planners.append("-" if best is None else f"{value_cell(best, metrics[folder])} {best['policy']}")
    named = labels(summary)
    return ["policy", "trained on", *(named[folder] for folder in columns)], [*rows, ["best planner", "", *planners]]


def tables(summary: Summary, against: str | None) -> dict[str, Cells]:
    """Return the tables over several evaluations by heading."""
    result = across(summary)
    moved = transfers(summary)
    if moved is not None:
        result[TRANSFER] = moved
    return result | (ablations(summary, against) if against else {})


def loads(summary: Summary) -> dict[str, dict[str, list[tuple[float, Data]]]]:
    """Return inter-arrival time and blocking rate by policy, for each scenario that was evaluated at several loads.

    Results belong together whose scenarios differ in nothing but when jobs arrive.
    """
    groups: dict[str, dict[str, dict[float, Data]]] = {}
    titles: dict[str, str] = {}
    for result in summary.results.values():
        about = result["about"]
        if result["objective"] != "blocking_rate" or about.get("mean_interarrival_s") is None:
            continue
        where = f"{about.get('cluster')}, {', '.join(about.get('jobs', ()))}"
        key = str(about.get("digest_but_arrivals", where))
        title = f"{where} ({str(result['benchmark']).partition('/')[0]})"
        titles.setdefault(key, title if title not in titles.values() else f"{title}, scenario {key[:8]}")
        for row in result["rows"]:
            curve = groups.setdefault(key, {}).setdefault(str(row["policy"]), {})
            curve.setdefault(float(about["mean_interarrival_s"]), row["metrics"]["blocking_rate"])
    results = {
        titles[key]: {name: sorted(curve.items()) for name, curve in of.items() if len(curve) > 1} for key, of in groups.items()
    }
    return {where: of for where, of in results.items() if of}


def write(summary: Summary, out: Path, against: str | None = None) -> None:
    """Write the page and the tables into a folder; ``against`` as for `ablations`."""
    for name, text_of in zip(FILES, (to_html, to_markdown), strict=True):
        files.write_text(out / name, text_of(summary, against))


def seeds_cells(summary: Summary) -> dict[str, Cells]:
    """Return the best validation of each training run, by heading."""
    result = {}
    for name, runs in summary.learning.items():
        measure = summary.measures[name]
        points = {run: measure.points(rows) for run, rows in runs.items()}
        rows = [[run, f"{measure.best(of):.{measure.digits}f}" if len(of) else "-"] for run, of in points.items()]
        result[f"Training seeds of {name}"] = ["run", f"best on validation: {measure.name}"], rows
    return result


def to_markdown(summary: Summary, against: str | None = None) -> str:
    """Return the tables of a summary as Markdown."""
    lines = ["# Summary", ""]
    results = {result["title"]: result_cells(result, has_words=True) for result in summary.results.values()}
    for heading, (head, rows) in {**tables(summary, against), **results, **seeds_cells(summary)}.items():
        lines += [f"## {escaped(heading)}", "", *table(list(map(escaped, head)), [[*map(escaped, row)] for row in rows]), ""]
    sentences = [f"- {escaped(sentence)}" for sentence in made(summary)]
    lines += ["## How the trained policies were made", "", *sentences, ""] if sentences else []
    return "\n".join(lines)


def to_html(summary: Summary, against: str | None = None) -> str:
    """Return the page: tables and figures."""
    named = labels(summary)
    shown: list[tuple[str, str, PageTable]] = [(title, "", text_table(*of)) for title, of in tables(summary, against).items()]
    shown += [(result["title"], result["verdict"], policy_table(result)) for result in summary.results.values()]
    shown += [(title, "", text_table(*of)) for title, of in seeds_cells(summary).items()]
    num_runs = sum(map(len, summary.learning.values()))
    counts = counted(len(summary.results), "evaluation")
    counts += f" and {counted(num_runs, 'training run')} that differ in their seed alone" * bool(num_runs)
    drawn: list[Drawn] = []
    for folder, result in summary.results.items():
        drawn += [replace(one, caption=f"{named[folder]}. {one.caption}") for one in figures_of(result)]
    return page(
        "summary.html",
        title="Summary",
        facts=" ".join([f"From {counts}; nothing was played again.", *made(summary)]),
        tables=shown,
        drawn=[*drawn, *_curves(summary)],
    )


def _curves(summary: Summary) -> list[Drawn]:
    kinds = {str(row["policy"]): str(row["kind"]) for row in _rows(summary)}
    drawn: list[Drawn] = []
    for where, of in loads(summary).items():
        drawn.append(Drawn(curves.load_figure(of, kinds), f"Blocking rate against load on {where}, with 95 % intervals."))
    for name, runs in summary.learning.items():
        measure: LearningMeasure = summary.measures[name]
        caption = f"Training runs that differ in their seed alone, on {name}: {measure.name} on validation episodes."
        drawn.append(Drawn(curves.learning_figure(runs, measure), caption))
    return drawn


def to_data(summary: Summary, against: str | None) -> dict[str, Any]:
    """Return the tables as plain data."""
    result = {**tables(summary, against), **seeds_cells(summary)}
    evaluations = {label: result_cells(summary.results[folder], has_words=True) for folder, label in labels(summary).items()}
    return {
        "tables": {title: {"head": head, "rows": rows} for title, (head, rows) in result.items()},
        "evaluations": {title: {"head": head, "rows": rows} for title, (head, rows) in evaluations.items()},
        "made": made(summary),
    }
