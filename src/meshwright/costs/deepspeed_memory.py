"""Gradients that DeepSpeed's ZeRO holds: buckets in a backward pass, and copies at the start of an update.

Nothing is held twice at initialisation: weights are made flat on the device where it has room for both, else in the host's
memory (``available_memory >= flat_buffer_bytes``). DeepSpeed's optimizer for bf16, which sums float32 of all parameters, is
counted as other frameworks are.

Source:
    deepspeedai/DeepSpeed 0.19.8, runtime/zero/stage_1_and_2.py (``DeepSpeedZeroOptimizer``: ``__init__``, ``setup_buckets``,
    ``extra_large_param_to_reduce``, ``allreduce_bucket``, ``step``), runtime/zero/stage3.py
    (``_prepare_fp32_grad_for_sub_group``) and runtime/bf16_optimizer.py.
"""

from __future__ import annotations

from ..plans.partition import Layout

BUCKET_PARAMETERS = 5e8
"""Parameters or gradients of one bucket of ZeRO (DeepSpeed's default ``reduce_bucket_size``)."""

LIVE_PARAMETERS = 1e9
"""Parameters that ZeRO-3 keeps whole at a time, where a single weight is not larger. DeepSpeed's defaults
``stage3_max_live_parameters``, and ``sub_group_size`` for its update."""


def has_zero_of_deepspeed(layout: Layout) -> bool:
    """Whether a layout runs with DeepSpeed's ZeRO, and not with its optimizer for bf16."""
    sums_all = layout.zero == 1 and layout.precision == "bf16" and layout.fp32_gradients and layout.offload == "none"
    return layout.framework == "deepspeed" and layout.zero >= 1 and not sums_all


def updated_bytes(layout: Layout, shard: float) -> float:
    """Bytes of gradients at the start of an update: a rank's part, a flat copy, and that in float32; 0 where the host updates.

    Args:
        layout: how the job is cut.
        shard: parameters that a rank updates.
    """
    if layout.offload == "optimizer":
        return 0.0
    copies = 4 if layout.gradient_bytes == 4 else layout.gradient_bytes + 4
    return layout.gradient_bytes * shard + copies * (min(shard, LIVE_PARAMETERS) if layout.zero == 3 else shard)


def bucket_bytes(layout: Layout, parameters: float, weight: float) -> float:
    """Bytes of the buckets of ZeRO-1 and 2, of full size whatever the model's, and of the flat copy that is summed.

    There are two buckets where sums overlap the backward pass. A weight larger than a bucket goes by itself: its gradient and
    a copy. Sums in the host's memory come back to a buffer of one weight (``temp_grad_buffer_for_gpu_offload``).

    Args:
        layout: how the job is cut.
        parameters: those that a rank holds.
        weight: those of the largest weight.
    """
    width = layout.gradient_bytes if layout.zero == 1 else layout.number_bytes
    buckets = (2 if layout.overlap_dp else 1) * BUCKET_PARAMETERS
    of_host = layout.number_bytes * weight if layout.offload == "optimizer" else 0.0
    return of_host + width * (buckets + (2 * weight if weight > BUCKET_PARAMETERS else min(parameters, BUCKET_PARAMETERS)))
