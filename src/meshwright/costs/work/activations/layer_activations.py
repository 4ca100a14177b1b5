"""Bytes that one layer of a transformer keeps of a micro-batch until its backward pass.

Legend: ``s`` tokens of a sequence on a rank of ``cp``, ``b`` sequences of a micro-batch, ``t`` tensor-parallel degree,
``h`` hidden width, ``a`` heads.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from ....jobs.transformer import TransformerShape
from .selective_ops import kept_bytes

if TYPE_CHECKING:
    from ..work import LayoutWork


@lru_cache(maxsize=4096)
def layer_activation_bytes(
    shape: TransformerShape,
    tp: int,
    tokens: int,
    keys: int,
    sequence_parallel: bool,
    recompute: str,
    attention: str,
    width: int = 2,
    keeps_gathered: bool = False,
    runs_operators: bool = False,
    keeps_fp8: bool = False,
    expert_split: int = 1,
) -> float:
    """Return bytes that one layer keeps of one micro-batch for its backward pass.

    Without recomputation, whole unless cut by sequence: inputs of both norms, of the joint projection and of the feed-forward
    layer, two dropout masks. Sharded by ``t``: queries, keys and values, softmax, its dropout mask and output, the context,
    the input and output of the activation. For a GPT that is ``s b h (10 + 24 / t + 5 a s / (h t))``, and all of it over ``t``
    under sequence parallelism. Selective recomputation keeps nothing of attention's inside. Full recomputation keeps the
    layer's input alone. It is whole on every rank without sequence parallelism, ``2 s b h``, and cut by sequence with it, ``2
    s b h / t``. Fused attention keeps a float32 statistic for each query instead of the scores. Latent attention keeps its
    narrow vectors before and after their norm too, norms of outputs and of heads their inputs.

    Args:
        shape: the model.
        tp: tensor-parallel degree.
        tokens: of the micro-batch on this rank.
        keys: tokens that each query may see.
        sequence_parallel: whether the residual stream is cut by sequence.
        recompute: as in the layout.
        attention: as in the layout.
        width: bytes of a number.
        keeps_gathered: whether inputs that are gathered by sequence are kept whole.
        runs_operators: whether a GELU that is made of operators keeps both factors of its product and its tanh as well.
        keeps_fp8: whether inputs of linear layers are kept in a byte; of the context attention itself keeps 16 bits as well.
        expert_split: ranks of tp among which the tokens that experts get are divided, without sequence parallelism.

    Source:
        Korthikanti et al., "Reducing activation recomputation in large transformer models", 2022, section 4.
    """
    hidden = shape.hidden
    split = tp if sequence_parallel else 1
    if recompute == "full":
        return float(width * tokens * hidden / split)
    mask = 1 if shape.has_dropout else 0
    norms = 1 if shape.is_parallel else 2
    queries = shape.num_heads * shape.head_dim
    keys_and_values = max(shape.num_key_value_heads, tp) * (shape.head_dim + shape.value_head_dim)
    into_linear = 1 if keeps_fp8 else width
    stream = (norms * (width + into_linear) + norms * mask) * hidden / split + (norms * width * hidden if keeps_gathered else 0.0)
    stream += 2 * width * (shape.narrow_width + (hidden if shape.has_output_norms else 0)) / split
    routed = shape.experts_per_token if shape.num_experts > 1 else 1
    of_activation = 3 if shape.is_gated else 5 if runs_operators and shape.has_gelu_of_operators else 2
    inner = (routed * shape.feed_forward + (shape.shared_feed_forward or 0)) / tp * ((of_activation - 1) * width + into_linear)
    extra = (width + into_linear) * routed * hidden / max(split, expert_split) if shape.num_experts > 1 else 0.0
    attended = (width * (queries + keys_and_values) + width * shape.num_heads * shape.value_head_dim) / tp
    attended += keeps_fp8 * shape.num_heads * shape.value_head_dim / tp
    if shape.has_head_norms:  # queries and keys before their norms as well
        attended += width * (queries + max(shape.num_key_value_heads, tp) * shape.head_dim) / tp
    if attention == "fused" or shape.window_form == "linear":
        attended += 4 * shape.num_heads / tp
    elif recompute != "selective":
        attended += (2 * width + mask) * shape.num_heads * keys / tp if mask else width * shape.num_heads * keys / tp
    return tokens * (stream + inner + extra + attended)


def layer_bytes(shape: TransformerShape, work: LayoutWork, recompute: str) -> float:
    """Bytes that a layer of a layout keeps of one micro-batch under a choice of recomputation, op by op where that is chosen."""
    layout = work.layout
    tokens = layout.micro_batch * work.sequence_length // layout.cp
    if recompute == "selective-ops":
        return kept_bytes(shape, layout, tokens)
    return layer_activation_bytes(
        shape,
        layout.tp,
        tokens,
        work.sequence_length,
        layout.sequence_parallel,
        recompute,
        layout.attention,
        layout.number_bytes,
        layout.keeps_gathered,
        layout.runs_operators,
        layout.keeps_fp8,
        layout.tp // layout.expert_tp,
    )
