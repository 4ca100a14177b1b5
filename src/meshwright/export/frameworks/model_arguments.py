"""A model's own arguments as training frameworks name them, from the shape that a plan embeds.

A shape knows what a step costs, not what a model computes: activation functions, rotary bases and epsilons are for the user, and
what a framework has no argument for is told.

Sources:
    ``megatron/training/arguments.py`` of Megatron-LM (core 0.16.1); ``TransformerModelArgs`` of torchtitan's Llama 3, whose
    feed-forward width is ``multiple_of ceil(int(ffn_dim_multiplier int(8 dim / 3)) / multiple_of)``; the keys of Hugging Face
    configurations, which DeepSpeed reads of a model (``hidden_size`` for ZeRO-3, heads for tensor parallelism).
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

from ...jobs.transformer import layer_kinds
from ...plans.transformer import PlannedTransformer


def megatron_words(model: PlannedTransformer) -> tuple[list[str], list[str]]:
    """Megatron-LM's arguments, word by word, and what they leave out, a phrase each."""
    given: dict[str, object] = {
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
        given |= {"attention-dropout": "0.0", "hidden-dropout": "0.0"}
    latent = model.latent
    if latent is not None:
        flags["multi-latent-attention"] = True
        given |= {} if latent.query_rank is None else {"q-lora-rank": latent.query_rank}
        given |= {"kv-lora-rank": latent.key_value_rank, "qk-head-dim": model.head_dim - latent.rope_head_dim}
        given |= {"qk-pos-emb-head-dim": latent.rope_head_dim, "v-head-dim": latent.value_head_dim}
    else:
        if model.num_key_value_heads != model.num_heads:
            flags["group-query-attention"] = True
            given["num-query-groups"] = model.num_key_value_heads
        if model.hidden != model.num_heads * model.head_dim:
            given["kv-channels"] = model.head_dim
    if model.num_experts > 1:
        given |= {"num-experts": model.num_experts, "moe-router-topk": model.experts_per_token}
        given["moe-ffn-hidden-size"] = model.feed_forward
        if model.shared_feed_forward is not None:
            given["moe-shared-expert-intermediate-size"] = model.shared_feed_forward
        if (has_experts := _has_experts(model)) != [1] * model.num_layers:
            runs = [f"[{one}]*{len(list(run))}" for one, run in groupby(has_experts)]
            given["moe-layer-freq"] = f"({'+'.join(runs)})"
    words = [word for key, value in given.items() for word in (f"--{key}", str(value))]
    return words + [f"--{flag}" for flag, is_set in flags.items() if is_set], _left_out(model)


def torchtitan_model(model: PlannedTransformer) -> tuple[dict[str, Any], list[str]]:
    """Keys of torchtitan's ``TransformerModelArgs``, and what they cannot say, a phrase each."""
    narrow = int(8 * model.hidden / 3)
    given: dict[str, Any] = {
        "dim": model.hidden,
        "n_layers": model.num_layers,
        "n_heads": model.num_heads,
        "n_kv_heads": model.num_key_value_heads,
        "vocab_size": model.vocabulary,
        "multiple_of": model.feed_forward,
        "ffn_dim_multiplier": None if narrow <= model.feed_forward else model.feed_forward / narrow,
        "max_seq_len": max(model.max_positions, model.sequence_length),
    }
    other = {
        "biases": model.qkv_bias or model.output_bias or model.mlp_bias,
        "a feed-forward layer without a gate": not model.is_gated,
        "layer norm": model.norm_vectors != 1,
        "a table of positions": model.learned_positions,
        "a tied head": model.is_head_tied,
        "heads of another width than hidden over heads": model.hidden != model.num_heads * model.head_dim,
        "experts": model.num_experts > 1,
        "latent attention": model.latent is not None,
        "norms of heads": bool(model.has_head_norms),
        "dropout": model.has_dropout,
    }
    return given, [what for what, is_there in other.items() if is_there] + _left_out(model)


def huggingface_keys(model: PlannedTransformer) -> dict[str, Any]:
    """The shape by the keys of a Hugging Face configuration."""
    given: dict[str, Any] = {
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
        given |= {"num_experts": model.num_experts, "num_experts_per_tok": model.experts_per_token}
        given["moe_intermediate_size"] = model.feed_forward
    return given


def _has_experts(model: PlannedTransformer) -> list[int]:
    """Of each layer 1 where it has experts, else 0."""
    kinds = [model.num_experts, *(kind.num_experts for kind in model.other_layers or ())]
    return [int(kinds[kind] > 1) for kind in layer_kinds(model.num_layers, model.other_layers)]


def _dense_width(model: PlannedTransformer) -> int:
    """Width inside the feed-forward layers without experts; that of an expert where there are none."""
    dense = [kind.feed_forward for kind in model.other_layers or () if kind.num_experts == 1]
    return dense[0] if model.num_experts > 1 and dense else model.feed_forward


def _left_out(model: PlannedTransformer) -> list[str]:
    """What neither Megatron-LM's nor torchtitan's arguments say of a model here."""
    windows = {model.window, *(kind.window for kind in model.other_layers or ())}
    other = {
        f"a window of {max((one for one in windows if one is not None), default=0)} tokens": windows != {None},
        "attention and feed-forward layer side by side": model.is_parallel,
        "norms behind attention and feed-forward layer": bool(model.has_output_norms),
        "an encoder's form, with a pooler": model.is_encoder,
    }
    return [what for what, is_there in other.items() if is_there]
