"""`METRICS`: every figure by which policies are compared, in any world; a new one is a row here.

A figure of an episode is a function of the world's view of it. Views are `ClusterFigures`, `FleetFigures`, `ElasticOutcome`, or
`PlacementFigures` of one instance of operator placement or of tasklets. It is None where it is not defined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Figures = Any
"""A view of an episode; see the module."""

TERMINAL, FILES, DATA = 0, 1, 2
LESS, MORE = 1, -1
"""Signs of metrics: less is better, or more is."""


@dataclass(frozen=True)
class Metric:
    """A figure of an episode, and how tables show its mean.

    Attributes:
        name: key in results.
        worlds: that have it, and where they show it: `TERMINAL` (everywhere), `FILES` (tables of files and pages) or `DATA`.
        heading: of a column, without the unit.
        unit: in which it is shown.
        scale: factor from the figure to that unit.
        digits: shown after the point.
        words: for sentences and axes.
        sign: `LESS` or `MORE`.
        of: computes it from a view of an episode; by default it is the view's attribute of this name.
        is_rare: whether tables leave it out where it is zero for everybody.
        origin: where bars begin.
    """

    name: str
    worlds: Mapping[str, int]
    heading: str
    unit: str
    scale: float
    digits: int
    words: str
    sign: int = LESS
    of: Callable[[Figures], float | None] | None = None
    is_rare: bool = False
    origin: float = 0.0

    def figure(self, view: Figures) -> float | None:
        """Return the figure of an episode."""
        result: float | None = getattr(view, self.name) if self.of is None else self.of(view)
        return result

    @property
    def column(self) -> str:
        """Heading with the unit."""
        return f"{self.heading}, {self.unit}" if self.unit else self.heading

    @property
    def difference_unit(self) -> str:
        """Unit of differences: points where the figure is a share."""
        return "points" if self.unit == "%" else self.unit

    @property
    def axis(self) -> str:
        """Words with the unit."""
        return f"{self.words}, {self.unit}" if self.unit else self.words

    def value(self, row: Mapping[str, Any], end: str = "mean") -> float | None:
        """Return what a row of a figure has, in the unit; None where it has none."""
        result = row.get(self.name)
        return None if result is None or result[end] is None else float(self.scale * result[end])

    def cost(self, row: Mapping[str, Any]) -> float:
        """Return a row's mean with the sign by which less is better; infinite where it has none."""
        value = row["metrics"].get(self.name)
        return float("inf") if value is None else self.sign * float(value["mean"])

    def text(self, figure: float) -> str:
        """Return a figure in the unit."""
        return f"{self.scale * figure:.{self.digits}f} {self.unit}".strip()


def _of(name: str, percent: int | None = None) -> Callable[[Figures], float | None]:
    """Return the mean or a percentile of an array of a view; None of an empty one."""

    def figure(view: Figures) -> float | None:
        values: NDArray[np.float64] = getattr(view, name)
        return float(values.mean() if percent is None else np.percentile(values, percent)) if len(values) else None

    return figure


_MIN, _H, _PERCENT, _WHOLE, _PLAIN = ("min", 1 / 60, 1), ("h", 1 / 3600, 2), ("%", 100.0, 1), ("%", 100.0, 0), ("", 1.0, 2)


def _in(*, cluster: int | None = None, fleet: int | None = None, elastic: int | None = None) -> dict[str, int]:
    result = {"cluster": cluster, "fleet": fleet, "elastic": elastic}
    return {world: shown for world, shown in result.items() if shown is not None}


def _percentile(percent: int, worlds: Mapping[str, int], words: str) -> Metric:
    name = f"p{percent}_completion_s"
    return Metric(name, worlds, f"{percent} %", *_MIN, f"{words} of completion time", of=_of("completion_s", percent))


_OPS, _PLACED = {"operators": TERMINAL}, {"operators": TERMINAL, "tasklets": TERMINAL, "world": TERMINAL}
_OPS_OWN = _OPS | {"world": TERMINAL}
T, F, D = TERMINAL, FILES, DATA
_ROWS = (
    Metric("over_best_known", _PLACED, "over best known", "", 1.0, 3, "value over the best known", origin=1.0),
    Metric("over_best_rule", _OPS, "over best rule", "", 1.0, 3, "value over the best rule", origin=1.0),
    Metric("over_bound", _OPS, "over bound", *_PLAIN, "value over the lower bound", origin=1.0),
    Metric("won", _PLACED, "best", *_WHOLE, "instances on which none is better", MORE),
    Metric("without_value", _OPS_OWN, "none", *_WHOLE, "instances without a value", is_rare=True),
    Metric(
        "mean_completion_s",
        _in(cluster=T, fleet=T, elastic=T),
        "completion",
        *_MIN,
        "mean completion time",
        of=_of("completion_s"),
    ),
    Metric("mean_wait_s", _in(cluster=F, fleet=T), "wait", *_MIN, "mean wait", of=_of("wait_s"), is_rare=True),
    Metric("blocking_rate", _in(cluster=T, fleet=T), "blocked", *_PERCENT, "blocked jobs"),
    Metric("acceptance_rate", _in(cluster=D), "accepted", *_PERCENT, "jobs placed", MORE),
    Metric("devices_useful", _in(fleet=T), "useful", *_WHOLE, "useful device-time", MORE),
    Metric("utilisation", _in(cluster=T), "held", *_WHOLE, "devices held", MORE),
    Metric("mean_degree", _in(cluster=T), "ranks", *_PLAIN, "ranks of a job", of=_of("degree")),
    _percentile(50, _in(cluster=D, fleet=F, elastic=D), "median"),
    _percentile(95, _in(cluster=F, fleet=F, elastic=T), "95th percentile"),
    _percentile(99, _in(cluster=D, fleet=F, elastic=D), "99th percentile"),
    Metric("makespan_s", _in(fleet=F, elastic=T), "makespan", *_H, "makespan"),
    Metric("late_rate", _in(fleet=F), "late", *_PERCENT, "jobs that ended late"),
    Metric("deadline_met_rate", _in(fleet=F), "deadline met", *_PERCENT, "jobs that meet their deadline", MORE),
    Metric("mean_slack", _in(cluster=F), "slack", *_PERCENT, "allowed time left unused", MORE, of=_of("slack")),
    Metric("p5_slack", _in(cluster=D), "5 % slack", *_PERCENT, "5th percentile of slack", MORE, of=_of("slack", 5)),
    Metric("p50_slack", _in(cluster=D), "50 % slack", *_PERCENT, "median of slack", MORE, of=_of("slack", 50)),
    Metric("throughput_per_h", _in(cluster=D), "throughput", "jobs/h", 1.0, 1, "jobs an hour", MORE),
    Metric("fragmentation", _in(cluster=F), "fragmentation", *_PERCENT, "ranks lost to fragmentation"),
    Metric("mean_delay_s", _in(cluster=F), "delay", *_MIN, "mean delay by interruptions", of=_of("delay_s"), is_rare=True),
    Metric(
        "mean_finish_time_fairness",
        _in(fleet=F),
        "finish-time fairness",
        *_PLAIN,
        "mean finish-time fairness",
        of=_of("finish_time_fairness"),
    ),
    Metric(
        "p95_finish_time_fairness",
        _in(fleet=D),
        "95 % fairness",
        *_PLAIN,
        "95th percentile of finish-time fairness",
        of=_of("finish_time_fairness", 95),
    ),
    Metric("devices_held", _in(fleet=F, elastic=T), "held", *_WHOLE, "devices held", MORE),
    Metric("sharing_slowdown", _in(fleet=F), "slower by sharing", *_PERCENT, "slowdown by sharing"),
    Metric("restarts_per_job", _in(fleet=F, elastic=T), "restarts a job", *_PLAIN, "restarts a job"),
    Metric("mean_devices", _in(fleet=F), "devices", "", 1.0, 1, "devices of a job"),
    Metric("device_hours", _in(fleet=D), "device-hours", "h", 1.0, 0, "device-hours"),
    Metric("failures_per_job", _in(fleet=F), "failures a job", *_PLAIN, "failures a job"),
    Metric("devices_out", _in(fleet=F), "out of order", *_PERCENT, "device-time out of order"),
    Metric("lost_device_hours", _in(fleet=F), "lost", "device-hours", 1.0, 1, "device-hours lost"),
)
METRICS: dict[str, Metric] = {one.name: one for one in _ROWS}
"""By name, in the order of columns. Source of finish-time fairness: see `fleet.fleet_figures`."""


def metrics_of(world: str) -> dict[str, Metric]:
    """Return the figures of a world, in the order of columns."""
    return {name: one for name, one in METRICS.items() if world in one.worlds}


def figures(world: str, view: Figures) -> dict[str, float | None]:
    """Return every figure of an episode by name; None where it is not defined."""
    return {name: one.figure(view) for name, one in metrics_of(world).items()}
