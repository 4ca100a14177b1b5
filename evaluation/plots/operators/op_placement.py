"""The ops of a job on their devices: a lane for each device, ops from left to right by depth, and what crosses between lanes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ....planning.place import PlacedOps
from ....quantities import counted
from ..style import BLUE, GREEN, GREY, INK, MUTED, ORANGE, PINK, RULE, SKY, VERMILION, YELLOW
from ..svg import SMALL, TEXT, WIDTH, canvas, shortened, text_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = (BLUE, ORANGE, GREEN, PINK, SKY, VERMILION, YELLOW, GREY)
"""Of the devices in turn; where there are more, the lane tells them apart."""

MOST_LABELS = 14
"""Tensors whose bytes are written: the largest ones; the others are drawn."""

_LEFT, _RIGHT, _TITLE, _BELOW = 150.0, 18.0, 34.0, 40.0
_LANE_MOST, _LANE_LEAST, _BETWEEN = 64.0, 26.0, 26.0


@dataclass(frozen=True, eq=False)
class DrawnOps:
    """Ops on devices.

    Attributes:
        title: above the drawing.
        edges: producing and reading op, ``(e, 2)``.
        edge_bytes: of what each carries, ``(e,)``.
        order: the ops, each after its producers, ``(n,)``.
        lane: of each op, ``(n,)``.
        lane_names: from the top.
    """

    title: str
    edges: NDArray[np.int64]
    edge_bytes: NDArray[np.float64]
    order: NDArray[np.int64]
    lane: NDArray[np.int64]
    lane_names: Sequence[str]


@dataclass(frozen=True)
class _Crossing:
    """A tensor that crosses to another lane, drawn from its op to the first that reads it there."""

    source: int
    target: int
    num_bytes: float


def placement_svg(found: PlacedOps) -> str:
    """The forward graph, drawn; gradients go back along the same lines."""
    graph, ranks = found.graph, found.plan.ranks
    rank_at = {rank.device: rank.rank for rank in ranks}
    partition = found.plan.op_placement()
    assert partition is not None
    lane = np.array([rank_at[device] for device in partition.device_of])
    edge_bytes = np.asarray(graph.activation_bytes[graph.edges[:, 0]], np.float64)
    crossed = _bytes(sum(one.num_bytes for one in _crossings(graph.edges, edge_bytes, lane, levels(graph.edges, graph.order))))
    what = "one step" if found.placement.objective == "latency" else "largest load"
    title = f"{shortened(graph.name, 40)} on {shortened(found.cluster.name, 30)}: {what} "
    title += f"{1e3 * found.placement.value_s:.4g} ms by {found.placement.planner}, {crossed} cross forward"
    names = [f"{rank.host}/{rank.local_rank}" for rank in ranks]
    return ops_svg(DrawnOps(title, graph.edges, edge_bytes, graph.order, lane, names))


def ops_svg(drawn: DrawnOps, name: str = "placement") -> str:
    """Draw ops on their devices and the tensors that cross; ``name`` tells several drawings of one page apart."""
    lane, level = drawn.lane, levels(drawn.edges, drawn.order)
    row, rows = _rows(lane, level, len(drawn.lane_names))
    heights = [float(np.clip(12.0 * count, _LANE_LEAST, _LANE_MOST)) for count in rows]
    tops = _TITLE + np.cumsum([0.0, *(height + _BETWEEN for height in heights)])[:-1] + _BETWEEN / 2
    width = WIDTH - _LEFT - _RIGHT
    step = width / (int(level.max()) + 1)
    x = np.asarray(_LEFT + (level + 0.5) * step, np.float64)
    y = np.array([tops[k] + heights[k] * (row[v] + 0.5) / rows[k] for v, k in enumerate(lane.tolist())])
    bar = min(14.0, max(1.2, 0.72 * step))
    crossings = _crossings(drawn.edges, drawn.edge_bytes, lane, level)
    height = float(tops[-1] + heights[-1] + _BETWEEN / 2 + _BELOW)
    with canvas(WIDTH, height) as sheet:
        sheet.write(18.0, _TITLE / 2, drawn.title, bold=True)
        for number, lane_name in enumerate(drawn.lane_names):
            middle = tops[number] + heights[number] / 2
            sheet.paper.axhspan(tops[number] - 3, tops[number] + heights[number] + 3, _LEFT / WIDTH, color=RULE, alpha=0.35, lw=0)
            sheet.write(18.0, middle - 7, shortened(lane_name, 20), size=SMALL)
            sheet.write(18.0, middle + 7, counted(int((lane == number).sum()), "op"), size=SMALL, colour=MUTED)
        stays = drawn.edges[lane[drawn.edges[:, 0]] == lane[drawn.edges[:, 1]]]
        for source, target in stays.tolist():
            sheet.paper.plot([x[source], x[target]], [y[source], y[target]], color=MUTED, linewidth=0.5, alpha=0.5, zorder=1)
        for one in crossings:
            colour = COLOURS[lane[one.source] % len(COLOURS)]
            ends = [x[one.source], x[one.target]], [y[one.source], y[one.target]]
            sheet.paper.plot(*ends, color=colour, linewidth=1.1, alpha=0.85, zorder=2)
        for number in range(len(drawn.lane_names)):
            tall = min(10.0, heights[number] / rows[number] - 2.0)
            boxes = [(x[v] - bar / 2, y[v] - tall / 2, bar, tall) for v in np.flatnonzero(lane == number).tolist()]
            sheet.boxes(sheet.paper, boxes, COLOURS[number % len(COLOURS)])
        gaps = (tops[1:] - _BETWEEN / 2).tolist()
        labelled = _labels(sheet.paper, crossings, x, y, gaps)
        told = f"from left to right: ops by depth in the graph, {int(level.max()) + 1} levels; a line that changes lane is a "
        told += f"tensor sent once to that device, {labelled} of {len(crossings)} with their size"
        sheet.write(18.0, height - _BELOW / 2, told, size=SMALL, colour=MUTED)
        return sheet.svg(name, drawn.title)


def levels(edges: NDArray[np.int64], order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Ops before each op on the longest way from a source, ``(n,)``, given a topological order."""
    found = np.zeros(len(order), np.int64)
    after: list[list[int]] = [[] for _ in range(len(order))]
    for source, target in edges.tolist():
        after[source].append(target)
    for op in order.tolist():
        for target in after[op]:
            found[target] = max(found[target], found[op] + 1)
    return found


def _rows(lane: NDArray[np.int64], level: NDArray[np.int64], lanes: int) -> tuple[NDArray[np.int64], list[int]]:
    """The row of each op among those of its lane and level, and the rows of each lane."""
    row = np.zeros(len(lane), np.int64)
    taken: dict[tuple[int, int], int] = {}
    for op, at in enumerate(zip(lane.tolist(), level.tolist(), strict=True)):
        row[op] = taken.get(at, 0)
        taken[at] = int(row[op]) + 1
    return row, [max((count for (which, _), count in taken.items() if which == number), default=1) for number in range(lanes)]


def _crossings(
    edges: NDArray[np.int64], edge_bytes: NDArray[np.float64], lane: NDArray[np.int64], level: NDArray[np.int64]
) -> list[_Crossing]:
    first: dict[tuple[int, int], int] = {}
    sizes = dict(zip(edges[:, 0].tolist(), edge_bytes.tolist(), strict=True))
    for source, target in edges.tolist():
        if lane[source] != lane[target]:
            key = source, int(lane[target])
            if key not in first or level[target] < level[first[key]]:
                first[key] = target
    found = [_Crossing(source, target, sizes[source]) for (source, _), target in first.items()]
    return sorted(found, key=lambda one: -one.num_bytes)


def _labels(paper: Axes, crossings: list[_Crossing], x: NDArray[np.float64], y: NDArray[np.float64], gaps: list[float]) -> int:
    """Write sizes, the largest first, where lines cross a gap between lanes, none on another; how many are written."""
    taken: list[tuple[float, float, float, float]] = []
    for one in crossings:
        text = _bytes(one.num_bytes)
        half = text_width(text, SMALL) / 2 + 3
        rise = y[one.target] - y[one.source]
        for gap in sorted(gaps, key=lambda gap, y0=y[one.source]: abs(gap - y0)):  # type: ignore[misc]
            share = (gap - y[one.source]) / rise
            if not 0 < share < 1:
                continue
            at = x[one.source] + share * (x[one.target] - x[one.source]), gap
            box = at[0] - half, at[0] + half, at[1] - TEXT / 2 - 1, at[1] + TEXT / 2 + 1
            if all(box[1] < b[0] or box[0] > b[1] or box[3] < b[2] or box[2] > b[3] for b in taken):
                break
        else:
            continue
        taken.append(box)
        paper.text(
            *at,
            text,
            fontsize=SMALL * 0.75,
            color=INK,
            ha="center",
            va="center_baseline",
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.0},
        )
        if len(taken) == MOST_LABELS:
            break
    return len(taken)


def _bytes(count: float) -> str:
    power, prefix = next(((p, name) for p, name in ((9, "GB"), (6, "MB"), (3, "kB")) if count >= 10**p), (0, "B"))
    return f"{count / 10**power:.3g} {prefix}"
