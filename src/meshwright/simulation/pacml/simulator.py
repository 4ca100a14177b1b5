"""A cluster, the jobs that may run on it, and how long each of them takes wherever it is placed.

Every figure comes from simulating the job's graph on its placement; what has been simulated once is kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...clusters.blocks import blocks
from ...clusters.cluster import Cluster
from ...compiled import njit
from ...errors import GraphError, PlanError
from ...jobs.graph import JobGraph
from .lookahead import TIE_SEED, LookaheadResult, lookahead, problem
from .mirror import MirroredJob, mirror
from .semantics import Defects
from .splitting import SplitJob, split
from .times import DepTimes, Network, dep_times


class ServerBlocks:
    """The blocks of a cluster in first-fit order, by size; a size is scanned once."""

    def __init__(self, cluster: Cluster) -> None:
        self.memory_bytes = cluster.memory_bytes
        self._cluster = cluster
        self._of_size: dict[int, NDArray[np.int64]] = {}

    def of_size(self, num_servers: int) -> NDArray[np.int64]:
        """Return the servers of each block, ``(b, num_servers)``; none where no shape has that size."""
        if num_servers not in self._of_size:
            self._of_size[num_servers] = blocks(self._cluster, num_servers).devices
        return self._of_size[num_servers]


class PlacementProblem(NamedTuple):
    """The input of first fit as flat arrays; the same at every occupancy.

    ``n`` are forward ops, ``w`` servers and ``p`` sub-ops. A server holds sub-ops of one job only.

    Attributes:
        order: forward ops as they are placed, ``(n,)``.
        pieces: of each forward op, ``(n,)``.
        memory_bytes: of each forward op, ``(n,)``.
        parent_start, parents: parents of op ``i`` are ``parents[parent_start[i]:parent_start[i + 1]]``.
        block_start: where the blocks of ``s`` servers begin in ``block_servers``; entry ``s + 1`` is their end.
        block_servers: servers of all blocks, by size, block after block.
    """

    order: NDArray[np.int64]
    pieces: NDArray[np.int64]
    memory_bytes: NDArray[np.float64]
    parent_start: NDArray[np.int64]
    parents: NDArray[np.int64]
    block_start: NDArray[np.int64]
    block_servers: NDArray[np.int64]


def placement_problem(job: SplitJob, server_blocks: ServerBlocks) -> PlacementProblem:
    """Return the arrays of a cut job on a cluster."""
    mirrored = job.job
    pieces = job.splits[: mirrored.num_forward]
    used = set(pieces.tolist())
    by_size = [server_blocks.of_size(s).reshape(-1) if s in used else np.zeros(0, np.int64) for s in range(int(pieces.max()) + 1)]
    return PlacementProblem(
        order=mirrored.forward_order,
        pieces=pieces,
        memory_bytes=mirrored.memory_bytes[: mirrored.num_forward],
        parent_start=np.cumsum([0, *map(len, mirrored.parents)]),
        parents=np.array([parent for parents in mirrored.parents for parent in parents], np.int64),
        block_start=np.cumsum([0, *map(len, by_size)]),
        block_servers=np.concatenate(by_size),
    )


def first_fit(
    job: SplitJob, inputs: PlacementProblem, is_free: NDArray[np.bool_], memory_bytes: NDArray[np.float64]
) -> NDArray[np.int64] | None:
    """Return the server of each sub-op, ``(p,)``; None where some op finds no block.

    Ops are placed in the order of `MirroredJob.forward_order`. An op takes the servers of its first parent with the same cut if
    they have the memory. Else it takes the first block of its size that no other job holds. A backward sub-op sits with its
    forward one.

    Args:
        job: to be placed.
        inputs: its arrays.
        is_free: whether no other job holds the server, ``(w,)``.
        memory_bytes: of each server, ``(w,)``.
    """
    choice = _first_fit(*inputs, is_free, memory_bytes)
    if choice[0, 0] < 0:
        return None
    piece = np.arange(job.num_sub_ops) - job.first[job.op]
    return np.asarray(choice[np.minimum(job.op, job.job.num_ops - 1 - job.op), piece], np.int64)


@njit
def _first_fit(  # type: ignore[no-untyped-def]
    order, pieces, memory_bytes, parent_start, parents, block_start, block_servers, is_free, capacity_bytes
):
    """Return the servers of each forward op, ``(n, most pieces)``; -1 in the first place where some op finds no block."""
    left = np.where(is_free, capacity_bytes, 0.0)
    choice = np.full((len(order), pieces.max()), -1, np.int64)
    for op in order:
        s = pieces[op]
        needed = memory_bytes[op]
        is_placed = False
        for parent in parents[parent_start[op] : parent_start[op + 1]]:
            if pieces[parent] == s:
                room = 0.0
                for server in choice[parent, :s]:
                    room += left[server]
                if room >= needed:
                    choice[op, :s] = choice[parent, :s]
                    is_placed = True
                    break
        if not is_placed:
            for begin in range(block_start[s], block_start[s + 1], s):
                fits = True
                for server in block_servers[begin : begin + s]:
                    if not is_free[server] or left[server] < needed / s:
                        fits = False
                        break
                if fits:
                    choice[op, :s] = block_servers[begin : begin + s]
                    is_placed = True
                    break
        if not is_placed:
            choice[0, 0] = -1
            return choice
        for server in choice[op, :s]:  # the forward and the backward sub-op
            left[server] -= needed / s
            left[server] -= needed / s
    return choice


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
        """Return a job by its name.

        Raises:
            GraphError: no such job.
        """
        if name not in self.jobs:
            raise GraphError("no such graph", field="graph", value=name, choices=self.jobs)
        return self.jobs[name]

    def split(self, name: str, degree: int) -> SplitJob:
        """Return a job cut at most ``degree`` ways.

        Raises:
            PlanError: a degree below 1.
        """
        return self._cut(name, degree)[0]

    def place(self, name: str, degree: int, is_free: NDArray[np.bool_]) -> PlacedSplitJob | None:
        """Return the first fit among the servers that no other job holds, ``(w,)``; None where some op finds no block."""
        occupancy = (name, degree, is_free.tobytes())
        if occupancy not in self._placed:
            if len(self._placed) >= MAX_OCCUPANCIES:
                self._placed.clear()
            cut, inputs = self._cut(name, degree)
            server = first_fit(cut, inputs, is_free, self.cluster.memory_bytes)
            self._placed[occupancy] = None if server is None else self.placed(name, degree, server)
        return self._placed[occupancy]

    def placed(self, name: str, degree: int, server: NDArray[np.int64]) -> PlacedSplitJob:
        """Return a cut job on given servers, ``(p,)``."""
        key = (name, degree, server.tobytes())
        if key not in self._distinct:
            self._distinct[key] = PlacedSplitJob(self.split(name, degree), server, np.unique(server), key)
        return self._distinct[key]

    def times(self, placed: PlacedSplitJob) -> DepTimes:
        """Run times of the dependencies of a placed job."""
        return dep_times(placed.split, placed.server, self.network, self.defects)

    def step(self, placed: PlacedSplitJob) -> LookaheadResult:
        """Return one training step of a placed job."""
        if placed.key not in self._steps:
            inputs = problem(placed.split, placed.server, self.times(placed), self.defects, self.tie_seed)
            self._steps[placed.key] = lookahead(inputs)
        return self._steps[placed.key]

    def completion_s(self, step: LookaheadResult) -> float:
        """Return the completion time of a job that starts at once."""
        return step.step_s * self.num_steps

    def sequential_s(self, name: str) -> float:
        """Return the completion time of a job on one worker, ops one after another."""
        return self.job(name).step_s * self.num_steps

    def demand_bytes(self, name: str) -> float:
        """Return the memory of all ops and bytes on all edges of the job as it comes, uncut: what throughput counts."""
        job = self.job(name)
        return float(job.memory_bytes.sum() + job.edge_bytes.sum())

    def _cut(self, name: str, degree: int) -> tuple[SplitJob, PlacementProblem]:
        if degree < 1:
            raise PlanError("a split degree is at least 1", field="degree", value=degree)
        if (name, degree) not in self._splits:
            cut = split(self.job(name), degree, self.defects)
            self._splits[name, degree] = cut, placement_problem(cut, self.blocks)
        return self._splits[name, degree]
