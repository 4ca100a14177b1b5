"""Evaluations of operator placement drawn: value against time, value by class of instance, and two schedules side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...tables import seconds_text
from ..curves import looks_of
from ..style import BLUE, MUTED, ORANGE, RULE, VERMILION, ink_on
from ..svg import SMALL, WIDTH, LegendEntry, canvas, legend_height, printable, shortened, text_width
from .op_placement import DrawnOps, ops_svg

Data = Mapping[str, Any]

_TOP, _HEIGHT, _AXIS = 18.0, 300.0, 46.0
_CELL, _LONGEST_NAME = 24.0, 36
_SCHEDULE_LANE, _TITLE, _GAP = 20.0, 26.0, 20.0
_KEYS = (LegendEntry("on the same device as HEFT has it", BLUE), LegendEntry("on another", ORANGE))
_VALUES = (1, 1.02, 1.05, 1.1, 1.2, 1.5, 2, 3, 5, 10, 20, 50)
_UNITS = ((1e-3, 1e-6, "µs"), (10.0, 1e-3, "ms"), (math.inf, 1.0, "s"))
"""Longest step for which a unit is used, its length in seconds, its name."""


def budgets_svg(budgets: Data, others: Sequence[Data], name: str = "budgets") -> str:
    """Value over the best known against the time that a placement takes, both axes logarithmic.

    Args:
        budgets: of ``results.json``: searches, each with several budgets; drawn at the time that they took.
        others: rows of policies that take the time that they take, drawn as points.
        name: of the drawing.
    """
    searches = budgets["rows"]
    looks = looks_of([(str(row["policy"]), str(row["kind"])) for row in [*searches, *others]])
    keys = [
        LegendEntry(shortened(str(row["policy"]), _LONGEST_NAME), colour, dash=dash)
        for row, (colour, dash) in zip(searches, looks, strict=False)
    ]
    keys += [
        LegendEntry(shortened(str(row["policy"]), _LONGEST_NAME), colour, marker="o")
        for row, (colour, _) in zip(others, looks[len(searches) :], strict=True)
    ]
    top = _TOP + legend_height(keys, WIDTH - 70) + 8
    with canvas(WIDTH, top + _HEIGHT + _AXIS) as sheet:
        sheet.legend(keys, 60, _TOP / 2, WIDTH - 70)
        axes = sheet.axes(66, top, WIDTH - 84, _HEIGHT)
        axes.grid()
        axes.set(xscale="log", yscale="log", xlabel="time of a placement, median", ylabel="value over the best known")
        ends: list[float] = []
        times: list[float] = []
        for row, (colour, dash) in zip(searches, looks, strict=False):
            points = sorted(zip(row["median_seconds"], row["over_best_known"], strict=True), key=lambda point: point[0])
            seconds, told = [point[0] for point in points], [point[1] for point in points]
            axes.plot(seconds, [each["mean"] for each in told], color=colour, linestyle=dash, marker=".", linewidth=1.8)
            low, high = ([each[end] or each["mean"] for each in told] for end in ("low", "high"))
            axes.fill_between(seconds, low, high, color=colour, alpha=0.15, linewidth=0)
            ends += high
            times += seconds
        for row, (colour, _) in zip(others, looks[len(searches) :], strict=True):
            told = row["over_best_known"]
            axes.plot([row["seconds"]["median"]], [told["mean"]], "o", color=colour, markersize=6)
            ends.append(told["mean"])
            times.append(row["seconds"]["median"])
        highest = 1.02 * max(ends, default=2.0)
        highest = max(highest, 1.02)
        ticks = [tick for tick in _VALUES if tick == 1 or (tick <= highest and math.log(tick) > 0.06 * math.log(highest))]
        axes.set_ylim(0.998, highest)
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_yticks([], minor=True)
        powers = range(math.floor(math.log10(min(times))), math.ceil(math.log10(max(times))) + 1)
        decades = [10.0**power for power in powers if min(times) / 2 <= 10.0**power <= 2 * max(times)]
        axes.set_xticks(decades, [seconds_text(each) for each in decades])
        return sheet.svg(name, "Value of placements against the time that they take")


def classes_svg(rows: Sequence[Data], classes: Sequence[Data], name: str = "classes") -> str:
    """Mean value over the best known of each policy on each class of instances, as a heat map.

    Args:
        rows: of ``results.json``, each with ``policy`` and ``by_class``.
        classes: of ``results.json``, in the order of the columns.
        name: of the drawing.
    """
    columns = [(str(each["dimension"]), str(each["class"])) for each in classes]
    dimensions = list(dict.fromkeys(dimension for dimension, _ in columns))
    names = [shortened(str(row["policy"]), _LONGEST_NAME) for row in rows]
    left = max(text_width(each, SMALL) for each in names) + 16
    between = 12.0
    cell = (WIDTH - left - 8 - between * (len(dimensions) - 1)) / len(columns)
    top = 44.0
    worst = max(row["by_class"][dimension][each] for row in rows for dimension, each in columns)
    with canvas(WIDTH, top + _CELL * len(rows) + 10) as sheet:
        x, last = left, columns[0][0]
        for number, (dimension, each) in enumerate(columns):
            if dimension != last:
                x, last = x + between, dimension
            if number == 0 or columns[number - 1][0] != dimension:
                sheet.write(x + 2, 12, dimension, bold=True)
            sheet.write(x + cell / 2, 32, each, size=SMALL, align="center", colour=MUTED)
            for row_number, row in enumerate(rows):
                value = row["by_class"][dimension][each]
                colour = _warmth(value, worst)
                sheet.boxes(sheet.paper, [(x, top + _CELL * row_number, cell, _CELL)], colour, edge=1.0)
                middle = top + _CELL * (row_number + 0.5)
                sheet.write(x + cell / 2, middle, f"{value:.3f}", size=SMALL, align="center", colour=ink_on(colour))
            x += cell
        for row_number, text in enumerate(names):
            sheet.write(left - 8, top + _CELL * (row_number + 0.5), text, size=SMALL, align="right")
        return sheet.svg(name, "Value over the best known by class of instance")


def _warmth(value: float, worst: float) -> str:
    """White at the best known, the deeper the further above it, by the logarithm."""
    share = math.log(max(value, 1.0)) / math.log(worst) if worst > 1 else 0.0
    full = [int(VERMILION[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(255 - (255 - part) * 0.75 * share):02x}" for part in full)


def shown_svg(shown: Data, name: str = "shown") -> str:
    """The ops of a shown instance on the devices that the policy gave them."""
    mine = shown["placements"][0]
    what = "one step" if shown["objective"] == "latency" else "largest load"
    title = f"{shown['instance']}: {what} {1e3 * mine['value_s']:.4g} ms by {shortened(shown['policy'], _LONGEST_NAME)}"
    edges = np.array(shown["edges"], np.int64).reshape(-1, 2)
    lane, order = np.array(mine["device_of"]), np.array(shown["topological"])
    return ops_svg(DrawnOps(title, edges, np.array(shown["edge_bytes"]), order, lane, shown["device_names"]), name)


def schedules_svg(shown: Data, name: str = "schedules") -> str:
    """Draw when the ops of a shown instance run: the policy's schedule above HEFT's, on one axis of time."""
    made, devices = shown["placements"], shown["device_names"]
    is_moved = np.array(made[0]["device_of"]) != np.array(made[1]["device_of"])
    longest_s = max(max(each["end_s"]) for each in made)
    unit_s, unit = next((seconds, text) for most, seconds, text in _UNITS if longest_s <= most)
    left = max(text_width(shortened(each, 24), SMALL) for each in devices) + 18
    tall = _SCHEDULE_LANE * len(devices)
    width, top = WIDTH - left - 14, legend_height(_KEYS, WIDTH) + 8
    with canvas(WIDTH, top + 2 * (_TITLE + tall) + _GAP + _AXIS) as sheet:
        sheet.legend(_KEYS, 2, 2, WIDTH)
        for number, each in enumerate(made):
            upper = top + number * (_TITLE + tall + _GAP)
            end_s = max(each["end_s"])
            told = f"{shortened(each['policy'], 60)}: the last op ends after {end_s / unit_s:.4g} {unit}"
            sheet.write(2, upper + _TITLE / 2, told, bold=True)
            axes = sheet.axes(left, upper + _TITLE, width, tall)
            axes.set(xlim=(0, longest_s / unit_s or 1), ylim=(len(devices), 0))
            axes.set_yticks(
                [lane + 0.5 for lane in range(len(devices))], [printable(shortened(device, 24)) for device in devices]
            )
            axes.grid(axis="x")
            axes.hlines(range(1, len(devices)), *axes.get_xlim(), color=RULE, linewidth=0.6, zorder=0)
            for colour, which in ((BLUE, ~is_moved), (ORANGE, is_moved)):
                boxes = [
                    (start / unit_s, device + 0.08, (end - start) / unit_s, 0.84)
                    for start, end, device, is_it in zip(each["start_s"], each["end_s"], each["device_of"], which, strict=True)
                    if is_it
                ]
                sheet.boxes(axes, boxes, colour, edge=0.4)
            if number:
                axes.set_xlabel(f"time since the step began ({unit})")
            else:
                axes.tick_params(labelbottom=False)
            _name_ops(sheet, shown, each, is_moved, (left, upper + _TITLE, width / (longest_s or 1)))
        return sheet.svg(name, f"Schedules of {shown['instance']}")


def _name_ops(sheet: Any, shown: Data, made: Data, is_moved: Any, frame: tuple[float, float, float]) -> None:
    """Names of ops in the boxes that are wide enough."""
    left, top, per_second = frame
    for op, name in enumerate(shown["op_names"]):
        start, end = made["start_s"][op], made["end_s"][op]
        if (end - start) * per_second > text_width(name, SMALL) + 4:
            x, y = left + (start + end) / 2 * per_second, top + (made["device_of"][op] + 0.5) * _SCHEDULE_LANE
            sheet.write(x, y, name, size=SMALL, colour=ink_on(ORANGE if is_moved[op] else BLUE), align="center")
