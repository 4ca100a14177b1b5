"""What the published agent observes: its job's graph in relative figures, the episode's extremes, and the mask.

Legend: ``o`` ops, ``e`` edges of the mirrored job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.simulation.pacml.episode import Demand, Episode
from meshwright.simulation.pacml.mirror import MirroredJob
from meshwright.simulation.pacml.simulator import Simulator


@dataclass(frozen=True, eq=False)
class Features:
    """An observation, without the padding.

    Attributes:
        nodes: compute and whether it is the longest, memory and whether it is the largest, depth; relative, ``(o, 5)``.
        edges: bytes and whether they are the most; relative, ``(e, 2)``.
        edge_ends: source and target, ``(e, 2)``.
        graph: the 17 figures of the job and the cluster, then the mask, ``(34,)``.
    """

    nodes: NDArray[np.float64]
    edges: NDArray[np.float64]
    edge_ends: NDArray[np.int64]
    graph: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Extremes:
    """Least and largest values over an episode's pool of jobs, by which features are scaled."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]

    @classmethod
    def of(cls, simulator: Simulator, pool: Sequence[Demand]) -> Extremes:
        """The extremes of a pool.

        As published, dependency bytes are scaled by the largest job's times its number of possible edges; without
        the defect `dep_size_feature_vanishes` by the largest job's.
        """
        figures = np.array([_figures(simulator, demand) for demand in set(pool)])
        low, high = figures.min(axis=0), figures.max(axis=0)
        if simulator.defects.dep_size_feature_vanishes:
            num_ops = max(simulator.job(demand.graph).num_ops for demand in set(pool))
            low[6], high[6] = 0.0, high[6] * num_ops * (num_ops - 1) / 2
            high[1] *= 3  # the published limit on the number of dependencies
        return cls(low, high)


def observe(episode: Episode, extremes: Extremes) -> Features:
    """What the agent sees of the current job."""
    simulator, job = episode.simulator, episode.simulator.job(episode.demand.graph)
    compute, memory = _relative(job.compute_s), _relative(job.memory_bytes)
    size = _relative(job.edge_bytes)
    longest = np.zeros(job.num_ops)
    if not simulator.defects.max_compute_flag_is_zero:
        longest[int(job.compute_s.argmax())] = 1.0
    largest, most = np.zeros(job.num_ops), np.zeros(len(size))
    largest[int(job.memory_bytes.argmax())] = most[int(job.edge_bytes.argmax())] = 1.0
    figures = np.array(_figures(simulator, episode.demand))
    span = extremes.high - extremes.low
    scaled = np.where(span > 0, (figures - extremes.low) / np.where(span > 0, span, 1.0), 1.0)
    num_busy = int((~episode.is_free).sum())
    graph = [
        *scaled[:5],
        episode.demand.fraction,
        *scaled[5:7],
        1.0,
        *(statistic(values) for values in (compute, memory, size) for statistic in (np.mean, np.median)),
        num_busy / simulator.num_servers,
        episode.num_running / simulator.num_servers,
    ]
    return Features(
        nodes=np.stack([compute, longest, memory, largest, _relative(_depth(job))], axis=1),
        edges=np.stack([size, most], axis=1),
        edge_ends=job.edges,
        graph=np.concatenate([graph, episode.mask()]),
    )


def _figures(simulator: Simulator, demand: Demand) -> list[float]:
    """Ops, dependencies, sequential and allowed time, fraction, memory and dependency bytes of a job."""
    job = simulator.job(demand.graph)
    sequential_s = simulator.sequential_s(demand.graph)
    return [
        job.num_ops,
        len(job.edges),
        sequential_s,
        demand.fraction * sequential_s,
        demand.fraction,
        float(job.memory_bytes.sum()),
        float(job.edge_bytes.sum()),
    ]


def _relative(values: NDArray[np.float64]) -> NDArray[np.float64]:
    most = values.max(initial=0.0)
    return values / most if most > 0 else np.zeros_like(values)


def _depth(job: MirroredJob) -> NDArray[np.float64]:
    """Edges on the shortest way from the first op that has no parent; 0 where no way leads, ``(o,)``."""
    after: list[list[int]] = [[] for _ in range(job.num_ops)]
    for source, target in job.edges.tolist():
        after[source].append(target)
    depth = {int(job.forward_order[0]): 0}
    queue = list(depth)
    for op in queue:  # grows while it is read
        for target in after[op]:
            if target not in depth:
                depth[target] = depth[op] + 1
                queue.append(target)
    return np.array([float(depth.get(op, 0)) for op in range(job.num_ops)])
