"""Tensors brought from one mesh to another: unit tasks, lower bounds and seconds of each algorithm, at 10 Gbit/s.

Source: Zhuang et al., "On optimizing the communication of model parallelism", 2022, section 5.1; the seconds are worked out from
its model, without latency and with links inside hosts that take no time.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....costs.resharding.prices import LOAD_BALANCES, Card, lower_bound_s, resharding_s
from ....costs.resharding.tiles import MeshTensor, cuts_of, unit_tasks
from ..published_figures import PublishedFigure

CARD = Card(1.25e9)
TOLERANCE = 0.005
TENSOR = (1024, 1024, 512), 4
LONG = (32, 2048, 4096), 2
FLAT = (2**28,), 4

COLUMNS = (
    "tasks",
    "bound, s",
    "send-recv, s",
    "all-gather, s",
    "broadcast, first sender, s",
    "broadcast, by size, s",
    "broadcast, ordered, s",
)

CASES = (
    ("1", TENSOR, (2, 4), "S0 R R", (2, 4), "S0 R R", ("2", ".8590", "3.436", "0.859", "0.859", "0.859", "0.859")),
    ("2", TENSOR, (2, 4), "R R R", (2, 4), "S0 R R", ("2", ".8590", "3.436", "0.859", "1.718", "0.859", "0.859")),
    ("3", TENSOR, (2, 4), "R S0 R", (2, 4), "S0 R R", ("4", ".8590", "5.154", "1.611", "1.288", "1.288", "0.859")),
    ("5", TENSOR, (2, 4), "S1 R R", (2, 4), "S0 R R", ("4", ".8590", "6.442", "1.503", "1.718", "1.288", "0.859")),
    ("7", TENSOR, (1, 4), "S1 R R", (2, 4), "R R R", ("4", "1.7180", "13.744", "", "1.718", "1.718", "1.718")),
    ("10", TENSOR, (2, 4), "R R R", (2, 4), "R R R", ("1", "1.7180", "6.872", "", "1.718", "1.718", "1.718")),
    ("13", LONG, (1, 1), "R R R", (1, 8), "R S1 R", ("8", "0.4295", "0.429", "", "0.429", "0.429", "0.429")),
    ("one to 1x1", FLAT, (1, 1), "R", (1, 1), "R", ("1", "0.8590", "0.859", "0.859", "0.859", "0.859", "0.859")),
    ("one to 1x2", FLAT, (1, 1), "R", (1, 2), "R", ("1", "0.8590", "1.718", "0.859", "0.859", "0.859", "0.859")),
    ("one to 1x3", FLAT, (1, 1), "R", (1, 3), "R", ("1", "0.8590", "2.577", "", "0.859", "0.859", "0.859")),
    ("one to 1x4", FLAT, (1, 1), "R", (1, 4), "R", ("1", "0.8590", "3.436", "0.859", "0.859", "0.859", "0.859")),
    ("one to 2x2", FLAT, (1, 1), "R", (2, 2), "R", ("1", "0.8590", "3.436", "", "0.859", "0.859", "0.859")),
)
"""Name, tensor, mesh and cuts of source and target, and the figures of `COLUMNS`, empty where none is published."""

MOST_TO_LEAST = "4"


def figures() -> Iterator[PublishedFigure]:
    """The figures of every case, and how far apart the best and the worst way are."""
    ratios = []
    for name, (shape, element_bytes), mesh, cuts, other, wanted_cuts, published in CASES:
        source = MeshTensor(shape, element_bytes, *mesh, cuts_of(cuts))
        target = MeshTensor(shape, element_bytes, *other, cuts_of(wanted_cuts))
        tasks = unit_tasks(source, target)
        sent_s, ordered_s = (resharding_s(source, target, CARD, way) for way in ("send-recv", "broadcast"))
        ratios.append(sent_s / ordered_s)
        ours = {"tasks": float(len(tasks)), "bound, s": lower_bound_s(tasks, CARD), "send-recv, s": sent_s}
        if published[3]:
            ours["all-gather, s"] = resharding_s(source, target, CARD, "all-gather")
        for column, choice in zip(COLUMNS[4:], LOAD_BALANCES, strict=True):
            ours[column] = resharding_s(source, target, CARD, "broadcast", choice)
        for column, wanted in zip(COLUMNS, published, strict=True):
            if wanted:
                yield PublishedFigure(f"case {name}", column, ours[column], wanted, TOLERANCE)
    yield PublishedFigure("all cases", "send-recv over broadcast, most", max(ratios), MOST_TO_LEAST, 0.0, is_floor=True)
    yield PublishedFigure("all cases", "send-recv over broadcast, least", min(ratios), "1", TOLERANCE, is_floor=True)
