"""Tensors brought from one mesh to another: unit tasks, lower bounds and seconds of each algorithm, at 10 Gbit/s.

Source: Zhuang et al., "On optimizing the communication of model parallelism", 2022, section 5.1. The seconds follow from its
model, without latency and with links inside hosts that take no time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import get_args

from ....costs.resharding.crossings import Ways, crossing
from ....costs.resharding.prices import LoadBalance, least_s
from ....costs.resharding.stage_tensors import StageTensor
from ....costs.resharding.tiles import unit_tasks
from ..published_figures import PublishedFigure

BYTES_PER_S = 1.25e9
WAYS = Ways(lambda size: size / BYTES_PER_S, lambda size: 0.0, lambda size, ranks, others: 0.0)
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
    """Yield the figures of every case, and how far apart the best and the worst way are."""
    ratios = []
    for name, (shape, element_bytes), mesh, cuts, other, wanted_cuts, published in CASES:
        source = on_mesh(shape, element_bytes, mesh, cuts)
        target = on_mesh(shape, element_bytes, other, wanted_cuts, mesh[0])
        tasks = unit_tasks(source, target)
        sent_s = crossing(source, target, WAYS, "send-recv").seconds
        bound_s = least_s(tasks, [task.task_bytes / BYTES_PER_S for task in tasks])
        ours = {"tasks": float(len(tasks)), "bound, s": bound_s, "send-recv, s": sent_s}
        if published[3]:
            ours["all-gather, s"] = crossing(source, target, WAYS, "all-gather").seconds
        for column, choice in zip(COLUMNS[4:], get_args(LoadBalance), strict=True):
            ours[column] = crossing(source, target, WAYS, "broadcast", choice).seconds
        ratios.append(sent_s / ours[COLUMNS[-1]])
        for column, expected in zip(COLUMNS, published, strict=True):
            if expected:
                yield PublishedFigure(f"case {name}", column, ours[column], expected, TOLERANCE)
    yield PublishedFigure("all cases", "send-recv over broadcast, most", max(ratios), MOST_TO_LEAST, 0.0, is_floor=True)
    yield PublishedFigure("all cases", "send-recv over broadcast, least", min(ratios), "1", TOLERANCE, is_floor=True)


def on_mesh(shape: Sequence[int], element_bytes: int, mesh: tuple[int, int], cuts: str, first_host: int = 0) -> StageTensor:
    """Return a tensor on hosts of equally many devices.

    Args:
        shape: elements of each dimension.
        element_bytes: bytes of an element.
        mesh: hosts, and devices of each.
        cuts: of each dimension: ``R`` none, ``S0`` by hosts, ``S1`` by the devices of a host, ``S01`` by all devices. None from
            the third dimension on.
        first_host: number of the first host.
    """
    hosts, per_host = mesh
    rows, columns = (*cuts.split(), "R")[:2]
    (height, width), whole = (*shape, 1)[:2], prod(shape[2:])
    parts = {"R": 1, "S0": hosts, "S1": per_host, "S01": hosts * per_host}
    placed = []
    for number in range(hosts * per_host):
        host, device = divmod(number, per_host)
        of = {"R": 0, "S0": host, "S1": device, "S01": number}
        placed.append((of[rows], of[columns], first_host + host))
    tp = hosts * per_host // (parts[rows] * parts[columns])
    ranks = tuple(host for _, _, host in sorted(placed))
    return StageTensor(height, width, element_bytes * whole, tp, parts[columns], parts[rows], cuts_tokens=False, hosts=ranks)
