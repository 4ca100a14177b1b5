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


def former_world(found: Mapping[str, Any]) -> str | None:
    """Return the world of results of version 1; None of others."""
    if "format" in found or "rows" not in found:
        return None
    return next((world for key, world in _WORLD_KEYS.items() if key in found), None)


def converted(found: Mapping[str, Any], world: str) -> dict[str, Any]:
    """Return results of version 1 as version 2 has them; differences and the verdict are made anew from the figures.

    Args:
        found: the results.
        world: of them.

    Raises:
        KeyError, TypeError, ValueError: something is missing or malformed.
    """
    key = next(key for key, name in _WORLD_KEYS.items() if name == world)
    placed = "over_best_known" if "known_s" in found else "over_bound"  # early files have the best known as means alone
    objective = METRICS[placed if world in _PLACED else found.get("objective", "blocking_rate")]
    case = _CASES.get(world, "episode")
    cases = list(range(len(found["rows"][0]["values_s"]))) if world in _PLACED else found.get("workloads", found.get("seeds"))
    best = found.get("best_baselines") or [found.get("best_baseline")]  # of those that tie, the first was compared
    former = sorted(found["rows"], key=lambda row: best.index(row["policy"]) if row["policy"] in best else len(best))
    rows = [_row(row, found, world) for row in former]
    ranked = standings(rows, objective, case)
    against = found["elastic"]["against"] if world == "elastic" else None
    first = next((row for row in rows if row["policy"] == f"published:{against}"), None)
    if first is not None:
        for row in rows:
            if (difference := paired_rows(row, first, objective)) is not None:
                row["against"][f"published {against}"] = difference
    about = {{"graphs": "jobs", "job_types": "jobs"}.get(name, name): value for name, value in found[key].items()}
    about |= {"form": found["form"]} if "form" in found else {}
    tuned = found.get("best_fixed", {}) | found.get("best_fixed_entry", {})
    classes = found.get("classes", ())
    kinds = found.get("kinds", ())
    timing = found.get("timing", {})
    decision_s = {
        **{name: {"median": one["p50"], "p99": one["p99"]} for name, one in timing.get("decision_latency_s", {}).items()},
        **{name: {"mean": one} for name, one in timing.get("decision_s", {}).items()},
        **{row["policy"]: dict(row["seconds"]) for row in found["rows"] if "seconds" in row},
    }
    made = list(found.get("made", ()))
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "world": world,
        "benchmark": found["benchmark"],
        "title": f"{found['benchmark']}: {len(cases)} {case}s",
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
            *(f"{told}." for told in (*found.get("off_ground", {}).values(), *found.get("foreign_figures", ()))),
            *(found.get("remarks") or made),
        ],
        "more": {
            **{
                name: found[name]
                for name in ("budgets", "shown", "break_evens", "best_known_s", "clock", "bounds_s", "known_s")
                if name in found
            },
            **(
                {"trained": {row["policy"]: row["trained"] for row in found["rows"] if row.get("trained")}}
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


def _row(row: Mapping[str, Any], found: Mapping[str, Any], world: str) -> dict[str, Any]:
    names = metrics_of(world)
    if world in _PLACED:
        values_s = row["values_s"]
        nothing: list[float | None] = [None] * len(values_s)
        best = [min(values) for values in zip(*(each["values_s"] for each in found["rows"]), strict=True)]
        per_case: dict[str, list[float | None]] = {
            "over_best_known": [v / known for v, known in zip(values_s, found["known_s"], strict=True)]
            if "known_s" in found
            else nothing,
            "won": [float(value <= least * (1 + 1e-9)) for value, least in zip(values_s, best, strict=True)],
        }
        if world == "operators":
            rules = [each["values_s"] for each in found["rows"] if each["is_rule"]] if row["against_best_rule"] else []
            share = row["infeasible"]  # on which instances is known only where it is all or none
            over_rule: list[float | None] = [v / min(its) for v, *its in zip(values_s, *rules, strict=True)] if rules else []
            per_case["over_best_rule"] = over_rule or nothing
            per_case["over_bound"] = [value / bound for value, bound in zip(values_s, found["bounds_s"], strict=True)]
            per_case["without_value"] = [share if share in (0, 1) else None] * len(values_s)
    else:
        nothing = [None] * len(found.get("workloads", found.get("seeds")))
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
