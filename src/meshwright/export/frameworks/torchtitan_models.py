"""A model's own arguments as torchtitan's models take them: those of its Llama 3, or of its Qwen3 where these say more.

Sources:
    torchtitan 0.2.2. ``TransformerModelArgs`` of ``models/llama3/model/args.py`` has a feed-forward width of ``multiple_of
    ceil(int(ffn_dim_multiplier int(8 dim / 3)) / multiple_of)`` and scales positions unless its factor is 1. ``Qwen3ModelArgs``
    of ``models/qwen3/model/args.py`` and ``MoEArgs`` of ``models/moe/moe.py`` have no pipeline (``models/qwen3/__init__.py``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ...jobs.model_constants import ModelConstants, RotaryScaling
from ...plans.transformer import PlannedTransformer
from .model_arguments import SWIGLU, left_out

_SCALING = ("scaling_factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")


class TorchtitanModel(NamedTuple):
    """One of torchtitan's models.

    Attributes:
        name: as ``[model] name`` has it.
        title: for people.
        keys: of its arguments.
        left_out: what they cannot say, a phrase each.
    """

    name: str
    title: str
    keys: dict[str, Any]
    left_out: list[str]


def torchtitan_model(model: PlannedTransformer, *, has_pipeline: bool) -> TorchtitanModel:
    """The model of torchtitan's that a shape is made of with the least left out; Llama 3 of equal ones."""
    llama, qwen = TorchtitanModel("llama3", "Llama 3", *llama3(model)), TorchtitanModel("qwen3", "Qwen3", *qwen3(model))
    if has_pipeline:
        qwen.left_out.append("pipeline")
    return qwen if len(qwen.left_out) < len(llama.left_out) else llama


def llama3(model: PlannedTransformer) -> tuple[dict[str, Any], list[str]]:
    """Keys of ``TransformerModelArgs`` of torchtitan's Llama 3, and what they cannot say, a phrase each."""
    narrow = int(8 * model.hidden / 3)
    given = _sizes(model) | {
        "multiple_of": model.feed_forward,
        "ffn_dim_multiplier": None if narrow <= model.feed_forward else model.feed_forward / narrow,
    }
    constants = model.constants or ModelConstants()
    scaling = constants.rotary_scaling
    if model.constants is not None and (scaling is None or scaling.kind == "llama3"):
        scaling = scaling or RotaryScaling(kind="llama3", factor=1.0)  # without one torchtitan scales by 8
        told = (scaling.factor, scaling.low_frequency_factor, scaling.high_frequency_factor, scaling.original_positions)
        given["rope_scaling_args"] = {key: one for key, one in zip(_SCALING, told, strict=True) if one is not None}
    other = _of_neither(model) | {
        f"positions scaled by the rule {scaling and scaling.kind}": scaling is not None and scaling.kind != "llama3",
        "a tied head": model.is_head_tied,
        "heads of another width than hidden over heads": model.hidden != model.num_heads * model.head_dim,
        "experts": model.num_experts > 1,
        "norms of heads": bool(model.has_head_norms),
    }
    return given, [what for what, is_there in other.items() if is_there] + left_out(model)


def qwen3(model: PlannedTransformer) -> tuple[dict[str, Any], list[str]]:
    """Keys of ``Qwen3ModelArgs``, in which experts are chosen by a softmax over the chosen ones, and what they cannot say."""
    constants = model.constants or ModelConstants()
    given = _sizes(model) | {
        "head_dim": model.head_dim,
        "hidden_dim": model.feed_forward,
        "qk_norm": bool(model.has_head_norms),
        "enable_weight_tying": model.is_head_tied,
    }
    if model.num_experts > 1:
        chosen = {"score_func": "softmax", "route_norm": True, "score_before_experts": False}
        experts = {"num_experts": model.num_experts, "num_shared_experts": 0, "top_k": model.experts_per_token}
        given |= {"moe_enabled": True, "moe_inter_dim": model.feed_forward, "moe_args": experts | chosen}
    mixed = {(kind.num_experts, kind.feed_forward) for kind in model.other_layers or ()} - {
        (model.num_experts, model.feed_forward)
    }
    other = _of_neither(model) | {
        "scaled positions": constants.rotary_scaling is not None,
        "layers with and without experts": bool(mixed),
        "experts that every token visits": model.shared_feed_forward is not None,
    }
    return given, [what for what, is_there in other.items() if is_there] + left_out(model)


def _sizes(model: PlannedTransformer) -> dict[str, Any]:
    """Names that both models share; a constant only where the plan holds it."""
    constants = model.constants or ModelConstants()
    known = {"rope_theta": constants.rotary_base, "norm_eps": constants.norm_epsilon}
    return {
        "dim": model.hidden,
        "n_layers": model.num_layers,
        "n_heads": model.num_heads,
        "n_kv_heads": model.num_key_value_heads,
        "vocab_size": model.vocabulary,
        "max_seq_len": max(model.max_positions, model.sequence_length),
        **{key: value for key, value in known.items() if value is not None},
    }


def _of_neither(model: PlannedTransformer) -> dict[str, bool]:
    """Return features that neither of torchtitan's models has, and whether a shape has each."""
    constants = model.constants or ModelConstants()
    return {
        f"{constants.activation} in the gate": model.is_gated and constants.activation not in SWIGLU,
        "positions of a part of a head": constants.rotary_share is not None,
        "biases": model.qkv_bias or model.output_bias or model.mlp_bias,
        "a feed-forward layer without a gate": not model.is_gated,
        "layer norm": model.norm_vectors != 1,
        "a table of positions": model.learned_positions,
        "latent attention": model.latent is not None,
        "dropout": model.has_dropout,
    }
