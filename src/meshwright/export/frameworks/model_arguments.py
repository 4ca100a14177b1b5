"""A model's own arguments as training frameworks name them, from the shape that a plan embeds.

Sizes are the shape's; rotary bases, epsilons and activation functions are those of its `ModelConstants`, where a
``config.json`` has them. Properties without an argument in the framework are reported.

Sources:
    ``megatron/training/arguments.py`` of Megatron-LM (core 0.16.1); the keys of Hugging Face configurations, which DeepSpeed
    reads of a model (``hidden_size`` for ZeRO-3, heads for tensor parallelism). Those of torchtitan: `torchtitan`.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

from ...jobs.transformer import LayerKind, ModelConstants, RotaryScaling, layer_kinds
from ...plans.transformer import PlannedTransformer

_MEGATRON_SCALING: dict[str, Any] = {
    "kind": "llama3",
    "low_frequency_factor": 1.0,
    "high_frequency_factor": 4.0,
    "original_positions": 8192,
}
"""Scaling by ``--use-rope-scaling`` of Megatron-LM, without its factor (``megatron/core/models/common/embeddings``)."""

_LATENT_SCALING = " (--rotary-scaling-factor, --mscale, --mscale-all-dim)"

SWIGLU = (None, "silu", "swish")
_GELU = (None, "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh")


def megatron_words(model: PlannedTransformer) -> tuple[list[str], list[str]]:
    """Return Megatron-LM's arguments, word by word, and what they leave out, a phrase each."""
    keys: dict[str, object] = {
        "num-layers": model.num_layers,
        "hidden-size": model.hidden,
        "ffn-hidden-size": _dense_width(model),
        "num-attention-heads": model.num_heads,
        "seq-length": model.sequence_length,
        "max-position-embeddings": max(model.max_positions, model.sequence_length),
        "position-embedding-type": "learned_absolute" if model.learned_positions else "rope",
        "normalization": "RMSNorm" if model.norm_vectors == 1 else "LayerNorm",
        "vocab-size": model.vocabulary,
    }
    flags = {
        "swiglu": model.is_gated,
        "disable-bias-linear": not (model.mlp_bias or model.output_bias),
        "add-qkv-bias": model.qkv_bias and not (model.mlp_bias or model.output_bias),
        "untie-embeddings-and-output-weights": not model.is_head_tied,
        "qk-layernorm": bool(model.has_head_norms),
    }
    if not model.has_dropout:
        keys |= {"attention-dropout": "0.0", "hidden-dropout": "0.0"}
    latent = model.latent
    if latent is not None:
        flags["multi-latent-attention"] = True
        keys |= {} if latent.query_rank is None else {"q-lora-rank": latent.query_rank}
        keys |= {"kv-lora-rank": latent.key_value_rank, "qk-head-dim": model.head_dim - latent.rope_head_dim}
        keys |= {"qk-pos-emb-head-dim": latent.rope_head_dim, "v-head-dim": latent.value_head_dim}
    else:
        if model.num_key_value_heads != model.num_heads:
            flags["group-query-attention"] = True
            keys["num-query-groups"] = model.num_key_value_heads
        if model.hidden != model.num_heads * model.head_dim:
            keys["kv-channels"] = model.head_dim
    if model.num_experts > 1:
        keys |= {"num-experts": model.num_experts, "moe-router-topk": model.experts_per_token}
        keys["moe-ffn-hidden-size"] = model.feed_forward
        if model.shared_feed_forward is not None:
            keys["moe-shared-expert-intermediate-size"] = model.shared_feed_forward
        num_experts = [model.num_experts, *(kind.num_experts for kind in model.other_layers or ())]
        has_experts = [int(num_experts[kind] > 1) for kind in layer_kinds(model.num_layers, model.other_layers)]
        if not all(has_experts):
            runs = [f"[{one}]*{len(list(run))}" for one, run in groupby(has_experts)]
            keys["moe-layer-freq"] = f"({'+'.join(runs)})"
    of_constants, unsaid = _megatron_constants(model)
    words = [word for key, value in (keys | of_constants).items() for word in (f"--{key}", str(value))]
    flags["use-rope-scaling"] = "rope-scaling-factor" in of_constants
    return words + [f"--{flag}" for flag, is_set in flags.items() if is_set], left_out(model) + unsaid


def _megatron_constants(model: PlannedTransformer) -> tuple[dict[str, object], list[str]]:
    """Return the arguments of the constants, and what they cannot say."""
    constants = model.constants or ModelConstants()
    keys: dict[str, object] = {}
    base, scaling, activation = constants.rotary_base, constants.rotary_scaling, constants.activation
    turns = not model.learned_positions
    if base is not None and turns and base == int(base):
        keys["rotary-base"] = int(base)
    if constants.rotary_share is not None and turns:
        keys["rotary-percent"] = constants.rotary_share
    if constants.norm_epsilon is not None:
        keys["norm-epsilon"] = constants.norm_epsilon
    scales, factor = scaling is not None and turns, 1.0 if scaling is None else scaling.factor or 1.0
    if scales and scaling == RotaryScaling(**_MEGATRON_SCALING, factor=factor):
        keys["rope-scaling-factor"] = factor
    elif scales and scaling is not None and scaling.kind == "linear" and factor == int(factor):
        keys["rotary-seq-len-interpolation-factor"] = int(factor)
    is_said = not scales or {"rope-scaling-factor", "rotary-seq-len-interpolation-factor"} & keys.keys()
    other = {
        f"rotary base {base}": base is not None and turns and base != int(base),
        f"positions scaled by the rule {scaling and scaling.kind}{_LATENT_SCALING if model.latent else ''}": not is_said,
        "how experts are chosen and balanced (--moe-router-...)": model.num_experts > 1 and model.constants is not None,
        f"{activation} in the gate (--swiglu computes silu)": model.is_gated and activation not in SWIGLU,
        f"activation {activation} (Megatron's is gelu)": not model.is_gated and activation not in _GELU,
    }
    return keys, [what for what, is_there in other.items() if is_there]


def huggingface_keys(model: PlannedTransformer) -> dict[str, Any]:
    """Return the shape by the keys of a Hugging Face configuration."""
    keys: dict[str, Any] = {
        "num_hidden_layers": model.num_layers,
        "hidden_size": model.hidden,
        "intermediate_size": _dense_width(model),
        "num_attention_heads": model.num_heads,
        "num_key_value_heads": model.num_key_value_heads,
        "head_dim": model.head_dim,
        "vocab_size": model.vocabulary,
        "max_position_embeddings": model.max_positions,
        "tie_word_embeddings": model.is_head_tied,
        "sequence_length": model.sequence_length,
    }
    if model.num_experts > 1:
        keys |= {"num_experts": model.num_experts, "num_experts_per_tok": model.experts_per_token}
        keys["moe_intermediate_size"] = model.feed_forward
    return keys


def _dense_width(model: PlannedTransformer) -> int:
    """Return the width inside the feed-forward layers without experts; that of an expert where there are none."""
    dense = [kind.feed_forward for kind in model.other_layers or () if kind.num_experts == 1]
    return dense[0] if model.num_experts > 1 and dense else model.feed_forward


LEFT_OUT = "# Left out: "
"""Begins a line of an exported file about what its format cannot say; `meshwright export` prints it too."""


def left_out(model: PlannedTransformer) -> list[str]:
    """Return properties of a model that neither Megatron-LM's nor torchtitan's arguments express."""
    kinds: list[PlannedTransformer | LayerKind] = [model, *(model.other_layers or ())]
    windows = [kind.window for kind in kinds if kind.window and kind.window_form != "linear"]
    sides = {kind.side_weights for kind in kinds}
    other = {
        f"a window of {max(windows, default=0)} tokens": bool(windows),
        "linear attention": any(kind.window_form == "linear" for kind in kinds),
        "attention and feed-forward layer side by side": model.is_parallel,
        "norms behind attention and feed-forward layer": bool(model.has_output_norms),
        "an encoder's form, with a pooler": model.is_encoder,
        "weights besides those of plain layers, as of gates, biases and wide norms": any({*sides, model.more_parameters}),
    }
    return [what for what, is_there in other.items() if is_there]
