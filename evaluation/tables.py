"""The rows of an evaluation as text: CSV with every figure, Markdown with the ones that matter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import files
from ..quantities import counted
from .alike import alike, joined
from .metrics import METRICS
from .statistics import CHALLENGERS, excludes_zero

Data = Mapping[str, Any]

MARKDOWN_HEAD = (
    "policy",
    "blocked, % of jobs",
    "against the best baseline, points",
    "mean completion, h",
    "95th percentile, h",
    "slack, % of allowed",
    "devices held, %",
    "fragmentation, %",
    "mean ranks",
    "decision, ms (99th percentile)",
)


def to_csv(results: Data) -> str:
    """A line per policy: mean, low and high of each figure."""
    head = ["policy", "kind", "benchmark", "num_seeds", *(f"{m}_{end}" for m in METRICS for end in ("mean", "low", "high"))]
    rows = []
    for row in results["rows"]:
        figures = [None if row[m] is None else row[m][end] for m in METRICS for end in ("mean", "low", "high")]
        rows.append([row["policy"], row["kind"], row["benchmark"], row["num_seeds"], *figures])
    return files.csv_text(head, rows)


def to_markdown(results: Data) -> str:
    """A heading, a table with a line for each policy, or for several that decided alike, and the verdict."""
    scenario, seeds = results["scenario"], results["seeds"]
    lines = [
        f"# Benchmark {escaped(results['benchmark'])}",
        "",
        f"Cluster {escaped(scenario['cluster'])}, {counted(scenario['num_devices'], 'device')}; "
        f"{counted(len(seeds), 'episode')} of "
        f"{scenario['num_jobs']} arrivals (seeds {min(seeds)} to {max(seeds)}); 95 % bootstrap intervals over the episodes, "
        "differences paired.",
        "",
        *table(MARKDOWN_HEAD, [_markdown_cells(results, group) for group in alike(results["rows"])]),
        "",
        escaped(results["verdict"]),
        "",
        *(line for sentence in remarks(results) for line in (f"{escaped(sentence)}.", "")),
    ]
    return "\n".join(lines)


def beside(results: Data, row: Data) -> str | None:
    """What a row shows where others show their difference to the best baseline; None where there is one to show.

    Args:
        results: what `evaluation.evaluate` found.
        row: one of its rows.
    """
    best = best_baselines(results)
    if row["kind"] == "reference":
        return "clairvoyant reference"
    if len(best) > 1 and results["best_baseline"] is None:
        return "all tie"
    if row["policy"] in best:
        num_best = len(alike([each for each in results["rows"] if each["policy"] in best]))
        return "best baseline, tied" if num_best > 1 else "best baseline"
    return "-" if row["against_best_baseline"] is None else None


def remarks(results: Data) -> list[str]:
    """Sentences without full stops: how policies were made, where they are off the ground of their training, foreign figures."""
    # All are absent in results of former versions.
    made = [sentence.rstrip(".") for sentence in results.get("made", ())]
    return [*made, *results.get("off_ground", {}).values(), *results.get("foreign_figures", ())]


def best_baselines(results: Data) -> list[str]:
    """The baselines with the least mean by name: one, or several that tie; empty where no baseline was compared."""
    best = results["best_baseline"]
    named: list[str] = results.get("best_baselines", [] if best is None else [best])  # absent in results of former versions
    return named


def chosen_for(results: Data, policy: str) -> str:
    """In brackets what was chosen for a tuned baseline, and whether others did as well; empty for any other policy."""
    tuned = results["best_fixed"].get(policy)
    return "" if tuned is None else f" ({tuned['chosen']}{', tied' if tuned.get('tied') else ''})"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table; the cells are Markdown already."""
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def with_ends(value: Data | None, scale: float, digits: int, *, sign: str = "", base: float = 0.0) -> str:
    """Mean and interval above ``base``, as ``4.6 [3.9, 5.3]``; the mean alone where there is no interval."""
    if value is None:
        return "-"
    figures = (value[end] for end in ("mean", "low", "high"))
    mean, *ends = (None if one is None else f"{scale * (one - base):{sign}.{digits}f}" for one in figures)
    return f"{mean}" if None in ends else f"{mean} [{ends[0]}, {ends[1]}]"


def with_verdict(difference: Data | None, scale: float, digits: int, *, sign: int = 1) -> str:
    """A paired difference with its interval, and whether it is better, worse or unclear; see `verdict_word`."""
    return "-" if difference is None else f"{with_ends(difference, scale, digits, sign='+')} {verdict_word(difference, sign)}"


def verdict_word(difference: Data, sign: int = 1) -> str:
    """``better``, ``worse`` or ``unclear``; ``sign`` is 1 where less is better, -1 where more is."""
    return ("unclear", "worse", "better")[sign * excludes_zero(difference)]


def against_words(difference: Data) -> str:
    """``better than``, ``worse than`` or ``not clearly different from``, where less is better."""
    return ("not clearly different from", "worse than", "better than")[excludes_zero(difference)]


def _markdown_cells(results: Data, group: Sequence[Data]) -> list[str]:
    row = group[0]
    told = beside(results, row)
    if told is None:
        told = with_verdict(row["against_best_baseline"], 100.0, 1)
    latency = results.get("timing", {}).get("decision_latency_s", {}).get(row["policy"])
    is_learned = row["kind"] in CHALLENGERS
    return [
        f"**{escaped(joined(group))}**" if is_learned else escaped(joined(group, lambda name: name + chosen_for(results, name))),
        with_ends(row["blocking_rate"], 100.0, 1),
        told,
        *mean_figures(row),
        "-" if latency is None else f"{1e3 * latency['p99']:.2f}",
    ]


def mean_figures(row: Data) -> tuple[str, ...]:
    """What tables and pages show of a policy besides its blocking rate: hours, hours, then percents, and devices of a job."""
    hours, percent = (1 / 3600, 2), (100.0, 1)
    shown = {"mean_completion_s": hours, "p95_completion_s": hours, "mean_slack": percent, "utilisation": percent}
    shown |= {"fragmentation": percent, "mean_degree": (1.0, 2)}
    return tuple(mean_text(row[key], *form) for key, form in shown.items())


def mean_text(value: Data | None, scale: float, digits: int) -> str:
    """The mean of a figure in other units, rounded; a dash where there is none."""
    return "-" if value is None else f"{scale * value['mean']:.{digits}f}"


def escaped(text: object) -> str:
    """Text with the characters escaped that mean something in a cell of a Markdown table."""
    plain = "".join(letter if letter.isprintable() else "?" for letter in str(text))
    return "".join("\\" + letter if letter in "\\`*_[]<>|" else letter for letter in plain)
