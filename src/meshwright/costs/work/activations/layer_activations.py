"""Bytes that one layer of a transformer keeps of a micro-batch until its backward pass.

Legend: ``s`` tokens of a sequence on a rank of ``cp``, ``b`` sequences of a micro-batch, ``t`` tensor-parallel degree,
``h`` hidden width, ``a`` heads.
"""

from __future__ import annotations

from ....jobs.transformer import TransformerShape
from ....plans.partition import Layout
from .selective_ops import kept_bytes


def layer_activation_bytes(shape: TransformerShape, layout: Layout, sequence_length: int, recompute: str) -> float:
    """Return bytes that one layer keeps of one micro-batch for its backward pass.

    Without recomputation, whole unless cut by sequence: inputs of both norms, of the joint projection and of the feed-forward
    layer, two dropout masks. Sharded by ``t``: queries, keys and values, softmax, its dropout mask and output, the context,
    the input and output of the activation. For a GPT that is ``s b h (10 + 24 / t + 5 a s / (h t))``, and all of it over ``t``
    under sequence parallelism. Selective recomputation keeps nothing of attention's inside. Full recomputation keeps the
    layer's input alone. It is whole on every rank without sequence parallelism, ``2 s b h``, and cut by sequence with it, ``2
    s b h / t``. Fused attention keeps a float32 statistic for each query instead of the scores. Latent attention keeps its
    narrow vectors before and after their norm too, norms of outputs and of heads their inputs.

    Inputs that are gathered by sequence may be kept whole. A GELU of operators keeps both factors of its product and its tanh
    as well, a gated activation of operators both factors of its product. Compiled code computes these again. Norms count as one
    kernel, as PyTorch's newest and torchtitan's are. Root-mean-square norms of transformers, whose models DeepSpeed trains, also
    keep their input in float32. With fp8 inputs of linear layers may be kept in a byte; attention then keeps its context in 16
    bits too. Where experts are cut less than ``tp``, their tokens are divided among ranks of ``tp`` also without sequence
    parallelism.

    Args:
        shape: the model.
        layout: how it is cut.
        sequence_length: tokens of a sequence; each query may see all of them.
        recompute: as in the layout; a layer of one layout may be recomputed or not.

    Source:
        Korthikanti et al., "Reducing activation recomputation in large transformer models", 2022, section 4.
    """
    tp, width, hidden = layout.tp, layout.number_bytes, shape.hidden
    tokens, split = layout.micro_batch * sequence_length // layout.cp, tp if layout.sequence_parallel else 1
    if recompute == "selective-ops":
        return kept_bytes(shape, layout, tokens)
    if recompute == "full":
        return float(width * tokens * hidden / split)
    mask = 1 if shape.has_dropout else 0
    norms = 1 if shape.is_parallel else 2
    queries = shape.num_heads * shape.head_dim
    keys_and_values = max(shape.num_key_value_heads, tp) * (shape.head_dim + shape.value_head_dim)
    into_linear = 1 if layout.keeps_fp8 else width
    is_of_transformers = layout.framework == "deepspeed" and not layout.compile
    into_norm = width + 4 * (is_of_transformers and shape.norm_vectors == 1)
    gathered = norms * width * hidden if layout.keeps_gathered else 0.0
    stream = (norms * (into_norm + into_linear) + norms * mask) * hidden / split + gathered
    stream += 2 * width * (shape.narrow_width + (hidden if shape.has_output_norms else 0)) / split
    routed = shape.experts_per_token if shape.num_experts > 1 else 1
    of_activation = 3 if shape.is_gated else 2
    if layout.runs_operators or is_of_transformers:
        of_activation = 4 if shape.is_gated else 5 if shape.has_gelu_of_operators else 2
    inner = (routed * shape.feed_forward + (shape.shared_feed_forward or 0)) / tp * ((of_activation - 1) * width + into_linear)
    extra = (width + into_linear) * routed * hidden / max(split, tp // layout.expert_tp) if shape.num_experts > 1 else 0.0
    attended = (width * (queries + keys_and_values) + width * shape.num_heads * shape.value_head_dim) / tp
    attended += layout.keeps_fp8 * shape.num_heads * shape.value_head_dim / tp
    if shape.has_head_norms:  # queries and keys before their norms as well
        attended += into_norm * (queries + max(shape.num_key_value_heads, tp) * shape.head_dim) / tp
    if layout.attention == "fused" or shape.window_form == "linear":
        attended += 4 * shape.num_heads / tp
    elif recompute != "selective":
        attended += ((2 * width + mask) if mask else width) * shape.num_heads * sequence_length / tp
    return tokens * (stream + inner + extra + attended)
