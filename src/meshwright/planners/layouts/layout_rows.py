"""Rows of a table of layouts: a layout with its figures, what binds it, and a batch that brings more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ...costs.pipelines.waits import bubble_time_fraction
from ...costs.training_step.step_figures import StepTime
from ...plans.document import Figure
from .results import RankedLayout

MESSAGES = ("pipeline transfers", "gradient sync", "parameter gather")
"""Parts of a step that are waits for messages, besides those that are called exposed."""


LEAST_WAIT = 0.02
"""Share of the step below which a wait binds nothing."""


@dataclass(frozen=True)
class LayoutRow:
    """A layout with its figures.

    Attributes:
        ranked: the layout.
        step: what its step consists of.
        is_tight: whether it may not fit, see `plans.memory.is_tight`.
    """

    ranked: RankedLayout
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
        """Parts of the step that wait for messages, without those of no time."""
        parts = self.step.breakdown_s.items()
        return {name: s for name, s in parts if s > 0 and (name.startswith("exposed ") or name in MESSAGES)}

    def figures(self) -> tuple[Figure, ...]:
        """Return the predicted figures, all estimated."""
        values = [
            ("step_s", self.step.step_s, "s"),
            ("step_s_uncertainty", self.step.uncertainty, "1"),
            (*self.step.rate, "1/s"),
            ("mfu", self.step.mfu, "1"),
            ("hfu", self.step.hfu, "1"),
            ("memory_bytes", self.ranked.memory_bytes, "bytes"),
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


def bound_by(row: LayoutRow, stage: int, held_bytes: float, room_bytes: float) -> tuple[str, str]:
    """Return the limit of the step: memory where it is tight or bought by recomputation, else the longest wait.

    The second text has the memory and the shares of the step.

    Args:
        row: the layout.
        stage: with the fullest rank.
        held_bytes: by that rank.
        room_bytes: of its device.
    """
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
    binding = full if row.is_tight or again > max(LEAST_WAIT, shares[longest][0]) else binding
    texts = [f"{name} {share:.1%} of the step{more}" for name, (share, more) in shares.items() if share > 0.0005]
    texts += [f"computing again {again:.1%}"] if again else []
    filled = f"{full} {held_bytes / 1e9:.1f} of {room_bytes / 1e9:.1f} GB"
    return binding, f"{filled}, {', '.join(texts) or 'no waits'}"
