"""Results of a family of benchmarks as one: those of all variants, and on how many of them each learned policy wins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .evaluate import FORMAT, FORMAT_VERSION
from .metrics import METRICS
from .statistics import CHALLENGERS, excludes_zero, least
from .verdict import paired_rows

Data = Mapping[str, Any]

BEST_TUNED, BEST_BASELINE = "best tuned baseline", "best baseline"


def combined(name: str, results: Sequence[Data]) -> dict[str, Any]:
    """Return the results of a family as plain data.

    Args:
        name: of the family.
        results: of its variants.
    """
    return {
        "format": f"{FORMAT}-of-a-family",
        "format_version": FORMAT_VERSION,
        "benchmark": name,
        "standings": family_standings(results),
        "variants": list(results),
    }


def family_standings(results: Sequence[Data]) -> list[dict[str, Any]]:
    """Return how each learned policy compares over several benchmarks with the best tuned and the best baseline of each.

    ``better``, ``unclear`` and ``worse`` count benchmarks by the interval of the paired difference of the objective. ``ahead``
    counts those with the better mean, and ``worst_ratio`` is the greatest quotient of the means. Where no baseline was tuned, a
    benchmark does not count. Of several that tie, the first is compared.
    """
    policies = dict.fromkeys(str(row["policy"]) for result in results for row in result["rows"] if row["kind"] in CHALLENGERS)
    result = []
    for policy in policies:
        for against in (BEST_TUNED, BEST_BASELINE):
            pairs = [pair for result in results if (pair := _pair(result, policy, against)) is not None]
            if not pairs:
                continue
            differences = [(metric, paired_rows(row, other, metric)) for metric, row, other in pairs]
            signs = [0 if each is None else metric.sign * excludes_zero(each) for metric, each in differences]
            means = [[row["metrics"][metric.name]["mean"] for row in rows] for metric, *rows in pairs]
            result.append(
                {
                    "policy": policy,
                    "against": against,
                    "benchmarks": len(pairs),
                    "better": signs.count(-1),
                    "unclear": signs.count(0),
                    "worse": signs.count(1),
                    "ahead": sum(m.sign * (one - other) < 0 for (m, *_), (one, other) in zip(pairs, means, strict=True)),
                    "worst_ratio": max((one / other for one, other in means if other > 0), default=None),
                }
            )
    return result


def standing_cells(result: Sequence[Data]) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of a table of `family_standings`."""
    head = ["policy", "against", "benchmarks", "better", "unclear", "worse", "better mean", "worst ratio"]
    rows = []
    for row in result:
        worst = "-" if row["worst_ratio"] is None else f"{row['worst_ratio']:.2f}"
        counts = [str(row[key]) for key in ("benchmarks", "better", "unclear", "worse", "ahead")]
        rows.append([str(row["policy"]), str(row["against"]), *counts, worst])
    return head, rows


def _pair(result: Data, policy: str, against: str) -> tuple[Any, Data, Data] | None:
    """Return the objective and the rows of a policy and of what it is held against, where a result has both."""
    rows, metric = {str(row["policy"]): row for row in result["rows"]}, METRICS[result["objective"]]
    names = result["best_baselines"][:1] if against == BEST_BASELINE else result["tuned"]
    others = [rows[name] for name in names if name in rows]
    return (metric, rows[policy], least(others, metric.cost)[0]) if policy in rows and others else None
