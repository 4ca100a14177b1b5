"""Results of version 1, in which each world had a layout of its own, as version 2 has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .evaluate import FORMAT, FORMAT_VERSION
from .metrics import METRICS, metrics_of
from .statistics import interval
from .verdict import paired_rows, standings

_WORLD_KEYS = {"scenario": "cluster", "fleet": "fleet", "elastic": "elastic", "placement": "operators", "tasklets": "tasklets"}
"""Key of the root of version 1 that names its world."""
_CASES = {"elastic": "workload", "operators": "instance", "tasklets": "network"}
_PLACED = ("operators", "tasklets")


def former_world(result: Mapping[str, Any]) -> str | None:
    """Return the world of results of version 1; None of others."""
    if "format" in result or "rows" not in result:
        return None
    return next((world for key, world in _WORLD_KEYS.items() if key in result), None)


def converted(result: Mapping[str, Any], world: str) -> dict[str, Any]:
    """Return results of version 1 as version 2 has them; differences and the verdict are made anew from the figures.

    Args:
        result: the results.
        world: of them.

    Raises:
        KeyError, TypeError, ValueError: something is missing or malformed.
    """
    key = next(key for key, name in _WORLD_KEYS.items() if name == world)
    placed = "over_best_known" if "known_s" in result else "over_bound"  # early files have the best known as means alone
    objective = METRICS[placed if world in _PLACED else result.get("objective", "blocking_rate")]
    case = _CASES.get(world, "episode")
    cases = list(range(len(result["rows"][0]["values_s"]))) if world in _PLACED else result.get("workloads", result.get("seeds"))
    best = result.get("best_baselines") or [result.get("best_baseline")]  # of those that tie, the first was compared
    former = sorted(result["rows"], key=lambda row: best.index(row["policy"]) if row["policy"] in best else len(best))
    rows = [_row(row, result, world) for row in former]
    ranked = standings(rows, objective, case)
    against = result["elastic"]["against"] if world == "elastic" else None
    first = next((row for row in rows if row["policy"] == f"published:{against}"), None)
    if first is not None:
        for row in rows:
            if (difference := paired_rows(row, first, objective)) is not None:
                row["against"][f"published {against}"] = difference
    about = {{"graphs": "jobs", "job_types": "jobs"}.get(name, name): value for name, value in result[key].items()}
    about |= {"form": result["form"]} if "form" in result else {}
    tuned = result.get("best_fixed", {}) | result.get("best_fixed_entry", {})
    classes = result.get("classes", ())
    kinds = result.get("kinds", ())
    timing = result.get("timing", {})
    decision_s = {
        **{name: {"median": one["p50"], "p99": one["p99"]} for name, one in timing.get("decision_latency_s", {}).items()},
        **{name: {"mean": one} for name, one in timing.get("decision_s", {}).items()},
        **{row["policy"]: dict(row["seconds"]) for row in result["rows"] if "seconds" in row},
    }
    made = list(result.get("made", ()))
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "world": world,
        "benchmark": result["benchmark"],
        "title": f"{result['benchmark']}: {len(cases)} {case}s",
        "about": about,
        "case": case,
        "cases": cases,
        "classes": [
            *({"dimension": one["dimension"], "class": one["class"], "cases": one["instances"]} for one in classes),
            *(
                {"dimension": "kind", "class": kind, "cases": [place for place, one in enumerate(kinds) if one == kind]}
                for kind in dict.fromkeys(kinds)
            ),
        ],
        "objective": objective.name,
        **ranked,
        "tuned": {
            name: {
                "chosen": one["chosen"],
                "played": one["chosen"],
                "tied": list(one.get("tied", ())),
                "cases": list(one.get("validation_seeds", ())),
                "values": dict(one.get(objective.name, {})),
            }
            for name, one in tuned.items()
        },
        "made": made,
        "remarks": [
            *(f"{message}." for message in (*result.get("off_ground", {}).values(), *result.get("foreign_figures", ()))),
            *(result.get("remarks") or made),
        ],
        "more": {
            **{
                name: result[name]
                for name in ("budgets", "shown", "break_evens", "best_known_s", "clock", "bounds_s", "known_s")
                if name in result
            },
            **(
                {"trained": {row["policy"]: row["trained"] for row in result["rows"] if row.get("trained")}}
                if world in _PLACED
                else {}
            ),
        },
        "timing": {"elapsed_s": timing.get("elapsed_s", 0.0), "decision_s": decision_s},
    }


_DETAILS = (
    "outcomes",
    "degrees",
    "shapes",
    "rules",
    "completion_percentiles_s",
    "layouts",
    "entries",
    "entries_by_type",
)


def _row(row: Mapping[str, Any], result: Mapping[str, Any], world: str) -> dict[str, Any]:
    names = metrics_of(world)
    if world in _PLACED:
        values_s = row["values_s"]
        nothing: list[float | None] = [None] * len(values_s)
        best = [min(values) for values in zip(*(each["values_s"] for each in result["rows"]), strict=True)]
        per_case: dict[str, list[float | None]] = {
            "over_best_known": [v / known for v, known in zip(values_s, result["known_s"], strict=True)]
            if "known_s" in result
            else nothing,
            "won": [float(value <= least * (1 + 1e-9)) for value, least in zip(values_s, best, strict=True)],
        }
        if world == "operators":
            rules = [each["values_s"] for each in result["rows"] if each["is_rule"]] if row["against_best_rule"] else []
            share = row["infeasible"]  # on which instances is known only where it is all or none
            over_rule: list[float | None] = [v / min(its) for v, *its in zip(values_s, *rules, strict=True)] if rules else []
            per_case["over_best_rule"] = over_rule or nothing
            per_case["over_bound"] = [value / bound for value, bound in zip(values_s, result["bounds_s"], strict=True)]
            per_case["without_value"] = [share if share in (0, 1) else None] * len(values_s)
    else:
        nothing = [None] * len(result.get("workloads", result.get("seeds")))
        per_case = {name: list(row["per_seed"].get(name, nothing)) for name in names}
    kind = row["kind"]
    if kind == "constant" or (world in _PLACED and kind == "planner" and row.get("is_rule", world == "tasklets")):
        kind = "baseline"
    return {
        "policy": row["policy"],
        "kind": kind,
        "metrics": {name: interval(values) for name, values in per_case.items()},
        "per_case": per_case,
        "against": {},
        "details": {name: row[name] for name in _DETAILS if name in row and (row[name] or row["kind"] != "reference")},
    }
