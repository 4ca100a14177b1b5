"""Cutting a mirrored job into sub-ops and the dependencies between them.

Legend: ``o`` ops, ``p`` sub-ops (those of one op are consecutive), ``d`` dependencies. Sub-edges come first, those that leave
forward ops by source, the others by target, then the weight synchronisation. Sizes are added up in this published order, which
decides a message's last byte.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..ragged import row_starts
from .mirror import MILLISECONDS_PER_SECOND, MirroredJob
from .semantics import Defects

# Forward time of one piece below which the published configuration cuts no further, in its own unit.
QUANTUM_MS = 0.01


@dataclass(frozen=True, eq=False)
class SplitJob:
    """One training step, cut.

    Attributes:
        job: before it was cut.
        splits: pieces of each op, ``(o,)``.
        first: first sub-op of each op; one entry more than ops, ``(o + 1,)``.
        op: the op of each sub-op, ``(p,)``.
        compute_s: duration of each sub-op, ``(p,)``.
        source, target: sub-ops at both ends of each dependency, ``(d,)``.
        size_bytes: ``(d,)``.
        edge: edge of the mirrored job, ``(d,)``; -1 for synchronisation.
        num_parents: dependencies that a sub-op waits for, synchronisation not among them, ``(p,)``.
    """

    job: MirroredJob
    splits: NDArray[np.int64]
    first: NDArray[np.int64]
    op: NDArray[np.int64]
    compute_s: NDArray[np.float64]
    source: NDArray[np.int64]
    target: NDArray[np.int64]
    size_bytes: NDArray[np.float64]
    edge: NDArray[np.int64]
    num_parents: NDArray[np.int64]

    @property
    def num_sub_ops(self) -> int:
        """Number of sub-ops, ``p``."""
        return len(self.op)

    @property
    def num_deps(self) -> int:
        """Number of dependencies, ``d``."""
        return len(self.source)

    @property
    def num_sync(self) -> int:
        """Dependencies that synchronise weights, the last ones."""
        return int((self.edge < 0).sum())


def splits(job: MirroredJob, degree: int, defects: Defects) -> NDArray[np.int64]:
    """Return the pieces of each op when a job is cut at most ``degree`` ways, ``(o,)``; a backward op is cut as its forward op.

    ``max(1, min(2 ceil(ceil(c / q) / 2), degree))`` for the forward time ``c`` and the quantum ``q``: an op without
    forward time stays whole, however long its backward op is.

    Source:
        Khani et al., "SiP-ML: high-bandwidth optical network interconnects for machine learning training", 2021, in
        the even form of the published simulator.
    """
    quantum = QUANTUM_MS if defects.milliseconds_as_seconds else QUANTUM_MS / MILLISECONDS_PER_SECOND
    forward = job.compute_s[: job.num_forward]
    pieces = np.maximum(1, np.minimum(2 * np.ceil(np.ceil(forward / quantum) / 2), degree)).astype(np.int64)
    return np.concatenate([pieces, pieces[::-1]])


def split(job: MirroredJob, degree: int, defects: Defects) -> SplitJob:
    """Cut a job at most ``degree`` ways."""
    pieces = splits(job, degree, defects)
    first = row_starts(pieces)
    op = np.repeat(np.arange(job.num_ops), pieces)
    edge, source_piece, target_piece = _bipartite(pieces, job.edges)
    source = first[job.edges[edge, 0]] + source_piece
    target = first[job.edges[edge, 1]] + target_piece
    order = by_number(np.where(job.edges[edge, 0] < job.num_forward, source, target))
    edge, source, target = edge[order], source[order], target[order]
    size_bytes = _edge_bytes(job, pieces, defects)[edge]
    sync_source, sync_target, sync_bytes = _sync(job, pieces, first, defects)
    return SplitJob(
        job=job,
        splits=pieces,
        first=first,
        op=op,
        compute_s=(job.compute_s / pieces)[op],
        source=np.concatenate([source, sync_source]),
        target=np.concatenate([target, sync_target]),
        size_bytes=np.concatenate([size_bytes, sync_bytes]),
        edge=np.concatenate([edge, np.full(len(sync_source), -1)]),
        num_parents=np.bincount(target, minlength=len(op)),
    )


def by_number(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the stable order of small whole numbers; short ones are sorted by counting."""
    small = numbers.astype(np.uint16) if numbers.max(initial=0) < 2**16 else numbers
    return np.argsort(small, kind="stable")


def _bipartite(pieces: NDArray[np.int64], edges: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
    """Return edge, piece of the source and piece of the target of every sub-edge."""
    each = pieces[edges[:, 0]] * pieces[edges[:, 1]]
    edge = np.repeat(np.arange(len(edges)), each)
    place = np.arange(each.sum()) - np.repeat(np.cumsum(each) - each, each)
    return edge, *np.divmod(place, pieces[edges[edge, 1]])


def _edge_bytes(job: MirroredJob, pieces: NDArray[np.int64], defects: Defects) -> NDArray[np.float64]:
    """Return the size of each sub-edge of every edge, ``(2 m + 1,)``.

    As published, it is the memory of the source. Where only the source is cut, it is that of the *child*; where both are, that of
    the one cut first. It is always divided by the number of sub-edges.
    """
    source, target = job.edges.T
    sub_edges = pieces[source] * pieces[target]
    if not defects.edges_carry_memory:
        return np.asarray(job.activation_bytes[source] / sub_edges)
    only_source = (pieces[source] > 1) & (pieces[target] == 1)
    both = (pieces[source] > 1) & (pieces[target] > 1)
    target_first = both & (job.split_rank[target] < job.split_rank[source])
    return np.asarray(job.memory_bytes[np.where(only_source | target_first, target, source)] / sub_edges)


def _sync(
    job: MirroredJob, pieces: NDArray[np.int64], first: NDArray[np.int64], defects: Defects
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return source, target and size of the dependencies that synchronise the weights of cut backward ops."""
    backward = np.arange(job.num_forward, job.num_ops)
    payload = job.memory_bytes if defects.sync_carries_memory else job.parameter_bytes
    cut = backward[pieces[backward] > 1]
    if not defects.sync_carries_memory:
        cut = cut[payload[cut] > 0]
    each = pieces[cut] * (pieces[cut] - 1)
    op = np.repeat(cut, each)
    place = np.arange(each.sum()) - np.repeat(np.cumsum(each) - each, each)
    giver, other = np.divmod(place, pieces[op] - 1)
    taker = other + (other >= giver)
    return first[op] + giver, first[op] + taker, payload[op] / pieces[op]
