"""A cluster, the jobs that may run on it, and how long each of them takes wherever it is placed.

Every figure comes from simulating the job's graph on its placement; what has been simulated once is kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...clusters.cluster import Cluster
from ...errors import GraphError, PlanError
from ...jobs.graph import JobGraph
from .lookahead import TIE_SEED, LookaheadResult, lookahead, problem
from .mirror import MirroredJob, mirror
from .placement import PlacementProblem, ServerBlocks, first_fit, placement_problem
from .semantics import Defects
from .splitting import SplitJob, split
from .times import DepTimes, Network, dep_times

# Training steps of a job: published, and where its milliseconds are milliseconds (sequential times stay the same).
NUM_STEPS, NUM_STEPS_CONVERTED = 50, 50_000
# Occupancies whose placements are kept; there are few distinct placements among them.
MAX_OCCUPANCIES = 200_000


@dataclass(frozen=True, eq=False)
class PlacedSplitJob:
    """A cut job on its servers.

    Attributes:
        split: the cut job.
        server: of each sub-op, ``(p,)``.
        servers: those of the job, ascending.
        key: identifies the placement among those of all jobs and degrees.
    """

    split: SplitJob
    server: NDArray[np.int64]
    servers: NDArray[np.int64]
    key: tuple[str, int, bytes]


class Simulator:
    """The published simulator's view of a cluster and of the jobs that may come.

    Args:
        cluster: a RAMP cluster.
        graphs: the jobs, identified by their names.
        defects: which defects are kept.
        num_steps: training steps of every job; the published number unless given.
        tie_seed: decides ties between flows, as the seed of Python's hash does in the original; 0 takes them as they are
            made (`lookahead.ties`).

    Raises:
        ConfigError: the cluster is no RAMP.
        GraphError: two graphs have one name, or one cannot be mirrored.
    """

    def __init__(
        self,
        cluster: Cluster,
        graphs: Iterable[JobGraph],
        defects: Defects,
        *,
        num_steps: int | None = None,
        tie_seed: int = TIE_SEED,
    ) -> None:
        self.cluster = cluster
        self.defects = defects
        self.tie_seed = tie_seed
        self.num_steps = num_steps or (NUM_STEPS if defects.milliseconds_as_seconds else NUM_STEPS_CONVERTED)
        self.network = Network.from_cluster(cluster)
        self.blocks = ServerBlocks(cluster)
        self.jobs: dict[str, MirroredJob] = {}
        for graph in graphs:
            if graph.name in self.jobs:
                raise GraphError("two graphs have this name", value=graph.name)
            self.jobs[graph.name] = mirror(graph, defects)
        self._splits: dict[tuple[str, int], tuple[SplitJob, PlacementProblem]] = {}
        self._placed: dict[tuple[str, int, bytes], PlacedSplitJob | None] = {}
        self._distinct: dict[tuple[str, int, bytes], PlacedSplitJob] = {}
        self._steps: dict[tuple[str, int, bytes], LookaheadResult] = {}

    @property
    def num_servers(self) -> int:
        """Servers of the cluster, ``w``."""
        return self.cluster.num_devices

    def job(self, name: str) -> MirroredJob:
        """A job by its name.

        Raises:
            GraphError: no such job.
        """
        if name not in self.jobs:
            raise GraphError("no such graph", field="graph", value=name, choices=self.jobs)
        return self.jobs[name]

    def split(self, name: str, degree: int) -> SplitJob:
        """A job cut at most ``degree`` ways.

        Raises:
            PlanError: a degree below 1.
        """
        return self._cut(name, degree)[0]

    def place(self, name: str, degree: int, is_free: NDArray[np.bool_]) -> PlacedSplitJob | None:
        """First fit among the servers that no other job holds, ``(w,)``; None where some op finds no block."""
        occupancy = (name, degree, is_free.tobytes())
        if occupancy not in self._placed:
            if len(self._placed) >= MAX_OCCUPANCIES:
                self._placed.clear()
            cut, inputs = self._cut(name, degree)
            server = first_fit(cut, inputs, is_free, self.cluster.memory_bytes)
            self._placed[occupancy] = None if server is None else self.placed(name, degree, server)
        return self._placed[occupancy]

    def placed(self, name: str, degree: int, server: NDArray[np.int64]) -> PlacedSplitJob:
        """A cut job on given servers, ``(p,)``."""
        key = (name, degree, server.tobytes())
        if key not in self._distinct:
            self._distinct[key] = PlacedSplitJob(self.split(name, degree), server, np.unique(server), key)
        return self._distinct[key]

    def times(self, placed: PlacedSplitJob) -> DepTimes:
        """Run times of the dependencies of a placed job."""
        return dep_times(placed.split, placed.server, self.network, self.defects)

    def step(self, placed: PlacedSplitJob) -> LookaheadResult:
        """One training step of a placed job."""
        if placed.key not in self._steps:
            inputs = problem(placed.split, placed.server, self.times(placed), self.defects, self.tie_seed)
            self._steps[placed.key] = lookahead(inputs)
        return self._steps[placed.key]

    def completion_s(self, step: LookaheadResult) -> float:
        """Completion time of a job that starts at once."""
        return step.step_s * self.num_steps

    def sequential_s(self, name: str) -> float:
        """Completion time of a job on one worker, ops one after another."""
        return self.job(name).step_s * self.num_steps

    def demand_bytes(self, name: str) -> float:
        """Memory of all ops and bytes on all edges of the job as it comes, uncut: what throughput counts."""
        job = self.job(name)
        return float(job.memory_bytes.sum() + job.edge_bytes.sum())

    def _cut(self, name: str, degree: int) -> tuple[SplitJob, PlacementProblem]:
        if degree < 1:
            raise PlanError("a split degree is at least 1", field="degree", value=degree)
        if (name, degree) not in self._splits:
            cut = split(self.job(name), degree, self.defects)
            self._splits[name, degree] = cut, placement_problem(cut, self.blocks)
        return self._splits[name, degree]
