"""The tables of a study that tell who wins: comparisons, transfer to other settings, ablations; as lines of Markdown.

Figures are what the benchmark is about (see `measures`), with their 95 % intervals over the test episodes; differences are
paired, episode by episode, and say whether ours is better.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import fsum

from meshwright.evaluation.statistics import excludes_zero, least
from meshwright.evaluation.tables import escaped, table

from .contents import Ablations, ComparisonTable, RowSettings, Transfer
from .findings import BenchmarkResults, PolicyResult, StudyResults, planned_over
from .study import Run

NOTHING = "-"


def comparison(findings: StudyResults, chosen: ComparisonTable) -> list[str]:
    """Policies by benchmark."""
    columns = [_Column(findings, chosen, column) for column in chosen.columns]
    seeds = dict.fromkeys(of_seed(run) for column in columns for run in column.ours)
    rows = [[escaped(row.label), *(column.cell(row) for column in columns)] for row in chosen.rows]
    if len(seeds) > 1:
        rows += [[f"ours, training {seed}", *(column.of_seed(seed) for column in columns)] for seed in seeds]
    rows.append([bold("ours, mean over training seeds" if len(seeds) > 1 else "ours"), *(column.of_ours() for column in columns)])
    rows.append(["ours against the best baseline", *(column.difference() for column in columns)])
    rows.append(["the best baseline", *(column.best_label() for column in columns)])
    rows += [[escaped(row.label), *(column.cell(row) for column in columns)] for row in chosen.references]
    for row in (*chosen.rows, *chosen.references):
        if row.against:
            rows.append([f"ours against {escaped(row.label)}", *(column.against(row) for column in columns)])
    source = ["", f"Quoted: {escaped(chosen.source)}"] if chosen.source else []
    return [*table(["policy", *(column.heading() for column in columns)], rows), *source]


def transfer(findings: StudyResults, chosen: Transfer) -> list[str]:
    """One policy on each variant, against the best fixed degree there and the best baseline, and on how many it wins."""
    names = [run.name for run in findings.runs(chosen.ours)]
    rows, differences, ratios, lower = [], [], [], 0
    against_best = []
    for variant, played in findings.played(chosen).items():
        ours, fixed, best = played.mean(names, "ours"), best_fixed(played), best_baseline(played, {}, {})
        told = played.scenario
        cells = [
            escaped(variant or "itself"),
            escaped(told["cluster"]),
            escaped(", ".join(told["graphs"])),
            f"{told['mean_interarrival_s']:,.0f}",
            NOTHING if fixed is None else f"{fixed.shown()} {escaped(fixed.label)}",
            NOTHING if ours is None else ours.shown(),
        ]
        if ours is None or fixed is None:
            rows.append([*cells, NOTHING, NOTHING, NOTHING, NOTHING])
            continue
        difference = ours.against(fixed)
        means = ours.interval["mean"], fixed.interval["mean"]
        differences.append(excludes_zero(difference))
        lower += means[0] < means[1]
        ratios += [means[0] / means[1]] if means[1] > 0 else []
        best = best or fixed
        against_best.append(excludes_zero(ours.against(best)))
        cells += [ours.shown_against(fixed), f"{ratios[-1]:.2f}" if means[1] > 0 else NOTHING]
        rows.append([*cells, f"{best.shown()} {escaped(best.label)}", ours.shown_against(best)])
    head = ["setting", "cluster", "graphs", "seconds between arrivals", "best fixed degree", "ours", "difference", "ratio"]
    head += ["best baseline", "difference"]
    lines = table(head, rows)
    if differences:
        worst = f"; the greatest ratio is {max(ratios):.2f}" if ratios else ""
        lines += [
            "",
            f"Ours has the lower mean on {lower} of {len(differences)} settings. The interval of the difference lies below zero "
            f"on {differences.count(-1)}, above on {differences.count(1)}, and holds zero on {differences.count(0)}{worst}. "
            f"Against the best of all baselines it lies below zero on {against_best.count(-1)}, above on "
            f"{against_best.count(1)}, and holds zero on {against_best.count(0)}.",
        ]
    return lines


def ablations(findings: StudyResults, chosen: Ablations) -> list[str]:
    """The variants of a training, each against the same seeds of the one that nothing was taken from."""
    names: dict[str, str] = {}
    cells: dict[str, list[str]] = {}
    head, width = list[str](), 0
    for column in chosen.columns:
        (played,) = findings.played(chosen, column).values() or [None]
        head += [escaped(column) if played is None else played.measure.heading(column), "against the whole"]
        by_variant: dict[str, list[Run]] = {}
        for run in findings.runs(chosen.ours, column):
            by_variant.setdefault(run.training.removeprefix(f"{run.parent}-"), []).append(run)
        if chosen.whole is not None:
            seeds = {of_seed(run) for runs in by_variant.values() for run in runs}
            by_variant[chosen.full] = [run for run in findings.runs(chosen.whole, column) if of_seed(run) in seeds]
        full = by_variant.get(chosen.full, [])
        entries = {variant: _mean(played, [run.name for run in runs], variant) for variant, runs in by_variant.items()}
        if chosen.pretrained is not None:
            entries[""] = _mean(played, [findings.before_ppo(run) for run in full], "")
        for variant, entry in entries.items():
            names[variant] = chosen.labels.get(variant, variant) if variant else str(chosen.pretrained)
            seeds = {of_seed(run) for run in by_variant.get(variant, full)}
            whole = _mean(played, [run.name for run in full if of_seed(run) in seeds], chosen.full)
            difference = NOTHING if variant == chosen.full else _difference(entry, whole)
            row = cells.setdefault(variant, [])
            row += [NOTHING] * (width - len(row)) + [_shown(entry), difference]
        width += 2
    order = sorted(names, key=lambda variant: variant != chosen.full)
    rows = [[escaped(names[v]), *cells[v], *([NOTHING] * (width - len(cells[v])))] for v in order]
    return table(["variant", *head], rows)


def shown_in(row: RowSettings, findings: StudyResults, played: BenchmarkResults, column: str = "") -> PolicyResult | None:
    """What a row that quotes nothing shows of a benchmark."""
    if row.policy is not None:
        return played.entry(row.policy, row.label)
    runs = findings.runs(row.training, column)
    names = [
        findings.asked(run, row.asked) if row.trained else findings.before_ppo(run) if row.pretrained else planned_over(run)
        for run in runs
    ]
    return played.mean(names, row.label)


def best_fixed(played: BenchmarkResults) -> PolicyResult | None:
    """The tuned fixed degree with the least mean; its label tells which one was chosen, or how many tie."""
    names = [name for name in played.chosen if name in played.rows and played.rows[name]["kind"] == "baseline"]
    return _best(played, (entry for name in names if (entry := played.entry(name, chosen_in(played, name))) is not None))


def chosen_in(played: BenchmarkResults, policy: str) -> str:
    """In brackets what was chosen for a tuned baseline: a degree, ``(8)``, or a share of refused jobs, ``(refuse 3 %)``."""
    found = re.findall(r"(fixed|refuse)-([0-9]+)", played.chosen[policy])
    told = ", ".join(number if word == "fixed" else f"refuse {number} %" for word, number in found)
    return f"({told or played.chosen[policy]})"


def best_baseline(
    played: BenchmarkResults, pretrained: Mapping[str, Sequence[str]], labels: Mapping[str, str]
) -> PolicyResult | None:
    """The baseline with the least mean: rules of thumb, tuned ones, linear scorers, and means of networks before PPO.

    Of several that tie, the figures are the first one's, and the label names all of them.

    Args:
        played: one benchmark.
        pretrained: by label, the names of such networks.
        labels: what to call policies, by name; others are called by their names.
    """
    names = [name for name, row in played.rows.items() if row["kind"] == "baseline"]
    called = {name: labels.get(name, name) + (f" {chosen_in(played, name)}" if name in played.chosen else "") for name in names}
    found = [played.entry(name, called[name]) for name in names]
    found += [played.mean(policies, label) for label, policies in pretrained.items()]
    return _best(played, (entry for entry in found if entry is not None))


def bold(text: str) -> str:
    """Markdown."""
    return f"**{text}**"


def of_seed(run: Run) -> str:
    """A run by its seed alone, ``seed 0``."""
    return run.name.removeprefix(f"{run.training}-").replace("-", " ")


class _Column:
    """One benchmark of a comparison."""

    def __init__(self, findings: StudyResults, chosen: ComparisonTable, column: str) -> None:
        self.findings, self.name = findings, column
        self.played: BenchmarkResults | None = findings.played(chosen, column).get("")
        self.has_baselines = findings.has_baselines(chosen, column)
        self.ours, self.asked, self.policy = findings.runs(chosen.ours, column), chosen.asked, chosen.policy
        pretrained = [row for row in chosen.rows if row.pretrained]
        self.pretrained = {
            row.label: [findings.before_ppo(run) for run in findings.runs(row.pretrained, column)] for row in pretrained
        }
        self.labels = {row.policy: row.label for row in chosen.rows if row.policy}
        self.labels |= {run.name: row.label for row in chosen.rows for run in findings.runs(row.trained, column)}

    def heading(self) -> str:
        """Its name, and what its figures are where the text does not say so."""
        return escaped(self.name) if self.played is None else self.played.measure.columns_heading(self.name)

    def cell(self, row: RowSettings) -> str:
        """What a row shows here."""
        if row.quoted:
            return escaped(row.quoted.get(self.name, NOTHING))
        entry = self._entry(row)
        if self.played is None or entry is None:
            return NOTHING
        is_tuned = row.policy is not None and row.policy in self.played.chosen
        return entry.shown() + (f" {escaped(chosen_in(self.played, str(row.policy)))}" if is_tuned else "")

    def against(self, row: RowSettings) -> str:
        """Ours against what a row shows."""
        return _difference(self._ours(), self._entry(row))

    def of_seed(self, seed: str) -> str:
        """The run of ours with one seed."""
        return _shown(self._mean([run for run in self.ours if of_seed(run) == seed]))

    def of_ours(self) -> str:
        """The mean of ours."""
        ours = self._ours()
        return NOTHING if ours is None else bold(ours.shown())

    def difference(self) -> str:
        """Ours against the best baseline."""
        return _difference(self._ours(), self._best())

    def best_label(self) -> str:
        """The best baseline's name."""
        best = self._best()
        return NOTHING if best is None else escaped(best.label)

    def _best(self) -> PolicyResult | None:
        if self.played is None or not self.has_baselines:
            return None
        return best_baseline(self.played, self.pretrained, self.labels)

    def _entry(self, row: RowSettings) -> PolicyResult | None:
        return None if self.played is None or row.quoted else shown_in(row, self.findings, self.played, self.name)

    def _ours(self) -> PolicyResult | None:
        if self.policy is not None:
            return None if self.played is None else self.played.entry(self.policy, "ours")
        return self._mean(self.ours)

    def _mean(self, runs: Sequence[Run]) -> PolicyResult | None:
        return _mean(self.played, [self.findings.asked(run, self.asked) for run in runs], "ours")


def _best(played: BenchmarkResults, entries: Iterable[PolicyResult]) -> PolicyResult | None:
    best = least(entries, lambda entry: played.measure.sign * fsum(entry.values) / len(entry.values))
    labels = list(dict.fromkeys(entry.label for entry in best))
    if len(labels) > 1:
        return replace(best[0], label=f"{', '.join(labels)} (tied)")
    return best[0] if best else None


def _mean(played: BenchmarkResults | None, names: Sequence[str], label: str) -> PolicyResult | None:
    return None if played is None else played.mean(names, label)


def _shown(entry: PolicyResult | None) -> str:
    return NOTHING if entry is None else entry.shown()


def _difference(entry: PolicyResult | None, other: PolicyResult | None) -> str:
    return NOTHING if entry is None or other is None else entry.shown_against(other)
