"""The tables and figures of a study that tell how policies came about and what they do, rather than who wins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from meshwright.evaluation.decision_stats import DEADLINE, FREE_DEVICES, GRAPH, REJECTED
from meshwright.evaluation.plots import curves
from meshwright.evaluation.tables import escaped, table

from .contents import Degrees, Durations, Entries, Latency, Learning, Loads, Seeds
from .findings import PolicyResult, StudyResults
from .measures import BLOCKING, Measure
from .tables import NOTHING, best_fixed, bold, of_seed, shown_in

Drawings = dict[str, tuple[str, str]]
"""By the end of a file's name: SVG text, and what it shows."""

STATES = {FREE_DEVICES: "free devices", DEADLINE: "allowed time, share of the time on one device", GRAPH: "graph"}


def loads(findings: StudyResults, chosen: Loads) -> tuple[list[str], Drawings]:
    """Blocking by load: ours, the best fixed degree of each load and what ours differs from it by, and other rows."""
    names = [run.name for run in findings.runs(chosen.ours)]
    kinds = {"ours": "learned", "best fixed degree": "baseline"}
    kinds |= {row.label: row.kind for row in chosen.rows}
    points: dict[str, dict[float, PolicyResult]] = {label: {} for label in kinds}
    differences: dict[float, str] = {}
    for played in findings.played(chosen).values():
        interarrival_s = float(played.scenario["mean_interarrival_s"])
        ours, fixed = played.mean(names, "ours"), best_fixed(played)
        entries = {"ours": ours, "best fixed degree": fixed}
        entries |= {row.label: shown_in(row, findings, played) for row in chosen.rows}
        for label, entry in entries.items():
            if entry is not None:
                points[label][interarrival_s] = entry
        if ours is not None and fixed is not None:
            differences[interarrival_s] = ours.shown_against(fixed)
    every = sorted({interarrival_s for found in points.values() for interarrival_s in found})
    rows = []
    for label, found in points.items():
        shown = [found[load].shown() if load in found else NOTHING for load in every]
        rows.append([bold(label) if label == "ours" else escaped(label), *shown])
    rows.insert(2, ["ours against the best fixed degree", *(differences.get(load, NOTHING) for load in every)])
    if not every:
        return [], {}
    lines = table(["policy", *(f"every {load:,.0f} s" for load in every)], rows)
    drawn: dict[str, list[tuple[float, Mapping[str, Any]]]] = {
        label: [(load, entry.interval) for load, entry in found.items()] for label, found in points.items() if len(found) > 1
    }
    if not drawn:
        return lines, {}
    return lines, {"": (curves.load_svg(drawn, kinds), "Blocking rate against load, with 95 % intervals")}


def seeds(findings: StudyResults, chosen: Seeds) -> list[str]:
    """What each run reached on validation and on test episodes, and how far the runs differ."""
    heads, cells = [], dict[str, list[str]]()
    reached: list[tuple[Measure, list[float]]] = []
    for column in chosen.columns:
        played = findings.played(chosen, column).get("")
        heads += [f"{escaped(column)}: validation", f"{escaped(column)}: test"]
        validation, test = list[float](), list[float]()
        measure = BLOCKING
        for run in findings.runs(chosen.ours, column):
            measure = findings.measure(run)
            row = cells.setdefault(of_seed(run), [])
            row += [NOTHING] * (len(heads) - 2 - len(row))
            best = findings.validated(run) if findings.is_done(run) and findings.curve(run) else None
            entry = None if played is None else played.entry(run.name)
            row += [NOTHING if best is None else measure.single(best), NOTHING if entry is None else entry.shown()]
            validation += [] if best is None else [best]
            test += [] if entry is None else [entry.interval["mean"]]
        reached += [(measure, validation), (measure, test)]
    rows = [[name, *row, *([NOTHING] * (len(heads) - len(row)))] for name, row in cells.items()]
    for word, figure in (("mean", np.mean), ("standard deviation", _deviation), ("greatest less least", np.ptp)):
        if any(len(values) > 1 for _, values in reached):
            told = [measure.single(float(figure(values))) if len(values) > 1 else NOTHING for measure, values in reached]
            rows.append([word, *told])
    return table(["run", *heads], rows)


def learning(findings: StudyResults, chosen: Learning) -> tuple[list[str], Drawings]:
    """Curves of the runs of each column."""
    drawings: Drawings = {}
    for column in chosen.columns:
        found = {run.name: findings.curve(run) for run in findings.runs(chosen.ours, column)}
        found = {name: curve for name, curve in found.items() if len(curve) > 1}
        if found:
            svg = curves.learning_svg(found, f"learning-{len(drawings)}")
            drawings[column] = svg, f"Blocking rate on validation episodes by decisions, {', '.join(found)}"
    return [], drawings


def degrees(findings: StudyResults, chosen: Degrees) -> list[str]:
    """Shares of each degree by state, for the first run of each column."""
    lines: list[str] = []
    for column in chosen.columns:
        runs = findings.runs(chosen.ours, column)
        played = findings.played(chosen, column).get("")
        row = None if played is None or not runs else played.rows.get(runs[0].name)
        if row is None or not row["states"]:
            continue
        most, part = max(row["degrees"].items(), key=lambda item: item[1])
        told = f"the most frequent degree, {most}, is that of {100 * part:.0f} % of the jobs that it places."
        lines += ["", f"**{escaped(column)}**, run {escaped(runs[0].name)}: {told}", ""]
        names = {name for bins in row["states"].values() for one in bins for name in one["shares"]}
        order = [*sorted(names - {REJECTED}, key=int), *({REJECTED} & names)]
        for kind, label in STATES.items():
            rows = [
                [escaped(one["state"]), f"{one['decisions']:,}", *(_percent(one["shares"].get(name)) for name in order)]
                for one in row["states"][kind]
            ]
            lines += [*table([label, "decisions", *(f"{name}, %" for name in order)], rows), ""]
    return lines[1:-1]


def entries(findings: StudyResults, chosen: Entries) -> list[str]:
    """The shares of layouts and of numbers of devices, run by run."""
    rows = []
    for column in chosen.columns:
        played = findings.played(chosen, column).get("")
        for run in findings.runs(chosen.ours, column):
            row = None if played is None else played.rows.get(run.name)
            if row is not None:
                layouts, devices = (_frequent(row[key], chosen.least_share) for key in ("layouts", "degrees"))
                cells = [", ".join(told) or NOTHING for told in (layouts, devices)]
                rows.append([escaped(column), escaped(run.name), str(len(layouts)), *cells])
    least = f"{100 * chosen.least_share:g} %"
    return table(["benchmark", "policy", f"layouts of {least} or more", "these", "devices"], rows) if rows else []


def latency(findings: StudyResults, chosen: Latency) -> list[str]:
    """How long the policies of each column take to decide."""
    rows = []
    for column in chosen.columns:
        played = findings.played(chosen, column).get("")
        for run in findings.runs(chosen.ours, column):
            taken = None if played is None else played.latency_s.get(run.name)
            if played is not None and taken is not None:
                devices = str(played.scenario["num_devices"])
                rows.append([escaped(column), devices, escaped(run.name), *(f"{1e3 * taken[p]:.2f}" for p in ("p50", "p99"))])
    return table(["benchmark", "devices", "policy", "median, ms", "99th percentile, ms"], rows) if rows else []


def durations(findings: StudyResults, chosen: Durations) -> list[str]:
    """Decisions, or of operator placement steps of the imitation and updates, and time of every training run that has ended."""
    rows = []
    for run in findings.study.runs:
        curve = findings.curve(run)
        if curve and findings.is_done(run):
            best = findings.measure(run).single(findings.validated(run))
            learned = f"{curve[-1]['steps']:,}" if "steps" in curve[-1] else f"{curve[-1]['update']:,} updates"
            rows.append([escaped(run.name), learned, f"{curve[-1]['elapsed_s'] / 60:.1f}", best])
    return table(["run", "decisions", "minutes", "best on validation"], rows) if rows else []


def _frequent(shares: Mapping[str, float], least: float) -> list[str]:
    """Names with their shares, the most frequent first."""
    found = sorted(((part, name) for name, part in shares.items() if part >= least), reverse=True)
    return [f"{escaped(name)} ({_percent(part)} %)" for part, name in found]


def _deviation(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1))


def _percent(part: float | None) -> str:
    return "" if part is None else "<1" if part < 0.005 else f"{100 * part:.0f}"
