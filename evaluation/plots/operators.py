"""Placements of ops: ops on their devices, value against time and by class of instance, two schedules on one axis of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...planning.place import PlacedOps
from ...quantities import counted
from ..tables import seconds_text
from .curves import looks_of
from .figure import Figure, Panel, axis, band, figure, line, lines, marks, named_rows, shortened, shown
from .gantt import Bar, Lanes, gantt_figure
from .policies import heatmap
from .style import BLUE, GREEN, GREY, MUTED, ORANGE, PAPER, PINK, SKY, VERMILION, YELLOW

Data = Mapping[str, Any]

COLOURS = (BLUE, ORANGE, GREEN, PINK, SKY, VERMILION, YELLOW, GREY)
"""Of the devices in turn; if there are more, lanes distinguish them."""

MOST_LABELS = 14
"""Tensors whose bytes are written: the largest ones; the others say theirs under a pointer."""

_HALO = ", ".join([f"0 0 3px {PAPER}"] * 4)
_KEPT, _MOVED = "on the same device as HEFT has it", "on another"


def placement_figure(placement: PlacedOps) -> Figure:
    """Return the forward graph on its devices; gradients go back along the same lines."""
    graph, ranks = placement.graph, placement.plan.ranks
    rank_at = {rank.device: rank.rank for rank in ranks}
    partition = placement.plan.op_placement()
    assert partition is not None
    lane = np.array([rank_at[device] for device in partition.device_of])
    edge_bytes = np.asarray(graph.activation_bytes[graph.edges[:, 0]], np.float64)
    names = [f"{rank.host}/{rank.local_rank}" for rank in ranks]
    what = "one step" if placement.placement.objective == "latency" else "largest load"
    title = f"{shortened(graph.name, 40)} on {shortened(placement.cluster.name, 30)}: {what} "
    title += f"{1e3 * placement.placement.value_s:.4g} ms by {placement.placement.planner}"
    return ops_figure(title, graph.op_names, graph.edges, edge_bytes, graph.order, lane, names)


def shown_figure(shown_one: Data) -> Figure:
    """Return the ops of a shown instance on the devices that the policy gave them."""
    mine = shown_one["placements"][0]
    what = "one step" if shown_one["objective"] == "latency" else "largest load"
    title = f"{shown_one['instance']}: {what} {1e3 * mine['value_s']:.4g} ms by {shortened(shown_one['policy'], 36)}"
    edges = np.array(shown_one["edges"], np.int64).reshape(-1, 2)
    lane, order = np.array(mine["device_of"]), np.array(shown_one["topological"])
    sizes, names = np.array(shown_one["edge_bytes"]), shown_one["device_names"]
    return ops_figure(title, shown_one["op_names"], edges, sizes, order, lane, names)


def ops_figure(
    title: str,
    op_names: Sequence[str],
    edges: NDArray[np.int64],
    edge_bytes: NDArray[np.float64],
    order: NDArray[np.int64],
    lane: NDArray[np.int64],
    lane_names: Sequence[str],
) -> Figure:
    """Return a lane for each device, ops from left to right by depth, and the tensors that cross between lanes.

    Args:
        title: above the drawing.
        op_names: ``(n,)``.
        edges: producing and reading op, ``(e, 2)``.
        edge_bytes: of what each carries, ``(e,)``.
        order: the ops, each after its producers, ``(n,)``.
        lane: of each op, ``(n,)``.
        lane_names: from the top.
    """
    level = levels(edges, order)
    first: dict[tuple[int, int], tuple[int, float]] = {}  # by op and lane: the first op that reads it there, and bytes
    for (source, target), num_bytes in zip(edges.tolist(), edge_bytes.tolist(), strict=True):
        key = source, int(lane[target])
        if lane[source] != key[1] and (key not in first or level[target] < level[first[key][0]]):
            first[key] = target, num_bytes
    crossings = sorted(((source, *read) for (source, _), read in first.items()), key=lambda one: -one[2])
    row: dict[tuple[int, int], int] = {}
    place = np.zeros(len(lane), np.int64)
    for op, at in enumerate(zip(lane.tolist(), level.tolist(), strict=True)):
        place[op] = row[at] = row.get(at, -1) + 1
    rows = [max((count for (of, _), count in row.items() if of == number), default=0) + 1 for number in range(len(lane_names))]
    # A lane has a height of one; its rows lie in the middle two thirds.
    y = lane + np.array([(place[op] + 0.5) / rows[of] - 0.5 for op, of in enumerate(lane.tolist())]) * 0.66
    ends = np.stack([level[edges[:, 0]], y[edges[:, 0]], level[edges[:, 1]], y[edges[:, 1]]], axis=-1)
    stays = lane[edges[:, 0]] == lane[edges[:, 1]]
    traces = [lines(ends[stays].tolist(), MUTED, line={"width": 0.6}, opacity=0.6)]
    for number, name in enumerate(lane_names):
        colour, ops = COLOURS[number % len(COLOURS)], np.flatnonzero(lane == number)
        sent = [(level[source], y[source], level[target], y[target]) for source, target, _ in crossings if lane[source] == number]
        traces.append(lines(np.array(sent, np.float64).reshape(-1, 4).tolist(), colour, line={"width": 1.4}))
        said = [f"<b>{shown(op_names[op])}</b><br>{shown(name)}, level {level[op]}" for op in ops.tolist()]
        boxes: dict[str, Any] = {"marker": {"symbol": "square", "size": 8}, "hovertext": said, "showlegend": False}
        traces.append(marks(name, level[ops].astype(float), y[ops], colour, **boxes))
    middle = [((level[a] + level[b]) / 2, (y[a] + y[b]) / 2) for a, b, _ in crossings]
    texts = _labels([_bytes(size) for _, _, size in crossings], middle, int(level.max()) + 1, len(lane_names))
    said = [
        f"<b>{_bytes(size)}</b><br>{shown(op_names[a])} to {shown(op_names[b])}<br>"
        f"{shown(lane_names[lane[a]])} to {shown(lane_names[lane[b]])}"
        for a, b, size in crossings
    ]
    look: dict[str, Any] = {"mode": "markers+text", "text": texts, "textposition": "middle center", "hovertext": said}
    look["textfont"] = {"shadow": _HALO}
    at = [x for x, _ in middle], [high for _, high in middle]
    traces.append(marks("", *at, MUTED, marker={"size": 4}, showlegend=False, **look))
    ticks = [f"{shown(name, 20)}<br>{counted(int((lane == n).sum()), 'op')}" for n, name in enumerate(lane_names)]
    n = len(ticks)
    height = float(sum(np.clip(14.0 * count, 44.0, 80.0) for count in rows))
    rows_axis = axis("", span=(n - 0.5, -0.5), tickvals=list(range(n)), ticktext=ticks, showgrid=False)
    x = axis(f"ops by depth in the graph, {int(level.max()) + 1} levels; lines that change lane are tensors sent to that device")
    crossed = f"{title}; {counted(len(crossings), 'tensor')} of {_bytes(sum(size for _, _, size in crossings))} cross forward"
    return figure(crossed, [Panel(traces, x, rows_axis, crossed, max(height, 160.0))])


def levels(edges: NDArray[np.int64], order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the ops before each op on the longest way from a source, ``(n,)``, given a topological order."""
    result = np.zeros(len(order), np.int64)
    after: list[list[int]] = [[] for _ in range(len(order))]
    for source, target in edges.tolist():
        after[source].append(target)
    for op in order.tolist():
        for target in after[op]:
            result[target] = max(result[target], result[op] + 1)
    return result


def budgets_figure(budgets: Data, others: Sequence[Data]) -> Figure:
    """Return the value over the best known against the time that a placement takes, both axes logarithmic.

    Args:
        budgets: of ``results.json``: searches, each with several budgets; drawn at the time that they took.
        others: rows of policies that take the time that they take, drawn as points.
    """
    searches, traces, highest = budgets["rows"], [], 1.02
    looks = looks_of([(str(row["policy"]), str(row["kind"])) for row in [*searches, *others]])
    for row, look in zip(searches, looks, strict=False):
        points = sorted(zip(row["median_seconds"], row["over_best_known"], strict=True), key=lambda point: point[0])
        seconds = [second for second, _ in points]
        low, mean, high = ([each[end] or each["mean"] for _, each in points] for end in ("low", "mean", "high"))
        marker = {"color": look[0], "size": 6, "symbol": "circle"}
        traces += [
            band(seconds, low, high, look[0]),
            line(row["policy"], seconds, mean, look, mode="lines+markers", marker=marker),
        ]
        highest = max(highest, *high)
    for row, (colour, _) in zip(others, looks[len(searches) :], strict=True):
        traces.append(marks(row["policy"], [row["seconds"]["median"]], [row["over_best_known"]["mean"]], colour))
        highest = max(highest, row["over_best_known"]["mean"])
    powers = [10.0**power for power in range(-6, 5)]
    x = axis("time of a placement, median", is_log=True, tickvals=powers, ticktext=[seconds_text(each) for each in powers])
    y = axis("value over the best known (1 is as good)", is_log=True, span=(0.998, 1.02 * highest), tickformat=".3~g")
    return figure("Value of placements against the time that they take", [Panel(traces, x, y)])


def classes_figure(values: Mapping[str, Sequence[float]], classes: Sequence[tuple[str, str]]) -> Figure:
    """Return the mean value over the best known of each policy on each class of instances, as a heat map.

    Args:
        values: by policy, of each class.
        classes: dimension and name, in the order of the columns.
    """
    worst = np.log(max(1.0 + 1e-9, *(value for of in values.values() for value in of)))
    cells = [[float(f"{100 * np.log(max(value, 1.0)) / worst:.4g}") for value in of] for of in values.values()]
    names = [(shown(dimension), shown(name)) for dimension, name in classes]
    said = [
        [f"<b>{shown(policy)}</b><br>{d}: {c}<br>{value:.3f}" for (d, c), value in zip(names, of, strict=True)]
        for policy, of in values.items()
    ]
    ticks: dict[str, Any] = {"tickvals": list(range(len(names))), "ticktext": ["<br>".join(each) for each in names]}
    y, height = named_rows(list(values))
    map_of = heatmap(cells, [[f"{value:.3f}" for value in of] for of in values.values()], said)
    x = axis("class of instances; numbers: value over the best known", showgrid=False, automargin=True, **ticks)
    return figure("Value over the best known by class of instance", [Panel([map_of], x, y, height=height)])


def schedules_figure(shown_one: Data) -> Figure:
    """Draw when the ops of a shown instance run: the policy's schedule above HEFT's, on one axis of time."""
    made, names = shown_one["placements"], shown_one["device_names"]
    is_moved = np.array(made[0]["device_of"]) != np.array(made[1]["device_of"])
    panels = []
    for each in made:
        columns = zip(shown_one["op_names"], each["start_s"], each["end_s"], each["device_of"], is_moved.tolist(), strict=True)
        bars = []
        for name, begin_s, end_s, lane, moved in columns:
            kind = _MOVED if moved else _KEPT
            bars.append(Bar(begin_s, end_s, lane, 1, kind, (name, names[lane]), name))
        title = f"{shortened(each['policy'])}: the last op ends after {1e3 * max(each['end_s']):.4g} ms"
        panels.append(Lanes(title, bars, [(name, number, 1) for number, name in enumerate(names)]))
    longest_s = max(max(each["end_s"]) for each in made)
    looks = {_KEPT: (BLUE, ""), _MOVED: (ORANGE, "")}
    return gantt_figure(f"Schedules of {shown_one['instance']}", panels, looks, (0.0, longest_s or 1.0), since="the step began")


def _labels(texts: Sequence[str], places: Sequence[tuple[float, float]], width: int, height: int) -> list[str]:
    """Return the largest sizes, none on another; the others are empty."""
    written: list[tuple[float, float]] = []
    result = []
    for text, (x, y) in zip(texts, places, strict=True):
        is_free = all(abs(x - a) > 0.07 * width or abs(y - b) > min(0.2, 0.03 * height) for a, b in written)
        result.append(text if is_free and len(written) < MOST_LABELS else "")
        written += [(x, y)] * bool(result[-1])
    return result


def _bytes(count: float) -> str:
    power, prefix = next(((p, name) for p, name in ((9, "GB"), (6, "MB"), (3, "kB")) if count >= 10**p), (0, "B"))
    return f"{count / 10**power:.3g} {prefix}"
