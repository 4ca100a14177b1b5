"""Policies that played the same, as a tuned baseline and its choice, so that tables and figures show them once."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .statistics import NO_POLICY

Row = Mapping[str, Any]


def alike(rows: Sequence[Row]) -> list[list[Row]]:
    """Group rows of policies of one kind whose figures agree in every case; each group where its first row is.

    References are no policies and are never grouped.

    Args:
        rows: of an evaluation, as ``results.json`` holds them.
    """
    groups: dict[str, list[Row]] = {}
    for row in rows:
        key = json.dumps([row["kind"], row["per_case"], row["details"]], sort_keys=True)
        groups.setdefault(f"{row['policy']} {key}" if row["kind"] in NO_POLICY else key, []).append(row)
    return list(groups.values())


def joined(rows: Sequence[Row], name: Callable[[str], str] = str) -> str:
    """Return the names of rows as one.

    Args:
        rows: of policies that played the same.
        name: what a policy is called.
    """
    return ", ".join(name(str(row["policy"])) for row in rows)
