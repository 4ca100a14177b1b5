"""Weights of families that the sizes of a transformer's shape do not count, by the words of ``configs/model_families.yaml``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .config_keys import ConfigKeys


@dataclass(frozen=True)
class LayerSizes:
    """Sizes that decide the side weights of a layer.

    Attributes:
        keys: of the configuration.
        counts: keys of the shape.
        feed_forward: width inside, of one expert where there are experts.
        num_experts: 1 in a dense layer.
        linear: how linear attention computes; None where the layer attends over tokens.
    """

    keys: ConfigKeys
    counts: Mapping[str, Any]
    feed_forward: int
    num_experts: int
    linear: str | None

    def __post_init__(self) -> None:
        counts = {"norm_vectors": 1, "qkv_bias": 0, "output_bias": 0, "has_head_norms": 0, "is_parallel": 0} | dict(self.counts)
        object.__setattr__(self, "counts", counts)

    def __getitem__(self, key: str) -> int:
        return int(self.counts[key])

    @property
    def queries(self) -> int:
        """Width of all query heads."""
        return self["num_heads"] * self["head_dim"]

    @property
    def key_values(self) -> int:
        """Width of all key heads."""
        return self["num_key_value_heads"] * self["head_dim"]

    @property
    def linear_weights(self) -> int:
        """Weights of linear attention, less those that the shape counts for attention over tokens.

        Source:
            Yang et al., "Gated delta networks", 2025, as in Qwen3-Next. Each head has queries, keys, values, a gate, two numbers
            for decay and step, and a short convolution. MiniMax, "MiniMax-01", 2025: lightning attention with an output gate.
        """
        joint, hidden = self.queries + 2 * self.key_values, self["hidden"]
        over_tokens = hidden * (joint + self.queries) + joint * self["qkv_bias"] + hidden * self["output_bias"]
        over_tokens += 2 * self["norm_vectors"] * self["head_dim"] * self["has_head_norms"]
        if self.linear is None:
            return 0
        if self.linear == "lightning":
            return hidden * 5 * self.queries + self.queries - over_tokens
        keys, values, heads = self._delta()
        convolution = self.keys.count("linear_conv_kernel_dim", 4) * (2 * keys + values)
        return hidden * (2 * keys + 3 * values + 2 * heads) + convolution + 2 * heads + values // heads - over_tokens

    @property
    def linear_window(self) -> int:
        """Return the tokens of ordinary attention that cost as much as linear attention, whose cost no sequence length changes.

        The delta rule reads the state, corrects it and reads it again: three products of a head's keys and values for a token.
        Lightning attention writes and reads the state and attends over its block; a token sees half of the block.
        """
        if self.linear == "lightning":
            return self["head_dim"] + self.keys.count("block_size", 256) // 2
        keys, values, _ = self._delta()
        return -(-3 * keys // self.keys.count("linear_num_key_heads") * values // (2 * self.queries))

    def _delta(self) -> tuple[int, int, int]:
        """Return the width of all keys and of all values, and heads of values."""
        heads, keys = (self.keys.count(f"linear_num_{kind}_heads") for kind in ("value", "key"))
        return keys * self.keys.count("linear_key_head_dim"), heads * self.keys.count("linear_value_head_dim"), heads


def indexer_width(keys: ConfigKeys) -> int:
    """Return the width of all heads together that choose tokens in DeepSeek-V3.2."""
    return keys.count("index_n_heads", 64) * keys.count("index_head_dim", 128)


def _indexer(sizes: LayerSizes) -> int:
    """Return the selection of tokens in DeepSeek-V3.2: queries of its own heads, one key with its norm, a weight of each head."""
    heads, width = sizes.keys.count("index_n_heads", 64), sizes.keys.count("index_head_dim", 128)
    return sizes.keys.count("q_lora_rank") * indexer_width(sizes.keys) + sizes["hidden"] * (width + heads) + 2 * width


OF_LAYERS: dict[str, Callable[[LayerSizes], int]] = {
    "activation": lambda sizes: 2,
    "gated_queries": lambda sizes: 0 if sizes.linear else (sizes["hidden"] + sizes["qkv_bias"]) * sizes.queries,
    "indexer": _indexer,
    "no_norm_weights": lambda sizes: -2 * sizes["hidden"],
    "one_norm": lambda sizes: -sizes["norm_vectors"] * sizes["hidden"] * sizes["is_parallel"],
    "sinks": lambda sizes: sizes["num_heads"],
    "wide_norms": lambda sizes: sizes.queries + sizes.key_values,
}
"""Weights of a layer."""

WITH_EXPERTS: dict[str, Callable[[LayerSizes], int]] = {
    "expert_biases": lambda sizes: sizes.num_experts * (2 * sizes.feed_forward + sizes["hidden"]),
    "router_bias": lambda sizes: sizes.num_experts,
    "shared_gate": lambda sizes: sizes["hidden"],
}
"""Weights of a layer with experts."""

OUTSIDE: dict[str, Callable[[Mapping[str, Any]], int]] = {
    "head_bias": lambda values: int(values["vocabulary"]),
    "no_norm_weights": lambda values: -int(values["hidden"]),
    # ModernBERT: a product and a norm before the head; the norm of the embedding is in place of the first layer's.
    "prediction_head": lambda values: int(values["hidden"] ** 2 + values["hidden"]),
}
"""Weights outside of layers."""
