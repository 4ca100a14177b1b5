"""The plain reference of the look-ahead: the rule of its event loop, spelled out without an eye on speed."""

from __future__ import annotations

import math

from meshwright.simulation.pacml.lookahead import LookaheadInput, LookaheadResult, never_ends


def plain_lookahead(inputs: LookaheadInput) -> LookaheadResult:
    """Compute the result of `lookahead.lookahead`.

    Raises:
        GraphError: some sub-op can never start.
    """
    num_ops, num_deps = len(inputs.compute_s), len(inputs.target)
    op_left = dict(enumerate(inputs.compute_s.tolist()))
    dep_left = dict(enumerate(inputs.run_s.tolist()))
    parents_done = [0] * num_ops
    ready = {i for i in range(num_ops) if inputs.num_parents[i] == 0}
    waiting: list[int] = []  # ready dependencies, in the order in which they became ready
    step_s = communication_s = computation_s = busy_s = 0.0
    num_ticks = 0
    while op_left or dep_left:
        running = _running(inputs, ready)
        stays = [j for j in waiting if not inputs.is_flow[j]]
        flows = [j for j in waiting if inputs.is_flow[j]]
        sharers = _sharers(inputs, flows)
        until_s = {j: dep_left[j] * sharers[j] for j in flows}
        if stays:
            tick = 0.0
        else:
            candidates = _one_of_each_channel(inputs, flows, dep_left) if inputs.flows_end_at_ticks else flows
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
                waiting += inputs.outs[inputs.out_start[i] : inputs.out_start[i + 1]].tolist()
        ended = stays or [j for j in flows if until_s[j] <= tick]
        for j in flows:
            if not stays and j not in ended:
                dep_left[j] -= tick / sharers[j]
        for j in ended:
            del dep_left[j]
            waiting.remove(j)
            if inputs.releases[j]:
                i = int(inputs.target[j])
                parents_done[i] += 1
                if parents_done[i] == inputs.num_parents[i]:
                    ready.add(i)
    assert num_deps == 0 or not waiting
    return LookaheadResult(step_s, communication_s, computation_s, busy_s, num_ticks)


def _running(inputs: LookaheadInput, ready: set[int]) -> list[int]:
    """The ready sub-op of highest priority of each worker, workers ascending."""
    best: dict[int, int] = {}
    for i in sorted(ready, key=lambda i: int(inputs.priority[i]), reverse=True):
        best[int(inputs.worker[i])] = i
    return [best[worker] for worker in sorted(best)]


def _sharers(inputs: LookaheadInput, flows: list[int]) -> dict[int, int]:
    """How many lanes are in use on the channel of each flow."""
    lanes = {(int(inputs.channel[j]), int(inputs.lane[j])) for j in flows}
    channels = [channel for channel, _ in lanes]
    return {j: 1 if inputs.links_never_contend else channels.count(int(inputs.channel[j])) for j in flows}


def _one_of_each_channel(inputs: LookaheadInput, flows: list[int], dep_left: dict[int, float]) -> list[int]:
    """The flow of each channel with the least run time, ties by hash or by what is left."""
    best: dict[int, tuple[float, float, int]] = {}
    for j in flows:
        tie = int(inputs.tie[j]) if inputs.ties_by_hash else dep_left[j]
        key = (float(inputs.run_s[j]), tie, j)
        channel = int(inputs.channel[j])
        best[channel] = min(best.get(channel, key), key, key=lambda k: k[:2])
    return [j for _, _, j in best.values()]
