"""Lowering: what the ranks of an op-split partition do in one training step, as an execution graph.

Splitting an op by ``s`` divides its batch evenly over the ranks ``0..s-1``. Rank ``r`` then computes the samples
``[r / s, (r + 1) / s)``, so between ops of equal split nothing moves, between unequal splits each rank fetches the
part of the activation that it lacks (and sends the gradient of that part back), and after the backward pass of an
op with parameters its ranks all-reduce the gradients. The step ends when everything has ended.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ..costs import collectives, compute, flows, tasks
from ..costs.model import CostSettings
from ..costs.network import RankNetwork
from ..costs.phases import Phases, alone_s
from ..jobs.graph import JobGraph
from ..plans.partition import OpSplits
from .execution import ExecutionGraph, TaskKind
from .messages import Messages


def lower(graph: JobGraph, splits: OpSplits, network: RankNetwork, costs: CostSettings) -> ExecutionGraph:
    """The execution graph of one step.

    Where links are shared fairly (``costs.contention``), a message's duration is the time of its flows if each had its
    path for itself; otherwise it is what the collective's formula says.

    Args:
        graph: the job, ``n`` ops.
        splits: split degree of each op, at most the number of ranks.
        network: the ranks' devices and what joins them.
        costs: one choice per layer.

    Raises:
        ConfigError: the all-reduce does not run on the cluster.
        GraphError: the graph cannot be timed on a device of the placement.
    """
    return _Lowering(graph, splits.splits, network, costs).build()


def overlaps(source_split: int, target_split: int) -> Iterator[tuple[int, int, float]]:
    """The share of all samples that passes from each rank of one split to each rank of another.

    Yields:
        source rank, target rank, share; shares add up to 1.
    """
    for target in range(target_split):
        first = target * source_split // target_split
        last = -(-(target + 1) * source_split // target_split)
        for source in range(first, last):
            low = max(source * target_split, target * source_split)
            high = min((source + 1) * target_split, (target + 1) * source_split)
            if high > low:
                yield source, target, (high - low) / (source_split * target_split)


def reduced_bytes(graph: JobGraph, degrees: NDArray[np.int64], costs: CostSettings) -> dict[int, float]:
    """Bytes of gradients that each group of ranks, told by its size, all-reduces in a step."""
    found: dict[int, float] = {}
    for op in np.flatnonzero((degrees > 1) & (graph.parameter_bytes > 0)).tolist():
        size = float(graph.parameter_bytes[op]) * costs.gradient_bytes_per_parameter_byte
        found[int(degrees[op])] = found.get(int(degrees[op]), 0.0) + size
    return found


class _Lowering:
    def __init__(self, graph: JobGraph, degrees: NDArray[np.int64], network: RankNetwork, costs: CostSettings) -> None:
        self.graph, self.degrees, self.network, self.costs = graph, degrees, network, costs
        self.flow = flows.chosen(costs.flows)
        demand_bytes = {np.arange(n).tobytes(): size for n, size in reduced_bytes(graph, degrees, costs).items()}
        self.collective = collectives.of(costs).allotted(demand_bytes)
        self.num_ranks = int(degrees.max())
        self.position = np.empty(graph.num_ops, np.int64)
        self.position[graph.order] = np.arange(graph.num_ops)
        self.rows: list[tuple[int, float, float, int, int, bool, float]] = []
        self.streams: list[list[int]] = []
        self.members: list[list[int]] = []
        self.edges: list[tuple[int, int]] = []
        self.share_s = self._shares()
        # Many layers reduce the same bytes over the same ranks.
        self.all_reduce_s: dict[tuple[int, float], float] = {}
        self.all_reduce_phases: dict[tuple[int, float], Phases] = {}

    def build(self) -> ExecutionGraph:
        graph, degrees = self.graph, self.degrees.tolist()
        forward: list[list[int]] = [[] for _ in range(graph.num_ops)]
        backward: list[list[int]] = [[] for _ in range(graph.num_ops)]
        for op in graph.order.tolist():
            forward[op] = [self._compute(op, rank, is_backward=False) for rank in range(degrees[op])]
        for op in graph.order[::-1].tolist():
            backward[op] = [self._compute(op, rank, is_backward=True) for rank in range(degrees[op])]
        is_sink = np.ones(graph.num_ops, np.bool_)
        is_sink[graph.edges[:, 0]] = False
        for op in np.flatnonzero(is_sink).tolist():
            self.edges += zip(forward[op], backward[op], strict=True)
        for source, target in graph.edges.tolist():
            self._pass(source, forward[source], forward[target], is_backward=False, consumer=target)
            self._pass(source, backward[source], backward[target], is_backward=True, consumer=source)
        self._all_reduce(backward)
        return self._frozen()

    def _shares(self) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Forward and backward seconds of each op's share, per rank (devices may differ)."""
        cluster = self.network.cluster
        model = compute.chosen(self.costs.compute, self.graph)
        by_type = {
            t: model.share_s(self.graph, self.degrees, cluster.device_types[t])
            for t in np.unique(cluster.device_type[self.network.devices]).tolist()
        }
        return [by_type[t] for t in cluster.device_type[self.network.devices].tolist()]

    def _compute(self, op: int, rank: int, *, is_backward: bool) -> int:
        position = float(self.position[op])
        order = 2 * self.graph.num_ops - 1 - position if is_backward else position
        duration_s = float(self.share_s[rank][int(is_backward)][op])
        return self._task(TaskKind.COMPUTE, duration_s, order, op, rank, is_backward, 0.0, [])

    def _pass(self, source: int, before: list[int], after: list[int], *, is_backward: bool, consumer: int) -> None:
        """Move the activation of ``source`` along an edge, or its gradient back.

        ``before`` are the tasks of the edge's source op, ``after`` those of its target, in the forward direction.
        """
        order = float(self.position[consumer])
        order = 2 * self.graph.num_ops - 1 - order if is_backward else order
        for i, j, share in overlaps(len(before), len(after)):
            giver, taker = (after[j], before[i]) if is_backward else (before[i], after[j])
            sender, receiver = (j, i) if is_backward else (i, j)
            payload = share * float(self.graph.activation_bytes[source])
            if sender == receiver or payload == 0:
                self.edges.append((giver, taker))
                continue
            chunks, before_it = tasks.num_chunks(payload, self.costs), giver
            duration_s = self.flow.transfer_s(self.network, sender, receiver, payload / chunks)
            for _ in range(chunks):
                ranks = [sender, receiver]
                size = payload / chunks
                task = self._task(TaskKind.TRANSFER, duration_s, order - 0.5, source, sender, is_backward, size, ranks)
                self.edges.append((before_it, task))
                before_it = task
            self.edges.append((before_it, taker))

    def _all_reduce(self, backward: list[list[int]]) -> None:
        """Sum the gradients of each op, or of the ops of a bucket, over the ranks that have them."""
        graph, n = self.graph, self.graph.num_ops
        made = graph.order[::-1][(self.degrees > 1)[graph.order[::-1]]]
        sizes = graph.parameter_bytes * self.costs.gradient_bytes_per_parameter_byte
        buckets = []
        for degree in np.unique(self.degrees[made]).tolist():
            ops = made[self.degrees[made] == degree]
            buckets += [ops[list(places)] for places in tasks.merged(sizes[ops].tolist(), self.costs.gradient_bucket_bytes)]
        for merged in sorted(buckets, key=lambda bucket: -int(self.position[bucket[-1]])):
            last = int(merged[-1])
            place = float(self.position[last])
            order = tasks.gradient_order(2 * n - 1 - place + 0.5, 2 * n + place, self.costs)
            self._reduce(last, float(sizes[merged].sum()), order, [backward[op] for op in merged.tolist()])

    def _reduce(self, op: int, whole_bytes: float, order: float, givers: list[list[int]]) -> None:
        """One all-reduce over the ranks of the backward tasks that give to it, in chunks one after the other."""
        ranks = list(range(len(givers[0])))
        chunks = tasks.num_chunks(whole_bytes, self.costs)
        payload = whole_bytes / chunks
        key = len(ranks), payload
        if key not in self.all_reduce_s:
            phases = self._all_reduce_phases(*key) if self.costs.contention == "fair" else ()
            formula = self.collective.all_reduce_s
            self.all_reduce_s[key] = alone_s(self.network, phases) if phases else formula(self.network, np.array(ranks), payload)
        before = [giver for of_op in givers for giver in of_op]
        for _ in range(chunks):
            task = self._task(TaskKind.COLLECTIVE, self.all_reduce_s[key], order, op, 0, True, payload, ranks)
            self.edges += [(giver, task) for giver in before]
            before = [task]

    def _all_reduce_phases(self, num_ranks: int, payload: float) -> Phases:
        key = num_ranks, payload
        if key not in self.all_reduce_phases:
            self.all_reduce_phases[key] = self.collective.phases(self.network, np.arange(num_ranks), payload)
        return self.all_reduce_phases[key]

    def _messages(self) -> Messages:
        """What the tasks send; asked for only where somebody looks at the links."""
        phases: list[Phases] = []
        for (kind, *_, payload), members in zip(self.rows, self.members, strict=True):
            if kind == TaskKind.COMPUTE:
                phases.append(())
            elif kind == TaskKind.TRANSFER:
                phases.append(flows.transfer(self.network, members[0], members[1], payload))
            else:
                phases.append(self._all_reduce_phases(len(members), payload))
        return Messages.of(self.members, phases)

    def _task(
        self,
        kind: TaskKind,
        duration_s: float,
        order: float,
        op: int,
        rank: int,
        is_backward: bool,
        payload: float,
        members: list[int],
    ) -> int:
        if kind == TaskKind.COMPUTE:
            streams = [rank]
        else:
            streams = [self.num_ranks + member for member in members] if self.costs.contention == "serialised" else []
        priority = duration_s if self.costs.priority == "shortest-first" else order
        self.rows.append((int(kind), duration_s, priority, op, rank, is_backward, payload))
        self.streams.append(streams)
        self.members.append(members)
        return len(self.rows) - 1

    def _frozen(self) -> ExecutionGraph:
        kind, duration_s, priority, op, rank, is_backward, payload = zip(*self.rows, strict=True)
        start = np.zeros(len(self.rows) + 1, np.int64)
        np.cumsum([len(s) for s in self.streams], out=start[1:])
        return ExecutionGraph(
            num_ranks=self.num_ranks,
            kind=np.array(kind, np.int8),
            duration_s=np.array(duration_s, np.float64),
            priority=np.array(priority, np.float64),
            stream_start=start,
            streams=np.array([s for streams in self.streams for s in streams], np.int64),
            edges=np.array(self.edges, np.int64).reshape(-1, 2),
            op=np.array(op, np.int64),
            rank=np.array(rank, np.int64),
            is_backward=np.array(is_backward, np.bool_),
            payload_bytes=np.array(payload, np.float64),
            describe_messages=self._messages,
        )
