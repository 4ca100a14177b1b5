"""Colours, hatches and marks of all figures, so that one thing looks the same wherever it is drawn.

The colours can be told apart with any colour vision. Source: Okabe and Ito, "Color universal design", 2008. Where
more than eight things are told apart, colours repeat with hatches.
"""

from __future__ import annotations

from typing import NamedTuple

from ...simulation.cluster.dynamics import OUTCOME_WORDS, Outcome

BLUE, ORANGE, GREEN, PINK = "#0072b2", "#e69f00", "#009e73", "#cc79a7"
SKY, VERMILION, YELLOW, GREY = "#56b4e9", "#d55e00", "#f0e442", "#999999"
INK, MUTED, RULE, PALE = "#222222", "#666666", "#dddddd", "#b8bec6"

LEARNED, BASELINE, REFERENCE = BLUE, PALE, GREEN
COMPUTE_FORWARD, COMPUTE_BACKWARD, TRANSFER, ALL_REDUCE = BLUE, SKY, GREEN, VERMILION

_GRAPHS = (BLUE, ORANGE, GREEN, PINK, SKY, VERMILION, YELLOW, GREY)
_HATCHES = ("", "////", "....", "xxxx")
_DARK = {BLUE, GREEN, VERMILION}


class Reason(NamedTuple):
    """How one reason for blocking is drawn.

    Attributes:
        outcome: the reason.
        word: its name.
        colour: of bars.
        marker: matplotlib's letter for the mark of one job.
    """

    outcome: Outcome
    word: str
    colour: str
    marker: str


REASONS = tuple(
    Reason(outcome, OUTCOME_WORDS[outcome], colour, marker)
    for outcome, colour, marker in (
        (Outcome.NO_BLOCK, ORANGE, "s"),
        (Outcome.NO_DEVICE, BLUE, "v"),
        (Outcome.REJECTED, VERMILION, "X"),
        (Outcome.DEADLINE, PINK, "d"),
    )
)

# Under the published PAC-ML rules only; such a job was placed, so no figure marks its arrival.
RUNNING = Reason(Outcome.RUNNING, OUTCOME_WORDS[Outcome.RUNNING], GREY, "o")

EXPIRED = Reason(Outcome.EXPIRED, OUTCOME_WORDS[Outcome.EXPIRED], GREEN, "P")


def reasons(has_queue: bool) -> tuple[Reason, ...]:
    """The reasons for which a job may be turned away; with a queue there is one more."""
    return (*REASONS, EXPIRED) if has_queue else REASONS


def graph_look(number: int) -> tuple[str, str]:
    """Colour and hatch of a workload's graph; 32 graphs look different."""
    return _GRAPHS[number % len(_GRAPHS)], _HATCHES[number // len(_GRAPHS) % len(_HATCHES)]


def ink_on(colour: str) -> str:
    """The colour of text that is read best on a colour."""
    return "#ffffff" if colour in _DARK else INK


def shade(share: float) -> str:
    """White to the learned policy's blue."""
    full = [int(LEARNED[i : i + 2], 16) for i in (1, 3, 5)]
    depth = 0.12 + 0.88 * min(1.0, share)
    return "#" + "".join(f"{round(255 - (255 - part) * depth):02x}" for part in full)
