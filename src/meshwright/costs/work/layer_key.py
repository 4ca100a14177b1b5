"""What of a layout the work on one micro-batch depends on."""

from __future__ import annotations

from typing import NamedTuple

from ...plans.partition import Layout


class BlockKey(NamedTuple):
    """What of a layout the work on one micro-batch depends on, so that layouts that share it share the work."""

    tp: int
    cp: int
    ep: int
    micro_batch: int
    sequence_length: int
    sequence_parallel: bool
    recompute: str
    context_parallel: str
    element_bytes: int
    fp32_gradients: bool
    attention: str
    async_gradients: bool
    fused_accumulation: bool
    overlap_tp: bool
    gathers_parameters: bool
    reduces_gradients: bool
    overlap_dp: bool

    @classmethod
    def of(cls, layout: Layout, sequence_length: int) -> BlockKey:
        """The key of a layout."""
        return cls(
            layout.tp,
            layout.cp,
            layout.ep,
            layout.micro_batch,
            sequence_length,
            layout.sequence_parallel,
            layout.recompute,
            layout.context_parallel,
            4 if layout.precision == "fp32" else 2,
            layout.fp32_gradients or layout.precision == "fp32",
            layout.attention,
            layout.async_gradients,
            layout.fused_accumulation,
            layout.overlap_tp,
            layout.zero >= 3,
            layout.zero >= 3 or (layout.zero == 2 and layout.pp == 1),
            layout.overlap_dp and layout.zero >= 2,
        )
