"""Pipelines of a job graph on devices of several types: each op is timed on the slowest device of its stage.

All replicas of a stage end a micro-batch together: a synchronous stage is as slow as its slowest replica. A pipeline of one
chunk a stage is cut so that its busiest stage takes least, exactly. That is compared with the cut for equal devices of the
slowest type, and the better one that fits is taken. Another cut may be better still.

Legend: ``n`` ranks, ``p`` stages, ``u`` units that stay whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...devices import DeviceType
from ...jobs.graph import JobGraph
from ...plans.partition import Layout
from ...plans.rank_order import DEFAULT_ORDER, numbers
from ...plans.stages import layer_starts
from ..process_groups.group_network import GroupNetwork
from ..settings import CostSettings
from ..training_step.graph_step_time import GraphPricer
from ..work.graph_work import GraphWork, describe_graph, op_times_s
from .cut_family import lightest_cut
from .graph_cuts import find_cuts
from .unit_chain import Chain


@dataclass(frozen=True, eq=False)
class MixedDevices:
    """Devices of the ranks of a job.

    Attributes:
        types: of devices.
        of_rank: number of the type of each rank's device, in rank order, ``(n,)``.
    """

    types: tuple[DeviceType, ...]
    of_rank: NDArray[np.int64]
    _times: dict[tuple[object, ...], tuple[JobGraph, NDArray[np.float64]]] = field(default_factory=dict, repr=False)

    @property
    def slowest(self) -> DeviceType:
        """The type that computes least."""
        used = np.unique(self.of_rank).tolist()
        return self.types[min(used, key=lambda kind: self.types[kind].reached_flops_per_s)]

    @property
    def peaks_flops_per_s(self) -> tuple[float, ...]:
        """Peak FLOP/s of each rank's device, in rank order."""
        return tuple(self.types[kind].peak_flops_per_s for kind in self.of_rank.tolist())

    def of_stages(self, layout: Layout, order: str = DEFAULT_ORDER) -> list[NDArray[np.int64]]:
        """Return the types of the ranks of each stage in the layout's own numbering, ``p`` arrays."""
        return np.split(self.of_rank[numbers(layout, order)], [layout.first_rank(stage) for stage in range(1, layout.pp)])

    def missing_bytes(self, work: GraphWork, order: str = DEFAULT_ORDER) -> float:
        """Return the memory that the stage with the largest deficit lacks; what it has left where that is negative."""
        held = (work.memory(stage).total for stage in range(work.layout.pp))
        stages = self.of_stages(work.layout, order)
        room = (min(self.types[kind].memory_bytes for kind in of_stage.tolist()) for of_stage in stages)
        return float(max(bytes_ - left for bytes_, left in zip(held, room, strict=True)))

    def on_stages(self, work: GraphWork, costs: CostSettings, of_stages: Sequence[NDArray[np.int64]]) -> GraphWork:
        """Return the work with each op timed on the slowest of the types of its stage."""
        forward_s, backward_s = work.forward_s.copy(), work.backward_s.copy()
        for stage, kinds in enumerate(of_stages):
            ops = work.ops_of(stage)
            forward_s[ops], backward_s[ops] = self._op_times_s(work.graph, work.layout, kinds, costs, ops)
        return replace(work, forward_s=forward_s, backward_s=backward_s)

    def of_replica(self, work: GraphWork, costs: CostSettings, replica: int, order: str = DEFAULT_ORDER) -> GraphWork:
        """Return the work as one replica does it by itself, on its own devices."""
        own = [kinds[replica : replica + 1] for kinds in self.of_stages(work.layout, order)]
        return self.on_stages(work, costs, own)

    def work(
        self,
        graph: JobGraph,
        layout: Layout,
        wires: GroupNetwork,
        costs: CostSettings,
        order: str = DEFAULT_ORDER,
        chain: Chain | None = None,
    ) -> GraphWork:
        """Return the work of a layout, its pipeline cut for its stages' devices; of cuts that do not fit, that which lacks least.

        Args:
            graph: the job.
            layout: its pipeline and micro-batches.
            wires: prices messages.
            costs: chooses the compute model.
            order: how ranks are numbered.
            chain: of the job on the slowest type, from `Chain.from_graph`, if it is known.

        Raises:
            PlanError, GraphError: the job cannot be cut or timed so.
        """
        slowest, of_stages = self.slowest, self.of_stages(layout, order)
        room = min(one.memory_bytes for one in self.types)
        chain = chain or Chain.from_graph(graph, layout, slowest, costs)
        tried = [find_cuts(graph, layout, slowest, wires, costs, order=order, capacity_bytes=room, chain=chain).places]
        tried += [find_cuts(graph, layout, slowest, wires, costs, order=order, chain=chain).places] if tried[0] is None else []
        if layout.pp > 1 and layout.virtual_stages == 1:
            tried.append(self._least_busy(graph, layout, costs, of_stages))
        pricer = GraphPricer(slowest, wires, costs.overlap_slowdown, order)
        works = [
            self.on_stages(describe_graph(graph, layout, slowest, costs, cuts=cuts), costs, of_stages)
            for cuts in dict.fromkeys(tried)
            if cuts is not None
        ]
        return min(works, key=lambda work: (max(0.0, self.missing_bytes(work, order)), pricer.step_s(work)))

    def _op_times_s(
        self, graph: JobGraph, layout: Layout, kinds: NDArray[np.int64], costs: CostSettings, ops: Any = slice(None)
    ) -> NDArray[np.float64]:
        """Return the seconds of ops, all by default, forward and backward on the slowest of some types, ``(2, n)``."""
        of_layout = id(graph), layout.micro_batch, layout.recompute, layout.sp_d, layout.sp_h, layout.sp_w, costs
        times = []
        for kind in np.unique(kinds).tolist():
            known = *of_layout, kind
            if known not in self._times:  # the graph stays, so that the id stays its own
                self._times[known] = graph, np.stack(op_times_s(graph, layout, self.types[kind], costs))
            times.append(self._times[known][1][:, ops])
        slowest_s: NDArray[np.float64] = np.max(times, axis=0)
        return slowest_s

    def _least_busy(
        self, graph: JobGraph, layout: Layout, costs: CostSettings, of_stages: Sequence[NDArray[np.int64]]
    ) -> tuple[int, ...] | None:
        """Return where the busiest stage takes least; None where there are fewer units than stages."""
        starts = [*layer_starts(graph).tolist(), graph.num_ops]
        if len(starts) - 1 < layout.pp:
            return None
        of_ops = np.stack([self._op_times_s(graph, layout, kinds, costs).sum(axis=0) for kinds in of_stages])[:, graph.order]
        busy_s = np.ascontiguousarray(np.pad(np.cumsum(of_ops, axis=1), ((0, 0), (1, 0)))[:, starts])
        cuts = np.zeros(layout.pp + 1, np.int64)
        lightest_cut(busy_s, np.zeros(len(starts)), np.inf, cuts)
        return tuple(starts[unit] for unit in cuts.tolist())
