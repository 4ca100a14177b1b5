"""The policy of a fleet that won, in sentences that claim no more than the paired intervals show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..evaluate import named
from ..statistics import CHALLENGERS, excludes_zero, least, paired
from .objectives import Objective

Row = dict[str, Any]


def standings(rows: Sequence[Row], objective: Objective) -> dict[str, Any]:
    """The rows, best first, each with its paired difference to the best baseline; which that is, and the verdict.

    Args:
        rows: of all policies and bounds; ``against_best_baseline`` is added to each.
        objective: of the benchmark.
    """
    best = least((row for row in rows if row["kind"] == "baseline"), objective.cost)
    playing = [row for row in rows if row["kind"] != "reference"]
    first = None if not best or all_tie(playing, objective) else best[0]  # what differences are taken to
    for row in rows:
        row["against_best_baseline"] = against(row, first, objective)
    return {
        "rows": sorted(rows, key=lambda row: (objective.cost(row), row["policy"])),
        "best_baseline": None if first is None else first["policy"],
        "best_baselines": [row["policy"] for row in best],
        "verdict": fleet_verdict(rows, best, objective),
    }


def against(row: Row, first: Row | None, objective: Objective) -> Row | None:
    """A row's paired difference to another one, over the episodes in which both have the objective; None to itself or none."""
    if first is None or row is first:
        return None
    pairs = zip(row["per_seed"][objective.metric], first["per_seed"][objective.metric], strict=True)
    known = [(one, other) for one, other in pairs if one is not None and other is not None]
    if not known:
        return None
    return {"policy": first["policy"], **paired([one for one, _ in known], [other for _, other in known])}


def fleet_verdict(rows: Sequence[Row], best: Sequence[Row], objective: Objective) -> str:
    """The best learned policy against the best baseline by the benchmark's objective.

    Args:
        rows: of all policies and bounds.
        best: those of the baselines that do best; several of them tie.
        objective: of the benchmark.
    """
    playing = [row for row in rows if row["kind"] != "reference"]
    if all_tie(playing, objective):
        value = _value(playing[0], objective)
        return f"No winner: all {len(playing)} policies tie at {value} in {objective.words}, which tells none from another."
    learned = least((row for row in playing if row["kind"] in CHALLENGERS), objective.cost)
    if not best:
        return f"No baseline was compared with {named(learned)}." if learned else "No baseline was compared."
    has_several = len(best) > 1
    if not learned:
        found = f"baselines are {named(best)}, which tie" if has_several else f"baseline is {named(best)}"
        return f"No learned policy was compared; the best {found}: {_value(best[0], objective)} in {objective.words}."
    theirs = f"the best baselines, {named(best)}, which tie" if has_several else f"the best baseline, {named(best)}"
    if learned[0]["num_seeds"] < 2:
        return f"No winner: one episode tells nothing about {named([*learned, *best])}; ask for more seeds."
    difference = learned[0]["against_best_baseline"]
    if difference is None:
        return f"No winner: {named(learned)} and {theirs} have no episode to be compared on."
    told = f"{objective.difference(difference)} in {objective.words}, {_percent(difference, best[0], objective)}"
    signs = {objective.sign * excludes_zero(row["against_best_baseline"]) for row in learned}
    verb = "beat" if len(learned) > 1 else "beats"
    if signs == {-1}:
        return f"{named(learned)} {verb} {theirs}: {told}."
    if signs == {1}:
        return f"{named(best)} {'win' if has_several else 'wins'} over {named(learned)}: {told}."
    return f"No winner: {named(learned)} against {theirs}: {told}, which does not exclude zero."


def remarks(rows: Sequence[Row], objective: Objective) -> list[str]:
    """What to know about a comparison: figures of times say nothing about jobs that never ran."""
    playing = [row for row in rows if row["kind"] != "reference"]
    if objective.metric in ("blocking_rate", "deadline_met_rate") or len({row["blocking_rate"]["mean"] for row in playing}) < 2:
        return []
    most = max(playing, key=lambda row: float(row["blocking_rate"]["mean"]))
    share = f"{100 * most['blocking_rate']['mean']:.1f} %"
    return [f"{objective.words.capitalize()} leaves out jobs that were turned away: of {most['policy']} {share}."]


def all_tie(rows: Sequence[Row], objective: Objective) -> bool:
    """Whether several policies all reach the same."""
    return 1 < len(rows) == len(least(rows, objective.cost))


def _value(row: Row, objective: Objective) -> str:
    value = row[objective.metric]
    return "no figure" if value is None else objective.value(value["mean"])


def _percent(difference: Row, best: Row, objective: Objective) -> str:
    """A difference as a share of what the best baseline reaches."""
    reached = best[objective.metric]["mean"]
    return f"{100 * difference['mean'] / reached:+.1f} %" if reached else "of nothing"
