"""Several evaluations and training runs on one page: benchmarks side by side, load curves, ablations, training seeds.

Everything is read from the folders that ``meshwright evaluate --out`` and ``meshwright train`` left below one folder;
nothing is played again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ... import files, yaml12
from ...envs.fleet.benchmark import load_fleet_benchmark
from ...errors import InputFileError, MeshwrightError
from ...quantities import counted
from ..alike import alike
from ..fleet.objectives import OBJECTIVES
from ..plots import curves
from ..plots.curves import BLOCKING, LearningMeasure
from ..plots.policies import blocking_figure
from ..plots.trade_off import policies_figure
from ..saved_results import read_any_results, read_curve
from ..statistics import CHALLENGERS, paired
from ..tables import escaped, table, with_ends, with_verdict
from .compared import COMPARED, Compared
from .operator_tables import operator_ablations, transfer_cells
from .pages import Cell, Drawn, PageTable, Row, figure_cells, page
from .report import BLOCKED, COMPLETION, TRADE_OFF, named_rows

Data = Mapping[str, Any]
Cells = list[list[str]]

TRANSFER = "Trained on rows, tested on columns"


@dataclass(frozen=True)
class Summary:
    """What was found below a folder.

    Attributes:
        results: content of each ``results.json`` by the folder that it lies in.
        learning: rows of ``learning_curve.json`` of training runs that differ in nothing but seed and name, by what they
            trained on; groups of two or more.
        others: kind and content of each ``results.json`` that is not of a scenario, as ``results``.
        measures: what the runs of each group validate by.
    """

    results: dict[str, Data]
    learning: dict[str, dict[str, list[Data]]]
    others: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    measures: dict[str, LearningMeasure] = field(default_factory=dict)


def read(folder: Path) -> Summary:
    """Read all evaluations and training runs below a folder.

    Raises:
        InputFileError: there is none, or a file is not what its name says.
    """
    results: dict[str, Data] = {}
    others: dict[str, tuple[str, dict[str, Any]]] = {}
    for path in sorted(folder.rglob("results.json")):
        kind, found = read_any_results(path)
        name = path.parent.relative_to(folder).as_posix()
        if kind is None:
            results[name] = found
        else:
            others[name] = kind, found
    groups: dict[str, dict[str, list[Data]]] = {}
    names: dict[str, str] = {}
    measures: dict[str, LearningMeasure] = {}
    for path in sorted(folder.rglob("learning_curve.json")):
        config = path.parent / "config.yaml"
        if not config.is_file():
            continue
        told, _ = yaml12.parse(files.read_text(config), file=config)
        told = told if isinstance(told, dict) else {}
        alike = files.digest({key: value for key, value in told.items() if key not in ("name", "seed")})
        names.setdefault(alike, f"{told.get('benchmark', '')} ({path.parent.name})")
        method = told.get("method")
        if alike not in measures:
            measures[alike] = _measure(method, told)
        groups.setdefault(alike, {})[path.parent.relative_to(folder).as_posix()] = list[Data](read_curve(path, method))
    if not results and not others and not groups:
        raise InputFileError("nothing below it was evaluated or trained (no results.json, no learning_curve.json)", file=folder)
    several = [alike for alike, runs in groups.items() if len(runs) > 1]
    learning = {names[alike]: groups[alike] for alike in several}
    return Summary(results, learning, others, {names[alike]: measures[alike] for alike in several})


def _measure(method: Any, config: Data) -> LearningMeasure:
    """What a method of training validates by; of a fleet, the objective of its benchmark."""
    if method == "elastic":
        key = "validation_mean_completion_s"
        return LearningMeasure("generation", "generations", 1.0, key, "mean completion time (min)", 1 / 60)
    if method == "operators":
        return LearningMeasure("update", "updates", 1.0, "validation", "value over that of the rule (1 is as good)", 1.0, 3)
    if method == "tasklets":
        return LearningMeasure("update", "updates", 1.0, "validation", "value over a short search's (1 is as good)", 1.0, 3)
    if method != "fleet":
        return BLOCKING
    try:
        changes = [str(change) for change in config.get("changes", [])]
        one = OBJECTIVES[load_fleet_benchmark(str(config.get("benchmark")), changes=changes).fleet.objective]
    except MeshwrightError:  # its file is not here
        return LearningMeasure(key="validation", name="objective", scale=1.0, digits=3)
    return LearningMeasure(
        key="validation",
        name=f"{one.words} ({one.unit})",
        scale=one.scale,
        digits=one.digits,
        is_less_better=one.sign > 0,
    )


def learned_names(summary: Summary) -> list[str]:
    """The learned policies that were evaluated."""
    placing = [row for kind, result in summary.others.values() if kind == "operators" for row in result["rows"]]
    names = [name for rows in _learned(summary).values() for name in rows]
    return list(dict.fromkeys([*names, *(str(row["policy"]) for row in placing if row["kind"] in CHALLENGERS)]))


def made(summary: Summary) -> list[str]:
    """Return how each trained policy was made, a sentence each; results of former versions have none."""
    results = [*summary.results.values(), *(result for _, result in summary.others.values())]
    return list(dict.fromkeys(sentence for result in results for sentence in result.get("made", ())))


def by_benchmark(summary: Summary) -> tuple[list[str], Cells]:
    """Benchmarks, and for each policy its blocking rate on each of them in percent; the first result of a pair counts.

    A benchmark that was changed, so that results of one name are of several scenarios, stands once for each folder.
    Policies that decided alike on every benchmark where either was evaluated share a row.
    """
    labels = _labels(summary)
    benchmarks = list(dict.fromkeys(labels.values()))
    rates: dict[str, dict[str, str]] = {}
    played: dict[str, dict[str, str]] = {}
    for folder, result in summary.results.items():
        benchmark = labels[folder]
        for number, group in enumerate(alike(result["rows"])):
            for row in group:
                name = str(row["policy"]) + (" (reference)" if row["kind"] == "reference" else "")
                rates.setdefault(name, {}).setdefault(benchmark, with_ends(row["blocking_rate"], 100.0, 1))
                played.setdefault(name, {}).setdefault(benchmark, f"{folder} {number}")
    once: dict[str, list[str]] = {}
    for name, by in played.items():
        once.setdefault(files.digest(by), []).append(name)
    return benchmarks, [
        [", ".join(names), *(rates[names[0]].get(benchmark, "-") for benchmark in benchmarks)] for names in once.values()
    ]


def other_benchmarks(summary: Summary) -> dict[str, dict[str, list[Any]]]:
    """The table (``head`` and ``rows``) of each evaluation of a fleet, of elastic jobs, of ops and of tasklets."""
    found: dict[str, dict[str, list[Any]]] = {}
    for folder, (kind, result) in summary.others.items():
        one = COMPARED[kind](result)
        title = one.title if one.title not in found else f"{one.title} ({folder})"
        rows = [[" ".join(filter(None, cell)) for cell in row.cells] for row in one.table.rows]
        found[title] = {"head": [cell.text for cell in one.table.head], "rows": rows}
    return found


def _labels(summary: Summary) -> dict[str, str]:
    """By folder, what its result is called: the benchmark, and the folder too where the name stands for several scenarios."""
    scenarios: dict[str, set[str]] = {}
    for result in summary.results.values():
        scenarios.setdefault(str(result["benchmark"]), set()).add(str(result["scenario"].get("digest")))
    return {
        folder: f"{result['benchmark']} ({folder})" if len(scenarios[str(result["benchmark"])]) > 1 else str(result["benchmark"])
        for folder, result in summary.results.items()
    }


def ablations(summary: Summary, against: str) -> dict[str, Cells]:
    """Each learned policy compared with one of them, by benchmark: blocking rate in percent, difference in points.

    Args:
        summary: what was found.
        against: name of the policy that nothing was taken from.
    """
    found: dict[str, Cells] = {}
    for benchmark, rows in _learned(summary).items():
        full = rows.get(against)
        if full is None or len(rows) < 2:
            continue
        cells = []
        for name, (row, seeds) in rows.items():
            difference = "-"
            if name != against and seeds == full[1]:
                value = paired(row["per_seed"]["blocking_rate"], full[0]["per_seed"]["blocking_rate"])
                difference = with_verdict(value, 100.0, 1)
            cells.append([name, with_ends(row["blocking_rate"], 100.0, 1), difference])
        found[benchmark] = [row for row in cells if row[0] == against] + [row for row in cells if row[0] != against]
    return found


def loads(summary: Summary) -> dict[str, dict[str, list[tuple[float, Data]]]]:
    """Inter-arrival time and blocking rate by policy, for each scenario that was evaluated at several loads.

    Results belong together whose scenarios differ in nothing but when jobs arrive.
    """
    groups: dict[str, dict[str, dict[float, Data]]] = {}
    titles: dict[str, str] = {}
    for result in summary.results.values():
        scenario = result["scenario"]
        where = f"{scenario['cluster']}, {', '.join(scenario['graphs'])}"
        key = str(scenario.get("digest_but_arrivals", where))
        title = f"{where} ({str(result['benchmark']).partition('/')[0]})"
        titles.setdefault(key, title if title not in titles.values() else f"{title}, scenario {key[:8]}")
        for row in result["rows"]:
            curve = groups.setdefault(key, {}).setdefault(str(row["policy"]), {})
            curve.setdefault(float(scenario["mean_interarrival_s"]), row["blocking_rate"])
    found = {
        titles[key]: {name: sorted(curve.items()) for name, curve in of.items() if len(curve) > 1} for key, of in groups.items()
    }
    return {where: of for where, of in found.items() if of}


FILES = ("summary.html", "summary.md")


def write(summary: Summary, out: Path, against: str | None = None) -> None:
    """Write the page and the tables into a folder.

    Args:
        summary: what was found.
        out: the folder.
        against: as for `ablations`.
    """
    for name, text_of in zip(FILES, (to_html, to_markdown), strict=True):
        files.write_text(out / name, text_of(summary, against))


def to_markdown(summary: Summary, against: str | None = None) -> str:
    """The tables of a summary as Markdown."""
    lines = ["# Summary", ""]
    if summary.results:
        benchmarks, rows = by_benchmark(summary)
        cells = [[escaped(row[0]), *row[1:]] for row in rows]
        lines += ["Blocked, % of jobs [95 % interval].", "", *table(["policy", *map(escaped, benchmarks)], cells), ""]
    for benchmark, rows in ablations(summary, against).items() if against else ():
        head = ["policy", "blocked, % of jobs", f"against {escaped(against)}, points"]
        lines += [f"## Ablations on {escaped(benchmark)}", "", *table(head, [[escaped(r[0]), *r[1:]] for r in rows]), ""]
    for title, _, head, rows in operator_tables(summary, against):
        lines += [f"## {escaped(title)}", "", *table([escaped(cell) for cell in head], [[*map(escaped, r)] for r in rows]), ""]
    for title, one in other_benchmarks(summary).items():
        rows = [[escaped(row[0]), *row[1:]] for row in one["rows"]]
        lines += [f"## {escaped(title)}", "", *table([escaped(cell) for cell in one["head"]], rows), ""]
    for name, runs in summary.learning.items():
        measure = summary.measures.get(name, BLOCKING)
        best_head = "best on validation, %" if measure is BLOCKING else f"best on validation: {measure.name}"
        lines += [
            f"## Training seeds of {escaped(name)}",
            "",
            *table(["run", best_head], [[escaped(run), best] for run, best in _best_of(runs, measure)]),
            "",
        ]
    sentences = [f"- {escaped(sentence)}" for sentence in made(summary)]
    lines += ["## How the trained policies were made", "", *sentences, ""] if sentences else []
    return "\n".join(lines)


def to_html(summary: Summary, against: str | None = None) -> str:
    """The page: tables and figures."""
    tables: list[tuple[str, str, PageTable]] = []
    if summary.results:
        benchmarks, rows = by_benchmark(summary)
        head = [Cell("policy"), *(Cell(benchmark, "% of jobs") for benchmark in benchmarks)]
        tables.append(
            ("Blocked jobs", "Means over the test episodes with 95 % intervals.", _table(head, rows, learned_names(summary)))
        )
    for benchmark, rows in ablations(summary, against).items() if against else ():
        head = [Cell("policy"), Cell("blocked", "% of jobs"), Cell(f"against {against}", "points")]
        tables.append((f"Ablations on {benchmark}", "", _table(head, rows)))
    for title, note, names, rows in operator_tables(summary, against):
        tables.append((title, note, _table([Cell(name) for name in names], rows)))
    others = [COMPARED[kind](result) for kind, result in summary.others.values()]
    titles = [one.title for one in others]
    others = [
        one._replace(title=f"{one.title} ({folder})") if titles.count(one.title) > 1 else one
        for folder, one in zip(summary.others, others, strict=True)
    ]
    tables += [(one.title, one.verdict, one.table) for one in others]
    for name, runs in summary.learning.items():
        measure = summary.measures.get(name, BLOCKING)
        unit = "% of jobs" if measure is BLOCKING else measure.name
        head = [Cell("run"), Cell("best on validation", unit)]
        tables.append((f"Training seeds of {name}", "", _table(head, _best_of(runs, measure))))
    num_runs = sum(map(len, summary.learning.values()))
    counts = counted(len(summary.results) + len(others), "evaluation")
    counts += f" and {counted(num_runs, 'training run')} that differ in their seed alone" * bool(num_runs)
    return page(
        "summary.html",
        title="Summary",
        facts=" ".join([f"From {counts}; nothing was played again.", *made(summary)]),
        tables=tables,
        drawn=_drawings(summary, others),
    )


def operator_tables(summary: Summary, against: str | None) -> list[tuple[str, str, list[str], Cells]]:
    """Title, note, headings and rows of the tables over several evaluations of operator placement."""
    found: list[tuple[str, str, list[str], Cells]] = []
    transfers = transfer_cells(summary.others)
    if transfers is not None:
        note = "Value over the best known, mean and 95 % interval: trained on what the row says, tested on what the column says."
        found.append((TRANSFER, note, *transfers))
    for title, rows in operator_ablations(summary.others, against).items() if against else ():
        head = ["policy", "left out", "over best known", f"against {against}"]
        found.append((f"Ablations on {title}", "Differences are paired over the instances.", head, rows))
    return found


def _drawings(summary: Summary, others: Sequence[Compared]) -> list[Drawn]:
    kinds = {str(row["policy"]): str(row["kind"]) for result in summary.results.values() for row in result["rows"]}
    drawn: list[Drawn] = []
    labels = _labels(summary)
    once = {labels[folder]: result for folder, result in reversed(summary.results.items())}
    for benchmark, result in reversed(once.items()):
        rows = named_rows(result)
        trade_off = policies_figure(f"Policies on {benchmark} by jobs blocked and completion time", rows, COMPLETION, BLOCKED)
        caption = f"Blocking rate of each policy on {benchmark}, with 95 % intervals."
        drawn.append(Drawn(blocking_figure(rows), caption))
        if trade_off is not None:
            drawn.append(Drawn(trade_off, f"{benchmark}: {TRADE_OFF}"))
    for one in others:
        drawn += [replace(each, caption=f"{one.title}. {each.caption}") for each in one.drawn]
    for where, of in loads(summary).items():
        drawn.append(Drawn(curves.load_figure(of, kinds), f"Blocking rate against load on {where}, with 95 % intervals."))
    for name, runs in summary.learning.items():
        measure = summary.measures.get(name, BLOCKING)
        what = "blocking rate" if measure is BLOCKING else measure.name
        told = f"Training runs that differ in their seed alone, on {name}: {what} on validation episodes."
        drawn.append(Drawn(curves.learning_figure(runs, measure), told))
    return drawn


def _learned(summary: Summary) -> dict[str, dict[str, tuple[Data, Sequence[int]]]]:
    """By benchmark, the row of each learned policy and the seeds that it was evaluated on."""
    found: dict[str, dict[str, tuple[Data, Sequence[int]]]] = {}
    for result in summary.results.values():
        for row in result["rows"]:
            if row["kind"] in CHALLENGERS:
                found.setdefault(str(result["benchmark"]), {}).setdefault(str(row["policy"]), (row, result["seeds"]))
    return found


def _best_of(runs: Mapping[str, Sequence[Data]], measure: LearningMeasure) -> Cells:
    """The best validation figure of each run."""
    found = []
    for name, rows in runs.items():
        points = measure.points(rows)
        found.append([name, f"{measure.best(points):.{measure.digits}f}" if len(points) else "-"])
    return found


def _table(head: Sequence[Cell], rows: Cells, learned: Sequence[str] = ()) -> PageTable:
    return PageTable(head, [Row(figure_cells(row), is_learned=row[0] in learned) for row in rows])
