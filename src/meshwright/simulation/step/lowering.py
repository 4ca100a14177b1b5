"""Lowering: the tasks of the ranks of an op-split partition in one training step, as an execution graph.

Splitting an op by ``s`` divides its batch evenly over the ranks ``0..s-1``. Rank ``r`` then computes the samples
``[r / s, (r + 1) / s)``, so between ops of equal split nothing moves. Between unequal splits each rank fetches the missing part
of the activation and sends back the gradient of that part. After the backward pass of an op with parameters its ranks all-reduce
the gradients. The step ends with its last task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...costs import collectives, compute, flows, tasks
from ...costs.network import RankNetwork
from ...costs.phases import Phases, alone_s
from ...costs.settings import CostSettings
from ...jobs.graph import JobGraph
from ...plans.splitting.op_splits import OpSplits
from ..ragged import row_starts
from .deadlines import by_deadline
from .execution import ExecutionGraph, TaskKind
from .messages import Messages


def lower(graph: JobGraph, splits: OpSplits, network: RankNetwork, costs: CostSettings) -> ExecutionGraph:
    """Return the execution graph of one step.

    Where links are shared fairly (``costs.contention``), a message's duration is the time of its flows if each were alone on its
    path. Otherwise it is that of the collective's formula.

    Args:
        graph: the job, ``n`` ops.
        splits: split degree of each op, at most the number of ranks.
        network: the ranks' devices and their links.
        costs: one choice per layer.

    Raises:
        ConfigError: the all-reduce does not run on the cluster.
        GraphError: the graph cannot be timed on a device of the placement.
    """
    return _Lowering(graph, splits.splits, network, costs).build()


def overlaps(source_split: int, target_split: int) -> Iterator[tuple[int, int, float]]:
    """Yield the share of all samples that passes from each rank of one split to each rank of another.

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
    """Return the bytes of gradients that each group of ranks all-reduces in a step, by the size of the group."""
    result: dict[int, float] = {}
    for op in np.flatnonzero((degrees > 1) & (graph.parameter_bytes > 0)).tolist():
        size = float(graph.parameter_bytes[op]) * costs.gradient_bytes_per_parameter_byte
        result[int(degrees[op])] = result.get(int(degrees[op]), 0.0) + size
    return result


class _Lowering:
    """Numbers tasks and joins them: the forward passes of all ops in order, the backward passes, then messages one by one.

    Compute tasks and what joins them where nothing moves are made as arrays; only messages are made one at a time.
    """

    def __init__(self, graph: JobGraph, degrees: NDArray[np.int64], network: RankNetwork, costs: CostSettings) -> None:
        self.graph, self.degrees, self.network, self.costs = graph, degrees, network, costs
        self.flow = flows.MODELS[costs.flows]
        demand_bytes = {np.arange(n).tobytes(): size for n, size in reduced_bytes(graph, degrees, costs).items()}
        self.collective = collectives.algorithm_of(costs).allotted(demand_bytes)
        self.num_ranks = int(degrees.max())
        self.position = np.empty(graph.num_ops, np.int64)
        self.position[graph.order] = np.arange(graph.num_ops)
        # The first of the tasks of each op's passes, one a rank.
        self.forward = self._numbered(graph.order, 0)
        self.num_compute = 2 * int(degrees.sum())
        self.backward = self._numbered(graph.order[::-1], self.num_compute // 2)
        self.rows: list[tuple[int, float, float, int, int, bool, float]] = []
        self.members: list[list[int]] = []
        self.edges: list[tuple[int, int]] = []
        # Many layers reduce the same bytes over the same ranks.
        self.all_reduce_s: dict[tuple[int, float], float] = {}
        self.pricers: dict[int, Callable[[float], float]] = {}
        self.all_reduce_phases: dict[tuple[int, float], Phases] = {}

    def build(self) -> ExecutionGraph:
        graph = self.graph
        is_sink = np.ones(graph.num_ops, np.bool_)
        is_sink[graph.edges[:, 0]] = False
        sinks = np.flatnonzero(is_sink)
        joined = [self._rank_by_rank(self.forward[sinks], self.backward[sinks], self.degrees[sinks])]
        source, target = graph.edges.T
        stays = self.degrees[source] == self.degrees[target]
        source, target, degree = source[stays], target[stays], self.degrees[source[stays]]
        joined.append(self._rank_by_rank(self.forward[source], self.forward[target], degree))
        joined.append(self._rank_by_rank(self.backward[target], self.backward[source], degree))
        for source_op, target_op in graph.edges[~stays].tolist():
            self._pass(source_op, target_op, is_backward=False)
            self._pass(source_op, target_op, is_backward=True)
        joined.append(self._all_reduce())
        return self._frozen(np.concatenate([*joined, np.array(self.edges, np.int64).reshape(-1, 2)]))

    def _numbered(self, ops: NDArray[np.int64], first: int) -> NDArray[np.int64]:
        """Return the first task of each op, where the ops are numbered in this order."""
        result = np.empty(self.graph.num_ops, np.int64)
        result[ops] = first + row_starts(self.degrees[ops])[:-1]
        return result

    @staticmethod
    def _rank_by_rank(before: NDArray[np.int64], after: NDArray[np.int64], degree: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the dependencies between the tasks of two passes, each rank's on its own: first tasks and ranks of each pair."""
        rank = np.arange(int(degree.sum())) - np.repeat(np.cumsum(degree) - degree, degree)
        return np.stack([np.repeat(before, degree) + rank, np.repeat(after, degree) + rank], axis=1)

    def _shares(self) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Return forward and backward seconds of each op's share, per rank (devices may differ)."""
        cluster = self.network.cluster
        model = compute.model_named(self.costs.compute, self.graph)
        by_type = {
            t: model.share_s(self.graph, self.degrees, cluster.device_types[t])
            for t in np.unique(cluster.device_type[self.network.devices]).tolist()
        }
        return [by_type[t] for t in cluster.device_type[self.network.devices].tolist()]

    def _pass(self, source: int, target: int, *, is_backward: bool) -> None:
        """Move the activation of ``source`` along an edge between unequal splits, or its gradient back."""
        order = float(self.position[source if is_backward else target])
        order = 2 * self.graph.num_ops - 1 - order if is_backward else order
        first = self.backward if is_backward else self.forward
        before, after = int(first[source]), int(first[target])
        for i, j, share in overlaps(int(self.degrees[source]), int(self.degrees[target])):
            giver, taker = (after + j, before + i) if is_backward else (before + i, after + j)
            sender, receiver = (j, i) if is_backward else (i, j)
            payload = share * float(self.graph.activation_bytes[source])
            if sender == receiver or payload == 0:
                self.edges.append((giver, taker))
                continue
            chunks, before_it = tasks.num_chunks(payload, self.costs), giver
            duration_s = self.flow(self.network, sender, receiver, payload / chunks)
            for _ in range(chunks):
                ranks = [sender, receiver]
                size = payload / chunks
                task = self._message(TaskKind.TRANSFER, duration_s, order - 0.5, source, sender, is_backward, size, ranks)
                self.edges.append((before_it, task))
                before_it = task
            self.edges.append((before_it, taker))

    def _all_reduce(self) -> NDArray[np.int64]:
        """Sum the gradients of each op, or of the ops of a bucket, over the ranks that have them; who gives to whom."""
        graph, n = self.graph, self.graph.num_ops
        made = graph.order[::-1][(self.degrees > 1)[graph.order[::-1]]]
        sizes = graph.parameter_bytes * self.costs.gradient_bytes_per_parameter_byte
        buckets = []
        for degree in np.unique(self.degrees[made]).tolist():
            ops = made[self.degrees[made] == degree]
            buckets += [ops[list(places)] for places in tasks.merged(sizes[ops].tolist(), self.costs.gradient_bucket_bytes)]
        buckets.sort(key=lambda bucket: -int(self.position[bucket[-1]]))
        taker = []
        for merged in buckets:
            last = int(merged[-1])
            place = float(self.position[last])
            order = tasks.gradient_order(2 * n - 1 - place + 0.5, 2 * n + place, self.costs)
            taker.append(self._reduce(last, float(sizes[merged].sum()), order))
        if not buckets:
            return np.zeros((0, 2), np.int64)
        ops = np.concatenate(buckets)
        degree, first_task = self.degrees[ops], np.repeat(taker, [len(bucket) for bucket in buckets])
        giver = self._rank_by_rank(self.backward[ops], self.backward[ops], degree)[:, 0]
        return np.stack([giver, np.repeat(first_task, degree)], axis=1)

    def _reduce(self, op: int, whole_bytes: float, order: float) -> int:
        """Return one all-reduce over the ranks of an op, in chunks one after the other; the first of them."""
        num_ranks = int(self.degrees[op])
        chunks = tasks.num_chunks(whole_bytes, self.costs)
        payload = whole_bytes / chunks
        duration_s, ranks = self._all_reduce_s(num_ranks, payload), list(range(num_ranks))
        numbers = [self._message(TaskKind.COLLECTIVE, duration_s, order, op, 0, True, payload, ranks) for _ in range(chunks)]
        self.edges += pairwise(numbers)
        return numbers[0]

    def _all_reduce_s(self, num_ranks: int, payload: float) -> float:
        key = num_ranks, payload
        if key not in self.all_reduce_s:
            phases = self._all_reduce_phases(*key) if self.costs.contention == "fair" else ()
            if phases:
                self.all_reduce_s[key] = alone_s(self.network, phases)
            else:
                if num_ranks not in self.pricers:
                    self.pricers[num_ranks] = self.collective.pricer(self.network, np.arange(num_ranks), "all_reduce")
                self.all_reduce_s[key] = self.pricers[num_ranks](payload)
        return self.all_reduce_s[key]

    def _all_reduce_phases(self, num_ranks: int, payload: float) -> Phases:
        key = num_ranks, payload
        if key not in self.all_reduce_phases:
            self.all_reduce_phases[key] = self.collective.phases(self.network, np.arange(num_ranks), payload)
        return self.all_reduce_phases[key]

    def _messages(self) -> Messages:
        """Return the messages of the tasks; made only when the links are read."""
        phases: list[Phases] = [()] * self.num_compute
        for (kind, *_, payload), members in zip(self.rows, self.members, strict=True):
            if kind == TaskKind.TRANSFER:
                phases.append(flows.transfer(self.network, members[0], members[1], payload))
            else:
                phases.append(self._all_reduce_phases(len(members), payload))
        nobody: list[list[int]] = [[]] * self.num_compute
        return Messages.from_members(nobody + self.members, phases)

    def _message(
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
        priority = duration_s if self.costs.priority == "shortest-first" else order
        self.rows.append((int(kind), duration_s, priority, op, rank, is_backward, payload))
        self.members.append(members)
        return self.num_compute + len(self.rows) - 1

    def _frozen(self, edges: NDArray[np.int64]) -> ExecutionGraph:
        n, order = self.graph.num_ops, self.graph.order
        ops = np.concatenate([order, order[::-1]])
        degree = self.degrees[ops]
        op = np.repeat(ops, degree)
        rank = np.arange(self.num_compute) - np.repeat(np.cumsum(degree) - degree, degree)
        is_backward = np.arange(self.num_compute) >= self.num_compute // 2
        share_s = np.array(self._shares())  # rank, pass, op
        duration_s = share_s[rank, is_backward.astype(np.int64), op]
        position = self.position[op].astype(np.float64)
        place = np.where(is_backward, 2 * n - 1 - position, position)
        priority = duration_s if self.costs.priority == "shortest-first" else place
        sent = list(zip(*self.rows, strict=True)) if self.rows else [()] * 7
        # A message holds the communication streams of its members where one rank sends one message at a time.
        held = self.members if self.costs.contention == "serialised" else [[] for _ in self.members]
        uses = np.concatenate([np.ones(self.num_compute, np.int64), np.array([len(ranks) for ranks in held], np.int64)])
        streams = np.array([rank for ranks in held for rank in ranks], np.int64) + self.num_ranks

        def joined(computed: NDArray[Any], of_messages: Sequence[Any], dtype: type) -> NDArray[Any]:
            return np.concatenate([computed.astype(dtype), np.array(of_messages, dtype)])

        made = ExecutionGraph(
            num_ranks=self.num_ranks,
            kind=joined(np.full(self.num_compute, int(TaskKind.COMPUTE)), sent[0], np.int8),
            duration_s=joined(duration_s, sent[1], np.float64),
            priority=joined(priority, sent[2], np.float64),
            stream_start=row_starts(uses),
            streams=np.concatenate([rank, streams]),
            edges=edges,
            op=joined(op, sent[3], np.int64),
            rank=joined(rank, sent[4], np.int64),
            is_backward=joined(is_backward, sent[5], np.bool_),
            payload_bytes=joined(np.zeros(self.num_compute), sent[6], np.float64),
            describe_messages=self._messages,
        )
        return by_deadline(made) if self.costs.priority == "deadline" else made
