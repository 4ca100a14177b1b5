"""An entry of a menu on the hosts that a job would get, and what binds its step there."""

from __future__ import annotations

from dataclasses import dataclass

from ..layouts.layout_rows import LayoutRow, bound_by
from ..layouts.results import RankedLayout
from .entries import MenuEntry
from .job_types import JobType, Where


@dataclass(frozen=True)
class MenuRow:
    """An entry of the job's menu on the hosts of a device type that a packed placement finds.

    Attributes:
        entry: its number in the menu.
        degree: devices.
        name: of its layout, short.
        device: name of the device type.
        step_s: alone on these hosts.
        memory_bytes: of the fullest rank.
        hosts: in rank order.
        is_chosen: whether it is the plan.
        tight: that its memory is a tight fit, in words; else empty.
    """

    entry: int
    degree: int
    name: str
    device: str
    step_s: float
    memory_bytes: float
    hosts: tuple[int, ...]
    is_chosen: bool = False
    tight: str = ""

    @property
    def text(self) -> str:
        """Layout, devices and step, for people."""
        return f"{self.name} on {self.degree} {self.device} ({self.step_s:.4g} s a step)"

    def beats(self, other: MenuRow) -> bool:
        """Return whether it takes no more time and no more devices than another one, and less of one of them."""
        return (
            self.degree <= other.degree
            and self.step_s <= other.step_s
            and (self.degree < other.degree or self.step_s < other.step_s * (1 - 1e-9))
        )


def bound_text(job: JobType, entry: MenuEntry, where: Where, step_s: float, *, is_tight: bool) -> str:
    """Describe the bottleneck of an entry's step where it has the network for itself.

    Args:
        job: whose entry it is.
        entry: of the menu.
        where: it runs.
        step_s: its step there.
        is_tight: whether it may not fit after all.
    """
    result = RankedLayout.from_price(step_s, entry.memory_bytes, entry.layout, entry.order)
    stage, held = job.work(entry.layout, where.device, where.costs).peak_memory()
    row = LayoutRow(result, job.step(entry.layout, entry.order, where), is_tight)
    return f"binds: {'; '.join(bound_by(row, stage, held.total, where.device.memory_bytes))}"
