"""Piper's plan: stages with their own degrees of data and tensor parallelism, and recomputation chosen for each op.

A stage of the ops S on d replicas of t devices, with N micro-batches a batch and B bytes a second, takes

    TPS = (sum p_v)/d + [2 sum over cut edges (c + sync)/d + 4 (d - 1)/d w(S)/N] / B,

and holds ``sum a_v ceil(s / d) + b_v`` bytes on a device. Here s is the sum of d from this stage on. The value is the largest
TPS. The table is filled from the end of the graph, over suffixes, devices and s. For each stage the options of its ops are a
knapsack, solved by branch and bound.

Source:
    Tarnawski, Narayanan, Phanishayee, "Piper: multidimensional planner for DNN parallelization", NeurIPS 2021.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ....errors import PlanError, PolicyError
from ....jobs.graph import topological_order
from ....simulation.operators.piper_files import RECOMPUTES, PiperInstance
from ....simulation.operators.stage_forms import check_stages
from ....simulation.ragged import joined_rows
from .downset_kernel import count_downsets, list_downsets
from .piper_kernel import best_stages, least_cost_s

MOST_FIGURES = 100_000_000
"""Of the table, about 2 GB with what leads to each."""


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
    """The best plan of an instance.

    Args:
        instance: what is planned.
        recomputes: whether options that recompute may be taken.
        max_ideals: more suffixes of the graph are refused.

    Raises:
        PlanError: too many suffixes (their number is named) or a table too large, or nothing fits the memory.
        PolicyError: without recomputation some op has no option.
    """
    given = _figures(instance, recomputes)
    n = len(instance.op_names)
    order = topological_order(n, instance.edges[:, ::-1])  # each op comes behind all that it feeds
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
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
        given,
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
    found: list[tuple[NDArray[np.bool_], int, int]] = []
    here = count - 1
    while here > 0:
        rest, degree, copies = choice[here, devices, total].tolist()
        found.append((suffixes[here] & ~suffixes[rest], copies, int(instance.degrees[degree])))
        here, devices, total = rest, devices - copies * int(instance.degrees[degree]), total - copies
    seconds = stage_seconds(instance, found, recomputes=recomputes)
    stages = tuple(PiperStage(*each, s) for each, s in zip(found, seconds, strict=True))
    return PiperPlan(max(seconds), stages)


def stage_seconds(
    instance: PiperInstance, stages: Sequence[tuple[NDArray[np.bool_], int, int]], *, recomputes: bool = True
) -> list[float]:
    """Seconds of each stage from the definition, each with its best options.

    Args:
        instance: what is planned.
        stages: ops ``(n,)``, replicas and tensor degree of each, in order.
        recomputes: whether options that recompute may be taken.

    Raises:
        PlanError: the stages do not hold each op once, an edge leads back, an unknown tensor degree, or too many devices or
            bytes.
    """
    given = _figures(instance, recomputes)
    check_stages([(ops, d) for ops, d, _ in stages], instance.edges, instance.op_names)
    if sum(d * t for _, d, t in stages) > instance.num_devices:
        raise PlanError("uses more devices than there are", field="stages", value=sum(d * t for _, d, t in stages))
    seconds = []
    for number, (ops, d, t) in enumerate(stages):
        if t not in instance.degrees:
            raise PlanError("the instance has no such tensor degree", field=f"stages[{number}].tensor_degree", value=t)
        degree = int(np.flatnonzero(instance.degrees == t)[0])
        after = sum(copies for _, copies, _ in stages[number:])
        cost_s = given[0][ops, degree] / d
        sent = 4.0 * (d - 1) / d * given[1][ops, degree] / instance.num_micro_batches
        row = np.cumsum(ops) - 1
        for edge, (tail, head) in enumerate(instance.edges.tolist()):
            for end, other, sync in ((tail, head, instance.tail_sync_bytes), (head, tail, instance.head_sync_bytes)):
                if ops[end] and not ops[other]:
                    sent[row[end]] += 2.0 * (instance.edge_bytes[edge] + sync[edge, degree]) / d
        held = given[2][ops, degree] * -(-after // d) + given[3][ops, degree]
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
