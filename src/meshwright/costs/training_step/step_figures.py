"""The figures of one step of a layout: its time, what that consists of, and what it reaches of the devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .uncertainty import uncertainty


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """One step of any job.

    Attributes:
        step_s: the whole.
        breakdown_s: what the stage that ends last does, by part; sums to ``step_s``: ``compute``, ``recompute``, ``pipeline
            transfers``, ``bubble``, ``imbalance`` (see `waits`), ``gradient sync``, ``parameter gather``. Of a transformer also
            ``exposed tp`` and other axes, ``optimizer`` and ``host``; of other jobs the update of the weights is not counted.
        amount: tokens, or samples, of one step over all ranks.
        unit: which of them.
        model_flops: of one step over all ranks, without recomputation, attention in full; zero where the job does not tell.
        hardware_flops: with recomputation.
        uncertainty_terms: what the uncertainty is made of, see `uncertainty.uncertainty_terms`.
        peak_flops_per_s: of all devices together.
    """

    step_s: float
    breakdown_s: dict[str, float]
    amount: int
    unit: Literal["tokens", "samples"]
    model_flops: float
    hardware_flops: float
    uncertainty_terms: dict[str, float]
    peak_flops_per_s: float

    @property
    def rate(self) -> tuple[str, float]:
        """Name and value of what a second brings over all ranks."""
        return f"{self.unit}_per_s", self.amount / self.step_s

    @property
    def uncertainty(self) -> float:
        """Relative, one standard deviation."""
        return uncertainty(self.uncertainty_terms)

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilisation; None where the job tells no operations."""
        return self._utilisation(self.model_flops)

    @property
    def hfu(self) -> float | None:
        """Hardware FLOPs utilisation; None where the job tells no operations."""
        return self._utilisation(self.hardware_flops)

    def _utilisation(self, flops: float) -> float | None:
        return flops / self.step_s / self.peak_flops_per_s if self.model_flops else None
