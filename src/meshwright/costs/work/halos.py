"""Spatial parallelism: each sample's volume is cut over ranks, which exchange the positions at their borders.

An output of a window of ``k`` positions needs ``k // 2`` positions on each side. So a rank sends that many planes to both
neighbours along each dimension that is cut: forward of the input, backward of the output's gradient. Dimensions follow each
other, each with the planes that came along the ones before: edges and corners then need no message of their own. Meanwhile the
rank computes outputs that need no neighbour. Weights are on every rank; batch normalisation sums its moments over the ranks of
a volume. A layer is not divided where a dimension does not divide, or the part of a rank is thinner than its halo. Its inputs
are then gathered, and every rank of the volume computes all of it.

Legend: ``n`` ops of the job graph.

Source: Oyama et al., "The case for strong scaling in deep learning: training large 3D CNNs with hybrid parallelism", 2020,
section 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from ...errors import PlanError
from ...jobs.convolutional import ConvLayer, ConvNetShape, Extent
from ...jobs.graph import JobGraph
from ...plans.partition import Layout
from .operations import Axis, Message

DIMENSIONS: tuple[Axis, Axis, Axis] = ("sp_d", "sp_h", "sp_w")

ERRORS_AND_OUTPUTS = 2.0
"""Volumes that are kept for each output: itself, and its gradient (Oyama et al., 2020, section 3)."""

MOMENT_BYTES = 8
"""Of a channel, in batch normalisation: two sums in float32, forward as backward."""


@dataclass(frozen=True)
class OpExchange:
    """Messages of the ranks of a volume for one op in one pass.

    Attributes:
        halos: during the positions that need no neighbour, one after the other.
        boundary: share of the op's time that waits for them.
        waited: after the op, overlapping with nothing.
    """

    halos: tuple[Message, ...] = ()
    boundary: float = 0.0
    waited: tuple[Message, ...] = ()

    @property
    def messages(self) -> tuple[Message, ...]:
        """All messages of the exchange."""
        return *self.halos, *self.waited


@dataclass(frozen=True, eq=False)
class VolumeCut:
    """How the ops of a job graph are divided over the ranks of a volume.

    Attributes:
        parts: ranks among which the positions of each op are divided; 1 where every rank computes all, ``(n,)``.
        forward, backward: what is sent for each op, ``n`` each.
        halo_bytes: the largest halo of a rank, a buffer that it holds.
    """

    parts: NDArray[np.int64]
    forward: tuple[OpExchange, ...]
    backward: tuple[OpExchange, ...]
    halo_bytes: float


def parts_of(graph: JobGraph, layout: Layout) -> NDArray[np.int64]:
    """Return ranks among which the positions of each op are divided, ``(n,)``.

    Raises:
        PlanError: volumes are cut of a job that has none.
    """
    if layout.sp == 1:
        return np.ones(graph.num_ops, np.int64)
    shape, cuts = _shape(graph, layout), (layout.sp_d, layout.sp_h, layout.sp_w)
    return np.array([layout.sp if is_divided(layer, cuts) else 1 for layer in shape.layers], np.int64)


def is_divided(layer: ConvLayer, cuts: Extent) -> bool:
    """Return whether a layer works on a part of its volume: all cut dimensions divide, and no part is thinner than its halo."""
    extents = zip(layer.in_extent, layer.out_extent, cuts, strict=True)
    return layer.is_volume and all(
        cut == 1 or (i % cut == 0 and o % cut == 0 and min(i, o) // cut >= max(1, layer.reach)) for i, o, cut in extents
    )


def halo_bytes(channels: int, extent: Extent, cuts: Extent, reach: int, element_bytes: int) -> tuple[float, ...]:
    """Return the bytes that a rank sends for one sample along each dimension, to both neighbours together; 0 where it is not cut.

    ``2 reach channels`` times the other extents of its part, those of dimensions before with their own halos.

    Args:
        channels: of the volume.
        extent: depth, height and width of the whole volume.
        cuts: parts of each dimension.
        reach: positions on each side.
        element_bytes: of a position in one channel.
    """
    local = [length // cut for length, cut in zip(extent, cuts, strict=True)]
    results = []
    for place, cut in enumerate(cuts):
        others = prod(local[:place]) * prod(local[place + 1 :])
        results.append(2.0 * reach * channels * others * element_bytes if cut > 1 else 0.0)
        local[place] += 2 * reach if cut > 1 else 0
    return tuple(results)


def cut_volumes(graph: JobGraph, layout: Layout) -> VolumeCut | None:
    """Return the exchanges of the ranks of a volume for each op; None where no volume is cut.

    Raises:
        PlanError: as `parts_of`.
    """
    if layout.sp == 1:
        return None
    parts, shape = parts_of(graph, layout), _shape(graph, layout)
    gathered = {source for source, target in graph.edges.tolist() if parts[source] > 1 and parts[target] == 1}
    forward, backward, largest = [], [], 0.0
    for op, layer in enumerate(shape.layers):
        if parts[op] == 1:
            forward.append(OpExchange())
            backward.append(OpExchange())
            continue
        forward_halos = _halos(layer, layer.in_channels, layer.in_extent, layout, shape)
        backward_halos = _halos(layer, layer.out_channels, layer.out_extent, layout, shape) if layer.inputs else ()
        waited: tuple[Message, ...] = ()
        if layer.kind == "batch_norm":
            waited = (Message("moments", "all_reduce", "sp", float(MOMENT_BYTES * layer.out_channels)),)
        whole = float(layout.micro_batch * shape.element_bytes * layer.output)
        gather = (Message("volume", "all_gather", "sp", whole),) if op in gathered else ()
        share = _boundary_share(layer, layout)
        forward.append(OpExchange(forward_halos, share if forward_halos else 0.0, (*waited, *gather)))
        backward.append(OpExchange(backward_halos, share if backward_halos else 0.0, waited))
        largest = max(largest, *(sum(message.payload_bytes for message in one) for one in (forward_halos, backward_halos)))
    return VolumeCut(parts, tuple(forward), tuple(backward), largest)


def _halos(layer: ConvLayer, channels: int, extent: Extent, layout: Layout, shape: ConvNetShape) -> tuple[Message, ...]:
    cuts = (layout.sp_d, layout.sp_h, layout.sp_w)
    sizes = halo_bytes(channels, extent, cuts, layer.reach, shape.element_bytes)
    every = zip(DIMENSIONS, sizes, strict=True)
    return tuple(Message("halo", "send_recv", axis, layout.micro_batch * size) for axis, size in every if size > 0)


def _boundary_share(layer: ConvLayer, layout: Layout) -> float:
    """Return the share of a part's outputs whose windows reach into a neighbour's part."""
    inner = 1.0
    for i, o, cut in zip(layer.in_extent, layer.out_extent, (layout.sp_d, layout.sp_h, layout.sp_w), strict=True):
        if cut > 1:
            width = -(-layer.reach * o // i)
            inner *= max(0.0, 1.0 - 2.0 * width * cut / o)
    return 1.0 - inner


def _shape(graph: JobGraph, layout: Layout) -> ConvNetShape:
    if graph.volumes is None:
        name = next(name for name in ("sp_d", "sp_h", "sp_w") if getattr(layout, name) > 1)
        problem = f"cuts volumes, and {graph.name} has none"
        raise PlanError(problem, field=f"layout.{name}", value=getattr(layout, name))
    return graph.volumes
