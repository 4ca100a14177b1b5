"""Into how many ranks each op of a job is cut, and two rules for it.

Legend of shapes: ``n`` ops of the job graph, ``degree`` ranks of an op-split plan.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...errors import PlanError
from ...jobs.graph import JobGraph


@dataclass(frozen=True, eq=False)
class OpSplits:
    """Into how many ranks each op is cut.

    An op that is split ``s`` ways works on ``1 / s`` of the batch on each of the plan's first ``s`` ranks.

    Attributes:
        splits: split degree of each op, ``(n,)``, at least 1.

    Raises:
        PlanError: no op, or a degree below 1 or not whole.
    """

    splits: NDArray[np.int64]

    def __post_init__(self) -> None:
        values = np.asarray(self.splits)
        if values.ndim != 1 or values.size == 0:
            raise PlanError(f"one split degree for each op is wanted, not an array of shape {values.shape}", field="splits")
        if values.dtype.kind not in "iu":
            raise PlanError("split degrees are whole numbers", field="splits", value=str(values.dtype))
        for op in np.flatnonzero(values < 1)[:1].tolist():
            raise PlanError("a split degree is at least 1", field=f"splits.{op}", value=int(values[op]))
        splits = values.astype(np.int64)
        splits.flags.writeable = False
        object.__setattr__(self, "splits", splits)

    @property
    def degree(self) -> int:
        """Ranks of the job: the largest split degree."""
        return int(self.splits.max())

    @property
    def num_ops(self) -> int:
        """Number of ops, ``n``."""
        return len(self.splits)


def uniform_splits(graph: JobGraph, degree: int) -> OpSplits:
    """Split every op into equally many pieces: plain data parallelism, in which nothing moves but gradients.

    Raises:
        PlanError: ``degree`` below 1.
    """
    if degree < 1:
        raise PlanError("a split degree is at least 1", field="degree", value=degree)
    return OpSplits(np.full(graph.num_ops, degree, np.int64))


def sip_ml_splits(graph: JobGraph, max_degree: int, quantum_s: float) -> OpSplits:
    """Split each op into as many even pieces as its forward time holds quanta, up to a limit.

    ``s = max(1, min(2 ceil(ceil(c / q) / 2), d))`` with forward seconds ``c``, quantum ``q`` and limit ``d``. An op
    without forward time stays whole, however long its backward pass is.

    Args:
        graph: the job.
        max_degree: largest split degree.
        quantum_s: forward seconds below which an op is not worth another piece.

    Raises:
        PlanError: ``max_degree`` below 1, or a quantum that is not positive.

    Source:
        Khani et al., "SiP-ML: high-bandwidth optical network interconnects for machine learning training", 2021. Even form:
        Parsonson et al., "Partitioning distributed compute jobs with reinforcement learning and graph neural networks", 2023.
    """
    if max_degree < 1:
        raise PlanError("a split degree is at least 1", field="max_degree", value=max_degree)
    if not (np.isfinite(quantum_s) and quantum_s > 0):
        raise PlanError("must be finite and positive", field="quantum_s", value=str(quantum_s))
    with np.errstate(over="ignore"):  # a tiny quantum asks for infinitely many pieces; the limit decides
        pieces = 2 * np.ceil(np.ceil(graph.forward_s / quantum_s) / 2)
    return OpSplits(np.maximum(1, np.minimum(pieces, max_degree)).astype(np.int64))
