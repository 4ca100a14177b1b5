"""Policies' choices from a menu with named entries, the gain by inexact entries, and the possible gain by those without
multiplier.

Results of a fleet whose menu has layouts alone have none of this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...envs.fleet.fleet import Fleet
from ...envs.fleet.record import FleetRecord
from ...planners.menu.named_entry import name_of
from ..statistics import interval
from .policies import EXACT

Row = dict[str, Any]


def named_shares(records: Sequence[FleetRecord], fleet: Fleet) -> dict[str, Any]:
    """Shares of the counted jobs that started, by the name of the entry by which they ran last, with 95 % intervals.

    Of all jobs, and of each type of jobs; empty where the menu has no named entries.
    """
    names = [name_of(entry.named) for entry in fleet.menu.entries] if fleet.has_strategies else []
    if len(set(names)) < 2:
        return {}
    known, counted = list(dict.fromkeys(names)), fleet.settings.counted
    number = np.array([known.index(name) for name in names])
    taken = [(record.entry[counted], record.job_type[counted]) for record in records]

    def shares(job_type: int | None) -> dict[str, Any]:
        counts = np.array(
            [
                np.bincount(number[entry[(entry >= 0) & ((kind == job_type) | (job_type is None))]], minlength=len(known))
                for entry, kind in taken
            ]
        )
        parts = counts / np.maximum(counts.sum(axis=1), 1)[:, None]
        order = np.argsort(-parts.mean(axis=0), kind="stable").tolist()
        return {known[one]: interval(parts[:, one].tolist()) for one in order if counts[:, one].any()}

    types = [one.name for one in fleet.menu.job_types]
    return {"entries": shares(None), "entries_by_type": {name: shares(kind) for kind, name in enumerate(types)}}


def break_evens(fleet: Fleet) -> list[Row]:
    """How many times the steps each inexact entry may need and still pay off, with what it declares, by type and devices."""
    return [
        {
            "job_type": fleet.menu.job_types[one.job_type].name,
            "devices": one.degree,
            "entry": one.name,
            "break_even_multiplier": one.break_even,
            "multiplier": one.multiplier,
        }
        for one in getattr(fleet.menu, "told", ())
        if np.isfinite(one.step_s)
    ]


def lone_entries(rows: Sequence[Row]) -> list[str]:
    """Learned policies that take one entry alone, in sentences."""
    return [
        f"{row['policy']} takes one entry alone, {next(iter(row['details']['entries']))}."
        for row in rows
        if row["kind"] == "learned" and not row["policy"].startswith(EXACT) and len(row["details"].get("entries", ())) == 1
    ]
