"""Colours, hatches and marks of all figures, so that one thing looks the same wherever it is drawn.

The colours are distinct for any colour vision. Source: Okabe and Ito, "Color universal design", 2008. Beyond eight things,
colours repeat with hatches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ...simulation.cluster.state import OUTCOME_WORDS, Outcome

BLUE, ORANGE, GREEN, PINK = "#0072b2", "#e69f00", "#009e73", "#cc79a7"
SKY, VERMILION, YELLOW, GREY = "#56b4e9", "#d55e00", "#f0e442", "#999999"
INK, MUTED, RULE, PALE, PALEST, PAPER = "#222222", "#666666", "#dddddd", "#b8bec6", "#e3eef6", "#fffffe"
DARK = {INK: "#e8e8e8", MUTED: "#a8adb3", RULE: "#3c4147", PALE: "#6c747d", PALEST: "#1d3245", PAPER: "#16181b"}
"""Colours of a dark page in place of those for white paper."""

LEARNED = BLUE
COMPUTE_FORWARD, COMPUTE_BACKWARD, TRANSFER, ALL_REDUCE = BLUE, SKY, GREEN, VERMILION

_GRAPHS = (BLUE, ORANGE, GREEN, PINK, SKY, VERMILION, YELLOW, GREY)
_HATCHES = ("", "/", ".", "x")
_DARK_FILLS = {BLUE, GREEN, VERMILION}


class Kind(NamedTuple):
    """How policies of one kind are drawn: their name, colour and hatch."""

    word: str
    colour: str
    hatch: str = ""


_LEARNED, _OWN = Kind("learned policy", BLUE), Kind("policy of your own", SKY)
KINDS = {
    "learned": _LEARNED,
    "own": _OWN,
    "baseline": Kind("baseline", "#8a929c"),
    "planner": Kind("planner", "#8a929c"),
    "constant": Kind("rule", PALE),
    "published": Kind("published scheduler", PINK),
    "reference": Kind("knows all arrivals beforehand: no policy", GREEN, "/"),
}


def kind_of(row: Mapping[str, Any]) -> Kind:
    """Return how the policy of a row is drawn."""
    return KINDS.get(row["kind"], Kind("policy", PALE))


class Reason(NamedTuple):
    """How one reason for blocking is drawn.

    Attributes:
        outcome: the reason.
        word: its name.
        colour: of bars.
        symbol: Plotly's name of the mark of one job.
    """

    outcome: Outcome
    word: str
    colour: str
    symbol: str


def _reason(outcome: Outcome, colour: str, symbol: str) -> Reason:
    return Reason(outcome, OUTCOME_WORDS[outcome], colour, symbol)


REASONS = (
    _reason(Outcome.NO_BLOCK, ORANGE, "square"),
    _reason(Outcome.NO_DEVICE, BLUE, "triangle-down"),
    _reason(Outcome.REJECTED, VERMILION, "x"),
    _reason(Outcome.DEADLINE, PINK, "diamond"),
)
RUNNING = _reason(Outcome.RUNNING, GREY, "circle")
"""Under the published PAC-ML rules only; such a job was placed, so no figure marks its arrival."""
EXPIRED = _reason(Outcome.EXPIRED, GREEN, "cross")


def reasons(has_queue: bool) -> tuple[Reason, ...]:
    """Return the reasons for which a job may be turned away; with a queue there is one more."""
    return (*REASONS, EXPIRED) if has_queue else REASONS


def graph_look(number: int) -> tuple[str, str]:
    """Return the colour and hatch of a workload's graph; 32 graphs look different."""
    return _GRAPHS[number % len(_GRAPHS)], _HATCHES[number // len(_GRAPHS) % len(_HATCHES)]


def ink_on(colour: str) -> str:
    """Return the colour of text that is read best on a colour, on light pages and on dark ones."""
    return "#ffffff" if colour in _DARK_FILLS else "#1a1a1a"
