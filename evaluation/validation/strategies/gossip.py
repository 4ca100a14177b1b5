"""Gossip on three published clusters: steps of all-reduce, stochastic push and two forms of gossip."""

from __future__ import annotations

from collections.abc import Iterator

from ....costs.training.gossip_fabrics import fabric_steps
from ..published_figures import PublishedFigure

TOLERANCE = 0.12

ROWS = {
    ("t4", 16): ("372.5", "425.5", "314.8", "312.3"),
    ("t4", 32): ("225.5", "292.4", "178.8", "178.8"),
    ("a100", 8): ("73.0", "69.4", "63.4", "61.7"),
    ("a100", 16): ("54.8", "53.0", "46.8", "45.8"),
    ("a40", 8): ("166.1", "150.5", "122.8", "122.0"),
    ("a40", 16): ("195.5", "99.9", "97.4", "78.9"),
}
"""Milliseconds of a step as published; the rows on which each fabric's constants are fitted."""

COLUMNS = ("all-reduce", "stochastic push, exp", "gossip, exp", "gossip, AER")


def figures() -> Iterator[PublishedFigure]:
    """Every figure of the table."""
    for (fabric, ranks), published in ROWS.items():
        for column, value, seconds in zip(COLUMNS, published, fabric_steps(fabric, ranks), strict=True):
            yield PublishedFigure(f"{ranks} ranks of {fabric}", f"{column}, ms", 1e3 * seconds, value, TOLERANCE)
