"""The figures of one step of a layout: its time, what that consists of, and what it reaches of the devices."""

from __future__ import annotations

from dataclasses import dataclass

from .uncertainty import uncertainty


@dataclass(frozen=True, kw_only=True)
class StepFigures:
    """One step of any job.

    Attributes:
        step_s: the whole.
        breakdown_s: what the stage that decides does, by part; sums to ``step_s``.
        model_flops: of one step over all ranks, without recomputation; zero where the job does not tell.
        hardware_flops: with recomputation.
        uncertainty_terms: what the uncertainty is made of, see `uncertainty.uncertainty_terms`.
        peak_flops_per_s: of all devices together.
    """

    step_s: float
    breakdown_s: dict[str, float]
    model_flops: float
    hardware_flops: float
    uncertainty_terms: dict[str, float]
    peak_flops_per_s: float

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


@dataclass(frozen=True, kw_only=True)
class StepTime(StepFigures):
    """One step of a transformer.

    Its ``breakdown_s`` is of the busiest stage: ``compute``, ``recompute``, ``exposed tp`` and other axes, ``pipeline
    transfers``, ``bubble``, ``imbalance`` (see `waits`), ``gradient sync``, ``parameter gather``, ``optimizer``, ``host``. In
    ``model_flops`` attention counts in full.

    Attributes:
        tokens: of one step.
    """

    tokens: int

    @property
    def tokens_per_s(self) -> float:
        """Tokens in a second over all ranks."""
        return self.tokens / self.step_s


@dataclass(frozen=True, kw_only=True)
class GraphStepTime(StepFigures):
    """One step of any other job graph.

    Its ``breakdown_s`` is of the stage that ends last: ``compute``, ``recompute``, ``pipeline transfers``, ``bubble``,
    ``imbalance`` (see `waits`), ``gradient sync``, ``parameter gather``. The update of the weights is not counted.

    Attributes:
        samples: of one step.
    """

    samples: int

    @property
    def samples_per_s(self) -> float:
        """Samples in a second over all ranks."""
        return self.samples / self.step_s
