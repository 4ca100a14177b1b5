"""Tables of the page of results: policies by benchmark, with 95 % intervals and paired differences, as Markdown.

A place of the page begins with the line ``<!-- results: NAME -->`` and ends with ``<!-- end of results: NAME -->``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import fsum
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import Field, model_validator

from meshwright import files, settings
from meshwright.errors import InputFileError
from meshwright.evaluation.metrics import METRICS, Metric
from meshwright.evaluation.saved_results import read_results
from meshwright.evaluation.statistics import interval, paired
from meshwright.evaluation.tables import escaped, table, verdict_word, with_ends

COLUMN = "<column>"
NOTHING = "-"
_OWN = {
    "cluster": replace(METRICS["blocking_rate"], digits=2),
    "elastic": replace(METRICS["mean_completion_s"], unit="s", scale=1.0, digits=0),
    "operators": replace(METRICS["over_bound"], words="value", unit="times the lower bound"),
}
"""Metrics of worlds whose tables differ from those of an evaluation."""
_PLACE = re.compile(r"<!-- results: (?P<name>[^ ]+) -->\n.*?<!-- end of results: (?P=name) -->", re.DOTALL)


class StudyRow(settings.Settings):
    """One row; exactly one of policy, trained, pretrained, planned and quoted says whose figures it shows.

    Attributes:
        label: its name.
        columns: those in which it is shown; none: all.
        against: whether a row at the end holds ours against it.
        policy: a policy of the evaluations, as they spell it.
        trained: a training: the mean of its runs.
        asked: the mode of these.
        pretrained: a training: the mean of its networks before PPO; counts as a baseline.
        planned: a training: the mean of the rollout planners over its linear scorers.
        quoted: cells by column, from the table's ``source``.
    """

    label: str
    columns: tuple[str, ...] = ()
    against: bool = False
    policy: str | None = None
    trained: str | None = None
    asked: str = "greedy"
    pretrained: str | None = None
    planned: str | None = None
    quoted: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _shows_one_thing(self) -> Self:
        if sum(map(bool, (self.policy, self.trained, self.pretrained, self.planned, self.quoted))) != 1:
            raise ValueError("a row shows exactly one of policy, trained, pretrained, planned and quoted")
        return self


class StudyTable(settings.Settings):
    """Policies by benchmark; ``<column>`` in a name stands for the column.

    Attributes:
        columns: labels.
        evaluations: sources of a column's figures; of a policy that is in several, the first counts.
        ours: the training that the table is about.
        policy: the policy that it is about, where that is no training.
        asked: the mode of ours.
        rows: above ours.
        references: below ours.
        source: of quoted cells.
        transposed: whether benchmarks are rows.
    """

    columns: tuple[str, ...] = Field(min_length=1)
    evaluations: tuple[str, ...] = Field(min_length=1)
    ours: str | None = None
    policy: str | None = None
    asked: str = "greedy"
    rows: tuple[StudyRow, ...] = ()
    references: tuple[StudyRow, ...] = ()
    source: str | None = None
    transposed: bool = False

    @model_validator(mode="after")
    def _is_about_one_thing(self) -> Self:
        if (self.ours is None) == (self.policy is None):
            raise ValueError("a table is about exactly one of ours and policy")
        return self

    def needed(self) -> list[str]:
        """Return the evaluations of all columns."""
        return list(dict.fromkeys(name.replace(COLUMN, column) for name in self.evaluations for column in self.columns))


@dataclass
class StudyResults:
    """Saved results below a folder.

    Attributes:
        out: the folder.
        runs_of: names of the runs of some trainings.
    """

    out: Path
    runs_of: Callable[[Sequence[str]], list[str]]
    _read: dict[str, tuple[Metric, dict[str, dict[str, Any]]] | None] = field(default_factory=dict)

    def of(self, evaluation: str) -> tuple[Metric, dict[str, dict[str, Any]]] | None:
        """Return the objective and the rows of an evaluation, by policy; None where it was not made."""
        if evaluation not in self._read:
            path = self.out / "evaluations" / evaluation / "results.json"
            self._read[evaluation] = _rows(path) if path.is_file() else None
        return self._read[evaluation]


def _rows(path: Path) -> tuple[Metric, dict[str, dict[str, Any]]]:
    """Read rows with their figures by case (``values``), whether they are baselines, and the choice of a tuned rule."""
    found = read_results(path)
    is_placed = found["world"] == "operators"
    objective = _OWN.get(found["world"]) or METRICS[found["objective"]]
    rows: dict[str, dict[str, Any]] = {}
    for row in found["rows"]:
        values = row["per_case"].get(objective.name, [None])
        if None not in values:
            tuned = _tuned(found["tuned"].get(row["policy"]))
            rows.setdefault(_name(row["policy"]), {"values": values, "is_baseline": row["kind"] == "baseline", "tuned": tuned})
    if rules := [row["values"] for row in rows.values() if row["is_baseline"]] if is_placed else []:
        rows["best-rule"] = {"values": np.min(rules, axis=0).tolist(), "is_baseline": True, "tuned": ""}
    return objective, rows


def _name(policy: str) -> str:
    """Return a policy's name without the folders of a run and the suffix of a file."""
    spec, at, mode = policy.partition("@")
    if "/" in spec and not spec.startswith("rollout("):
        spec = Path(spec).name.removesuffix(".pt")
    return spec + at + mode


def _tuned(chosen: Any) -> str:
    """Return in brackets what was chosen for a tuned rule."""
    name = "" if chosen is None else str(chosen["chosen"])
    found = re.findall(r"(fixed|refuse)-([0-9]+)", name)
    told = ", ".join(number if word == "fixed" else f"refuse {number} %" for word, number in found)
    return f"({told or name})" if name else ""


class _Column:
    """The figures of one benchmark."""

    def __init__(self, chosen: StudyTable, results: StudyResults, label: str) -> None:
        self.label, self.results = label, results
        self.objective, self.rows = _OWN["cluster"], dict[str, dict[str, Any]]()
        for name in chosen.evaluations:
            if (made := results.of(name.replace(COLUMN, label))) is not None:
                self.objective = made[0]
                self.rows = made[1] | self.rows
        ours = StudyRow(label="ours", policy=chosen.policy, trained=chosen.ours, asked=chosen.asked)
        self.ours = self.values(ours)
        self.runs = results.runs_of([chosen.ours.replace(COLUMN, label)]) if chosen.ours else []
        self.asked = chosen.asked
        labels = {row.policy: row.label for row in chosen.rows if row.policy}
        self.baselines = [
            (f"{labels.get(name, name)} {row['tuned']}".strip(), row["values"])
            for name, row in self.rows.items()
            if row["is_baseline"]
        ]
        self.baselines += [(row.label, found) for row in chosen.rows if row.pretrained and (found := self.values(row))]

    def names(self, row: StudyRow) -> list[str]:
        """Return the policies whose mean a row shows, as results name them."""
        if row.policy is not None:
            return [row.policy]
        training = str(row.trained or row.pretrained or row.planned).replace(COLUMN, self.label)
        runs = self.results.runs_of([training])
        if row.planned:
            return [f"rollout({run})" for run in runs]
        if row.pretrained:
            return [name for run in runs for prefix in ("td", "imitated") if (name := f"{prefix}-{run}") in self.rows]
        return runs if row.asked == "greedy" else [f"{run}@{row.asked}" for run in runs]

    def values(self, row: StudyRow) -> list[float] | None:
        """Return a row's figure by episode, the mean over its runs; None where one is absent."""
        names = [] if row.quoted or (row.columns and self.label not in row.columns) else self.names(row)
        if not names or any(name not in self.rows for name in names):
            return None
        return [float(x) for x in np.mean([self.rows[name]["values"] for name in names], axis=0)]

    def against(self, row: StudyRow) -> str:
        """Return ours against a row, by the training seeds that both have."""
        seeds = {name.rpartition("-seed-")[2] for name in ([] if row.policy or row.quoted else self.names(row))}
        mode = "" if self.asked == "greedy" else f"@{self.asked}"
        same = [f"{run}{mode}" for run in self.runs if run.rpartition("-seed-")[2] in seeds]
        found = [self.rows[name]["values"] for name in same if name in self.rows]
        return self.difference(np.mean(found, axis=0).tolist() if found else self.ours, self.values(row))

    def best(self) -> tuple[str, list[float]] | None:
        """Return the baseline with the best mean; of several that tie, the names of all."""
        if not self.baselines:
            return None
        least = min(self.objective.sign * fsum(values) for _, values in self.baselines)
        tied = [(name, values) for name, values in self.baselines if self.objective.sign * fsum(values) == least]
        return ", ".join(dict.fromkeys(name for name, _ in tied)) + (" (tied)" if len(tied) > 1 else ""), tied[0][1]

    def shown(self, values: Sequence[float] | None) -> str:
        """Return a mean with its interval."""
        return NOTHING if values is None else with_ends(interval(values), self.objective.scale, self.objective.digits)

    def difference(self, values: Sequence[float] | None, other: Sequence[float] | None) -> str:
        """Return a paired difference with its interval, a verdict, and the same in per cent of the other."""
        if values is None or other is None:
            return NOTHING
        found, reached = paired(values, other), fsum(other) / len(other)
        text = with_ends(found, self.objective.scale, self.objective.digits, sign="+")
        share = f" ({with_ends(found, 100 / reached, 0, sign='+')} %)" if reached else ""
        return f"{text} {verdict_word(found, self.objective.sign)}{share}"

    def cell(self, row: StudyRow) -> str:
        """Return what a row shows here."""
        if row.quoted:
            return escaped(row.quoted.get(self.label, NOTHING))
        values = self.values(row)
        tuned = self.rows[row.policy]["tuned"] if row.policy in self.rows and values is not None else ""
        return f"{self.shown(values)} {escaped(tuned)}".strip()

    def of_seed(self, seed: str) -> str:
        """Return the figure of ours with one training seed."""
        names = [run for run in self.runs if run.endswith(f"-seed-{seed}")]
        mode = "" if self.asked == "greedy" else f"@{self.asked}"
        found = [self.rows[f"{name}{mode}"]["values"] for name in names if f"{name}{mode}" in self.rows]
        return self.shown(found[0]) if found else NOTHING

    def heading(self) -> str:
        """Return the benchmark with what its figures are."""
        return f"{escaped(self.label)}: {self.objective.axis}"


def lines_of(chosen: StudyTable, results: StudyResults) -> list[str]:
    """Return a table as lines of Markdown; none where no evaluation was made."""
    columns = [_Column(chosen, results, label) for label in chosen.columns]
    if not any(column.rows for column in columns):
        return []
    seeds = sorted({run.rpartition("-")[2] for column in columns for run in column.runs}, key=int)
    rows = [[escaped(row.label), *(column.cell(row) for column in columns)] for row in chosen.rows]
    if len(seeds) > 1:
        rows += [[f"ours, training seed {seed}", *(column.of_seed(seed) for column in columns)] for seed in seeds]
    ours = "ours, mean over training seeds" if len(seeds) > 1 else "ours"
    rows.append([f"**{ours}**", *(f"**{column.shown(column.ours)}**" for column in columns)])
    best = [column.best() for column in columns]
    if any(best):
        pairs = list(zip(columns, best, strict=True))
        rows.append(["ours against the best baseline", *(c.difference(c.ours, b and b[1]) for c, b in pairs)])
        rows.append(["the best baseline", *(NOTHING if b is None else escaped(b[0]) for b in best)])
    rows += [[escaped(row.label), *(column.cell(row) for column in columns)] for row in chosen.references]
    for row in (*chosen.rows, *chosen.references):
        if row.against:
            rows.append([f"ours against {escaped(row.label)}", *(column.against(row) for column in columns)])
    whole = [["policy", *(column.heading() for column in columns)], *rows]
    if chosen.transposed:
        whole = [list(line) for line in zip(*whole, strict=True)]
        whole[0][0] = "benchmark"
    source = ["", f"Quoted: {escaped(chosen.source)}"] if chosen.source else []
    return [*table(whole[0], whole[1:]), *source]


def fill_page(
    template: Path, page: Path, tables: dict[str, StudyTable], results: StudyResults, *, quick: bool = False
) -> list[str]:
    """Fill the places of a page; returns the evaluations that were not made.

    Raises:
        InputFileError: the page has no place for a table, two, or one for something else.
    """
    text = files.read_text(template)
    places = [found["name"] for found in _PLACE.finditer(text)]
    for name in dict.fromkeys((*tables, *places)):
        if places.count(name) != 1 or name not in tables:
            raise InputFileError("a table of the study and a place on the page go in pairs", file=template, value=name)
    mark = ["**Quick run: a few training steps, two episodes. These figures only show that everything runs.**", ""] * quick

    def filled(place: re.Match[str]) -> str:
        lines = lines_of(tables[place["name"]], results)
        if not lines:
            return place[0]
        command = f'`make results ARGS="run table:{place["name"]}"`'
        parts = [f"<!-- results: {place['name']} -->", "", *mark, *lines, "", command, ""]
        return "\n".join([*parts, f"<!-- end of results: {place['name']} -->"])

    files.write_text(page, _PLACE.sub(filled, text))
    return sorted(_absent(tables.values(), results))


def _absent(tables: Iterable[StudyTable], results: StudyResults) -> set[str]:
    return {name for one in tables for name in one.needed() if results.of(name) is None}
