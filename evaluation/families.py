"""Results of a family of benchmarks as one: the rows of all variants, and on how many of them each learned policy wins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .evaluate import FORMAT_VERSION
from .statistics import CHALLENGERS, excludes_zero, least, paired
from .tables import best_baselines

Data = Mapping[str, Any]

BEST_FIXED, BEST_BASELINE = "best fixed degree", "best baseline"


def combined(name: str, results: Sequence[Data]) -> dict[str, Any]:
    """The results of a family as plain data.

    Args:
        name: of the family.
        results: of its variants (see `evaluation.evaluate`).
    """
    apart = ("scenario", "seeds", "best_fixed", "best_baseline", "best_baselines", "verdict", "off_ground", "timing")
    return {
        "format_version": FORMAT_VERSION,
        "benchmark": name,
        "rows": [row for result in results for row in result["rows"]],
        "standings": family_standings(results),
        "variants": {result["benchmark"]: {key: result[key] for key in apart} for result in results},
    }


def family_standings(results: Sequence[Data]) -> list[dict[str, Any]]:
    """How each learned policy compares over several benchmarks with the best fixed degree and the best baseline of each.

    ``better``, ``unclear`` and ``worse`` count benchmarks by the interval of the paired difference of blocking rates,
    ``lower`` those with the lower mean; ``worst_ratio`` is the greatest quotient of the mean rates. The best fixed degree is
    the one with the least mean among the tuned ones; where no fixed degree was tuned, a benchmark does not count. Of several that
    tie, the first is what is compared with.
    """
    policies = dict.fromkeys(str(row["policy"]) for result in results for row in result["rows"] if row["kind"] in CHALLENGERS)
    found = []
    for policy in policies:
        for against in (BEST_FIXED, BEST_BASELINE):
            pairs = [pair for result in results if (pair := _pair(result, policy, against)) is not None]
            if not pairs:
                continue
            signs = [excludes_zero(paired(*(row["per_seed"]["blocking_rate"] for row in pair))) for pair in pairs]
            means = [tuple(row["blocking_rate"]["mean"] for row in pair) for pair in pairs]
            ratios = [rate / other for rate, other in means if other > 0]
            found.append(
                {
                    "policy": policy,
                    "against": against,
                    "benchmarks": len(pairs),
                    "better": signs.count(-1),
                    "unclear": signs.count(0),
                    "worse": signs.count(1),
                    "lower": sum(rate < other for rate, other in means),
                    "worst_ratio": max(ratios, default=None),
                }
            )
    return found


def standing_cells(found: Sequence[Data]) -> tuple[list[str], list[list[str]]]:
    """Head and rows of a table of `family_standings`."""
    head = ["policy", "against", "benchmarks", "better", "unclear", "worse", "lower mean", "worst ratio"]
    rows = []
    for row in found:
        worst = "-" if row["worst_ratio"] is None else f"{row['worst_ratio']:.2f}"
        counts = [str(row[key]) for key in ("benchmarks", "better", "unclear", "worse", "lower")]
        rows.append([str(row["policy"]), str(row["against"]), *counts, worst])
    return head, rows


def _pair(result: Data, policy: str, against: str) -> tuple[Data, Data] | None:
    """The rows of a policy and of what it is held against, where a result has both."""
    rows = {str(row["policy"]): row for row in result["rows"]}
    if against == BEST_BASELINE:
        others = [rows[name] for name in best_baselines(result)[:1] if name in rows]
    else:
        others = [rows[name] for name in result["best_fixed"] if name in rows]
    if policy not in rows or not others:
        return None
    return rows[policy], least(others, lambda row: float(row["blocking_rate"]["mean"]))[0]
