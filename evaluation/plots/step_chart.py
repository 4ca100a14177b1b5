"""One job's training step as a picture: what each rank computes and which messages it takes part in, over time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...jobs.graph import JobGraph
from ...quantities import counted
from ...simulation.step.execution import ExecutionGraph, TaskKind
from ...simulation.step.timeline import Timeline
from .style import ALL_REDUCE, COMPUTE_BACKWARD, COMPUTE_FORWARD, RULE, TRANSFER, ink_on
from .svg import SMALL, WIDTH, Canvas, LegendEntry, canvas, legend_height, printable, shortened, text_width

_EDGE, _RIGHT, _TITLE, _AXIS = 2.0, 12.0, 28.0, 46.0
KEYS = (
    LegendEntry("compute, forward", COMPUTE_FORWARD),
    LegendEntry("compute, backward", COMPUTE_BACKWARD),
    LegendEntry("transfer of activations or their gradients", TRANSFER),
    LegendEntry("all-reduce of gradients", ALL_REDUCE),
)
# Longest step for which a unit is used, its length in seconds, its name.
_UNITS = ((1e-3, 1e-6, "µs"), (10.0, 1e-3, "ms"), (math.inf, 1.0, "s"))


class Bar(NamedTuple):
    """A stretch of one lane.

    Attributes:
        begin_s: from here.
        end_s: to here.
        colour: says what the rank does.
        op: op of the job graph, -1 where several short tasks were joined.
    """

    begin_s: float
    end_s: float
    colour: str
    op: int


def step_svg(timeline: Timeline, graph: JobGraph, *, device_names: Sequence[str] = ()) -> str:
    """One step of one job: for each rank a lane of compute above a lane of communication.

    Args:
        timeline: the simulated step.
        graph: the job.
        device_names: the device of each rank, to stand beside its number; none if not given.
    """
    n = timeline.execution.num_ranks
    lane = min(15.0, max(1.5, 480.0 / (2 * n)))
    named = [f"rank {r}" + (f"  {shortened(device_names[r], 32)}" if r < len(device_names) else "") for r in range(n)]
    left = max(text_width(name, SMALL) for name in named) + 26
    width, height = WIDTH - left - _RIGHT, 2 * lane * n
    top = _TITLE + legend_height(KEYS, WIDTH - 2 * _EDGE) + 10
    unit_s, unit = next((seconds, name) for most, seconds, name in _UNITS if timeline.step_s <= most)
    with canvas(WIDTH, top + height + _AXIS) as sheet:
        title = f"{shortened(graph.name, 48)} on {counted(n, 'rank')}: "
        title += f"{timeline.step_s * 1e3:.4g} ms a step, {100 * timeline.communication_share:.0f} % of it communication"
        sheet.write(_EDGE, _TITLE / 2, title, bold=True)
        sheet.legend(KEYS, _EDGE, _TITLE, WIDTH - 2 * _EDGE)
        axes = sheet.axes(left, top, width, height)
        axes.set(xlim=(0, timeline.step_s / unit_s or 1), ylim=(2 * n, 0), xlabel=f"time since the step began ({unit})")
        every = max(1, math.ceil(13 / (2 * lane)))
        axes.set_yticks([2 * r + 1 for r in range(0, n, every)], [printable(name) for name in named[::every]])
        axes.grid(axis="x")
        if lane >= 3:
            axes.hlines([2 * r for r in range(1, n)], *axes.get_xlim(), color=RULE, linewidth=0.6, zorder=0)
        found = lanes(timeline, shortest_s=3 * timeline.step_s / width)
        for colour in (key.colour for key in KEYS):
            spans = [
                (bar.begin_s / unit_s, number + 0.06, (bar.end_s - bar.begin_s) / unit_s, 0.88)
                for number, bars in enumerate(found)
                for bar in bars
                if bar.colour == colour
            ]
            sheet.boxes(axes, spans, colour, edge=0.4 if lane >= 4 else 0.0)
        if lane >= 12:
            _names(sheet, graph, found[:2], lane, (left, top, width / (timeline.step_s or 1)))
        return sheet.svg("step", title)


def lanes(timeline: Timeline, *, shortest_s: float = 0.0) -> list[list[Bar]]:
    """What each rank does: lane ``2 r`` is the compute of rank ``r``, lane ``2 r + 1`` its communication.

    Args:
        timeline: the simulated step.
        shortest_s: neighbours of one colour that are shorter than this are joined where less than a sixth of it lies
            between them.
    """
    execution = timeline.execution
    found: list[list[Bar]] = [[] for _ in range(2 * execution.num_ranks)]
    takes_part = _takes_part(execution)
    for task in np.argsort(timeline.start_s, kind="stable").tolist():
        begin_s, end_s = float(timeline.start_s[task]), float(timeline.finish_s[task])
        if end_s <= begin_s:
            continue
        kind = TaskKind(int(execution.kind[task]))
        if kind is TaskKind.COMPUTE:
            colour = COMPUTE_BACKWARD if execution.is_backward[task] else COMPUTE_FORWARD
        else:
            colour = TRANSFER if kind is TaskKind.TRANSFER else ALL_REDUCE
        for rank in takes_part[task]:
            lane = found[2 * rank + (kind is not TaskKind.COMPUTE)]
            bar = Bar(begin_s, end_s, colour, int(execution.op[task]))
            last = lane[-1] if lane else None
            if last and last.colour == colour and _joins(last, bar, shortest_s):
                lane[-1] = Bar(last.begin_s, max(last.end_s, end_s), colour, -1)
            else:
                lane.append(bar)
    return found


def _joins(last: Bar, bar: Bar, shortest_s: float) -> bool:
    is_short = bar.end_s - bar.begin_s < shortest_s and (last.op < 0 or last.end_s - last.begin_s < shortest_s)
    return is_short and bar.begin_s - last.end_s < shortest_s / 6


def _takes_part(execution: ExecutionGraph) -> list[list[int]]:
    """Ranks of each task: its own, those whose streams it occupies, and those of the compute before and after a message."""
    ranks = [{int(rank)} for rank in execution.rank]
    is_compute = execution.kind == TaskKind.COMPUTE
    for task in range(execution.num_tasks):
        streams = execution.streams[execution.stream_start[task] : execution.stream_start[task + 1]]
        ranks[task] |= {int(stream) % execution.num_ranks for stream in streams}
    for before, after in execution.edges.tolist():
        if is_compute[before] and not is_compute[after]:
            ranks[after].add(int(execution.rank[before]))
        elif is_compute[after] and not is_compute[before]:
            ranks[before].add(int(execution.rank[after]))
    return [sorted(found) for found in ranks]


def _names(sheet: Canvas, graph: JobGraph, found: list[list[Bar]], lane: float, frame: tuple[float, float, float]) -> None:
    """Names of ops in the bars of the first rank that are wide enough."""
    left, top, per_second = frame
    for number, bars in enumerate(found):
        for bar in bars:
            name = "" if bar.op < 0 else graph.op_names[bar.op]
            if name and (bar.end_s - bar.begin_s) * per_second > text_width(name, SMALL) + 6:
                x = left + (bar.begin_s + bar.end_s) / 2 * per_second
                middle = top + (number + 0.5) * lane
                sheet.write(x, middle, name, size=SMALL, colour=ink_on(bar.colour), align="center")
