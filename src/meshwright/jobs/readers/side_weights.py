"""Weights of families that the sizes of a transformer's shape do not count, by the words of ``configs/model_families.yaml``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from .config_keys import ConfigKeys


class LayerSizes(NamedTuple):
    """What the side weights of a layer follow from.

    Attributes:
        keys: of the configuration.
        given: keys of the shape.
        feed_forward: width inside, of one expert where there are experts.
        num_experts: 1 in a dense layer.
        linear: how linear attention computes; None where the layer attends over tokens.
    """

    keys: ConfigKeys
    given: Mapping[str, Any]
    feed_forward: int
    num_experts: int
    linear: str | None

    @property
    def hidden(self) -> int:
        """Width of the residual stream."""
        return int(self.given["hidden"])

    @property
    def queries(self) -> int:
        """Width of all query heads."""
        return int(self.given["num_heads"] * self.given["head_dim"])

    @property
    def key_values(self) -> int:
        """Width of all key heads."""
        return int(self.given["num_key_value_heads"] * self.given["head_dim"])

    @property
    def norm_vectors(self) -> int:
        """Weight vectors of a norm."""
        return int(self.given.get("norm_vectors", 1))

    @property
    def attention(self) -> int:
        """Weights that the shape counts for attention over tokens."""
        joint = self.queries + 2 * self.key_values
        biases = joint * self.given.get("qkv_bias", False) + self.hidden * self.given.get("output_bias", False)
        head_norms = 2 * self.norm_vectors * self.given["head_dim"] * self.given.get("has_head_norms", False)
        return int(self.hidden * (joint + self.queries) + biases + head_norms)

    @property
    def linear_weights(self) -> int:
        """Weights of linear attention, less those of attention over tokens.

        Source:
            Yang et al., "Gated delta networks", 2025, as in Qwen3-Next: queries, keys, values and a gate, two numbers of each
            head for decay and step, a short convolution. MiniMax, "MiniMax-01", 2025: lightning attention with an output gate.
        """
        if self.linear is None:
            return 0
        if self.linear == "lightning":
            return self.hidden * 5 * self.queries + self.queries - self.attention
        keys, values, heads, value_dim = _delta(self)
        products = self.hidden * (2 * keys + 3 * values + 2 * heads)
        convolution = self.keys.count("linear_conv_kernel_dim", 4) * (2 * keys + values)
        return products + convolution + 2 * heads + value_dim - self.attention


def linear_window(sizes: LayerSizes) -> int:
    """Tokens of attention that cost as much as linear attention, of any length of the sequence.

    The delta rule reads the state, corrects it and reads it again, three products of a head's keys and values for a token;
    lightning attention does twice so, and attends over its block.
    """
    if sizes.linear == "lightning":
        return sizes.keys.count("block_size", 256)
    keys, values, *_ = _delta(sizes)
    state = keys // sizes.keys.count("linear_num_key_heads") * values
    return -(-3 * state // (2 * sizes.queries))


def _delta(sizes: LayerSizes) -> tuple[int, int, int, int]:
    """Width of all keys and of all values, heads of values, and width of one."""
    heads, value_dim = sizes.keys.count("linear_num_value_heads"), sizes.keys.count("linear_value_head_dim")
    keys = sizes.keys.count("linear_num_key_heads") * sizes.keys.count("linear_key_head_dim")
    return keys, heads * value_dim, heads, value_dim


def _indexer(sizes: LayerSizes) -> int:
    """The selection of tokens in DeepSeek-V3.2: queries of its own heads, one key with its norm, a weight of each head."""
    heads, width = sizes.keys.count("index_n_heads", 64), sizes.keys.count("index_head_dim", 128)
    return sizes.keys.count("q_lora_rank") * heads * width + sizes.hidden * (width + heads) + 2 * width


def _gated_queries(sizes: LayerSizes) -> int:
    return 0 if sizes.linear else (sizes.hidden + bool(sizes.given.get("qkv_bias"))) * sizes.queries


def _expert_biases(sizes: LayerSizes) -> int:
    return sizes.num_experts * (2 * sizes.feed_forward + sizes.hidden) if sizes.num_experts > 1 else 0


OF_LAYERS: dict[str, Callable[[LayerSizes], int]] = {
    "activation": lambda sizes: 2,
    "expert_biases": _expert_biases,
    "gated_queries": _gated_queries,
    "indexer": _indexer,
    "no_norm_weights": lambda sizes: -2 * sizes.hidden,
    "one_norm": lambda sizes: -sizes.norm_vectors * sizes.hidden if sizes.given.get("is_parallel") else 0,
    "router_bias": lambda sizes: sizes.num_experts if sizes.num_experts > 1 else 0,
    "shared_gate": lambda sizes: sizes.hidden if sizes.num_experts > 1 else 0,
    "sinks": lambda sizes: int(sizes.given["num_heads"]),
    "wide_norms": lambda sizes: sizes.queries + sizes.key_values,
}
"""Weights of a layer."""

OUTSIDE: dict[str, Callable[[ConfigKeys, Mapping[str, Any]], int]] = {
    "head_bias": lambda keys, given: int(given["vocabulary"]),
    "no_norm_weights": lambda keys, given: -int(given["hidden"]),
    # ModernBERT: a product and a norm before the head; the norm of the embedding is in place of the first layer's.
    "prediction_head": lambda keys, given: int(given["hidden"] ** 2 + given["hidden"]),
}
"""Weights outside of layers."""
