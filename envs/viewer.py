"""Pictures of a cluster's occupancy: an image for people and videos, a text for terminals."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..simulation.cluster.scenario import Scenario
from ..simulation.cluster.state import Episodes

# Okabe and Ito's colours, which colour-blind readers can tell apart ("Color universal design", 2008).
PALETTE = ((0, 114, 178), (230, 159, 0), (0, 158, 115), (204, 121, 167), (86, 180, 233), (213, 94, 0), (240, 228, 66))
FREE = (236, 236, 236)
INK = (40, 40, 40)
CELL, GAP, MARGIN, LINE = 34, 4, 16, 18


def occupants(scenario: Scenario, episodes: Episodes, e: int) -> tuple[NDArray[np.int64], float]:
    """Return the job that holds each device, -1 where it is free, ``(n,)``, and the time of the decision in seconds."""
    now_s = float(episodes.now_s[e])
    holder = np.full(scenario.cluster.num_devices, -1, np.int64)
    for job in np.flatnonzero((episodes.block[e] >= 0) & (episodes.finish_s[e] > now_s)).tolist():
        holder[scenario.devices_of(int(episodes.block[e, job]))] = job
    return holder, now_s


def ansi(scenario: Scenario, episodes: Episodes, e: int) -> str:
    """Return one line per job that runs, and the devices as letters: a dot is free, equal letters are one job."""
    holder, now_s = occupants(scenario, episodes, e)
    letters = {job: _letters(i) for i, job in enumerate(sorted(set(holder.tolist()) - {-1}))}
    rows, columns = _grid(scenario)
    width = max(map(len, letters.values()), default=1)
    cells = [("." if job < 0 else letters[int(job)]).rjust(width) for job in holder]
    lines = [f"{scenario.cluster.name} at {now_s:,.0f} s: {int((holder < 0).sum())} of {len(holder)} devices free"]
    lines += [" ".join(cells[row * columns : (row + 1) * columns]) for row in range(rows)]
    for job, letter in letters.items():
        left_s = float(episodes.finish_s[e, job]) - now_s
        name = scenario.workload.graphs[int(episodes.graph_id[e, job])].name
        lines.append(f"{letter}: job {job} {name} on {int((holder == job).sum())} devices, {left_s:,.0f} s left")
    return "\n".join([*lines, _waiting(scenario, episodes, e)]) + "\n"


def rgb_array(scenario: Scenario, episodes: Episodes, e: int) -> NDArray[np.uint8]:
    """Return the devices as cells coloured by job graph, labelled with the job's number, ``(height, width, 3)``."""
    from PIL import Image, ImageDraw

    holder, now_s = occupants(scenario, episodes, e)
    rows, columns = _grid(scenario)
    graphs = scenario.workload.graphs
    width = max(columns * (CELL + GAP), 440) + 2 * MARGIN
    top = MARGIN + 2 * LINE
    legend_top = top + rows * (CELL + GAP) + GAP
    height = legend_top + LINE * math.ceil((len(graphs) + 1) / 3) + MARGIN
    image = Image.new("RGB", (width, height), (255, 255, 255))
    draw = ImageDraw.Draw(image)
    free = int((holder < 0).sum())
    draw.text((MARGIN, MARGIN - 6), f"{scenario.cluster.name}, {now_s:,.0f} s, {free} of {len(holder)} devices free", fill=INK)
    draw.text((MARGIN, MARGIN - 6 + LINE), _waiting(scenario, episodes, e), fill=INK)
    for device, job in enumerate(holder.tolist()):
        x = MARGIN + (device % columns) * (CELL + GAP)
        y = top + (device // columns) * (CELL + GAP)
        colour = FREE if job < 0 else PALETTE[int(episodes.graph_id[e, job]) % len(PALETTE)]
        draw.rectangle((x, y, x + CELL, y + CELL), fill=colour)
        if job >= 0:
            dark = sum(colour) < 360
            draw.text((x + CELL / 2, y + CELL / 2), str(job), fill=(255, 255, 255) if dark else INK, anchor="mm")
    for i, name in enumerate(["free", *(graph.name for graph in graphs)]):
        x = MARGIN + (i % 3) * ((width - 2 * MARGIN) // 3)
        y = legend_top + (i // 3) * LINE
        draw.rectangle((x, y + 2, x + 12, y + 14), fill=FREE if i == 0 else PALETTE[(i - 1) % len(PALETTE)])
        draw.text((x + 18, y + 2), name, fill=INK)
    return np.asarray(image, np.uint8)


def _letters(number: int) -> str:
    """Return a to Z, then AA, AB and so on."""
    before, last = divmod(number, 26)
    return (_letters(before - 1) if before else "") + chr(ord("A") + last)


def _grid(scenario: Scenario) -> tuple[int, int]:
    """Return the rows and columns of a picture: whole hosts stay in one row, and it is wider than high."""
    n = scenario.cluster.num_devices
    unit = n // scenario.cluster.num_hosts if n % scenario.cluster.num_hosts == 0 else 1
    columns = unit * max(1, math.ceil(math.sqrt(2 * n) / unit))
    columns = min(columns, n)
    return math.ceil(n / columns), columns


def _waiting(scenario: Scenario, episodes: Episodes, e: int) -> str:
    k = int(episodes.job[e])
    name = scenario.workload.graphs[int(episodes.graph_id[e, k])].name
    allowed_s = float(episodes.allowed_s[e, k] + episodes.arrival_s[e, k] - episodes.now_s[e])
    limit = f"allowed {allowed_s:,.0f} s" if math.isfinite(allowed_s) else "no deadline"
    queue = f"; {int(episodes.num_waiting[e])} in the queue" if scenario.settings.queue_capacity else ""
    return f"job {k} waits: {name}, {limit}{queue}"
