"""Which policies of an evaluation are shown in detail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..statistics import CHALLENGERS, NO_POLICY, alike


def shown_policies(results: Mapping[str, Any], most: int) -> list[str]:
    """Return the best learned policy, the best baseline, then others, best first; one of several with the same results."""
    rows = [row for row in results["rows"] if row["kind"] not in NO_POLICY]
    first = [row["policy"] for row in rows if row["kind"] in CHALLENGERS][:1]
    groups = [[row["policy"] for row in group] for group in alike(results["rows"])]
    once: dict[int, str] = {}
    for name in (*first, *results["best_baselines"][:1], *(row["policy"] for row in rows)):
        once.setdefault(next(number for number, group in enumerate(groups) if name in group), name)
    return list(once.values())[:most]
