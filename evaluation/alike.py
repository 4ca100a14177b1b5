"""Policies that played the same, as a tuned baseline and what was chosen for it, so that tables and figures show them once."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]

_APART = ("policy", "seconds", "against_best_baseline", "against_published", "worst_against_published", "against")
"""What tells rows of identical policies apart: their names, how long they took, and what is taken to one of them."""


def alike(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows of policies of one kind whose figures agree in every episode, together; each group where its first row stood.

    References are no policies and stay apart.

    Args:
        rows: of an evaluation, as ``results.json`` holds them.
    """
    groups: dict[str, list[Row]] = {}
    for row in rows:
        played = {key: value for key, value in row.items() if key not in _APART}
        is_policy = row["kind"] not in ("reference", "published")
        key = json.dumps(played, sort_keys=True) if is_policy else f"{row['kind']}: {row['policy']}"
        groups.setdefault(key, []).append(row)
    return list(groups.values())


def joined(rows: Sequence[Row], name: Callable[[str], str] = str) -> str:
    """The names of rows as one.

    Args:
        rows: of policies that played the same.
        name: what a policy is called.
    """
    return ", ".join(name(str(row["policy"])) for row in rows)
