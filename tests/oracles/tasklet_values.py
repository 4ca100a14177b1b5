"""The cost of a grouping of devices into stages, in plain Python: it tries all matchings and all orders of stages."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, permutations

from meshwright.simulation.tasklets.instance import TaskletInstance


def value_s(instance: TaskletInstance, stages: Sequence[Sequence[int]]) -> tuple[float, float]:
    """Seconds of data and of pipeline parallelism; links must be equal in both directions."""
    latency, bandwidth = instance.latency_s, instance.bandwidth_bytes_per_s
    data = 0.0
    for stage in stages:
        for device in stage:
            each = [
                2 * (latency[device, other] + instance.gradient_bytes / (len(stage) * bandwidth[device, other]))
                for other in stage
                if other != device
            ]
            data = max(data, sum(each))

    def between(one: Sequence[int], other: Sequence[int]) -> float:
        return min(
            max(latency[a, b] + instance.activation_bytes / bandwidth[a, b] for a, b in zip(one, matched, strict=True))
            for matched in permutations(other)
        )

    costs = {(a, b): between(stages[a], stages[b]) for a in range(len(stages)) for b in range(len(stages)) if a != b}
    path = min(sum(costs[pair] for pair in pairwise(order)) for order in permutations(range(len(stages))))
    return data, 2 * path
