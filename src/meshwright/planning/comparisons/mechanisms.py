"""Why a layout: what each of its mechanisms buys on this job, what binds it, and what more devices would bring.

`SWITCHES` holds what turns one mechanism off or down, all else as it is; the ranks that an axis leaves go to data parallelism.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import PlanError
from ...planners.layouts.layout_rows import bound_by
from ...planners.layouts.results import RankedLayout
from ...plans.partition import Layout

if TYPE_CHECKING:
    from ..search_table import RankedLayouts

Switched = Iterator[tuple[str, dict[str, Any]]]
"""Changes, each in words and as the changed keys of the layout."""

_UNASKED = ("overlap_pp", "overlap_dp")
"""Keys that follow from the schedule unless they are kept."""


class Change(NamedTuple):
    """A layout with one mechanism less.

    Attributes:
        text: the change, as ``tp 4 -> 2``.
        ranked: that layout; None where it is not legal or does not fit.
        problem: why there is none.
    """

    text: str
    ranked: RankedLayout | None = None
    problem: str = ""


@dataclass(frozen=True)
class Mechanisms:
    """Why a layout.

    Attributes:
        taken: the layout.
        changes: with one mechanism less each.
        binding: what keeps the step from being shorter, for people.
        shares: the memory that it takes, and the shares of the step that it waits, for people.
        scaling: what the next devices would bring, or the last ones do, or why none are priced; empty where dp cannot change.
        num_steps: of the job.
        rate: name and value of what a second brings.
    """

    taken: RankedLayout
    changes: tuple[Change, ...]
    binding: str
    shares: str
    scaling: str
    num_steps: int
    rate: tuple[str, float]

    @property
    def device_hours(self) -> float:
        """Of all steps."""
        return self.taken.devices * self.taken.step_s * self.num_steps / 3600

    @property
    def per_device(self) -> float:
        """Rate of the job over its devices, per device-second."""
        return self.rate[1] / self.taken.devices

    def difference(self, other: RankedLayout) -> float:
        """Return the difference of another step to the layout's own, relative."""
        return other.step_s / self.taken.step_s - 1

    @property
    def texts(self) -> list[str]:
        """All but the changes, for people."""
        amount = f"{self.per_device:,.0f}" if self.per_device >= 100 else f"{self.per_device:.3g}"
        unit = self.rate[0].removesuffix("_per_s")
        used = f"{self.device_hours:,.0f} GPU-hours for all steps, {amount} {unit} a GPU-second"
        return [line for line in (f"binds: {self.binding}; {self.shares}", self.scaling, used) if line]

    def to_data(self) -> dict[str, Any]:
        """Return the same as plain data."""
        changes = [
            {
                "text": text,
                "step_s": results and results.step_s,
                "difference": results and self.difference(results),
                "memory_bytes": results and results.memory_bytes,
                "problem": problem,
            }
            for text, results, problem in self.changes
        ]
        return {
            "binding": self.binding,
            "shares": self.shares,
            "scaling": self.scaling,
            "device_hours": self.device_hours,
            f"{self.rate[0]}_and_device": self.per_device,
            "changes": changes,
        }


def mechanisms_of(ranking: RankedLayouts) -> Mechanisms:
    """Return why the layout of a search's plan."""
    taken, row = ranking.taken, ranking.row(ranking.taken)
    stage, held, room_bytes = ranking.maker.tightest(ranking.search.work(taken.layout, taken.order), taken.order)
    binding, shares = bound_by(row, stage, held.total, room_bytes)
    return Mechanisms(
        taken, tuple(_changes(ranking)), binding, shares, _scaling(ranking), ranking.request.num_steps, row.step.rate
    )


def _halved(axis: str, layout: Layout) -> Switched:
    degree = getattr(layout, axis)
    if degree > 1:
        factor = next(n for n in range(2, degree + 1) if degree % n == 0)
        fewer = {axis: degree // factor} | ({} if axis == "ep" else {"dp": layout.dp * factor})
        if axis == "pp" and degree == factor:
            fewer |= {"schedule": "none", "virtual_stages": 1}
        yield f"{axis} {degree} -> {degree // factor}", fewer


def _schedule(layout: Layout) -> Switched:
    if layout.pp > 1 and layout.schedule != "1f1b":
        chunks = f":{layout.virtual_stages}" if layout.virtual_stages > 1 else ""
        yield f"{layout.schedule}{chunks} -> 1f1b", {"schedule": "1f1b", "virtual_stages": 1}


def _zero(layout: Layout) -> Switched:
    if layout.copies > 1:
        for stage in {0: (1, 3), 1: (0, 3), 2: (1, 3), 3: (1,)}[layout.zero]:
            yield f"zero {layout.zero} -> {stage}", {"zero": stage}


def _recompute(layout: Layout) -> Switched:
    other = "full" if layout.recompute == "none" else "none"
    whole = {"recompute_method": "uniform", "recompute_num_layers": 1}
    yield f"recompute {layout.recompute} -> {other}", {"recompute": other} | whole


def _sequence_parallel(layout: Layout) -> Switched:
    if layout.tp > 1:
        words = ("on", "off") if layout.sequence_parallel else ("off", "on")
        yield f"sequence parallel {' -> '.join(words)}", {"sequence_parallel": not layout.sequence_parallel}


SWITCHES: tuple[Callable[[Layout], Switched], ...] = (
    *(partial(_halved, axis) for axis in ("tp", "cp", "pp", "ep")),
    _schedule,
    _zero,
    _recompute,
    _sequence_parallel,
)


def _keys(ranking: RankedLayouts) -> dict[str, Any]:
    """Return the keys of the layout; what it hides follows from the schedule unless the user keeps it."""
    unasked = [key for key in _UNASKED if key not in ranking.request.kept_values]
    return {key: value for key, value in vars(ranking.taken.layout).items() if key not in unasked}


def _changes(ranking: RankedLayouts) -> Iterator[Change]:
    taken, keys = ranking.taken, _keys(ranking)
    for switch in SWITCHES:
        for text, changed in switch(taken.layout):
            try:
                yield Change(text, ranking.priced(keys | changed, taken.order))
            except PlanError as error:
                yield Change(text, problem=error.problem)


def _scaling(ranking: RankedLayouts) -> str:
    """Describe the gain of one more device, by the next number of replicas that batch and whole hosts allow, else by the last."""
    taken, keys, per_host = ranking.taken, _keys(ranking), ranking.maker.devices_per_host
    layout, devices = taken.layout, len(ranking.maker.devices(ranking.cluster.num_devices))
    samples, width = layout.global_batch // layout.micro_batch, taken.devices // layout.dp
    possible = [dp for dp in range(1, min(samples, devices // width) + 1) if samples % dp == 0]
    possible = [dp for dp in possible if dp * width < per_host or dp * width % per_host == 0]
    dp = next((dp for dp in possible if dp > layout.dp), max((dp for dp in possible if dp < layout.dp), default=None))
    try:
        other = None if dp is None else ranking.priced(keys | {"dp": dp}, taken.order)
    except PlanError as error:
        return f"dp {layout.dp} -> {dp}: {error.problem}"
    if other is None:
        return ""
    per_device = (1 / other.step_s - 1 / taken.step_s) / (other.devices - taken.devices)
    smaller = min((taken, other), key=lambda one: one.devices)
    share = per_device * smaller.step_s * smaller.devices
    number = abs(other.devices - taken.devices)
    if other.devices > taken.devices:
        return f"the next {number} GPUs (dp {layout.dp} -> {dp}) would each bring {share:.0%} of what one brings now"
    last = f"the last {number} GPUs (dp {dp} -> {layout.dp}) each bring"
    return f"{last} {share:.0%} of what one of the first {other.devices} does"
