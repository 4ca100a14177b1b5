"""Compute time of an op that is split over ranks.

Splitting an op by ``s`` divides its batch: each of the ``s`` ranks computes ``1 / s`` of the samples with a full copy of the
parameters. A profile has one time per op, which is divided. An analytic graph has FLOPs and bytes, from which the roofline
computes a time per share. So small shares do not scale without limit.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..devices import DeviceType
from ..errors import GraphError
from ..jobs.graph import JobGraph

Shares = tuple[NDArray[np.float64], NDArray[np.float64]]


class ComputeModel(Protocol):
    """Prices each op's share on a device type."""

    name: str
    provenance: str

    def share_s(self, graph: JobGraph, splits: NDArray[np.int64], device: DeviceType) -> Shares:
        """Return forward and backward seconds of one share of each op, two arrays ``(n,)``."""
        ...


class Profiled:
    """The graph's own times divided by the splits, on the device type on which they were taken."""

    name = "profiled"
    provenance = "measured"

    def share_s(self, graph: JobGraph, splits: NDArray[np.int64], device: DeviceType) -> Shares:
        """Take times as they are where the graph does not name its reference device.

        Raises:
            GraphError: the graph's times hold on another device type.
        """
        if graph.reference_device not in (None, device.name):
            raise GraphError(
                f"was timed on {graph.reference_device} and cannot be divided on {device.name}; use the roofline",
                value=graph.name,
            )
        return graph.forward_s / splits, graph.backward_s / splits


class Roofline:
    """FLOPs and bytes of each share against the device's peaks.

    A share moves ``1 / s`` of the activations but all of the parameters; backward moves twice as much. A single
    share takes to the last bit what `JobGraph.timed_on` says of the op.
    """

    name = "roofline"
    provenance = "estimated"

    def share_s(self, graph: JobGraph, splits: NDArray[np.int64], device: DeviceType) -> Shares:
        """See `DeviceType.op_s`.

        Raises:
            GraphError: the graph carries no FLOPs.
        """
        if not graph.has_flops:
            raise GraphError("carries no FLOPs, so the roofline cannot time it", value=graph.name)
        moved = graph.moved_bytes / splits + graph.parameter_bytes * (1 - 1 / splits)
        forward, backward = graph.peaks_flops_per_s(device)
        forward_s = device.op_s(graph.forward_flops / splits, moved, forward)
        return forward_s, device.op_s(graph.backward_flops / splits, 2 * moved, backward)


MODELS: dict[str, ComputeModel] = {model.name: model for model in (Profiled(), Roofline())}


def model_named(name: str, graph: JobGraph) -> ComputeModel:
    """Return the compute model of a name; ``auto`` is the profile where there is one and the roofline elsewhere."""
    if name == "auto":
        return MODELS["roofline" if graph.has_flops and graph.source == "estimated" else "profiled"]
    return MODELS[name]
