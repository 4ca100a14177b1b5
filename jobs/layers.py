"""Layered layout of a job graph: where each op stands and which way each edge runs, for drawings.

Ops stand in rows by their longest path from a source, rows in columns like text in a newspaper. An edge over
several rows runs through lanes, narrow places of their own in each row between, so that no line crosses an op.

Source:
    Sugiyama, Tagawa and Toda, "Methods for visual understanding of hierarchical system structures", 1981.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from .graph import JobGraph

OP_HEIGHT = 22.0
_LANE_WIDTH = 10.0
_GAP_X = 14.0
_GAP_Y = 20.0
_ROUTE = 7.0
_MARGIN = 14.0
_ASPECT = 1.5
_SWEEPS = 8


@dataclass
class Place:
    """An op, or a lane of edges from one op, in a row.

    ``x`` is the middle, ``y`` the upper end; ``targets`` are the places in the next row to which lines run.
    """

    op: int
    is_lane: bool
    width: float
    row: int
    x: float = 0.0
    y: float = 0.0
    column: int = 0
    targets: list[Place] = field(default_factory=list)
    sources: list[Place] = field(default_factory=list)

    @property
    def bottom(self) -> float:
        """The lower end."""
        return self.y + OP_HEIGHT


@dataclass(frozen=True)
class Layout:
    """A finished layout: every place with its position, and the polylines or curves between them.

    ``lines`` holds, for each line from a place to one in the next row, the two places and the corners between them;
    no corner means that the line stays between two rows of one column.
    """

    places: list[Place]
    lines: list[tuple[Place, Place, list[tuple[float, float]]]]
    width: float
    height: float


def layout(graph: JobGraph, op_width: float) -> Layout:
    """Place every op of a graph in boxes of one width."""
    rows = _rows(graph, op_width)
    for sweep in range(_SWEEPS):
        _sort_by_neighbours(rows, downwards=sweep % 2 == 0)
    columns = _columns(rows, op_width)
    left, height = 0.0, 0.0
    routes: list[tuple[float, float, float]] = []  # of each column: its right end, lower end and number of routed lines
    for number, column in enumerate(columns):
        _set_x(column)
        _set_y(column)
        first = min(place.x - place.width / 2 for row in column for place in row)
        for row in column:
            for place in row:
                place.column = number
                place.x += left - first
        right = max(place.x + place.width / 2 for row in column for place in row)
        lower = max(place.bottom for row in column for place in row)
        num_routed = sum(len(place.targets) for place in column[-1])
        routes.append((right, lower, num_routed))
        left = right + 2 * _MARGIN + _ROUTE * num_routed
        height = max(height, lower + _MARGIN + _ROUTE * num_routed)
    top = _MARGIN + _ROUTE * max((count for _, _, count in routes), default=0)
    places = [place for row in rows for place in row]
    for place in places:
        place.y += top
    return Layout(places, _lines(columns, routes, top), left - _MARGIN, height + top)


def _rows(graph: JobGraph, op_width: float) -> list[list[Place]]:
    row_of = _row_numbers(graph)
    rows: list[list[Place]] = [[] for _ in range(int(row_of.max()) + 1)]
    places = []
    for op in range(graph.num_ops):
        place = Place(op, False, op_width, int(row_of[op]))
        places.append(place)
        rows[place.row].append(place)
    for op in range(graph.num_ops):
        # One lane serves all edges of an op that go further than the next row; each leaves it above its target.
        trunk = places[op]
        targets = sorted(graph.edges[graph.edges[:, 0] == op, 1].tolist(), key=lambda target: int(row_of[target]))
        for target in targets:
            while trunk.row < row_of[target] - 1:
                lane = Place(op, True, _LANE_WIDTH, trunk.row + 1)
                rows[lane.row].append(lane)
                _join(trunk, lane)
                trunk = lane
            _join(trunk, places[target])
    return rows


def _join(source: Place, target: Place) -> None:
    source.targets.append(target)
    target.sources.append(source)


def _row_numbers(graph: JobGraph) -> NDArray[np.int64]:
    """Longest path from a source; then ops with more outputs than inputs move down as far as their edges let them."""
    row = np.zeros(graph.num_ops, np.int64)
    inputs: list[list[int]] = [[] for _ in range(graph.num_ops)]
    outputs: list[list[int]] = [[] for _ in range(graph.num_ops)]
    for source, target in graph.edges.tolist():
        inputs[target].append(source)
        outputs[source].append(target)
    for op in graph.order.tolist():
        row[op] = max((row[source] + 1 for source in inputs[op]), default=0)
    for op in graph.order[::-1].tolist():
        if outputs[op] and len(inputs[op]) <= len(outputs[op]):
            row[op] = min(row[target] for target in outputs[op]) - 1
    return row


def _sort_by_neighbours(rows: list[list[Place]], *, downwards: bool) -> None:
    """Order each row by the mean position of the neighbours in the row before, which removes most crossings."""
    position = {id(place): index for row in rows for index, place in enumerate(row)}
    for row in rows if downwards else rows[::-1]:
        mean = {}
        for index, place in enumerate(row):
            near = place.sources if downwards else place.targets
            mean[id(place)] = sum(position[id(other)] for other in near) / len(near) if near else float(index)
        row.sort(key=lambda place: mean[id(place)])
        position.update({id(place): index for index, place in enumerate(row)})


def _columns(rows: list[list[Place]], op_width: float) -> list[list[list[Place]]]:
    """Cut the rows into columns of a readable shape, each cut near its place where the fewest lines cross."""
    mean_width = np.mean([sum(place.width + _GAP_X for place in row) for row in rows]) + op_width / 2
    wanted = max(8, math.ceil(math.sqrt(len(rows) * mean_width / (OP_HEIGHT + _GAP_Y) / _ASPECT)))
    columns = []
    start = 0
    while len(rows) - start > wanted * 1.3:
        ends = range(start + math.ceil(0.8 * wanted), start + math.ceil(1.2 * wanted) + 1)
        end = min(ends, key=lambda end: (*_cut_cost(rows[end - 1]), abs(end - start - wanted)))
        columns.append(rows[start:end])
        start = end
    return [*columns, rows[start:]]


def _cut_cost(row: list[Place]) -> tuple[int, int]:
    """Lines that a cut below a row would break, then the places from which they come."""
    return sum(len(place.targets) for place in row), sum(bool(place.targets) for place in row)


def _set_x(column: list[list[Place]]) -> None:
    """Bring each place over the middle of its neighbours, as far as its row leaves room."""
    inside = {id(place) for row in column for place in row}
    for row in column:
        _spread(row, [0.0] * len(row))
    for sweep in range(2 * _SWEEPS):
        for row in column if sweep % 2 == 0 else column[::-1]:
            wanted = []
            for place in row:
                near = [other for other in (place.sources if sweep % 2 == 0 else place.targets) if id(other) in inside]
                wanted.append(sum(other.x for other in near) / len(near) if near else place.x)
            _spread(row, wanted)


def _spread(row: list[Place], wanted: list[float]) -> None:
    """Positions nearest to the wanted ones (least squares) that keep order and distance: pooled adjacent violators."""
    offsets = [0.0]
    for before, place in pairwise(row):
        offsets.append(offsets[-1] + (before.width + place.width) / 2 + _GAP_X)
    pools: list[tuple[float, int]] = []  # sum and number of the pooled values
    for x, offset in zip(wanted, offsets, strict=True):
        pools.append((x - offset, 1))
        while len(pools) > 1 and pools[-2][0] / pools[-2][1] > pools[-1][0] / pools[-1][1]:
            total, count = pools.pop()
            pools[-1] = (pools[-1][0] + total, pools[-1][1] + count)
    means = [total / count for total, count in pools for _ in range(count)]
    for place, mean, offset in zip(row, means, offsets, strict=True):
        place.x = mean + offset


def _set_y(column: list[list[Place]]) -> None:
    """Stack the rows, with more room between them where lines run far sideways."""
    y = 0.0
    for row in column:
        for place in row:
            place.y = y
        inside = [abs(place.x - target.x) for place in row for target in place.targets]
        y += OP_HEIGHT + _GAP_Y + min(30.0, 0.05 * max(inside, default=0.0))


def _lines(
    columns: list[list[list[Place]]], routes: list[tuple[float, float, float]], top: float
) -> list[tuple[Place, Place, list[tuple[float, float]]]]:
    lines: list[tuple[Place, Place, list[tuple[float, float]]]] = []
    for column, (right, lower, _) in zip(columns, routes, strict=True):
        for row in column[:-1]:
            lines += [(place, target, []) for place in row for target in place.targets]
        leaving = [(place, target) for place in reversed(column[-1]) for target in place.targets]
        for number, (place, target) in enumerate(leaving):
            # Down below the column, right, up between the columns, right again, down into the next one.
            below = lower + top + _MARGIN / 2 + _ROUTE * number
            between = right + _MARGIN / 2 + _ROUTE * number
            above = top - _MARGIN / 2 - _ROUTE * number
            lines.append((place, target, [(place.x, below), (between, below), (between, above), (target.x, above)]))
    return lines
