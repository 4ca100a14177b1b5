"""The menu of a fleet for people and programs: an entry a row."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...planners.menu.entries import MenuEntry, SplitEntry
from ...planners.menu.named_entry import exactness_of, multiplier_of, name_of
from ...plans.partition import Layout
from ...simulation.decision_space.splitting import SplitSettings
from .fleet import Fleet

DEGREES = ("tp", "pp", "dp", "cp", "ep")


def layout_name(layout: Layout | SplitSettings) -> str:
    """A layout in a word or two: its degrees that are not 1, and what else sets it apart; of splits their rule."""
    if isinstance(layout, SplitSettings):
        return f"{layout.rule} splits"
    named = [f"{key}{getattr(layout, key)}" for key in DEGREES if getattr(layout, key) > 1]
    if layout.virtual_stages > 1:
        named.append(f"v{layout.virtual_stages}")
    if layout.zero > 0:
        named.append(f"zero{layout.zero}")
    return " ".join(named) or "one device"


def entry_name(entry: MenuEntry | SplitEntry) -> str:
    """A layout with the name of its entry where it has one."""
    own = layout_name(entry.layout)
    return own if entry.named is None else f"{own} {entry.named.name}"


def menu_lines(fleet: Fleet) -> list[dict[str, Any]]:
    """The menu in plain figures.

    Returns:
        For each entry ``job_type`` (name), ``entry`` (its number among those of the type, as actions count them), ``devices``,
        ``layout`` (its keys), ``layout_name``, ``memory_bytes`` of the fullest rank, and ``step_s`` on its best placement. Where
        the menu has entries with names also ``name``, ``exactness``, ``steps_multiplier``, its ``multiplier_source`` and
        ``effective_step_s``, the multiplier times the step.
    """
    table, lines = fleet.problem.menu, []
    for number, entry in enumerate(fleet.menu.entries):
        steps = fleet.menu.table.step_s[number]
        rho = multiplier_of(entry.named)
        fastest_s = float(steps[np.isfinite(steps)].min())
        named: dict[str, Any] = {}
        if fleet.has_strategies:
            named = {
                "name": name_of(entry.named),
                "exactness": exactness_of(entry.named),
                "steps_multiplier": rho,
                "multiplier_source": "" if entry.named is None else entry.named.source,
                "effective_step_s": fastest_s,
            }
        lines.append(
            {
                "job_type": fleet.menu.job_types[entry.job_type].name,
                "entry": number - int(table.first_entry[entry.job_type]),
                "devices": int(table.degree[number]),
                "layout": entry.layout.model_dump(mode="json"),
                "layout_name": layout_name(entry.layout),
                "memory_bytes": float(table.memory_bytes[number]),
                "step_s": fastest_s / rho,
                **named,
            }
        )
    return lines
