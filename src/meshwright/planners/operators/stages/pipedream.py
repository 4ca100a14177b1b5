"""PipeDream's split of a profile into stages with replicas of their own, over levels of machines.

States are the downsets of the graph, each named by the antichain of its last ops. Between two states, the ops take c seconds
and their parameters p bytes. A state sends o bytes (outputs that are read outside), at B bytes a second. A stage on m machines
takes

    T1 = (c + 4 (m - 1) p / (B m)) / m,

and the best pipeline up to state j on m machines is the least of one stage and, over k and m', of

    max(best(k, m-m'), T1 of the ops between on m', 2 o(k) / (B m'), 2 o(j) / (B m') if ops are left).

For c a level of machines takes the time of the level below on one of its machines. In T1 of a first stage, B is multiplied by
the machines of the level below, which exchange parameters in parallel. For later stages the published optimizer omits this
factor, and so does this one. Unused outputs of recurrent layers belong to the ops that feed them.

Legend of shapes: ``n`` ops, ``d`` states, by number of ops, the empty one first; ``w`` words of 64 ops; ``M`` machines.

Source:
    Narayanan et al., "PipeDream: generalized pipeline parallelism for DNN training", SOSP 2019, section 3.1.
    The optimizer of its repository (msr-fiddle/pipedream), with both transfers counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ....compiled import njit
from ....errors import PlanError, PolicyError
from ....jobs.graph import JobGraph
from ....simulation.ragged import rows_by_owner
from .downset_kernel import count_downsets, is_inside, list_downsets

MOST_STATES, MOST_STATES_OF_LEVELS = 50_000, 5_000
"""Most antichains; fewer where there are several levels, since every pair of them is looked at from every third."""


@dataclass(frozen=True, eq=False)
class MachineLevel:
    """Machines of one level, from the innermost outwards.

    Attributes:
        num_machines: how many of the level below make one of the level above.
        bandwidth_bytes_per_s: between them.
    """

    num_machines: int
    bandwidth_bytes_per_s: float


@dataclass(frozen=True, eq=False)
class ReplicatedStage:
    """One stage of a pipeline.

    Attributes:
        has_op: whether each op is in it, ``(n,)``.
        num_replicas: machines of the innermost level that run it side by side.
    """

    has_op: NDArray[np.bool_]
    num_replicas: int


@dataclass(frozen=True, eq=False)
class ReplicatedPipeline:
    """The pipeline of PipeDream's recurrence.

    Attributes:
        value_s: seconds between two minibatches.
        stages: in order.
    """

    value_s: float
    stages: tuple[ReplicatedStage, ...]

    @property
    def replicas(self) -> tuple[int, ...]:
        """Replicas of each stage."""
        return tuple(stage.num_replicas for stage in self.stages)


@dataclass(frozen=True, eq=False)
class _States:
    is_in: NDArray[np.bool_]
    words: NDArray[np.uint64]
    figures: NDArray[np.float64]


def pipedream(graph: JobGraph, levels: Sequence[MachineLevel], *, is_straight: bool = False) -> ReplicatedPipeline:
    """Return the best pipeline of a profile by PipeDream's recurrence, as the published optimizer computes it.

    Ops that the first source does not reach join their first reader, and transferred bytes include some outputs without later
    readers.

    Args:
        graph: a profile; times of its ``Input`` ops count if they are in it (see `jobs.readers.pipedream.without_inputs`).
        levels: from the innermost outwards; all their machines are used.
        is_straight: whether every stage has one replica.

    Raises:
        PolicyError: no level, or one that is impossible.
        PlanError: more than `MOST_STATES` antichains (their number is named), or no pipeline on all machines.
    """
    if not levels or any(level.num_machines < 1 or not level.bandwidth_bytes_per_s > 0 for level in levels):
        raise PolicyError("each level has a machine or more, and a bandwidth", field="levels", value=len(levels))
    states = _states(graph, MOST_STATES_OF_LEVELS if len(levels) > 1 else MOST_STATES)
    tables: list[NDArray[np.float64]] = [np.zeros((0, 0))]
    last = len(states.figures) - 1
    for depth in range(1, len(levels)):
        table = np.full((last + 1, last + 1), np.inf)
        for start in range(last):
            table[start] = _row(states, start, tables, levels[:depth], is_straight)[0][:, -1]
        tables.append(table)
    value_s, stages = _stages(states, 0, last, tables, levels, is_straight)
    if not np.isfinite(value_s):
        raise PlanError("no pipeline has a stage on every machine", field="levels", value=len(levels))
    return ReplicatedPipeline(value_s, tuple(stages))


def _host_of_idle(graph: JobGraph) -> NDArray[np.int64]:
    """Return the op to which each op belongs: its input's for an unused output, else itself, ``(n,)``."""
    readers = np.bincount(graph.edges[:, 0], minlength=graph.num_ops)
    feeds = _feeds(graph.edges, graph.num_ops)
    is_idle = np.array([kind.startswith("__getitem__") for kind in graph.op_kinds]) & (readers == 0)
    host = np.arange(graph.num_ops)
    for op in graph.order[::-1].tolist():
        if is_idle[op] and len(feeds[op]) == 1:
            host[op] = feeds[op][0]
    return host


def _feeds(edges: NDArray[np.int64], num_ops: int) -> list[list[int]]:
    feeds: list[list[int]] = [[] for _ in range(num_ops)]
    for source, target in edges.tolist():
        feeds[target].append(source)
    return feeds


def _handed_on_bytes(graph: JobGraph, is_in: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the bytes that each of some states hands on, ``(states,)``; ``is_in`` is ``(states, n)``.

    The published optimizer counts the last ops. It also counts every op before one of these that feeds an op not before that
    one, though perhaps before another.
    """
    host, n = _host_of_idle(graph), graph.num_ops
    edges = host[graph.edges]
    edges = edges[edges[:, 0] != edges[:, 1]]
    before = np.zeros((n, n), np.bool_)
    feeds = _feeds(edges, n)
    for op in graph.order.tolist():
        for source in feeds[op]:
            before[op] |= before[source]
            before[op, source] = True
    is_last = is_in & (host == np.arange(n))
    for source, target in edges.tolist():
        is_last[:, source] &= ~is_in[:, target]
    counts = is_last.copy()
    for op in range(n):
        beyond = np.zeros(n, np.bool_)
        others = edges[(edges[:, 1] != op) & ~before[op, edges[:, 1]], 0]
        beyond[others] = True
        counts[np.ix_(is_last[:, op], before[op] & beyond)] = True
    return np.asarray(counts @ graph.activation_bytes)


def _leaders(graph: JobGraph, host: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return the ops that states are made of; the others come with the first of these that they lead to, ``(n,)``."""
    leads = host == np.arange(graph.num_ops)
    after = np.zeros(graph.num_ops, np.bool_)
    after[np.setdiff1d(np.arange(graph.num_ops), graph.edges[:, 1])[0]] = True
    in_order = graph.order.tolist()
    successors: list[list[int]] = [[] for _ in range(graph.num_ops)]
    for source, target in graph.edges.tolist():
        successors[source].append(target)
    for op in in_order:
        if after[op]:
            after[successors[op]] = True
    leads_there = after.copy()
    for op in reversed(in_order):
        leads_there[op] |= leads_there[successors[op]].any()
    return np.asarray(leads & (after | ~leads_there))


def _states(graph: JobGraph, most: int) -> _States:
    """Return the downsets by number of ops: whether each op is in each, and seconds, parameters and bytes handed on."""
    host = _host_of_idle(graph)
    leads = _leaders(graph, host)
    leaders = graph.order[leads[graph.order]]
    place = np.full(graph.num_ops, -1, np.int64)
    place[leaders] = np.arange(len(leaders))
    edges = place[graph.edges]
    edges = edges[(edges >= 0).all(axis=1)]
    first, before = rows_by_owner(edges[:, 1], edges[:, 0], len(leaders))
    count = int(count_downsets(first, before, 20 * most + 1)) - 1
    if count > most:
        result = f"more than {20 * most:,}" if count > 20 * most else f"{count:,}"
        raise PlanError(f"the graph has {result} antichains, and at most {most:,} are looked at", value=most)
    listed = list_downsets(first, before, count + 1)
    listed = listed[np.argsort(listed.sum(axis=1), kind="stable")]
    is_in = np.zeros((count + 1, graph.num_ops), np.bool_)
    is_in[:, leaders] = listed
    for op in graph.order[::-1].tolist():  # those that come with their readers
        if not leads[op] and host[op] == op:
            is_in[:, op] = is_in[:, graph.edges[graph.edges[:, 0] == op, 1]].any(axis=1)
    is_in = np.ascontiguousarray(is_in[:, host])
    figures = np.stack(
        [
            is_in @ (graph.forward_s + graph.backward_s),
            is_in @ graph.parameter_bytes,
            _handed_on_bytes(graph, is_in),
        ],
        axis=1,
    )
    packed = np.packbits(is_in, axis=1)
    padded = np.zeros((count + 1, -(-packed.shape[1] // 8) * 8), np.uint8)
    padded[:, : packed.shape[1]] = packed
    return _States(is_in, padded.view(np.uint64), np.ascontiguousarray(figures))


def _row(
    states: _States, start: int, tables: list[NDArray[np.float64]], levels: Sequence[MachineLevel], is_straight: bool
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    *below, level = levels
    bandwidth, num_below = level.bandwidth_bytes_per_s, below[-1].num_machines if below else 1
    result, choice = best_from(
        start,
        states.words,
        states.figures,
        tables[len(below)],
        level.num_machines,
        bandwidth,
        bandwidth * num_below,
        is_straight,
    )
    return result, choice


def _stages(
    states: _States,
    start: int,
    end: int,
    tables: list[NDArray[np.float64]],
    levels: Sequence[MachineLevel],
    is_straight: bool,
) -> tuple[float, list[ReplicatedStage]]:
    result, choice = _row(states, start, tables, levels, is_straight)
    value_s = float(result[end, -1])
    if not np.isfinite(value_s):
        return value_s, []
    stages: list[ReplicatedStage] = []
    here, machines = end, levels[-1].num_machines
    while here != start:
        before, left, replicas = choice[here, machines - 1].tolist()
        inside = [ReplicatedStage(states.is_in[here] & ~states.is_in[before], 1)]
        if len(levels) > 1:
            _, inside = _stages(states, before, here, tables, levels[:-1], is_straight)
        stages = [ReplicatedStage(each.has_op, each.num_replicas * replicas) for each in inside] + stages
        here, machines = before, left
    return value_s, stages


@njit
def best_from(start, words, figures, inner, num_machines, bandwidth, one_stage_bandwidth, is_straight):  # type: ignore[no-untyped-def]
    """Return the least seconds from one state to each other on each number of machines, ``(d, M)``, and how.

    Args:
        start: the state from which ops count.
        words: bits of the ops of each state, ``(d, w)``.
        figures: seconds, parameters and bytes handed on of each state, ``(d, 3)``.
        inner: seconds of the ops between two states on one machine, ``(d, d)``; empty where it is the difference of theirs.
        num_machines: of the level, all used at the end.
        bandwidth: bytes a second between them.
        one_stage_bandwidth: the same for the parameters of a first stage.
        is_straight: whether each stage has one machine.

    Returns:
        seconds, infinite where there is no way, and of the last stage the state before it, the machines before it, and its
        own, ``(d, M, 3)``.
    """
    d = len(words)
    best = np.full((d, num_machines), np.inf)
    choice = np.zeros((d, num_machines, 3), np.int64)
    for here in range(start + 1, d):
        if not is_inside(words, start, here):
            continue
        for machines in range(1, num_machines + 1):
            if is_straight and machines > 1:
                break
            best[here, machines - 1] = _stage_s(start, here, machines, figures, inner, one_stage_bandwidth)
            choice[here, machines - 1] = start, 0, machines
        for before in range(start + 1, here):
            if not (best[before] < np.inf).any() or not is_inside(words, before, here):
                continue
            for own in range(1, num_machines):
                if is_straight and own > 1:
                    break
                transfer = 2.0 * figures[before, 2] / (bandwidth * own)
                if here < d - 1:
                    transfer = max(transfer, 2.0 * figures[here, 2] / (bandwidth * own))
                stage = _stage_s(before, here, own, figures, inner, bandwidth)
                for machines in range(own + 1, num_machines + 1):
                    value = max(max(stage, transfer), best[before, machines - own - 1])
                    if value < best[here, machines - 1]:
                        best[here, machines - 1] = value
                        choice[here, machines - 1] = before, machines - own, own
    return best, choice


@njit
def _stage_s(before, after, machines, figures, inner, bandwidth):  # type: ignore[no-untyped-def]
    """Return the seconds of the ops between two states as one stage."""
    work = inner[before, after] if inner.shape[0] > 0 else figures[after, 0] - figures[before, 0]
    parameters = figures[after, 1] - figures[before, 1]
    return (work + 4.0 * (machines - 1) * parameters / (bandwidth * machines)) / machines
