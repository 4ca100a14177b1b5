"""Placement of data-parallel stages on uneven networks: the published surrogate for two plain placements, and what is reached.

64 devices in 8 stages of 8. Four of the networks are said in words and made here; the links between eight world regions are in a
file. *Contiguous*: stage ``j`` holds devices ``8 j`` to ``8 j + 7``; *strided*: ``j``, ``j + 8`` and so on.

Source: Yuan et al., "Decentralized training of foundation models in heterogeneous environments", 2022.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ....planners.arrangement.arrange import ArrangementRequest, arrange
from ....simulation.tasklets.instance import TaskletInstance, read_tasklets
from ....simulation.tasklets.values import worked_out
from ..published_figures import PublishedFigure

NUM_STAGES = 8
GRADIENT_BYTES, ACTIVATION_BYTES = 0.65e9, 0.47124922275543213e9
TOLERANCE = 1e-6

US_LINKS = {
    ("V", "O"): (67, 1.15),
    ("V", "C"): (59, 1.05),
    ("V", "H"): (11, 1.12),
    ("O", "C"): (12, 1.25),
    ("O", "H"): (49, 1.10),
}
US_LINKS[("C", "H")] = (52, 1.02)
"""Milliseconds and Gbit/s between Virginia, Oregon, California and Ohio (H)."""

Wanted = tuple[tuple[str, str] | None, tuple[str, str] | None, str, str]
"""Data and pipeline parallelism of the contiguous and of the strided placement, what is reached, and the strided total."""

NETWORKS: dict[str, tuple[Wanted, bool]] = {
    "eight hosts of 8": ((("0.091", "16.889572"), ("2.912", "0.527799"), "3.439799", ""), False),
    "eight hosts of 4 and 32 devices": ((("7.28", "42.22393"), None, "31.634160", "49.503930"), False),
    "two sites": ((("1.834", "15.814117"), ("5.516857", "10.569983"), "16.086840", ""), False),
    "four US regions": ((("4.62", "34.620608"), ("8.342085", "26.459956"), "34.802041", ""), True),
    "eight world regions": ((("4.62", "54.816865"), ("22.758424", "26.459956"), "49.218380", ""), True),
}
"""By network what is published, and whether less may be reached."""

WORLD = "eight world regions"
WORLD_FILE = Path("operators/tasklets/case4_worldwide_geo.json")


def figures() -> Iterator[PublishedFigure]:
    """Yield the figures of the networks that are made here."""
    for name in NETWORKS:
        if name != WORLD:
            yield from _figures(name, network(name))


def world_figures(reference: Path) -> Iterator[PublishedFigure]:
    """Yield the figures of the eight world regions, read from the folder of reference data."""
    yield from _figures(WORLD, read_tasklets(reference / WORLD_FILE))


def network(name: str) -> TaskletInstance:
    """Return a network by its name in `NETWORKS`, but the one in a file."""
    if name == "eight hosts of 8":
        regions = [f"h{device // 8}" for device in range(64)]
        return _instance(name, regions, (0, 100), lambda one, other: (0, 3.125))
    if name == "eight hosts of 4 and 32 devices":
        regions = [f"h{device // 4}" if device < 32 else f"d{device}" for device in range(64)]
        return _instance(name, regions, (0, 100), lambda one, other: (0, 1.25))
    if name == "two sites":
        return _instance(name, ["a"] * 32 + ["b"] * 32, (1, 5), lambda one, other: (11, 1.12))
    both = US_LINKS | {(other, one): link for (one, other), link in US_LINKS.items()}
    return _instance(name, [region for region in "VOCH" for _ in range(16)], (5, 2), lambda one, other: both[one, other])


def _instance(name: str, regions: Sequence[str], inside: tuple[float, float], between) -> TaskletInstance:  # type: ignore[no-untyped-def]
    links = np.array(
        [[inside if region == other else between(region, other) for other in regions] for region in regions], np.float64
    )
    seconds, rates = links[..., 0] / 1e3, links[..., 1] * 1e9 / 8
    return TaskletInstance(name, tuple(regions), seconds, rates, NUM_STAGES, GRADIENT_BYTES, ACTIVATION_BYTES)


def _figures(name: str, instance: TaskletInstance) -> Iterator[PublishedFigure]:
    (contiguous, strided, reached, strided_total), is_limit = NETWORKS[name]
    in_order = np.arange(64).reshape(8, 8)
    for word, stages, target in (("contiguous", in_order, contiguous), ("strided", in_order.T, strided)):
        data_s, pipeline_s, *_ = worked_out(instance.reduce_s, instance.hand_over_s, np.ascontiguousarray(stages))
        if target is None:
            yield PublishedFigure(name, f"{word}, s", data_s + pipeline_s, strided_total, TOLERANCE)
            continue
        for what, ours, printed in zip(("gradients", "pipeline"), (data_s, pipeline_s), target, strict=True):
            yield PublishedFigure(name, f"{word}, {what}, s", ours, printed, TOLERANCE)
    result = arrange(instance, ArrangementRequest())
    yield PublishedFigure(name, "reached, s", result.value_s, reached, TOLERANCE, is_limit=is_limit)
