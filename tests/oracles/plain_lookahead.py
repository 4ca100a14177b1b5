"""The plain reference of the look-ahead: the rule of its event loop, spelled out without an eye on speed."""

from __future__ import annotations

import math

from meshwright.simulation.pacml.lookahead import LookaheadInput, LookaheadResult, never_ends


def plain_lookahead(given: LookaheadInput) -> LookaheadResult:
    """Compute the result of `lookahead.lookahead`.

    Raises:
        GraphError: some sub-op can never start.
    """
    num_ops, num_deps = len(given.compute_s), len(given.target)
    op_left = dict(enumerate(given.compute_s.tolist()))
    dep_left = dict(enumerate(given.run_s.tolist()))
    parents_done = [0] * num_ops
    ready = {i for i in range(num_ops) if given.num_parents[i] == 0}
    waiting: list[int] = []  # ready dependencies, in the order in which they became ready
    step_s = communication_s = computation_s = busy_s = 0.0
    num_ticks = 0
    while op_left or dep_left:
        running = _running(given, ready)
        stays = [j for j in waiting if not given.is_flow[j]]
        flows = [j for j in waiting if given.is_flow[j]]
        sharers = _sharers(given, flows)
        until_s = {j: dep_left[j] * sharers[j] for j in flows}
        if stays:
            tick = 0.0
        else:
            candidates = _one_of_each_channel(given, flows, dep_left) if given.flows_end_at_ticks else flows
            tick = min([op_left[i] for i in running] + [until_s[j] for j in candidates], default=math.inf)
        if tick == math.inf:
            raise never_ends()
        num_ticks += 1
        step_s += tick
        if running:
            computation_s += tick
            busy_s += len(running) * tick
        if flows and not stays:
            communication_s += tick
        for i in running:
            op_left[i] -= min(tick, op_left[i])
            if op_left[i] == 0:
                del op_left[i]
                ready.remove(i)
                waiting += given.outs[given.out_start[i] : given.out_start[i + 1]].tolist()
        ended = stays or [j for j in flows if until_s[j] <= tick]
        for j in flows:
            if not stays and j not in ended:
                dep_left[j] -= tick / sharers[j]
        for j in ended:
            del dep_left[j]
            waiting.remove(j)
            if given.releases[j]:
                i = int(given.target[j])
                parents_done[i] += 1
                if parents_done[i] == given.num_parents[i]:
                    ready.add(i)
    assert num_deps == 0 or not waiting
    return LookaheadResult(step_s, communication_s, computation_s, busy_s, num_ticks)


def _running(given: LookaheadInput, ready: set[int]) -> list[int]:
    """The ready sub-op of highest priority of each worker, workers ascending."""
    best: dict[int, int] = {}
    for i in sorted(ready, key=lambda i: int(given.priority[i]), reverse=True):
        best[int(given.worker[i])] = i
    return [best[worker] for worker in sorted(best)]


def _sharers(given: LookaheadInput, flows: list[int]) -> dict[int, int]:
    """How many lanes are in use on the channel of each flow."""
    lanes = {(int(given.channel[j]), int(given.lane[j])) for j in flows}
    channels = [channel for channel, _ in lanes]
    return {j: 1 if given.links_never_contend else channels.count(int(given.channel[j])) for j in flows}


def _one_of_each_channel(given: LookaheadInput, flows: list[int], dep_left: dict[int, float]) -> list[int]:
    """The flow of each channel with the least run time, ties by hash or by what is left."""
    best: dict[int, tuple[float, float, int]] = {}
    for j in flows:
        tie = int(given.tie[j]) if given.ties_by_hash else dep_left[j]
        key = (float(given.run_s[j]), tie, j)
        channel = int(given.channel[j])
        best[channel] = min(best.get(channel, key), key, key=lambda k: k[:2])
    return [j for _, _, j in best.values()]
