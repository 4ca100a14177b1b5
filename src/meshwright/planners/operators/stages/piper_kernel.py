"""Piper's table over suffixes of the graph, devices and degrees, compiled.

Legend of shapes: ``n`` ops, ``e`` edges, ``t`` degrees of tensor parallelism, ``o`` options. ``d`` suffixes (upsets) by size,
the empty one first; ``K`` devices; ``S`` sum of the degrees of data parallelism.
"""

from __future__ import annotations

import numpy as np

from ....compiled import njit

MOST_BRANCHES = 20_000
"""Of one knapsack; it keeps its best then."""


@njit
def best_stages(suffixes, edges, figures, syncs, degrees, replicas, num_devices, most_replicas, memory, bandwidth, batches):  # type: ignore[no-untyped-def]
    """The least seconds of each suffix by limits on devices and on the sum of replicas, and the first stage.

    Args:
        suffixes: whether each op is in each, ``(d, n)``.
        edges: producing and reading op, ``(e, 2)``.
        figures: seconds, parameters, bytes for each micro-batch, bytes once, ``(4, n, t, o)``.
        syncs: bytes of an edge that is cut at its tail and at its head, ``(2, e, t, o)``.
        degrees: of tensor parallelism, ``(t,)``.
        replicas: degrees of data parallelism that are allowed.
        num_devices: ``K``.
        most_replicas: ``S``.
        memory: of a device.
        bandwidth: of a device.
        batches: micro-batches of a batch.

    Returns:
        seconds ``(d, K + 1, S + 1)``, and of the first stage the rest of the suffix, degree and replicas, ``(..., 3)``.
    """
    d, n = suffixes.shape
    options = figures.shape[3]
    best = np.full((d, num_devices + 1, most_replicas + 1), np.inf)
    choice = np.zeros((d, num_devices + 1, most_replicas + 1, 3), np.int32)
    best[0] = 0.0
    ops = np.empty(n, np.int64)
    edge_bytes = np.zeros((n, options))
    cost_s, each, once = np.empty((n, options)), np.empty((n, options)), np.empty((n, options))
    for here in range(1, d):
        for rest in range(here):
            if (suffixes[rest] & ~suffixes[here]).any() or not np.isfinite(best[rest, num_devices, most_replicas]):
                continue
            stage = suffixes[here] & ~suffixes[rest]
            count = 0
            for op in range(n):
                if stage[op]:
                    ops[count] = op
                    count += 1
            if count == 0:
                continue
            for degree in range(len(degrees)):
                can_be = True
                for place in range(count):
                    if not (figures[0, ops[place], degree] < np.inf).any():
                        can_be = False
                if not can_be:
                    continue
                edge_bytes[:] = 0.0
                for edge in range(len(edges)):
                    tail, head = edges[edge]
                    if stage[tail] != stage[head]:
                        side = 0 if stage[tail] else 1
                        edge_bytes[edges[edge, side]] += 2.0 * syncs[side, edge, degree]
                for copies in replicas:
                    used = copies * degrees[degree]
                    if used > num_devices or copies > most_replicas:
                        continue
                    for place in range(count):
                        op = ops[place]
                        for option in range(options):
                            sent = edge_bytes[op, option] / copies
                            sent += 4.0 * (copies - 1) * figures[1, op, degree, option] / copies / batches
                            cost_s[place, option] = sent / bandwidth + figures[0, op, degree, option] / copies
                            each[place, option] = figures[2, op, degree, option]
                            once[place, option] = figures[3, op, degree, option]
                    last, seconds = -1, np.inf
                    for total in range(copies, most_replicas + 1):
                        in_flight = (total + copies - 1) // copies
                        if in_flight != last:
                            last = in_flight
                            seconds = least_cost_s(cost_s[:count], each[:count] * in_flight + once[:count], memory)
                        if seconds == np.inf:
                            break
                        for devices in range(used, num_devices + 1):
                            value = max(best[rest, devices - used, total - copies], seconds)
                            if value < best[here, devices, total]:
                                best[here, devices, total] = value
                                choice[here, devices, total, 0] = rest
                                choice[here, devices, total, 1] = degree
                                choice[here, devices, total, 2] = copies
    return best, choice


@njit
def least_cost_s(cost_s, held, memory):  # type: ignore[no-untyped-def]
    """Least sum of costs with one option for each op and no more memory than there is; infinite if there is none.

    Args:
        cost_s: ``(ops, o)``, infinite where an op does not have the option; ``o`` is 1 or 2.
        held: ``(ops, o)``.
        memory: bytes.
    """
    count, options = cost_s.shape
    saved, price = np.zeros(count), np.zeros(count)
    total, need = 0.0, -memory
    for op in range(count):
        fast = 0
        if options == 2 and (cost_s[op, 1], held[op, 1]) < (cost_s[op, 0], held[op, 0]):
            fast = 1
        total += cost_s[op, fast]
        need += held[op, fast]
        if options == 2 and cost_s[op, 1 - fast] < np.inf:
            saved[op] = max(0.0, held[op, fast] - held[op, 1 - fast])
            price[op] = cost_s[op, 1 - fast] - cost_s[op, fast]
    if need <= 0.0:
        return total
    if saved.sum() < need:
        return np.inf
    items = np.flatnonzero(saved > 0)
    items = items[np.argsort(price[items] / saved[items], kind="mergesort")]
    return total + _least_price(saved[items], price[items], need)


@njit
def _least_price(saved, price, need):  # type: ignore[no-untyped-def]
    """Least price of items that save at least so much: depth-first, items by rising price for what they save."""
    count = len(saved)
    left = np.zeros(count + 1)
    for item in range(count - 1, -1, -1):
        left[item] = left[item + 1] + saved[item]
    best = np.inf
    taken = np.full(count + 1, -1, np.int64)  # -1: not tried, 1: taken, 0: left out
    still, paid = need, 0.0
    item = 0
    branches = 0
    while item >= 0:
        if taken[item] == -1:
            branches += 1
            if branches > MOST_BRANCHES and best < np.inf:
                return best
            if still <= 0.0:
                best = min(best, paid)
            # Items of the same kind: none is taken behind one that was left out.
            is_open = item < count and still > 0.0 and left[item] >= still
            if is_open:
                bound, missing = paid, still
                for other in range(item, count):
                    if saved[other] >= missing:
                        bound += price[other] * missing / saved[other]
                        break
                    bound += price[other]
                    missing -= saved[other]
                is_open = bound < best * (1.0 - 1e-12)
            if not is_open:
                item -= 1
                continue
            alike = item > 0 and saved[item] == saved[item - 1] and price[item] == price[item - 1]
            if alike and taken[item - 1] == 0:
                taken[item] = 0
            else:
                taken[item] = 1
                still -= saved[item]
                paid += price[item]
            item += 1
            taken[item] = -1
        elif taken[item] == 1:
            still += saved[item]
            paid -= price[item]
            taken[item] = 0
            item += 1
            taken[item] = -1
        else:
            item -= 1
    return best
