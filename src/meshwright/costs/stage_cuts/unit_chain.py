"""A job graph as a pipeline that is to be cut sees it: units one after the other, and sums over all before each place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...devices import DeviceType
from ...jobs.graph import JobGraph
from ...plans.partition import Layout
from ...plans.stages import layer_starts
from .. import compute
from ..settings import CostSettings
from ..work.graph_work import kept_activation_bytes, op_times_s, rank_activation_bytes, share_of
from .cut_family import CutFamily, evenest

NOTHING = np.zeros((0, 0))
"""In place of bytes of runs, where outputs are relayed."""


@dataclass(frozen=True, eq=False)
class Chain:
    """A graph as a pipeline sees it.

    Attributes:
        starts: first op of each unit by its place in the topological order and, last, the number of ops, ``(u + 1,)``.
        forward_s: seconds of a micro-batch through all units before each one, ``(u + 1,)``.
        backward_s: the same backward, with recomputation, ``(u + 1,)``.
        backward_ops: seconds and bytes of gradients of each op in the topological order.
        forward_ops: seconds and bytes of parameters of each op in the topological order.
        family: cuts that are good for some machine.
        weight_bytes: of all units before each one, ``(u + 1,)``.
        activation_bytes: of a micro-batch through all units before each one, ``(u + 1,)``.
        workspace_bytes: largest of a unit, ``(u,)``.
        crossing_bytes: of a micro-batch past each place between two units; nothing at both ends, ``(u + 1,)``.
        skips: bytes that a run of units sends to later ones and gets from earlier ones, where they go directly. By its first
            unit and the unit behind its last, ``(u + 1, u + 1)`` each. Without elements where outputs are relayed.
        known: seconds of transfers, even cuts and memories of cuts by what decides them, kept here since layouts share them.
    """

    starts: NDArray[np.int64]
    forward_s: NDArray[np.float64]
    backward_s: NDArray[np.float64]
    backward_ops: tuple[NDArray[np.float64], NDArray[np.float64]]
    forward_ops: tuple[NDArray[np.float64], NDArray[np.float64]]
    family: CutFamily
    weight_bytes: NDArray[np.float64]
    activation_bytes: NDArray[np.float64]
    workspace_bytes: NDArray[np.float64]
    crossing_bytes: NDArray[np.float64]
    skips: tuple[NDArray[np.float64], NDArray[np.float64]] = (NOTHING, NOTHING)
    known: dict[object, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def from_graph(
        cls, graph: JobGraph, layout: Layout, device: DeviceType, costs: CostSettings, family: CutFamily | None = None
    ) -> Chain:
        """Return the chain of a graph whose micro-batches are those of a layout; with the family of another one of it, if known.

        Raises:
            PlanError, GraphError: as `graph_work.describe_graph`.
        """
        forward_s, backward_s = op_times_s(graph, layout, device, costs)
        order, share, n = graph.order, share_of(graph, layout), graph.num_ops
        made_bytes = rank_activation_bytes(graph, layout)
        starts = np.append(layer_starts(graph), n)
        place = np.empty(n, np.int64)
        place[order] = np.arange(n)
        last_use = place.copy()
        np.maximum.at(last_use, graph.edges[:, 0], place[graph.edges[:, 1]])
        # An op's output crosses every place behind it up to the last op that needs it.
        change = np.zeros(n + 1)
        np.add.at(change, place + 1, made_bytes)
        np.add.at(change, last_use + 1, -made_bytes)
        crosses = np.zeros(n + 1, np.int64)
        np.add.at(crosses, place + 1, 1)
        np.add.at(crosses, last_use + 1, -1)
        # Rounding must not leave a message where nothing crosses.
        crossing = np.where(np.cumsum(crosses) > 0, np.maximum(np.cumsum(change), 0.0), 0.0)

        def before(values: NDArray[np.float64]) -> NDArray[np.float64]:
            picked: NDArray[np.float64] = np.concatenate([np.zeros(1), np.cumsum(values[order])])[starts]
            return picked

        return cls(
            starts=starts,
            forward_s=before(forward_s),
            backward_s=before(backward_s),
            backward_ops=(backward_s[order], (graph.parameter_bytes * costs.gradient_bytes_per_parameter_byte)[order]),
            forward_ops=(forward_s[order], graph.parameter_bytes[order]),
            family=family
            or CutFamily(graph, starts, crossing[starts], compute.model_named(costs.compute, graph).name == "roofline"),
            weight_bytes=before(graph.parameter_bytes),
            activation_bytes=before(kept_activation_bytes(graph, layout)),
            workspace_bytes=np.maximum.reduceat(share * graph.workspace_bytes[order], starts[:-1]),
            crossing_bytes=crossing[starts],
            skips=run_bytes(graph, starts, made_bytes) if costs.pipeline_skips == "direct" else (NOTHING, NOTHING),
        )

    @property
    def is_direct(self) -> bool:
        """Whether outputs go past stages that do not read them."""
        return self.skips[0].size > 0

    @property
    def busy_s(self) -> NDArray[np.float64]:
        """Seconds of a micro-batch, forward and backward, through all units before each one, ``(u + 1,)``."""
        both: NDArray[np.float64] = self.forward_s + self.backward_s
        return both

    @property
    def num_units(self) -> int:
        """Number of units, ``u``."""
        return len(self.starts) - 1

    def evenest(self, num_stages: int, slacks: Sequence[float]) -> list[NDArray[np.int64]]:
        """Return for each slack a cut of one chunk a stage whose busiest one computes little, see `cut_family.evenest`."""
        key = num_stages, *slacks
        if key not in self.known:
            self.known[key] = evenest(self.busy_s, np.zeros(self.num_units + 1), num_stages, slacks)
        cuts: list[NDArray[np.int64]] = self.known[key]
        return cuts

    def least_busiest_s(self, num_stages: int, num_chunks: int) -> float:
        """Return seconds that a micro-batch takes on the busiest stage, at least, with any cut; of several chunks any of them."""
        if num_chunks == 1:
            return float(np.diff(self.busy_s[self.evenest(num_stages, (0.0,))[0]]).max())
        cuts = self.family.cuts(num_stages * num_chunks)
        own_s = np.diff(self.busy_s[cuts], axis=1).reshape(len(cuts), num_chunks, num_stages).sum(axis=1)
        return float(own_s.max(axis=1).min())


def run_bytes(
    graph: JobGraph, starts: NDArray[np.int64], made_bytes: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return bytes that each run of units sends to later units and gets from earlier ones, each output once.

    Args:
        graph: the job.
        starts: first op of each unit by its place in the topological order and, last, the number of ops, ``(u + 1,)``.
        made_bytes: of the output of each op for a micro-batch, ``(n,)``.

    Returns:
        What is sent and what is given, by the first unit of the run and the unit behind its last.
    """
    place = np.empty(graph.num_ops, np.int64)
    place[graph.order] = np.arange(graph.num_ops)
    unit = np.searchsorted(starts, place, side="right") - 1
    reads = np.unique(np.stack([graph.edges[:, 0], unit[graph.edges[:, 1]]], axis=1), axis=0)
    op, reader = reads[unit[reads[:, 0]] != reads[:, 1]].T
    own, size, is_first = unit[op], made_bytes[op], np.append(True, op[1:] != op[:-1])[: len(op)]
    is_last = np.roll(is_first, -1)
    # A run that begins behind the op, and behind the reader before, gets its output if it holds the reader.
    before = np.where(is_first, own, np.roll(reader, 1))

    def summed(weight: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        sent, inbound = np.zeros((2, len(starts), len(starts)), weight.dtype)
        np.add.at(sent, (own[is_last] + 1, reader[is_last]), weight[is_last])
        np.add.at(inbound, (before + 1, reader + 1), weight)
        sent, inbound = sent.cumsum(axis=0)[:, ::-1].cumsum(axis=1)[:, ::-1], inbound.cumsum(axis=0).cumsum(axis=1)
        # Of all outputs made before its end, those that it makes; of all read before its end, those that are read inside it.
        return sent.diagonal() - sent, inbound - inbound.diagonal()[:, None]

    # Rounding must not leave a message where nothing goes.
    sent, received = (
        np.where(np.triu(counts) > 0, np.maximum(sums, 0.0), 0.0)
        for sums, counts in zip(summed(size), summed(np.ones(len(size), np.int64)), strict=True)
    )
    return sent, received
