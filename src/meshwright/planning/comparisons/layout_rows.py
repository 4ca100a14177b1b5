"""Rows of a table of layouts: a layout with its figures, and a batch that brings more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ...costs.pipelines.waits import bubble_time_fraction
from ...costs.training_step.step_figures import StepTime
from ...planners.layouts.results import RankedLayout
from ...plans.document import Figure

MESSAGES = ("pipeline transfers", "gradient sync", "parameter gather")
"""Parts of a step that are waits for messages, besides those that are called exposed."""


@dataclass(frozen=True)
class LayoutRow:
    """A layout with its figures.

    Attributes:
        found: the layout.
        step: what its step consists of.
        is_tight: whether it may not fit, see `plans.memory.is_tight`.
    """

    found: RankedLayout
    step: StepTime
    is_tight: bool

    @property
    def bubble_share(self) -> float:
        """Share of the step that the schedule leaves idle on the stage that ends last; see `costs.pipelines.waits`."""
        return self.step.breakdown_s["bubble"] / self.step.step_s

    @property
    def exposed_share(self) -> float:
        """Share of the step in which it waits for messages."""
        return sum(self.messages_s.values()) / self.step.step_s

    @property
    def messages_s(self) -> dict[str, float]:
        """Parts of the step in which it waits for messages, of which there are some."""
        parts = self.step.breakdown_s.items()
        return {name: s for name, s in parts if s > 0 and (name.startswith("exposed ") or name in MESSAGES)}

    def figures(self) -> tuple[Figure, ...]:
        """What is predicted of it; all of it estimated."""
        values = [
            ("step_s", self.step.step_s, "s"),
            ("step_s_uncertainty", self.step.uncertainty, "1"),
            (*self.step.rate, "1/s"),
            ("mfu", self.step.mfu, "1"),
            ("hfu", self.step.hfu, "1"),
            ("memory_bytes", self.found.memory_bytes, "bytes"),
            ("bubble_share", self.bubble_share, "1"),
            ("bubble_time_fraction", bubble_time_fraction(self.step.breakdown_s), "1"),
            ("exposed_communication_share", self.exposed_share, "1"),
        ]
        return tuple(Figure.predicted(n, v, u) for n, v, u in values if v is not None)


class BetterBatch(NamedTuple):
    """A nearby batch that brings more.

    Attributes:
        global_batch: sequences, or samples, of a step.
        gain: relative, in what a second brings.
        row: its fastest layout.
    """

    global_batch: int
    gain: float
    row: LayoutRow
