"""The policy that won, in a sentence that claims no more than the paired intervals show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .metrics import Metric
from .statistics import CHALLENGERS, FEWEST_CASES, NO_POLICY, excludes_zero, least, paired
from .tables import with_ends

Row = dict[str, Any]

BEST_BASELINE = "best baseline"


def standings(rows: Sequence[Row], objective: Metric, case: str) -> dict[str, Any]:
    """Return the rows, best first, each with its paired difference to the best baseline; which that is, and the verdict.

    Args:
        rows: of all policies and references; their ``against`` gets the difference.
        objective: of the benchmark.
        case: what was played, as "episode".
    """
    best = least((row for row in rows if row["kind"] == "baseline"), objective.cost)
    playing = [row for row in rows if row["kind"] not in NO_POLICY]
    first = None if not best or all_tie(playing, objective) else best[0]  # differences are taken to it
    if first is not None:
        for row in rows:
            if (difference := paired_rows(row, first, objective)) is not None:
                row["against"][BEST_BASELINE] = difference
    return {
        "rows": sorted(rows, key=lambda row: (objective.cost(row), row["policy"])),
        "best_baseline": None if first is None else first["policy"],
        "best_baselines": [row["policy"] for row in best],
        "verdict": verdict(playing, best, objective, case),
    }


def paired_rows(row: Mapping[str, Any], other: Mapping[str, Any], objective: Metric) -> Row | None:
    """Return a row's paired difference to another one, over the cases in which both have the figure; None where there is none.

    ``share`` is the difference over the other row's mean, ``worst`` the largest share of a single case.
    """
    pairs = zip(row["per_case"][objective.name], other["per_case"][objective.name], strict=True)
    known = [(one, its) for one, its in pairs if one is not None and its is not None]
    if not known or row is other:
        return None
    result = paired([one for one, _ in known], [its for _, its in known])
    mean = sum(its for _, its in known) / len(known)
    worst = max((objective.sign * (one / its - 1.0) for one, its in known if its > 0), default=None)
    return {"policy": other["policy"], **result, "share": result["mean"] / mean if mean else None, "worst": worst}


def verdict(playing: Sequence[Row], best: Sequence[Row], objective: Metric, case: str) -> str:
    """Return the best learned policy against the best baseline in a sentence.

    Args:
        playing: rows of policies.
        best: those of the baselines that do best; several of them tie.
        objective: of the benchmark.
        case: as of `standings`.
    """
    if all_tie(playing, objective):
        return f"No winner: all {len(playing)} policies tie at {_value(playing[0], objective)} in {objective.words}."
    learned = least((row for row in playing if row["kind"] in CHALLENGERS), objective.cost)
    if not best:
        return f"No baseline was compared with {named(learned)}." if learned else "No baseline was compared."
    has_several = len(best) > 1
    if not learned:
        result = f"baselines are {named(best)}, which tie" if has_several else f"baseline is {named(best)}"
        return f"No learned policy was compared; the best {result}: {_value(best[0], objective)} in {objective.words}."
    theirs = f"the best baselines, {named(best)}, which tie" if has_several else f"the best baseline, {named(best)}"
    number = len(learned[0]["per_case"][objective.name])
    if number < 2:
        return f"No winner: one {case} does not separate {named([*learned, *best])}; ask for more seeds."
    difference = learned[0]["against"].get(BEST_BASELINE)
    if difference is None:
        return f"No winner: {named(learned)} and {theirs} have no {case} to be compared on."
    unit = f" {objective.difference_unit}" if objective.difference_unit else ""
    share = "" if difference["share"] is None else f", {100 * difference['share']:+.1f} %"
    text = f"{with_ends(difference, objective.scale, objective.digits, sign='+')}{unit} in {objective.words}{share}"
    signs = {objective.sign * excludes_zero(row["against"][BEST_BASELINE]) for row in learned}
    if difference["cases"] < FEWEST_CASES:
        return f"No winner: {named(learned)} against {theirs}: {text}. {number} {case}s are too few; compare 10 or more."
    if signs == {-1}:
        return f"{named(learned)} {'beat' if len(learned) > 1 else 'beats'} {theirs}: {text}."
    if signs == {1}:
        return f"{named(best)} {'win' if has_several else 'wins'} over {named(learned)}: {text}."
    return f"No winner: {named(learned)} against {theirs}: {text}, which does not exclude zero."


def all_tie(rows: Sequence[Row], objective: Metric) -> bool:
    """Return whether several policies all reach the same."""
    return 1 < len(rows) == len(least(rows, objective.cost))


def named(rows: Sequence[Row]) -> str:
    """Return policies by name."""
    *others, last = [str(row["policy"]) for row in rows]
    return f"{', '.join(others)} and {last}" if others else last


def _value(row: Row, objective: Metric) -> str:
    value = row["metrics"][objective.name]
    return "no figure" if value is None else objective.text(value["mean"])
