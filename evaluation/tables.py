"""The rows of an evaluation of any world as text: cells for terminals and pages, Markdown, CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import files
from .metrics import FILES, METRICS, TERMINAL, Metric, metrics_of
from .statistics import CHALLENGERS, excludes_zero, joined, tied_groups

Data = Mapping[str, Any]
Cells = tuple[list[str], list[list[str]]]


def result_cells(results: Data, shown_in: int = TERMINAL, *, has_words: bool = False) -> Cells:
    """Return headings and rows: policy, objective, difference to the best baseline, other comparisons, other metrics, time.

    Policies with the same results share a row, in the place of the first. Metrics that no row has are left out.

    Args:
        results: of `evaluate`.
        shown_in: where, see `Metric.worlds`.
        has_words: whether a difference is called better, worse or unclear.
    """
    objective = METRICS[results["objective"]]
    groups = tied_groups(results["rows"])
    of_world = metrics_of(results["world"]).values()
    shown = [one for one in of_world if one.worlds[results["world"]] <= shown_in and one is not objective and _has(results, one)]
    further = list(dict.fromkeys(heading for row in results["rows"] for heading in row["against"] if heading != _BEST))
    unit = f", {objective.difference_unit}" if objective.difference_unit else ""
    taken = results.get("timing", {}).get("decision_s", {})
    head = ["policy", objective.column, f"against best baseline{unit}", *(f"against {heading}{unit}" for heading in further)]
    head += [*(one.column for one in shown), *(["time, ms"] if taken else [])]
    rows = []
    for group in groups:
        row = group[0]
        took = taken.get(row["policy"], {})
        took_s = took.get("median", took.get("mean"))
        rows.append(
            [
                joined(group, lambda name: name + chosen_for(results, name)),
                value_cell(row, objective),
                best_cell(results, row, has_words=has_words),
                *(difference_cell(row["against"].get(heading), objective, has_words=has_words) for heading in further),
                *("-" if (mean := one.value(row["metrics"])) is None else f"{mean:.{one.digits}f}" for one in shown),
                *(["-" if took_s is None else f"{1e3 * took_s:.2f}"] if taken else []),
            ]
        )
    return head, rows


_BEST = "best baseline"


def _has(results: Data, metric: Metric) -> bool:
    """Return whether any row has a figure; of a rare metric one that is not zero."""
    result = [value for row in results["rows"] if (value := row["metrics"].get(metric.name)) is not None]
    return any(value["mean"] for value in result) if metric.is_rare else bool(result)


def value_cell(row: Data, metric: Metric) -> str:
    """Return the mean of a metric with its interval."""
    return with_ends(row["metrics"].get(metric.name), metric.scale, metric.digits)


def difference_cell(difference: Data | None, metric: Metric, *, has_words: bool) -> str:
    """Return a paired difference with its interval, in words too whether it is better, worse or unclear."""
    if difference is None:
        return "-"
    text = with_ends(difference, metric.scale, metric.digits, sign="+")
    return f"{text} {('unclear', 'worse', 'better')[metric.sign * excludes_zero(difference)]}" if has_words else text


def best_cell(results: Data, row: Data, *, has_words: bool) -> str:
    """Return a row's difference to the best baseline, or what it is in its place."""
    if row["kind"] in _INSTEAD:
        return _INSTEAD[row["kind"]]
    best = results["best_baselines"]
    if len(best) > 1 and results["best_baseline"] is None:
        return "all tie"
    if row["policy"] in best:
        return (
            "best baseline, tied" if len(tied_groups([each for each in results["rows"] if each["policy"] in best])) > 1 else _BEST
        )
    return difference_cell(row["against"].get(_BEST), METRICS[results["objective"]], has_words=has_words)


_INSTEAD = {"reference": "reference", "published": "published"}


def chosen_for(results: Data, policy: str) -> str:
    """Return in brackets the choice of a tuned baseline, and whether others did as well; empty for any other policy."""
    tuned = results["tuned"].get(policy)
    return "" if tuned is None else f" ({tuned['chosen']}{', tied' if tuned['tied'] else ''})"


def to_csv(results: Data) -> str:
    """Return a line per policy: mean, low and high of each metric."""
    ends, names = ("mean", "low", "high"), list(metrics_of(results["world"]))
    head = ["policy", "kind", "benchmark", "num_cases", *(f"{name}_{end}" for name in names for end in ends)]
    rows = []
    for row in results["rows"]:
        figures = [(row["metrics"].get(name) or {}).get(end) for name in names for end in ends]
        rows.append([row["policy"], row["kind"], results["benchmark"], len(results["cases"]), *figures])
    return files.csv_text(head, rows)


def to_markdown(results: Data) -> str:
    """Return a heading, a table with a line for each policy, the verdict, remarks and the world's tables."""
    from .sections import tables_of

    head, rows = result_cells(results, FILES, has_words=True)
    learned = [group[0]["kind"] in CHALLENGERS for group in tied_groups(results["rows"])]
    cells = [
        [f"**{escaped(row[0])}**" if bold else escaped(row[0]), *map(escaped, row[1:])]
        for row, bold in zip(rows, learned, strict=True)
    ]
    lines = [
        f"# Benchmark {escaped(results['benchmark'])}",
        "",
        f"{escaped(results['title'])}; 95 % bootstrap intervals over the {results['case']}s, differences paired.",
        "",
        *table(list(map(escaped, head)), cells),
        "",
        *(line for sentence in (results["verdict"], *results["remarks"]) for line in (escaped(sentence), "")),
    ]
    for heading, (names, more) in tables_of(results).items():
        lines += [f"## {escaped(heading)}", "", *table(list(map(escaped, names)), [list(map(escaped, row)) for row in more]), ""]
    return "\n".join(lines)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table; the cells are Markdown already."""
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def with_ends(value: Data | None, scale: float, digits: int, *, sign: str = "") -> str:
    """Return mean and interval, as ``4.6 [3.9, 5.3]``; the mean alone where there is no interval."""
    if value is None:
        return "-"
    mean, *ends = (None if value[end] is None else f"{scale * value[end]:{sign}.{digits}f}" for end in ("mean", "low", "high"))
    return f"{mean}" if None in ends else f"{mean} [{ends[0]}, {ends[1]}]"


def seconds_text(seconds: float) -> str:
    """Return seconds, below one second in ms."""
    return f"{seconds:g} s" if seconds >= 1 else f"{1e3 * seconds:g} ms"


def escaped(text: object) -> str:
    """Return text with the characters escaped that mean something in a cell of a Markdown table."""
    plain = "".join(letter if letter.isprintable() else "?" for letter in str(text))
    return "".join("\\" + letter if letter in "\\`*_[]<>|" else letter for letter in plain)
