"""The report of an evaluation of any world: one self-contained HTML page.

It shows the results, the learning curve of the policy where there is one, and the sections of the world (`SECTIONS`). A last
chapter explains how the numbers were made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..evaluate import Evaluation
from ..metrics import FILES, METRICS
from ..plots.curves import learning_curve_figure
from ..sections import tables_of
from ..statistics import CHALLENGERS, least, tied_groups
from ..tables import result_cells
from ..worlds.registry import WORLDS
from .cluster_sections import cluster_sections
from .fleet_sections import fleet_sections
from .operator_sections import operator_sections
from .pages import Drawn, PageTable, Sections, figure_cells, page
from .shared_figures import figures_of

Data = Mapping[str, Any]

SECTIONS: dict[str, Callable[[Evaluation], Sections]] = {
    "cluster": cluster_sections,
    "fleet": fleet_sections,
    "operators": operator_sections,
}
"""Sections of a world in the page, by its name."""


def report_html(
    results: Data,
    sections: Sections = Sections(),  # noqa: B008 - it cannot change
    *,
    learning_curve: Sequence[Data] | None = None,
    config_yaml: str | None = None,
    command: str | None = None,
    versions: Mapping[str, str] | None = None,
) -> str:
    """Return the page of an evaluation as HTML.

    Args:
        results: of `evaluate`.
        sections: of the world, see `SECTIONS`.
        learning_curve: rows of ``learning_curve.json`` of a training of `JobPartitioning-v0`.
        config_yaml: the resolved config of a training.
        command: that made it.
        versions: of packages, by name.
    """
    drawn = figures_of(results)
    if learning_curve:
        drawn.append(Drawn(learning_curve_figure(learning_curve, references(results)), _LEARNING))
    return page(
        "evaluation.html",
        title=results["benchmark"],
        heading=f"Benchmark {results['benchmark']}: {WORLDS[results['world']].question}",
        facts=f"{results['title']}{sections.facts}.",
        verdict=results["verdict"],
        remarks=results["remarks"],
        policies=policy_table(results),
        legend=_legend(results),
        drawn=[*drawn, *sections.drawn],
        blocks=sections.blocks,
        method=[*_method(results), *sections.method],
        tables=[(title, text_table(*result)) for title, result in tables_of(results).items()],
        command=command,
        digest=results["about"].get("digest"),
        listings=[] if config_yaml is None else [("Config, every default written out", config_yaml.strip())],
        versions=None if versions is None else PageTable(("package", "version"), [*versions.items()], "texts"),
    )


def policy_table(results: Data) -> PageTable:
    """Return the table of an evaluation for a page."""
    head, rows = result_cells(results, FILES, has_words=True)
    learned = [group[0]["kind"] in CHALLENGERS for group in tied_groups(results["rows"])]
    return PageTable(head, [figure_cells(row) for row in rows], "wide", learned)


def text_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> PageTable:
    """Return a further table for a page."""
    return PageTable(head, [figure_cells(row) for row in rows])


def references(results: Data) -> dict[str, float]:
    """Return the means that a learning curve is compared with: of the best baseline and of the best tuned one.

    Several that tie are one line.
    """
    name, result = results["objective"], {}
    known = [row for row in results["rows"] if row["metrics"][name] is not None]
    best = [row for row in known if row["policy"] in results["best_baselines"]]
    tuned = least((row for row in known if row["policy"] in results["tuned"]), METRICS[name].cost)
    for word, rows in (("best baseline", best), ("best tuned baseline", [row for row in tuned if row not in best])):
        if rows:
            names = [results["tuned"].get(row["policy"], {}).get("chosen", row["policy"]) for row in rows]
            named = names[0] if len(names) == 1 else f"{len(names)} that tie"
            result[f"{word}, {named}"] = float(rows[0]["metrics"][name]["mean"])
    return result


_LEARNING = (
    "How the policy learned. The thick line is its blocking rate on validation episodes, without exploration; the thin one is "
    "measured in training, where it explores. The ring marks the policy that was kept. Dashed lines are baselines on the test "
    "episodes, so their level is a guide, not a test."
)


def _legend(results: Data) -> str:
    groups, rows = tied_groups(results["rows"]), results["rows"]
    sentences = [f"Means over the {results['case']}s, 95 % bootstrap intervals in brackets, differences paired."]
    if len(groups) < len(rows):
        sentences.append(f"Policies with the same results in every {results['case']} share a row.")
    if any(row["kind"] == "reference" for row in rows):
        sentences.append("References know all arrivals beforehand and are no policies.")
    if any(row["kind"] == "published" for row in rows):
        sentences.append("A name after published: has the completion times that were published with the workloads.")
    if results["case"] != "episode" and "best_known_s" in results["more"]:
        seconds = results["more"]["best_known_s"]
        sentences.append(f"The best known is the best of all policies here and of a search of {seconds:g} s.")
    sentences.append("Learned policies are shaded.")
    return " ".join(sentences)


def _method(results: Data) -> list[str]:
    cases = results["cases"]
    points = [
        f"Every policy met the same {len(cases)} test {results['case']}s ({seed_words(cases)}).",
        "Intervals are 95 % bootstrap intervals (10,000 resamples, bias-corrected and accelerated); differences are taken "
        f"{results['case']} by {results['case']}."
        + (f" One {results['case']} alone has no interval." if len(cases) == 1 else "")
        + " A policy is called better or worse than the best baseline only where the interval of the paired difference excludes "
        "zero; otherwise the difference is unclear.",
    ]
    for name, tuned in results["tuned"].items():
        tied = f"; {', '.join(tuned['tied'])} did as well" if tuned["tied"] else ""
        points.append(
            f"{name} is {tuned['chosen']}: the best of {len(tuned['values'])} on validation {results['case']}s "
            f"({seed_words(tuned['cases'])}), which are no test {results['case']}s{tied}."
        )
    return points


def seed_words(cases: Sequence[Any]) -> str:
    """Return ``seeds 0 to 9`` for a run of numbers, else each of them."""
    if len(cases) > 2 and list(cases) == list(range(cases[0], cases[0] + len(cases)) if isinstance(cases[0], int) else ()):
        return f"seeds {cases[0]} to {cases[-1]}"
    return ", ".join(map(str, cases))
