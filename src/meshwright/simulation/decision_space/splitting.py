"""How far each op is split when a job gets a number of ranks: the partition rule of a scenario."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ... import settings
from ...jobs.graph import JobGraph
from ...plans.splitting.op_splits import OpSplits, sip_ml_splits, uniform_splits


class SplitSettings(settings.Settings):
    """The partition rule.

    Attributes:
        rule: ``uniform`` splits every op by the number of ranks; ``sip-ml`` splits short ops less (see
            `plans.splitting.op_splits.sip_ml_splits`), which saves launches and costs transfers.
        quantum_us: under ``sip-ml``, forward time of one piece below which an op is not split further.
    """

    rule: Literal["uniform", "sip-ml"] = "uniform"
    quantum_us: float = Field(default=10.0, gt=0)

    def splits(self, graph: JobGraph, num_ranks: int) -> OpSplits:
        """Return the split degree of each op of a graph that gets ``num_ranks`` ranks."""
        if self.rule == "uniform":
            return uniform_splits(graph, num_ranks)
        return sip_ml_splits(graph, num_ranks, self.quantum_us * 1e-6)
