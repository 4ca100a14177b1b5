"""The decoders that a ``config.json`` may hold, by their structure: a row of ``configs/model_families.yaml`` for each type.

Optional keys take the defaults of the format. Keys that size the model are required, unless the family publishes files without
them.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any, Literal, NamedTuple

from pydantic import Field

from ... import packaged, settings
from ..transformer import MAX_LAYERS, LatentAttention, LayerKind, TransformerShape
from .config_keys import ConfigKeys
from .side_weights import OF_LAYERS, OUTSIDE, WITH_EXPERTS, LayerSizes, indexer_width

USUAL: dict[str, tuple[str, ...]] = {
    "num_layers": ("num_hidden_layers",),
    "hidden": ("hidden_size",),
    "num_heads": ("num_attention_heads",),
    "num_key_value_heads": ("num_key_value_heads",),
    "feed_forward": ("intermediate_size",),
    "vocabulary": ("vocab_size",),
    "max_positions": ("max_position_embeddings",),
    "num_experts": ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
    "experts_per_token": ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k"),
}
"""Names of a size in configurations: several are of different families, or of different releases of the library."""

_FIRST = ("first_k_dense_replace", "moe_layer_start_index")
_PERIODS = ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval")
"""Keys of the first layer with experts, and of the distance from one to the next."""


class Family(settings.Settings):
    """The structure of a family; see the comments of ``configs/model_families.yaml``."""

    keys: dict[str, str] = Field(default_factory=dict)
    absent: dict[str, bool | int | str] = Field(default_factory=dict)
    shape: dict[str, bool | int | str] = Field(default_factory=dict)
    window: str | None = None
    local: int | str | None = None
    experts: str | None = None
    shared: int | str | None = None
    needs: tuple[str, ...] = ()
    latent: bool = False
    linear: Literal["delta", "lightning"] | None = None
    side: dict[str, bool | str] = Field(default_factory=dict)
    outside: dict[str, bool | str] = Field(default_factory=dict)


class _Layer(NamedTuple):
    """Sizes in which layers of a model may differ."""

    feed_forward: int
    num_experts: int = 1
    experts_per_token: int = 1
    shared_feed_forward: int | None = None
    window: int | None = None
    window_form: str | None = None
    side_weights: int | None = None


@cache
def families() -> dict[str, Family]:
    """Return the families by ``model_type``."""
    rows, _ = settings.read_yaml(packaged.shipped_path("model_families.yaml"))
    return {name: settings.build_settings(Family, _row(rows, name)) for name in sorted(rows)}


def _row(rows: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a row with what it takes from another one; a key of a mapping without a value is taken out."""
    own = dict(rows[name])
    result = _row(rows, own.pop("like")) if "like" in own else {}
    for key, value in own.items():
        merged = result.get(key, {}) | value if isinstance(value, dict) else value
        result[key] = {one: said for one, said in merged.items() if said is not None} if isinstance(merged, dict) else merged
    return result


def family_shape(config: ConfigKeys, name: str, model_type: str) -> TransformerShape:
    """Return the shape of a model.

    Args:
        config: its keys.
        name: of the model.
        model_type: one of `families`.

    Raises:
        GraphError: a missing key or an impossible value.
    """
    family = families()[model_type]
    keys = _filled(config, family, model_type == "falcon")
    size = {one: family.keys.get(one) or keys.first_key(*names) for one, names in USUAL.items()}
    heads, hidden = keys.count(size["num_heads"]), keys.count(size["hidden"])
    values: dict[str, Any] = {
        "name": name,
        "num_layers": keys.count(size["num_layers"], most=MAX_LAYERS),
        "hidden": hidden,
        "num_heads": heads,
        "num_key_value_heads": keys.key_value_heads(heads, size["num_key_value_heads"]),
        "vocabulary": keys.count(size["vocabulary"]),
        "max_positions": keys.count(size["max_positions"]),
        "token_types": keys.count("type_vocab_size") if "type_vocab_size" in family.absent else 0,
        "is_head_tied": keys.flag("tie_word_embeddings", False),
    }
    if family.latent:
        values |= _latent(keys) | ({"indexer_width": indexer_width(keys)} if "indexer" in family.side else {})
    else:
        values["head_dim"] = keys.head_dim(size["hidden"], size["num_heads"])
    values |= {key: _stated(keys, value) for key, value in family.shape.items()}
    outside = sum(OUTSIDE[word](values) for word, value in family.outside.items() if _stated(keys, value))
    layers = _layers(keys, family, size, values)
    return TransformerShape(**values, **_layered(layers), more_parameters=outside or None)


def _filled(config: ConfigKeys, family: Family, is_falcon: bool) -> ConfigKeys:
    """Return the keys of a configuration with those that may be left out."""
    held = _falcon(config) if is_falcon else config.config
    keys = ConfigKeys(dict(held), config.file, config.inside)
    for key, value in family.absent.items():
        if held.get(key) is None and not (key == family.window and key in held):
            factor, _, of = value.rpartition(" x ") if isinstance(value, str) else ("", "", None)
            keys.config[key] = value if of is None else held.get(of) if not factor else int(factor) * keys.count(of)
    return keys


def _stated(keys: ConfigKeys, value: bool | int | str) -> bool | int:
    """Resolve the value of a row: a constant, or the name of a switch, off if absent."""
    return keys.flag(value, False) if isinstance(value, str) else value


def _latent(keys: ConfigKeys) -> dict[str, Any]:
    """Read multi-head latent attention, without the layers that predict further tokens (``num_nextn_predict_layers``)."""
    rope = keys.count("qk_rope_head_dim")
    latent = LatentAttention(
        query_rank=keys.count("q_lora_rank") if keys.config.get("q_lora_rank") is not None else None,
        key_value_rank=keys.count("kv_lora_rank"),
        rope_head_dim=rope,
        value_head_dim=keys.count("v_head_dim"),
    )
    return {"head_dim": keys.count("qk_nope_head_dim") + rope, "latent": latent}


def _layers(keys: ConfigKeys, family: Family, size: dict[str, str], values: dict[str, Any]) -> list[_Layer]:
    """Return all layers in order."""
    num_layers = values["num_layers"]
    kinds = _attention(keys, family, num_layers)
    has_experts, mixture = [False] * num_layers, None
    if family.experts is not None:
        mixture = _mixture(keys, family, size)
        has_experts = _sparse(keys, num_layers) if mixture.num_experts > 1 else has_experts
    dense = mixture if mixture is not None and all(has_experts) else _Layer(keys.count(size["feed_forward"]))
    window = keys.window(family.window) if family.window and any("full" not in one for one in kinds) else None
    made = []
    for kind, is_sparse in zip(kinds, has_experts, strict=True):
        layer = mixture if is_sparse and mixture is not None else dense
        linear = family.linear if kind == "linear_attention" else None
        sizes = LayerSizes(keys, values, layer.feed_forward, layer.num_experts, linear)
        words = OF_LAYERS | WITH_EXPERTS if layer.num_experts > 1 else OF_LAYERS
        side = [words[word](sizes) for word, value in family.side.items() if word in words and _stated(keys, value)]
        seen = None if kind == "full_attention" else window if linear is None else sizes.linear_window
        form = "linear" if linear else "chunks" if kind == "chunked_attention" and seen else None
        made.append(layer._replace(window=seen, window_form=form, side_weights=sum(side) + sizes.linear_weights or None))
    return made


def _attention(keys: ConfigKeys, family: Family, num_layers: int) -> list[str]:
    """Return how the layers attend, by ``layer_types`` or by a rule without it."""
    known = ("full_attention", "sliding_attention", "chunked_attention", "indexed_attention")
    if family.linear is not None:
        period = keys.count(str(family.local)) if isinstance(family.local, str) and family.linear == "delta" else 2
        # Of the delta rule's layers the last one of a period attends over all tokens, of lightning's the first.
        behind = 1 if family.linear == "delta" else 0
        rule = ["linear_attention" if (layer + behind) % period else known[0] for layer in range(num_layers)]
        return keys.layer_types(num_layers, (*known, "linear_attention"), rule)
    if family.window is None or (family.local == "max_window_layers" and not keys.flag("use_sliding_window", False)):
        return [known[0]] * num_layers
    local = "chunked_attention" if family.local == "rotary" else "sliding_attention"
    return keys.layer_types(num_layers, known, [local if one else known[0] for one in _local(keys, family, num_layers)])


def _local(keys: ConfigKeys, family: Family, num_layers: int) -> list[bool]:
    """Return whether each layer looks back over a part of the sequence alone, by the rule of a family."""
    local, layers = family.local, range(num_layers)
    if local == "all":
        return [True] * num_layers
    if local == "max_window_layers":
        first = 0 if keys.config.get(local) == 0 else keys.count(local, 28)
        return [layer >= first for layer in layers]
    if local == "global_attn_every_n_layers":
        period = keys.count(local, 3)
        return [layer % period != 0 for layer in layers]
    if local == "rotary":
        rotary = keys.config.get("no_rope_layers") or []
        if not isinstance(rotary, list) or len(rotary) not in (0, num_layers) or any(one not in (0, 1) for one in rotary):
            raise keys.error(f"must hold 0 or 1 for each of the {num_layers} layers", "no_rope_layers")
        period = keys.count("no_rope_layer_interval", 4)
        return [bool(rotary[layer]) if rotary else (layer + 1) % period != 0 for layer in layers]
    if isinstance(local, int):
        period = local
    else:
        text = keys.config.get(name := keys.first_key("_sliding_window_pattern", "sliding_window_pattern"))
        period = len(text) if isinstance(text, str) and text else keys.count(name)  # EXAONE writes LLLG for 4
    return [(layer + 1) % period != 0 for layer in layers]


def _mixture(keys: ConfigKeys, family: Family, size: dict[str, str]) -> _Layer:
    """Return a layer with experts; of one expert, a dense layer."""
    number = keys.count(size["num_experts"], most=MAX_LAYERS)
    if number == 1:
        return _Layer(keys.count(size["feed_forward"]))
    for key in family.needs:
        if "mlp_layer_types" not in keys.config:
            keys.count_or_none(key)
    inner, shared = keys.count(str(family.experts)), family.shared
    width = shared * inner if isinstance(shared, int) else 0
    if isinstance(shared, str):
        width = keys.count_or_none(shared) * (1 if shared.endswith("_size") else inner)
    return _Layer(inner, number, keys.active_experts(number, size["experts_per_token"]), width or None)


def _sparse(keys: ConfigKeys, num_layers: int) -> list[bool]:
    """Return whether each layer has experts, by whichever keys of that the configuration holds."""
    if keys.config.get("mlp_layer_types") is not None:
        return [one == "sparse" for one in keys.layer_types(num_layers, ("dense", "sparse"), [], "mlp_layer_types")]
    first_key = keys.first_key(*_FIRST)
    first = keys.count_or_none(first_key) if first_key in keys.config else 0
    last = num_layers if keys.config.get(end := "moe_layer_end_index") in (None, -1) else keys.count_or_none(end)
    period, after = keys.count("moe_layer_freq", 1), keys.count(keys.first_key(*_PERIODS), 1)
    dense, named = keys.places("mlp_only_layers", num_layers), keys.places("moe_layers", num_layers)
    if named:
        return [layer in named for layer in range(num_layers)]
    return [
        first <= layer <= last and layer % period == 0 and (layer + 1) % after == 0 and layer not in dense
        for layer in range(num_layers)
    ]


def _layered(layers: list[_Layer]) -> dict[str, Any]:
    """Return keys of a shape for such layers; the main kind has experts where any has, and is the most frequent of those."""
    counts = Counter(layers)
    main = max(counts, key=lambda kind: (kind.num_experts > 1, counts[kind]))
    others = tuple(
        LayerKind(layers=tuple(number for number, layer in enumerate(layers) if layer == kind), **kind._asdict())
        for kind in counts
        if kind != main
    )
    return main._asdict() | {"other_layers": others or None}


def _falcon(keys: ConfigKeys) -> dict[str, Any]:
    """Read Falcon's heads and norms, which several switches say together, by usual keys; older names of keys too."""
    config = {"num_attention_heads": keys.config.get("n_head"), "num_hidden_layers": keys.config.get("n_layer")} | keys.config
    is_new = keys.flag("new_decoder_architecture", False)
    is_parallel = is_new or keys.flag("parallel_attn", True)
    groups = config.get("num_kv_heads") if is_new else 1 if keys.flag("multi_query", True) else config["num_attention_heads"]
    has_two = is_new and config.get("num_ln_in_parallel_attn") in (None, 2)
    return config | {"num_key_value_heads": groups, "parallel_attn": is_parallel, "is_one_norm": is_parallel and not has_two}
