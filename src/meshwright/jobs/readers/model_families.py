"""What the keys of a ``config.json`` mean in each family of models that is known.

Keys that the format lets absent take the format's own defaults; keys that size the model must stand in the file, unless the files
of the family are published without them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from ..transformer import MAX_LAYERS, LatentAttention, LayerKind, TransformerShape
from .config_keys import ConfigKeys


def _gpt2(keys: ConfigKeys, name: str) -> TransformerShape:
    hidden = keys.count("n_embd")
    return TransformerShape(
        name=name,
        num_layers=keys.count("n_layer", most=MAX_LAYERS),
        hidden=hidden,
        num_heads=keys.count("n_head"),
        num_key_value_heads=keys.count("n_head"),
        head_dim=keys.head_dim("n_embd", "n_head"),
        feed_forward=keys.count("n_inner", 4 * hidden),
        vocabulary=keys.count("vocab_size"),
        max_positions=keys.count("n_positions"),
        learned_positions=True,
        is_gated=False,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        norm_vectors=2,
        is_head_tied=keys.flag("tie_word_embeddings", True),
        has_dropout=True,
    )


def _gpt_neox(keys: ConfigKeys, name: str) -> TransformerShape:
    bias = keys.flag("attention_bias", True)
    return _by_usual_keys(
        keys,
        name,
        num_key_value_heads=keys.count("num_attention_heads"),
        is_gated=False,
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=True,
        norm_vectors=2,
        is_parallel=keys.flag("use_parallel_residual", True),
    )


def _bert(keys: ConfigKeys, name: str) -> TransformerShape:
    return _by_usual_keys(
        keys,
        name,
        num_key_value_heads=keys.count("num_attention_heads"),
        learned_positions=True,
        token_types=keys.count("type_vocab_size", 2),
        is_encoder=True,
        has_dropout=True,
        is_gated=False,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        norm_vectors=2,
        is_head_tied=False,
    )


def _llama(keys: ConfigKeys, name: str, **more: Any) -> TransformerShape:
    bias = keys.flag("attention_bias", False)
    given = {"qkv_bias": bias, "output_bias": bias, "mlp_bias": keys.flag("mlp_bias", False)} | more
    return _by_usual_keys(keys, name, default_groups=keys.count("num_attention_heads"), **given)


def _mistral(keys: ConfigKeys, name: str, **more: Any) -> TransformerShape:
    return _llama(keys, name, window=keys.window(), **more)


def _mixtral(keys: ConfigKeys, name: str) -> TransformerShape:
    experts = keys.count("num_local_experts", most=MAX_LAYERS)
    return _mistral(keys, name, num_experts=experts, experts_per_token=keys.active_experts(experts))


def _phi3(keys: ConfigKeys, name: str) -> TransformerShape:
    return _by_usual_keys(keys, name, default_groups=keys.count("num_attention_heads"), window=keys.window())


def _qwen2(keys: ConfigKeys, name: str) -> TransformerShape:
    return _by_usual_keys(keys, name, qkv_bias=True, **_layered(_qwen_layers(keys)))


def _qwen3(keys: ConfigKeys, name: str, **more: Any) -> TransformerShape:
    bias = keys.flag("attention_bias", False)
    more = more or {"head_dim": keys.count("head_dim", 128)} | _layered(_qwen_layers(keys))
    return _by_usual_keys(keys, name, qkv_bias=bias, output_bias=bias, has_head_norms=True, **more)


def _qwen3_moe(keys: ConfigKeys, name: str) -> TransformerShape:
    layers = _qwen_layers(keys)
    experts = keys.count(keys.first_key("num_experts", "num_local_experts"), most=MAX_LAYERS)
    dense, period = keys.places("mlp_only_layers", len(layers)), keys.count("decoder_sparse_step", 1)
    mixture = {
        "feed_forward": keys.count("moe_intermediate_size"),
        "num_experts": experts,
        "experts_per_token": keys.active_experts(experts, 8),
    }
    is_sparse = [layer not in dense and (layer + 1) % period == 0 for layer in range(len(layers))]
    layers = [one._replace(**mixture) if sparse else one for one, sparse in zip(layers, is_sparse, strict=True)]
    return _qwen3(keys, name, **_layered(layers))


def _qwen_layers(keys: ConfigKeys) -> list[_Layer]:
    num_layers, width = keys.count("num_hidden_layers", most=MAX_LAYERS), keys.count("intermediate_size")
    if not keys.flag("use_sliding_window", False):
        return [_Layer(width)] * num_layers
    first, window = keys.count("max_window_layers", 28), keys.window(default=4096)
    return [_Layer(width, window=window if one else None) for one in keys.is_local(num_layers, lambda layer: layer >= first)]


def _gemma(keys: ConfigKeys, name: str) -> TransformerShape:
    return _of_gemma(keys, name, default_heads=16, default_groups=16, default_vocabulary=256_000)


def _gemma2(keys: ConfigKeys, name: str) -> TransformerShape:
    window = keys.window(default=4096)
    return _of_gemma(keys, name, default_vocabulary=256_000, has_output_norms=True, **_gemma_layers(keys, window, 2))


def _gemma3(keys: ConfigKeys, name: str) -> TransformerShape:
    window, period = keys.window(default=4096), keys.count("sliding_window_pattern", keys.count("_sliding_window_pattern", 6))
    norms = {"has_output_norms": True, "has_head_norms": True}
    return _of_gemma(
        keys, name, default_vocabulary=262_208, default_positions=131_072, **norms, **_gemma_layers(keys, window, period)
    )


def _gemma_layers(keys: ConfigKeys, window: int | None, period: int) -> dict[str, Any]:
    """Every so manieth layer looks back over the whole sequence."""
    num_layers, width = keys.count("num_hidden_layers", most=MAX_LAYERS), keys.count("intermediate_size")
    is_local = keys.is_local(num_layers, lambda layer: (layer + 1) % period != 0)
    return _layered([_Layer(width, window=window if one else None) for one in is_local])


def _of_gemma(keys: ConfigKeys, name: str, default_heads: int = 8, default_groups: int = 4, **more: Any) -> TransformerShape:
    bias = keys.flag("attention_bias", False)
    more = {"head_dim": keys.count("head_dim", 256), "qkv_bias": bias, "output_bias": bias} | more
    return _by_usual_keys(keys, name, default_heads=default_heads, default_groups=default_groups, is_tied=True, **more)


def _deepseek(keys: ConfigKeys, name: str) -> TransformerShape:
    """DeepSeek-V2, V3 and Kimi K2, without the layers that predict further tokens (``num_nextn_predict_layers``)."""
    num_layers, width = keys.count("num_hidden_layers", most=MAX_LAYERS), keys.count("intermediate_size")
    heads, rope = keys.count("num_attention_heads"), keys.count("qk_rope_head_dim")
    bias = keys.flag("attention_bias", False)
    layers = [_Layer(width)] * num_layers
    if keys.config.get("n_routed_experts") is not None:
        experts, inner = keys.count("n_routed_experts", most=MAX_LAYERS), keys.count("moe_intermediate_size")
        shared, first = keys.count_or_none("n_shared_experts"), keys.count_or_none("first_k_dense_replace")
        period = keys.count("moe_layer_freq", 1)
        sparse = _Layer(inner, experts, keys.active_experts(experts), shared * inner or None)
        layers = [sparse if layer >= first and layer % period == 0 else layers[layer] for layer in range(num_layers)]
    latent = LatentAttention(
        query_rank=keys.count("q_lora_rank") if keys.config.get("q_lora_rank") is not None else None,
        key_value_rank=keys.count("kv_lora_rank"),
        rope_head_dim=rope,
        value_head_dim=keys.count("v_head_dim"),
    )
    head_dim = keys.count("qk_nope_head_dim") + rope
    more = {"qkv_bias": bias, "output_bias": bias, "num_key_value_heads": heads} | _layered(layers)
    return _by_usual_keys(keys, name, head_dim=head_dim, latent=latent, **more)


def _llama4_text(keys: ConfigKeys, name: str) -> TransformerShape:
    """The decoder of Llama 4; attention inside chunks of the sequence counts as a window of their length."""
    num_layers, width = keys.count("num_hidden_layers", most=MAX_LAYERS), keys.count("intermediate_size")
    experts, period = keys.count("num_local_experts", most=MAX_LAYERS), keys.count("interleave_moe_layer_step", 1)
    active, dense = keys.active_experts(experts, 1), keys.count("intermediate_size_mlp")
    named = keys.places("moe_layers", num_layers)
    window, rotary = keys.window("attention_chunk_size"), keys.config.get("no_rope_layers") or []
    if not isinstance(rotary, list) or len(rotary) not in (0, num_layers):
        raise keys.error(f"must hold 0 or 1 for each of the {num_layers} layers", "no_rope_layers")
    is_local = keys.is_local(num_layers, lambda layer: bool(rotary[layer]) if rotary else (layer + 1) % 4 != 0)
    layers = []
    for layer in range(num_layers):
        seen = window if is_local[layer] else None
        is_sparse = layer in named if named else (layer + 1) % period == 0
        layers.append(_Layer(width, experts, active, width, seen) if is_sparse else _Layer(dense, window=seen))
    bias = keys.flag("attention_bias", False)
    return _by_usual_keys(keys, name, qkv_bias=bias, output_bias=bias, **_layered(layers))


class _Layer(NamedTuple):
    """What layers of a model may differ in."""

    feed_forward: int
    num_experts: int = 1
    experts_per_token: int = 1
    shared_feed_forward: int | None = None
    window: int | None = None


def _layered(layers: list[_Layer]) -> dict[str, Any]:
    """The keys of a shape for such layers; the main kind has experts where any has, and is the most frequent one of those."""
    counts = Counter(layers)
    main = max(counts, key=lambda kind: (kind.num_experts > 1, counts[kind]))
    others = tuple(
        LayerKind(layers=tuple(number for number, layer in enumerate(layers) if layer == kind), **kind._asdict())
        for kind in counts
        if kind != main
    )
    return main._asdict() | {"other_layers": others or None}


def _by_usual_keys(
    keys: ConfigKeys,
    name: str,
    *,
    default_heads: int | None = None,
    default_groups: int | None = None,
    default_vocabulary: int | None = None,
    default_positions: int | None = None,
    is_tied: bool = False,
    **more: Any,
) -> TransformerShape:
    """A model by the keys that most formats share; by default a decoder with rotary positions, RMS norms and a gate."""
    heads = keys.count("num_attention_heads", default_heads)
    given: dict[str, Any] = {
        "name": name,
        "num_layers": keys.count("num_hidden_layers", most=MAX_LAYERS),
        "hidden": keys.count("hidden_size"),
        "num_heads": heads,
        "vocabulary": keys.count("vocab_size", default_vocabulary),
        "max_positions": keys.count("max_position_embeddings", default_positions),
    }
    if "is_head_tied" not in more:
        given["is_head_tied"] = keys.flag("tie_word_embeddings", is_tied)
    if "num_key_value_heads" not in more:
        given["num_key_value_heads"] = keys.key_value_heads(heads, default_groups)
    if "head_dim" not in more:
        given["head_dim"] = keys.head_dim("hidden_size", "num_attention_heads")
    if "feed_forward" not in more:
        given["feed_forward"] = keys.count("intermediate_size")
    return TransformerShape(**given, **more)


READERS: dict[str, Callable[[ConfigKeys, str], TransformerShape]] = {
    "bert": _bert,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "kimi_k2": _deepseek,
    "llama": _llama,
    "llama4_text": _llama4_text,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "phi3": _phi3,
    "qwen2": _qwen2,
    "qwen2_5_vl_text": _qwen2,
    "qwen2_vl_text": _qwen2,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "qwen3_vl_moe_text": _qwen3_moe,
    "qwen3_vl_text": _qwen3,
}
"""By ``model_type``."""
