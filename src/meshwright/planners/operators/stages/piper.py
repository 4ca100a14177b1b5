"""Piper's plan: stages with their own degrees of data and tensor parallelism, and recomputation chosen for each op.

A stage of the ops S on d replicas of t devices, with N micro-batches a batch and B bytes a second, takes

    TPS = (sum p_v)/d + [2 sum over cut edges (c + sync)/d + 4 (d - 1)/d w(S)/N] / B,

and holds ``sum a_v ceil(s / d) + b_v`` bytes on a device. Here s is the sum of d from this stage on. The value is the largest
TPS. The table is filled from the end of the graph, over suffixes, devices and s. For each stage the options of its ops are a
knapsack, solved by branch and bound.

Legend of shapes: ``n`` ops, ``e`` edges, ``t`` degrees of tensor parallelism, ``o`` options. ``d`` suffixes (upsets) by size,
the empty one first; ``K`` devices; ``S`` sum of the degrees of data parallelism.

Source:
    Tarnawski, Narayanan, Phanishayee, "Piper: multidimensional planner for DNN parallelization", NeurIPS 2021.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ....compiled import njit
from ....errors import PlanError, PolicyError
from ....jobs.graph import topological_order
from ....simulation.operators.forms import check_stages
from ....simulation.operators.piper_files import RECOMPUTES, PiperInstance
from ....simulation.ragged import joined_rows
from .downset_kernel import count_downsets, list_downsets

MOST_FIGURES = 100_000_000
"""Of the table, about 2 GB with what leads to each."""
MOST_BRANCHES = 20_000
"""Of one knapsack; it keeps its best then."""


@dataclass(frozen=True, eq=False)
class PiperStage:
    """One stage.

    Attributes:
        has_op: whether each op is in it, ``(n,)``.
        num_replicas: degree of data parallelism.
        tensor_degree: degree of tensor parallelism.
        seconds: for a micro-batch, TPS above.
    """

    has_op: NDArray[np.bool_]
    num_replicas: int
    tensor_degree: int
    seconds: float


@dataclass(frozen=True, eq=False)
class PiperPlan:
    """The pipeline of `piper`.

    Attributes:
        value_s: seconds for each micro-batch.
        stages: in order.
    """

    value_s: float
    stages: tuple[PiperStage, ...]


def piper(instance: PiperInstance, *, recomputes: bool = True, max_ideals: int = 50_000) -> PiperPlan:
    """Return the best plan of an instance.

    Args:
        instance: what is planned.
        recomputes: whether options that recompute may be taken.
        max_ideals: more suffixes of the graph are refused.

    Raises:
        PlanError: too many suffixes (their number is named) or a table too large, or nothing fits the memory.
        PolicyError: without recomputation some op has no option.
    """
    figures = _figures(instance, recomputes)
    n = len(instance.op_names)
    order = topological_order(n, instance.edges[:, ::-1])  # each op comes behind all that it feeds
    place = np.argsort(order)
    behind: list[list[int]] = [[] for _ in range(n)]
    for tail, head in place[instance.edges].tolist():
        behind[tail].append(head)  # an op is in a suffix only with those that it feeds
    first, heads = joined_rows(behind)
    count = int(count_downsets(first, heads, 20 * max_ideals))
    if count > max_ideals:
        counted = f"more than {20 * max_ideals:,}" if count > 20 * max_ideals else f"{count:,}"
        problem = f"the graph has {counted} suffixes, and at most {max_ideals:,} are looked at"
        raise PlanError(problem, field="max_ideals", value=max_ideals)
    most = min(instance.num_devices, instance.num_micro_batches)
    if count * (instance.num_devices + 1) * (most + 1) > MOST_FIGURES:
        raise PlanError(f"{count:,} suffixes on so many devices are too many", field="num_devices", value=instance.num_devices)
    suffixes = list_downsets(first, heads, count)[:, place]
    suffixes = np.ascontiguousarray(suffixes[np.argsort(suffixes.sum(axis=1), kind="stable")])
    replicas = np.array([d for d in range(1, most + 1) if instance.num_micro_batches % d == 0], np.int64)
    syncs = np.stack([instance.tail_sync_bytes, instance.head_sync_bytes]) + instance.edge_bytes[None, :, None, None]
    best, choice = best_stages(
        suffixes,
        instance.edges,
        figures,
        syncs,
        instance.degrees,
        replicas,
        instance.num_devices,
        most,
        instance.memory_bytes,
        instance.bandwidth_bytes_per_s,
        instance.num_micro_batches,
    )
    devices, total = (int(each) for each in np.unravel_index(int(np.argmin(best[-1])), best[-1].shape))
    if not np.isfinite(best[-1, devices, total]):
        raise PlanError("no plan fits the memory of a device", field="memory_bytes", value=instance.memory_bytes)
    results: list[tuple[NDArray[np.bool_], int, int]] = []
    here = count - 1
    while here > 0:
        rest, degree, copies = choice[here, devices, total].tolist()
        results.append((suffixes[here] & ~suffixes[rest], copies, int(instance.degrees[degree])))
        here, devices, total = rest, devices - copies * int(instance.degrees[degree]), total - copies
    seconds = stage_seconds(instance, results, recomputes=recomputes)
    stages = tuple(PiperStage(*each, s) for each, s in zip(results, seconds, strict=True))
    return PiperPlan(max(seconds), stages)


def stage_seconds(
    instance: PiperInstance, stages: Sequence[tuple[NDArray[np.bool_], int, int]], *, recomputes: bool = True
) -> list[float]:
    """Return the seconds of each stage from the definition, each with its best options.

    Args:
        instance: what is planned.
        stages: ops ``(n,)``, replicas and tensor degree of each, in order.
        recomputes: whether options that recompute may be taken.

    Raises:
        PlanError: the stages do not hold each op once, an edge leads back, an unknown tensor degree, or too many devices or
            bytes.
    """
    figures = _figures(instance, recomputes)
    check_stages([(ops, d) for ops, d, _ in stages], instance.edges, instance.op_names)
    if sum(d * t for _, d, t in stages) > instance.num_devices:
        raise PlanError("uses more devices than there are", field="stages", value=sum(d * t for _, d, t in stages))
    seconds = []
    for number, (ops, d, t) in enumerate(stages):
        if t not in instance.degrees:
            raise PlanError("the instance has no such tensor degree", field=f"stages[{number}].tensor_degree", value=t)
        degree = int(np.flatnonzero(instance.degrees == t)[0])
        after = sum(copies for _, copies, _ in stages[number:])
        cost_s = figures[0][ops, degree] / d
        sent = 4.0 * (d - 1) / d * figures[1][ops, degree] / instance.num_micro_batches
        row = np.cumsum(ops) - 1
        for edge, (tail, head) in enumerate(instance.edges.tolist()):
            for end, other, sync in ((tail, head, instance.tail_sync_bytes), (head, tail, instance.head_sync_bytes)):
                if ops[end] and not ops[other]:
                    sent[row[end]] += 2.0 * (instance.edge_bytes[edge] + sync[edge, degree]) / d
        held = figures[2][ops, degree] * -(-after // d) + figures[3][ops, degree]
        least = float(least_cost_s(cost_s + sent / instance.bandwidth_bytes_per_s, held, instance.memory_bytes))
        if not np.isfinite(least):
            raise PlanError("a stage needs more memory than a device has", field=f"stages[{number}]")
        seconds.append(least)
    return seconds


def _figures(instance: PiperInstance, recomputes: bool) -> NDArray[np.float64]:
    times_s = instance.times_s.copy()
    if not recomputes:
        times_s[:, :, [RECOMPUTES in each for each in instance.option_ids]] = np.inf
        if not np.isfinite(times_s).any(axis=(1, 2)).all():
            raise PolicyError("an op has no option without recomputation", field="recomputes", value=False)
    return np.stack([times_s, instance.parameter_bytes, instance.bytes_each, instance.bytes_once])


@njit
def best_stages(suffixes, edges, figures, syncs, degrees, replicas, num_devices, most_replicas, memory, bandwidth, batches):  # type: ignore[no-untyped-def]
    """Return the least seconds of each suffix by limits on devices and on the sum of replicas, and the first stage.

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
    """Return the least sum of costs with one option for each op and no more memory than there is; infinite if there is none.

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
    """Return the least price of items that save at least so much: depth-first, items by rising price for what they save."""
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
            is_equal = item > 0 and saved[item] == saved[item - 1] and price[item] == price[item - 1]
            if is_equal and taken[item - 1] == 0:
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
