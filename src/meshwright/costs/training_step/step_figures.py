"""The figures of one step of a transformer's layout: its time, what that consists of, and what it reaches of the devices."""

from __future__ import annotations

from dataclasses import dataclass

from .uncertainty import uncertainty


@dataclass(frozen=True)
class StepTime:
    """One step.

    Attributes:
        step_s: the whole.
        breakdown_s: what the busiest stage does: ``compute``, ``recompute``, ``exposed tp`` and other axes,
            ``pipeline transfers``, ``bubble``, ``imbalance`` (see `waits`), ``gradient sync``, ``parameter gather``,
            ``optimizer``, ``host``; sums to ``step_s``.
        model_flops: of one step over all ranks, without recomputation; attention counts in full.
        hardware_flops: with recomputation.
        tokens: of one step.
        uncertainty_terms: what the uncertainty is made of, see `uncertainty.uncertainty_terms`.
        peak_flops_per_s: of all devices together.
    """

    step_s: float
    breakdown_s: dict[str, float]
    model_flops: float
    hardware_flops: float
    tokens: int
    uncertainty_terms: dict[str, float]
    peak_flops_per_s: float

    @property
    def uncertainty(self) -> float:
        """Relative, one standard deviation."""
        return uncertainty(self.uncertainty_terms)

    @property
    def tokens_per_s(self) -> float:
        """Tokens in a second over all ranks."""
        return self.tokens / self.step_s

    @property
    def mfu(self) -> float:
        """Model FLOPs utilisation."""
        return self.model_flops / self.step_s / self.peak_flops_per_s

    @property
    def hfu(self) -> float:
        """Hardware FLOPs utilisation."""
        return self.hardware_flops / self.step_s / self.peak_flops_per_s
