"""The look-ahead: one training step of a placed job, tick by tick, compiled.

At each tick every worker runs its ready sub-op of highest priority (pre-emptively) and every ready flow advances. The tick is the
least time left of the running sub-ops and, for each channel, of one ready flow. It is zero while dependencies that stay on their
server (or carry nothing) wait to be passed on, which takes no time. `plain_lookahead` is a plain version.

Legend: ``p`` sub-ops, ``d`` dependencies, ``w`` workers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from ...errors import GraphError
from ..ragged import row_starts
from .semantics import Defects
from .splitting import SplitJob, by_number
from .times import DepTimes

# A tie falls to the dependency that is made last; any other seed shuffles that order, as another seed of Python's hash
# does in the original.
TIE_SEED = 0


class LookaheadInput(NamedTuple):
    """One step of a placed job as flat arrays.

    Attributes:
        compute_s: of each sub-op, ``(p,)``.
        worker: of each sub-op, ``(p,)``.
        priority: among ready sub-ops of a worker the smallest runs, all distinct, ``(p,)``.
        num_parents: ``(p,)``.
        target: sub-op that each dependency reaches, ``(d,)``.
        run_s: of each dependency, ``(d,)``.
        is_flow: ``(d,)``.
        releases: whether a finished dependency counts among the finished parents of its target, ``(d,)``.
        channel: compact number of each dependency's channel, ``(d,)``.
        lane: compact number of each dependency's channel and collective (or message), ``(d,)``.
        tie: of flows with equal run times on a channel that with the smallest sets the tick, ``(d,)``.
        out_start, outs: dependencies that leave sub-op ``i`` are ``outs[out_start[i]:out_start[i + 1]]``.
        flows_end_at_ticks, ties_by_hash, links_never_contend: as in `semantics.Defects`.
    """

    compute_s: NDArray[np.float64]
    worker: NDArray[np.int64]
    priority: NDArray[np.int64]
    num_parents: NDArray[np.int64]
    target: NDArray[np.int64]
    run_s: NDArray[np.float64]
    is_flow: NDArray[np.bool_]
    releases: NDArray[np.bool_]
    channel: NDArray[np.int64]
    lane: NDArray[np.int64]
    tie: NDArray[np.uint64]
    out_start: NDArray[np.int64]
    outs: NDArray[np.int64]
    flows_end_at_ticks: bool = True
    ties_by_hash: bool = True
    links_never_contend: bool = True


@dataclass(frozen=True)
class LookaheadResult:
    """Times of one step.

    Attributes:
        step_s: of the whole step.
        communication_s: time in which some flow was under way.
        computation_s: time in which some sub-op ran.
        busy_worker_s: time times running workers.
        num_ticks: passes of the event loop.
    """

    step_s: float
    communication_s: float
    computation_s: float
    busy_worker_s: float
    num_ticks: int


def problem(
    job: SplitJob, server: NDArray[np.int64], times: DepTimes, defects: Defects, tie_seed: int = TIE_SEED
) -> LookaheadInput:
    """Return the arrays of a placed job.

    Shorter sub-ops go first; of equal ones the one placed last (ops in the order of placement, forward, then backward). Of flows
    with equal run times the last made goes first. Ops are cut in the profile's order, each makes the sub-edges that leave it, and
    weight sync comes after all of them. A ``tie_seed`` other than 0 shuffles that order.
    """
    mirrored = job.job
    placed = np.empty(mirrored.num_ops, np.int64)
    placed[mirrored.forward_order] = 2 * np.arange(mirrored.num_forward)
    placed[mirrored.num_ops - 1 - mirrored.forward_order] = 2 * np.arange(mirrored.num_forward) + 1
    priority = np.empty(job.num_sub_ops, np.int64)
    priority[np.lexsort((np.arange(job.num_sub_ops), -placed[job.op], job.compute_s))] = np.arange(job.num_sub_ops)
    worker_of = np.zeros(server.max() + 1, np.int64)
    worker_of[server] = 1
    worker_of = np.cumsum(worker_of) - 1
    channel = worker_of[times.source] * (worker_of[-1] + 1) + worker_of[times.target]
    lane = channel
    if not defects.links_never_contend:
        lane = np.unique(channel * (times.group.max(initial=0) + 1) + times.group, return_inverse=True)[1]
    return LookaheadInput(
        compute_s=job.compute_s,
        worker=worker_of[server],
        priority=priority,
        num_parents=job.num_parents,
        target=job.target,
        run_s=times.run_s,
        is_flow=times.is_flow,
        releases=(job.edge >= 0) | defects.sync_counts_as_parent,
        channel=channel,
        lane=lane,
        tie=ties(job, tie_seed),
        out_start=row_starts(np.bincount(job.source, minlength=job.num_sub_ops)),
        outs=by_number(job.source),
        flows_end_at_ticks=defects.flows_end_at_ticks,
        ties_by_hash=defects.ties_by_hash,
        links_never_contend=defects.links_never_contend,
    )


def ties(job: SplitJob, seed: int = TIE_SEED) -> NDArray[np.uint64]:
    """Return a number of each dependency; of tied flows the one with the smallest sets the tick, ``(d,)``.

    Seed 0 numbers dependencies from the last made to the first. Other seeds give each its own well mixed number
    (SplitMix64's finaliser), as the hash of a string does.
    """
    index = np.arange(job.num_deps)
    if seed == 0:
        rank, num_ops = job.job.split_rank[job.op], job.job.num_ops
        made = (((job.edge < 0) * num_ops + rank[job.source]) * num_ops + rank[job.target]) * job.num_deps + index
        return np.asarray(made.max(initial=0) - made, np.uint64)
    mixed = index.astype(np.uint64) + np.uint64(seed * 0x9E3779B97F4A7C15 % 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)), np.uint64)


def lookahead(inputs: LookaheadInput) -> LookaheadResult:
    """Simulate one step of a placed job.

    Raises:
        GraphError: some sub-op can never start.
    """
    step_s, communication_s, computation_s, busy_s, num_ticks = _run(*inputs)
    if num_ticks < 0:
        raise never_ends()
    return LookaheadResult(step_s, communication_s, computation_s, busy_s, num_ticks)


def never_ends() -> GraphError:
    """Return an error: sub-ops wait for each other."""
    return GraphError("the sub-ops wait for each other, so the step never ends", field="edges")


@njit
def _run(  # type: ignore[no-untyped-def]
    compute_s,
    worker,
    priority,
    num_parents,
    target,
    run_s,
    is_flow,
    releases,
    channel,
    lane,
    tie,
    out_start,
    outs,
    flows_end_at_ticks,
    ties_by_hash,
    links_never_contend,
):
    num_ops, num_deps = len(compute_s), len(target)
    num_channels = channel.max() + 1 if num_deps else 0
    op_left, dep_left = compute_s.copy(), run_s.copy()
    is_done = np.zeros(num_ops, np.bool_)
    parents_done = np.zeros(num_ops, np.int64)
    ready = np.empty(num_ops, np.int64)
    num_ready = 0
    for i in range(num_ops):
        if num_parents[i] == 0:
            ready[num_ready] = i
            num_ready += 1
    flows, stays, ended = np.empty(num_deps, np.int64), np.empty(num_deps, np.int64), np.empty(num_deps, np.int64)
    num_flows, num_stays = 0, 0
    running = np.full(worker.max() + 1, -1, np.int64)
    choice = np.full(num_channels, -1, np.int64)
    # Lanes in use on each channel: collectives and messages that share it. One each where flows never contend.
    on_lane = np.zeros(lane.max() + 1 if num_deps else 0, np.int64)
    sharers = np.full(num_channels, 1 if links_never_contend else 0, np.int64)
    ops_to_do, deps_to_do = num_ops, num_deps
    step_s, communication_s, computation_s, busy_s, num_ticks = 0.0, 0.0, 0.0, 0.0, 0
    while ops_to_do > 0 or deps_to_do > 0:
        # What runs on each worker, and how far this tick goes.
        running[:] = -1
        for k in range(num_ready):
            i = ready[k]
            other = running[worker[i]]
            if other < 0 or priority[i] < priority[other]:
                running[worker[i]] = i
        tick = np.inf
        num_running = 0
        for i in running:
            if i >= 0:
                num_running += 1
                tick = min(tick, op_left[i])
        if num_stays > 0:
            tick = 0.0
        elif flows_end_at_ticks:
            _choose(flows, num_flows, channel, run_s, dep_left, tie, ties_by_hash, choice)
            for k in range(num_flows):
                c = channel[flows[k]]
                if choice[c] >= 0:
                    tick = min(tick, dep_left[choice[c]] * sharers[c])
                    choice[c] = -1
        else:
            for k in range(num_flows):
                tick = min(tick, dep_left[flows[k]] * sharers[channel[flows[k]]])
        if tick == np.inf:
            return 0.0, 0.0, 0.0, 0.0, -1
        num_ticks += 1
        step_s += tick
        if num_running > 0:
            computation_s += tick
            busy_s += num_running * tick
        # What is ready now advances; what becomes ready meanwhile waits for the next tick.
        flows_now, stays_now = num_flows, num_stays
        for i in running:
            if i < 0:
                continue
            op_left[i] -= min(tick, op_left[i])
            if op_left[i] == 0.0:
                is_done[i] = True
                ops_to_do -= 1
                for j in outs[out_start[i] : out_start[i + 1]]:
                    if is_flow[j]:
                        flows[num_flows] = j
                        num_flows += 1
                    else:
                        stays[num_stays] = j
                        num_stays += 1
        num_kept = 0
        for k in range(num_ready):
            if not is_done[ready[k]]:
                ready[num_kept] = ready[k]
                num_kept += 1
        num_ready = num_kept
        num_ended = 0
        if stays_now > 0:
            ended[:stays_now] = stays[:stays_now]
            num_ended = stays_now
            num_stays -= stays_now
            for k in range(num_stays):
                stays[k] = stays[k + stays_now]
        elif flows_now > 0:
            communication_s += tick
            num_kept = 0
            for k in range(num_flows):
                j = flows[k]
                if k < flows_now:
                    if dep_left[j] * sharers[channel[j]] <= tick:
                        ended[num_ended] = j
                        num_ended += 1
                        continue
                    dep_left[j] -= tick / sharers[channel[j]]
                flows[num_kept] = j
                num_kept += 1
            num_flows, flows_now = num_kept, flows_now - num_ended
        for j in ended[:num_ended]:
            i = target[j]
            if releases[j]:
                parents_done[i] += 1
                if parents_done[i] == num_parents[i]:
                    ready[num_ready] = i
                    num_ready += 1
        deps_to_do -= num_ended
        if not links_never_contend:
            for j in flows[flows_now:num_flows]:
                on_lane[lane[j]] += 1
                if on_lane[lane[j]] == 1:
                    sharers[channel[j]] += 1
            for j in ended[:num_ended]:
                if is_flow[j]:
                    on_lane[lane[j]] -= 1
                    if on_lane[lane[j]] == 0:
                        sharers[channel[j]] -= 1
    return step_s, communication_s, computation_s, busy_s, num_ticks


@njit
def _choose(flows, num_flows, channel, run_s, dep_left, tie, ties_by_hash, choice):  # type: ignore[no-untyped-def]
    """Write the ready flow of each channel that may set the tick: that of the shortest run time, into ``choice``."""
    for k in range(num_flows):
        j, c = flows[k], channel[flows[k]]
        other = choice[c]
        if other < 0 or run_s[j] < run_s[other]:
            choice[c] = j
        elif run_s[j] == run_s[other]:
            first = tie[j] < tie[other] if ties_by_hash else dep_left[j] < dep_left[other]
            if first:
                choice[c] = j
