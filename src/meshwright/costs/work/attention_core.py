"""Attention between its two linear layers: softmax of unfused attention, pairs that a fused kernel sees."""

from __future__ import annotations

from ...jobs.transformer import TransformerShape
from ...plans.frameworks.defaults import TRAITS
from ...plans.partition import Layout
from .operations import Sweep

FUSED_SOFTMAX_BATCHES, FUSED_SOFTMAX_KEYS = 4, 16_384
"""Megatron-LM's kernel of scale, mask and softmax requires heads times sequences to be a multiple of the first. The keys must
not exceed the second. Otherwise it runs kernel by kernel in float32 (NVIDIA/Megatron-LM,
megatron/core/fusions/fused_softmax.py, ``is_kernel_available``).
"""


def softmax(shape: TransformerShape, number_bytes: int, heads: int, keys: int, scores: float) -> tuple[Sweep, Sweep]:
    """Return scale, mask and softmax of unfused attention, in one kernel if possible.

    The kernel of a causal mask reads the lower triangle and writes all, backward it reads two triangles. Without it scores of
    16 bits are brought to float32, scaled, masked, put through the softmax and brought back. Each is a kernel that reads and
    writes; the softmax's gradient reads two.
    """
    e = number_bytes
    is_fused = e == 2 and heads % FUSED_SOFTMAX_BATCHES == 0 and keys <= FUSED_SOFTMAX_KEYS
    if is_fused:
        forward, backward = (2.0, 3.0) if shape.is_encoder else (1.5, 2.0)
        return Sweep("softmax", forward * e * scores, 1), Sweep("softmax gradient", backward * e * scores, 1)
    casts, in_float32 = (2, 3) if e == 2 else (0, 3)
    element_bytes = casts * (e + 4.0) + in_float32 * 8.0
    num_kernels = casts + in_float32
    return Sweep("softmax", element_bytes * scores, num_kernels), Sweep(
        "softmax gradient", (element_bytes + 4.0) * scores, num_kernels
    )


def is_masked(shape: TransformerShape, layout: Layout) -> bool:
    """Return whether what a query does not see of a window is computed and masked; linear attention has nothing to mask."""
    return shape.window is not None and shape.window_form != "linear" and TRAITS[layout.framework].masks_windows


def seen_pairs(shape: TransformerShape, layout: Layout, rows: int, columns: int) -> float:
    """Return pairs of query and key that the fused kernel computes: half if causal, less under a window or within chunks.

    Megatron-LM gives its kernel the window. Models of transformers, which FSDP2 and DeepSpeed run, give PyTorch's a mask in
    place of it, and all pairs of the mask are computed.

    Source:
        huggingface/transformers, src/transformers/masking_utils.py (``sliding_window_causal_mask_function``) and
        integrations/sdpa_attention.py (``is_causal`` is false where there is a mask).
    """
    window = columns if shape.window is None else shape.window
    if shape.window_form == "linear":
        return float(rows * window)
    if window >= columns:
        return rows * columns / (1 if shape.is_encoder else 2)
    if is_masked(shape, layout):
        return float(rows * columns)
    if shape.is_encoder:
        return float(rows * window)
    if shape.window_form == "chunks":
        return rows * (columns // window * window**2 + (columns % window) ** 2) / (2 * columns)
    return rows * (window - window**2 / (2 * columns))
