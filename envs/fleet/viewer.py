"""An episode of a fleet as text."""

from __future__ import annotations

import numpy as np

from ...simulation.fleet.state import FleetState
from .fleet import Fleet
from .menu_lines import layout_name

MOST_LINES = 12
LETTERS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def fleet_text(fleet: Fleet, state: FleetState, e: int) -> str:
    """Time, a line of hosts for each group (a letter a device, ``.`` where it is free, ``#`` where its
    host is out), the running jobs and the queue."""
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
