"""A fleet for people and programs: its menu, an entry a row, and an episode as text."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...planners.menu.entries import MenuEntry, SplitEntry
from ...planners.menu.named_entry import exactness_of, multiplier_of, name_of
from ...plans.partition import Layout
from ...simulation.decision_space.splitting import SplitSettings
from ...simulation.fleet.state import FleetState
from .fleet import Fleet

MOST_LINES = 12
LETTERS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
DEGREES = ("tp", "pp", "dp", "cp", "ep")


def layout_name(layout: Layout | SplitSettings) -> str:
    """Return a layout in a word or two: its degrees that are not 1, and what else sets it apart; of splits their rule."""
    if isinstance(layout, SplitSettings):
        return f"{layout.rule} splits"
    named = [f"{key}{getattr(layout, key)}" for key in DEGREES if getattr(layout, key) > 1]
    if layout.virtual_stages > 1:
        named.append(f"v{layout.virtual_stages}")
    if layout.zero > 0:
        named.append(f"zero{layout.zero}")
    return " ".join(named) or "one device"


def entry_name(entry: MenuEntry | SplitEntry) -> str:
    """Return a layout with the name of its entry where it has one."""
    own = layout_name(entry.layout)
    return own if entry.named is None else f"{own} {entry.named.name}"


def menu_lines(fleet: Fleet) -> list[dict[str, Any]]:
    """Return the menu in plain figures.

    Returns:
        For each entry ``job_type`` (name), ``entry`` (its number among those of the type, as actions count them), ``devices``.
        Also ``layout`` (its keys), ``layout_name``, ``memory_bytes`` of the fullest rank, and ``step_s`` on its best placement.
        Where the menu has entries with names also ``name``, ``exactness``, ``steps_multiplier``, its ``multiplier_source`` and
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


def fleet_text(fleet: Fleet, state: FleetState, e: int) -> str:
    """Draw an episode as text: time, a line of hosts for each group, the running jobs and the queue.

    A letter is a device, ``.`` a free device, ``#`` one whose host is out.
    """
    network, menu = fleet.problem.network, fleet.menu
    size = network.devices_per_host
    free, waiting, running = int(state.free[e].sum()), int(state.num_waiting[e]), int(state.num_running[e])
    lines = [f"{state.now_s[e]:.0f} s: {free} of {fleet.cluster.num_devices} devices free, {running} jobs run, {waiting} wait"]
    out = np.flatnonzero(state.is_out[e])
    letter = {int(job): LETTERS[i % len(LETTERS)] for i, job in enumerate(state.running[e, :running])}
    if network.num_groups < len(network.host_group):
        rows = [np.flatnonzero(network.host_group == group) for group in range(network.num_groups)]
    else:
        rows = np.array_split(np.arange(len(network.host_group)), max(1, len(network.host_group) // 8))
    for row in rows:
        owners = ((state.owner[e, host * size : (host + 1) * size], "#" if host in out else ".") for host in row)
        lines.append(" ".join("".join(letter.get(int(job), other) for job in devices) for devices, other in owners))
    for job in state.running[e, : min(running, MOST_LINES)].tolist():
        entry = menu.entries[state.entry[e, job]]
        slower = state.step_s[e, job] / state.alone_s[e, job] - 1
        lines.append(
            f"{letter[job]} job {job}: {menu.job_types[entry.job_type].name}, {menu.table.degree[state.entry[e, job]]} devices, "
            f"{layout_name(entry.layout)}, {100 * state.done_steps[e, job] / state.num_steps[e, job]:.0f} % done, "
            f"{100 * slower:.0f} % slower by sharing, ends in {state.finish_s[e, job] - state.now_s[e]:.0f} s"
        )
    for job in state.waiting[e, : min(waiting, MOST_LINES)].tolist():
        name = menu.job_types[state.job_type[e, job]].name
        waited = state.now_s[e] - state.arrival_s[e, job]
        lines.append(f"- job {job}: {name}, asks for {state.requested[e, job]} devices, waits for {waited:.0f} s")
    return "\n".join(lines)
