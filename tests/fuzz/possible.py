"""Bounds of every possible machine, job and run: the fuzzer's own, wider than any that the project sets."""

import json
import math
from typing import Any

import numpy as np

from meshwright.clusters.cluster import Cluster
from meshwright.jobs.graph import JobGraph

from .running import NonsenseError

MOST_SECONDS = 1e11
"""Three thousand years, of anything that has a time."""

ENDINGS = {"deadline_s": 1e23, "_s": MOST_SECONDS, "_bytes": 1e21, "_flops": 1e33}
"""The first that fits is meant. A deadline may be as loose as its user likes."""


def checked(data: Any, place: str = "") -> None:
    """Refuse plain data with a number that is none, or with a time, size or count that cannot be.

    Raises:
        NonsenseError: the first of them.
    """
    if isinstance(data, dict):
        for key, value in data.items():
            checked(value, f"{place}.{key}")
    elif isinstance(data, list | tuple):
        for item in data:
            checked(item, place)
    elif isinstance(data, float | int) and not isinstance(data, bool):
        if not math.isfinite(data):
            raise NonsenseError(f"not finite{place}: {data}")
        most = next((most for ending, most in ENDINGS.items() if place.endswith(ending)), None)
        if most is not None and not 0 <= data <= most:
            raise NonsenseError(f"impossible{place}: {data}")


def checked_json(text: str) -> None:
    """The same of JSON, which spells numbers that are none in three words."""
    checked(json.loads(text, parse_constant=_no_number))


def _no_number(word: str) -> Any:
    raise NonsenseError(f"not finite: {word}")


def positive(what: str, value: float, least: float, most: float) -> None:
    """Refuse a figure outside of what there is.

    Raises:
        NonsenseError: it is.
    """
    if not least <= value <= most:
        raise NonsenseError(f"{what}: {value} is not {least} to {most}")


def possible_cluster(cluster: Cluster) -> None:
    """Refuse a cluster that no one could build.

    Raises:
        NonsenseError: it is one.
    """
    for kind in cluster.device_types:
        positive("peak", kind.peak_flops_per_s, 1.0, 1e24)
        positive("memory", kind.memory_bytes, 1.0, 1e18)
        positive("memory bandwidth", kind.memory_bandwidth_bytes_per_s, 1.0, 1e19)
        positive("launch", kind.kernel_launch_s, 0.0, 1e4)
    few = np.arange(min(cluster.num_devices, 64))
    for source in few[:8].tolist():
        for target in few.tolist():
            if source != target:
                positive("bandwidth", float(cluster.bandwidth_bytes_per_s(source, target)), 1.0, 1e20)
                positive("latency", float(cluster.latency_s(source, target)), 0.0, 1e5)
    assert cluster.digest == Cluster.from_data(json.loads(json.dumps(cluster.to_data()))).digest


def possible_graph(graph: JobGraph) -> None:
    """Refuse a job graph that no device could run.

    Raises:
        NonsenseError: it is one.
    """
    positive("step", graph.step_s, 0.0, MOST_SECONDS)
    for field, most in (("parameter_bytes", 1e21), ("activation_bytes", 1e21), ("forward_flops", 1e33), ("moved_bytes", 1e22)):
        positive(field, float(getattr(graph, field).sum()), 0.0, most)
    again = JobGraph.from_data(json.loads(json.dumps(graph.to_data())))
    assert again.digest == graph.digest
