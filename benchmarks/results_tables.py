"""Tables of the page of results: policies by benchmark, with 95 % intervals and paired differences, as Markdown.

A place of the page begins with the line ``<!-- results: NAME -->`` and ends with ``<!-- end of results: NAME -->``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from math import fsum
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from meshwright import files, settings
from meshwright.errors import InputFileError
from meshwright.evaluation.metrics import METRICS, Metric
from meshwright.evaluation.saved_results import read_results
from meshwright.evaluation.statistics import interval, least, paired
from meshwright.evaluation.tables import difference_cell, escaped, table, with_ends

RESULTS = "evaluations/{}/results.json"
"""Below the folder of all results, those of an evaluation."""
COLUMN = "<column>"
NOTHING = "-"
_OWN = {
    "cluster": replace(METRICS["blocking_rate"], digits=2),
    "elastic": replace(METRICS["mean_completion_s"], unit="s", scale=1.0, digits=0),
    "operators": replace(METRICS["over_bound"], words="value", unit="times the lower bound"),
}
"""Metrics of worlds whose tables differ from those of an evaluation."""
_PLACE = re.compile(r"<!-- results: (?P<name>[^ ]+) -->\n.*?<!-- end of results: (?P=name) -->", re.DOTALL)
_SEED = re.compile(r"-seed-([0-9]+)")
Spelled = Callable[[str], list[str]]
"""Returns a policy of the study as commands spell it; of a training, each of its runs."""


class StudyTable(settings.Settings):
    """Policies by benchmark; ``<column>`` in a name is replaced by the column.

    Policies are spelled as by the evaluations of the study; of a training the mean of its runs is shown.

    Attributes:
        columns: labels, or by label the texts that replace names in angle brackets in policies.
        evaluations: sources of a column's figures; of a policy that is in several, the first counts.
        ours: the policy that the table is about.
        quoted: cells by column of the first rows, by label.
        source: of quoted cells.
        rows: labels of policies above ours; networks before PPO among them count as baselines.
        references: labels of policies below ours.
        against: those to which ours is compared at the end, ``*`` for any text.
        transposed: whether benchmarks are rows.
    """

    columns: tuple[str, ...] | dict[str, dict[str, str]] = Field(min_length=1)
    evaluations: tuple[str, ...] = Field(min_length=1)
    ours: str
    quoted: dict[str, dict[str, str]] = Field(default_factory=dict)
    source: str | None = None
    rows: dict[str, str] = Field(default_factory=dict)
    references: dict[str, str] = Field(default_factory=dict)
    against: tuple[str, ...] = ()
    transposed: bool = False

    def needed(self) -> list[str]:
        """Return the evaluations of all columns."""
        return list(dict.fromkeys(name.replace(COLUMN, column) for name in self.evaluations for column in self.columns))


def _rows(path: Path) -> tuple[Metric, dict[str, dict[str, Any]]]:
    """Read objective and rows: figures by case (``values``), whether it is a baseline, and the choice of a tuned rule."""
    result = read_results(path)
    objective = _OWN.get(result["world"]) or METRICS[result["objective"]]
    rows: dict[str, dict[str, Any]] = {}
    for row in result["rows"]:
        values = row["per_case"].get(objective.name, [None])
        if None not in values:
            tuned = _tuned(result["tuned"].get(row["policy"], {"chosen": ""})["chosen"])
            rows.setdefault(_name(row["policy"]), {"values": values, "is_baseline": row["kind"] == "baseline", "tuned": tuned})
    if result["world"] == "operators" and (rules := [row["values"] for row in rows.values() if row["is_baseline"]]):
        rows["best-rule"] = {"values": np.min(rules, axis=0).tolist(), "is_baseline": True, "tuned": ""}
    return objective, rows


def _name(policy: str) -> str:
    """Return a policy's name without folders and the suffix of a file."""
    return re.sub(r"[^(@]*/|\.pt\b", "", policy)


def _tuned(choice: str) -> str:
    """Return in brackets the policy that was chosen for a tuned rule."""
    result = re.findall(r"(fixed|refuse)-([0-9]+)", choice)
    short = ", ".join(number if word == "fixed" else f"refuse {number} %" for word, number in result)
    return f"({short or choice})" if choice else ""


class _Column:
    """The figures of one benchmark."""

    def __init__(self, choice: StudyTable, out: Path, spelled: Spelled, label: str) -> None:
        self.label, self.spelled = label, spelled
        self.texts = choice.columns[label] if isinstance(choice.columns, dict) else {}
        self.objective, self.rows = _OWN["cluster"], dict[str, dict[str, Any]]()
        for name in choice.evaluations:
            if (file := out / RESULTS.format(name.replace(COLUMN, label))).is_file():
                self.objective, rows = _rows(file)
                self.rows = rows | self.rows
        self.ours = self.runs(choice.ours)
        ours = {_name(one) for one in spelled(choice.ours.replace(COLUMN, label))}
        baselines = [(name, row) for name, row in self.rows.items() if row["is_baseline"] and name not in ours]
        self.baselines = [(f"{choice.rows.get(name, name)} {row['tuned']}".strip(), row["values"]) for name, row in baselines]
        first = ((label, _mean(self.runs(policy))) for policy, label in choice.rows.items() if policy.startswith("pretrained("))
        self.baselines += [(label, values) for label, values in first if values]

    def runs(self, policy: str) -> dict[str, list[float]]:
        """Return the figure by episode of each run of a policy, by training seed; nothing where one is absent."""
        for name, text in {COLUMN: self.label, **self.texts}.items():
            policy = policy.replace(name, text)
        names = [_name(one) for one in self.spelled(policy)]
        seeds = [match[1] if (match := _SEED.search(name)) else "" for name in names]
        is_known = all(name in self.rows for name in names)
        return {seed: self.rows[name]["values"] for seed, name in zip(seeds, names, strict=True)} if is_known else {}

    def against(self, policy: str) -> str:
        """Return ours against a policy, by the training seeds that both have."""
        theirs = self.runs(policy)
        same = {seed: values for seed, values in self.ours.items() if seed in theirs}
        return self.difference(_mean(same or self.ours), _mean(theirs))

    def best(self) -> tuple[str, list[float] | None]:
        """Return the baseline with the best mean; of several that tie, the names of all."""
        tied = least(self.baselines, lambda one: self.objective.sign * fsum(one[1]))
        if not tied:
            return NOTHING, None
        return ", ".join(dict.fromkeys(name for name, _ in tied)) + (" (tied)" if len(tied) > 1 else ""), tied[0][1]

    def shown(self, values: Sequence[float] | None) -> str:
        """Return a mean with its interval."""
        return with_ends(None if values is None else interval(values), self.objective.scale, self.objective.digits)

    def difference(self, values: Sequence[float] | None, other: Sequence[float] | None) -> str:
        """Return a paired difference with its interval, a verdict, and its mean in per cent of the other."""
        if values is None or other is None:
            return NOTHING
        result, reached = paired(values, other), fsum(other) / len(other)
        share = f" ({100 * result['mean'] / reached:+.0f} %)" if reached else ""
        return difference_cell(result, self.objective, has_words=True) + share

    def cell(self, policy: str) -> str:
        """Return a policy's figure, and in brackets the choice of a tuned rule."""
        tuned = self.rows[policy]["tuned"] if policy in self.rows else ""
        return f"{self.shown(_mean(self.runs(policy)))} {escaped(tuned)}".strip()


def _mean(runs: Mapping[str, Sequence[float]]) -> list[float] | None:
    """Return the mean of the runs by episode; None where there is none."""
    return [float(x) for x in np.mean(list(runs.values()), axis=0)] if runs else None


def lines_of(choice: StudyTable, out: Path, spelled: Spelled) -> list[str]:
    """Return a table as lines of Markdown; none where no evaluation was made."""
    columns = [_Column(choice, out, spelled, label) for label in choice.columns]
    if not any(column.rows for column in columns):
        return []

    def row(heading: str, cell: Callable[[_Column], str]) -> list[str]:
        return [heading, *(cell(column) for column in columns)]

    def policies(labels: Mapping[str, str]) -> list[list[str]]:
        return [row(escaped(label), partial(_Column.cell, policy=policy)) for policy, label in labels.items()]

    rows = [row("policy", lambda c: f"{escaped(c.label)}: {c.objective.axis}")]
    for label, cells in choice.quoted.items():
        rows.append([escaped(label), *(escaped(cells.get(column, NOTHING)) for column in choice.columns)])
    rows += policies(choice.rows)
    seeds = sorted({seed for column in columns for seed in column.ours if seed}, key=int)
    ours = f"ours, mean of {len(seeds)} training seeds" if len(seeds) > 1 else "ours"
    rows.append(row(f"**{ours}**", lambda column: f"**{column.shown(_mean(column.ours))}**"))
    if any(column.baselines for column in columns):
        rows.append(row("ours against the best baseline", lambda column: column.difference(_mean(column.ours), column.best()[1])))
        rows.append(row("the best baseline", lambda column: escaped(column.best()[0])))
    rows += policies(choice.references)
    for policy, label in {**choice.rows, **choice.references}.items():
        if any(fnmatchcase(policy, one) for one in choice.against):
            rows.append(row(f"ours against {escaped(label)}", partial(_Column.against, policy=policy)))
    if choice.transposed:
        rows = [list(line) for line in zip(*rows, strict=True)]
        rows[0][0] = "benchmark"
    return [*table(rows[0], rows[1:]), *(["", f"Quoted: {escaped(choice.source)}"] if choice.source else [])]


def fill_page(
    template: Path, page: Path, tables: dict[str, StudyTable], out: Path, spelled: Spelled, *, quick: bool = False
) -> list[str]:
    """Fill the places of a page; returns the evaluations that were not made.

    Raises:
        InputFileError: the page has no place for a table, two, or one for something else.
    """
    text = files.read_text(template)
    places = [match["name"] for match in _PLACE.finditer(text)]
    for name in dict.fromkeys((*tables, *places)):
        if places.count(name) != 1 or name not in tables:
            raise InputFileError("a table of the study and a place on the page go in pairs", file=template, value=name)
    mark = ["**Quick run: a few training steps, two episodes. These figures only show that everything runs.**", ""] * quick

    def filled(place: re.Match[str]) -> str:
        lines = lines_of(tables[place["name"]], out, spelled)
        if not lines:
            return place[0]
        command = f'`make results ARGS="run table:{place["name"]}"`'
        ends = [f"<!-- results: {place['name']} -->", f"<!-- end of results: {place['name']} -->"]
        return "\n".join([ends[0], "", *mark, *lines, "", command, "", ends[1]])

    files.write_text(page, _PLACE.sub(filled, text))
    return sorted({name for one in tables.values() for name in one.needed() if not (out / RESULTS.format(name)).is_file()})
