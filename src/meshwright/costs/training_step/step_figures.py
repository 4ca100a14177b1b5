"""The figures of one step of a layout: its time, what that consists of, its operations, and what it reaches of the devices."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from ...jobs.transformer import TransformerShape
from ..work.activations.selective_ops import again_products
from ..work.model_chunks import block_name
from ..work.work import LayoutWork
from .uncertainty import uncertainty


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """One step of any job.

    Attributes:
        step_s: the whole.
        breakdown_s: parts of the stage that ends last; sums to ``step_s``: ``compute``, ``recompute``, ``pipeline transfers``,
            ``bubble``, ``imbalance`` (see `waits`), ``gradient sync``, ``parameter gather``. Of a transformer also ``exposed
            tp`` and other axes, ``optimizer`` and ``host``. Of other jobs the update of the weights is not counted.
        amount: tokens, or samples, of one step over all ranks.
        unit: which of them.
        model_flops: of one step over all ranks, without recomputation, attention in full; zero where the job has no FLOPs.
        hardware_flops: with recomputation.
        uncertainty_terms: parts of the uncertainty, see `uncertainty.uncertainty_terms`.
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
    def spread(self) -> str:
        """The uncertainty in percent, to print behind the time."""
        return f"± {100 * self.uncertainty:.0f} %"

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilisation; None where the operations of the job are not known."""
        return self._utilisation(self.model_flops)

    @property
    def hfu(self) -> float | None:
        """Hardware FLOPs utilisation; None where the operations of the job are not known."""
        return self._utilisation(self.hardware_flops)

    def _utilisation(self, flops: float) -> float | None:
        return flops / self.step_s / self.peak_flops_per_s if self.model_flops else None


def step_flops(work: LayoutWork) -> tuple[float, float]:
    """Return model and hardware FLOPs of a transformer's step over all ranks.

    Attention counts every pair of query and key within the window, also where a causal kernel skips half of them. Published
    utilisations count so. Of frozen parameters no gradient counts.

    Source:
        Narayanan et al., 2021, appendix; Korthikanti et al., 2022, appendix A.
    """
    shape, layout = work.shape, work.layout
    length = work.sequence_length
    tokens = float(layout.global_batch * length)
    layers, all_linear, again = 0, 0, 0.0
    counts: Counter[str] = Counter()
    for chunk in work.chunks:
        counts.update(dict(chunk.parts))
    for index, (kind, number) in enumerate(zip(shape.kinds, shape.kind_counts, strict=True)):
        linear, attention = _layer_flops(kind, length)
        layers += number * (linear + attention)
        all_linear += number * linear
        inside = attention if layout.attention == "unfused" else 0.0
        ops = 2.0 * sum(one.inner * one.width for one in again_products(kind)) if layout.recompute == "selective-ops" else 0.0
        shares = {"none": 0.0, "selective": inside, "selective-ops": ops, "full": linear + attention}
        again += tokens * counts[block_name(index)] * shares[layout.recompute]
    head = 2 * shape.hidden * shape.vocabulary
    forward = tokens * (layers + head)
    frozen = tokens * (all_linear + head) if layout.lora_rank is not None else 0.0
    return 3 * forward - frozen, 3 * forward - frozen + again


def _layer_flops(shape: TransformerShape, length: int) -> tuple[int, int]:
    """Return the operations of a token in the linear layers and inside the attention of a layer, forward."""
    context = shape.num_heads * shape.value_head_dim
    experts = shape.experts_per_token if shape.num_experts > 1 else 1
    inner = (3 if shape.is_gated else 2) * (experts * shape.feed_forward + (shape.shared_feed_forward or 0))
    linear = 2 * (shape.query_key_value_weights + (shape.side_weights or 0) + shape.hidden * (context + inner))
    return linear, 2 * shape.attention_multiply_adds(length)
