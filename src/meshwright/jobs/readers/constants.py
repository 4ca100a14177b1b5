"""The constants of a model from the keys of its ``config.json``, whichever family it is of.

Keys that no framework needs are not checked: an unknown rule of scaling keeps its name. Newer releases of transformers write
``rope_parameters`` in place of ``rope_theta`` and ``rope_scaling``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..model_constants import ModelConstants, RotaryScaling
from .config_keys import ConfigKeys

_EPSILONS = ("rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps", "layer_norm_rms_epsilon", "norm_eps", "norm_epsilon")
_ACTIVATIONS = ("hidden_activation", "hidden_act", "activation_function")
_SHARES = ("partial_rotary_factor", "rotary_pct")
_SCALING = {
    "factor": "factor",
    "low_freq_factor": "low_frequency_factor",
    "high_freq_factor": "high_frequency_factor",
    "original_max_position_embeddings": "original_positions",
}


def model_constants(keys: ConfigKeys) -> ModelConstants | None:
    """The constants in a configuration; None where it has none.

    Raises:
        GraphError: a base, an epsilon or a factor that no model has.
    """
    rotary = keys.config.get("rope_parameters")
    rotary = rotary if isinstance(rotary, dict) else {}
    rotary = one if isinstance(one := rotary.get("full_attention"), dict) else rotary  # of each type of layers
    scaling = keys.config.get("rope_scaling")
    share = keys.number("partial_rotary_factor", rotary, most=1.0) or keys.first_number(_SHARES, most=1.0)
    made = ModelConstants(
        rotary_base=keys.number("rope_theta", rotary) or keys.first_number(("rope_theta", "rotary_emb_base")),
        rotary_share=None if share == 1 else share,
        rotary_scaling=_scaling(keys, scaling if isinstance(scaling, dict) else rotary),
        norm_epsilon=keys.first_number(_EPSILONS, most=1.0),
        activation=next((one for key in _ACTIVATIONS if isinstance(one := keys.config.get(key), str)), None),
    )
    return None if made == ModelConstants() else made


def _scaling(keys: ConfigKeys, entries: Mapping[str, Any]) -> RotaryScaling | None:
    kind = entries.get("rope_type", entries.get("type"))
    if not isinstance(kind, str) or kind in ("", "default"):
        return None
    result = {name: keys.number(key, entries) for key, name in _SCALING.items()}
    if (positions := result["original_positions"]) is not None:
        result["original_positions"] = int(positions)
    return RotaryScaling(kind=kind, **result)
