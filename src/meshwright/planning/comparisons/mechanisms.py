"""Why a layout: what each of its mechanisms buys on this job, what binds it, and what more devices would bring.

`SWITCHES` holds what turns one mechanism off or down, all else as it is; the ranks that an axis leaves go to data parallelism.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ...errors import PlanError
from ...plans.partition import Layout

if TYPE_CHECKING:
    from ..search_table import RankedLayouts

Switched = Iterator[tuple[str, dict[str, Any]]]
"""What is changed, in words, and the keys of the layout that change."""

LEAST_WAIT = 0.02
"""Share of the step below which a wait binds nothing."""

_UNASKED = ("overlap_pp", "overlap_dp")
"""Keys that follow from the schedule unless they are kept."""


@dataclass(frozen=True)
class Change:
    """A layout with one mechanism less.

    Attributes:
        text: the change, as ``tp 4 -> 2``.
        step_s: its step; None where it is not legal or does not fit.
        difference: of that step to the layout's own, relative.
        memory_bytes: of the fullest rank.
        problem: why there is no step.
    """

    text: str
    step_s: float | None = None
    difference: float | None = None
    memory_bytes: float | None = None
    problem: str = ""


@dataclass(frozen=True)
class Mechanisms:
    """Why a layout.

    Attributes:
        changes: with one mechanism less each.
        binds: what keeps the step from being shorter, for people.
        scaling: what the next devices would bring, or the last ones do, for people; empty where data parallelism cannot change.
        device_hours: of all steps.
        per_device: name and value of what a second of a device brings.
    """

    changes: tuple[Change, ...]
    binds: str
    scaling: str
    device_hours: float
    per_device: tuple[str, float]

    @property
    def texts(self) -> list[str]:
        """All but the changes, for people."""
        rate, value = self.per_device
        amount = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
        used = f"{self.device_hours:,.0f} GPU-hours for all steps, {amount} {rate.removesuffix('_per_s')} a GPU-second"
        return [line for line in (self.binds, self.scaling, used) if line]

    def to_data(self) -> dict[str, Any]:
        """The same as plain data."""
        rate, value = self.per_device
        data = {"binds": self.binds, "scaling": self.scaling, "device_hours": self.device_hours, f"{rate}_and_device": value}
        return data | {"changes": [vars(one) for one in self.changes]}


def mechanisms_of(found: RankedLayouts) -> Mechanisms:
    """Why the layout of a search's plan."""
    taken, row = found.taken, found.row(found.taken)
    hours = taken.devices * row.step.step_s * found.request.num_steps / 3600
    per_device = row.rate[0], row.rate[1] / taken.devices
    return Mechanisms(tuple(_changes(found)), _binds(found), _scaling(found), hours, per_device)


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


def _keys(layout: Layout) -> dict[str, Any]:
    return {key: value for key, value in vars(layout).items() if key not in _UNASKED}


def _changes(found: RankedLayouts) -> Iterator[Change]:
    taken, keys = found.taken, _keys(found.taken.layout)
    for switch in SWITCHES:
        for text, changed in switch(taken.layout):
            try:
                other = found.priced(keys | changed, taken.order)
            except PlanError as error:
                yield Change(text, problem=error.problem)
            else:
                yield Change(text, other.step_s, other.step_s / taken.step_s - 1, other.memory_bytes)


def _binds(found: RankedLayouts) -> str:
    """What keeps the step from being shorter: memory where it is tight or bought by recomputation, else the longest wait."""
    taken, row = found.taken, found.row(found.taken)
    stage, held, room_bytes = found.maker.tightest(found.search.work(taken.layout, taken.order), taken.order)
    waits = {name: seconds / row.step.step_s for name, seconds in row.step.breakdown_s.items()}
    again, messages = waits.get("recompute", 0.0), row.messages_s
    most = max(messages, key=lambda name: messages[name], default="").removeprefix("exposed ")
    shares = {
        "exposed communication": (row.exposed_share, f" (most: {most})"),
        "the bubble of the schedule": (row.bubble_share, ""),
        "imbalance of stages": (waits.get("imbalance", 0.0), ""),
    }
    full = f"memory of stage {stage}"
    longest = max(shares, key=lambda name: shares[name][0])
    binding = longest if shares[longest][0] > LEAST_WAIT else "computing"
    binding = full if found.is_tight(taken) or again > max(LEAST_WAIT, shares[longest][0]) else binding
    texts = [f"{name} {share:.1%} of the step{more}" for name, (share, more) in shares.items() if share > 0.0005]
    texts += [f"computing again {again:.1%}"] if again else []
    return f"binds: {binding}; {full} {held.total / 1e9:.1f} of {room_bytes / 1e9:.1f} GB, {', '.join(texts) or 'no waits'}"


def _scaling(found: RankedLayouts) -> str:
    """What a device more would bring, by the next number of replicas that the batch and the cluster allow, else by the last."""
    taken, keys = found.taken, _keys(found.taken.layout)
    layout, devices = taken.layout, len(found.maker.devices(found.cluster.num_devices))
    samples = layout.global_batch // layout.micro_batch
    possible = [dp for dp in range(1, samples + 1) if samples % dp == 0 and taken.devices // layout.dp * dp <= devices]
    more = [dp for dp in possible if dp > layout.dp][:1] or [dp for dp in possible if dp < layout.dp][-1:]
    for dp in more:
        try:
            other = found.priced(keys | {"dp": dp}, taken.order)
        except PlanError:
            continue
        per_device = (1 / other.step_s - 1 / taken.step_s) / (other.devices - taken.devices)
        smaller = min((taken, other), key=lambda one: one.devices)
        share = per_device * smaller.step_s * smaller.devices
        number = abs(other.devices - taken.devices)
        if dp > layout.dp:
            return f"the next {number} GPUs (dp {layout.dp} -> {dp}) would each bring {share:.0%} of what one brings now"
        last = f"the last {number} GPUs (dp {dp} -> {layout.dp}) each bring"
        return f"{last} {share:.0%} of what one of the first {other.devices} does"
    return ""
