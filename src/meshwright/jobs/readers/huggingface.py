"""Reads a Hugging Face ``config.json`` into the shape of a transformer; the transformers package is not needed.

`model_families` has the meaning of its keys, family by family. Where a decoder of text has other parts around it, as for images,
the decoder is read and a remark names the rest. A model of another kind is refused by its family, with a remedy.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ... import files, settings
from ...errors import GraphError
from ...packaged import shipped_path
from ..graph import JobGraph
from ..transformer import ModelConstants, RotaryScaling, TransformerShape
from .config_keys import ConfigKeys
from .model_families import families, family_shape

_EPSILONS = ("rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps", "layer_norm_rms_epsilon", "norm_eps", "norm_epsilon")
_ACTIVATIONS = ("hidden_activation", "hidden_act", "activation_function")
_SHARES = ("partial_rotary_factor", "rotary_pct")
_SCALING = {
    "factor": "factor",
    "low_freq_factor": "low_frequency_factor",
    "high_freq_factor": "high_frequency_factor",
    "original_max_position_embeddings": "original_positions",
}

DEFAULT_BATCH_SIZE = 8

_AS_OPS = "`meshwright profile` makes a job graph of it, which is planned as ops, by data and pipeline parallelism"

_AROUND_TEXT = "a decoder of text with other parts around it (images, sound), without a text_config of a type that is read"


def load_config(path: str | Path, *, batch_size: int | None = None, sequence_length: int | None = None) -> JobGraph:
    """Return the untimed job graph of a ``config.json``.

    Args:
        path: the file; the graph takes the name of its folder where the file itself is called ``config.json``.
        batch_size: sequences of one step, 8 by default.
        sequence_length: tokens of each; by default what the model is made for, 2,048 at most.

    Raises:
        InputFileError: the file is missing or not JSON.
        GraphError: another model type, a missing key or an impossible value.
    """
    shape = read_shape(path)
    try:
        return shape.graph(DEFAULT_BATCH_SIZE if batch_size is None else batch_size, sequence_length)
    except GraphError as error:
        raise error if batch_size is not None or sequence_length is not None else error.at(file=path) from None


def read_shape(path: str | Path) -> TransformerShape:
    """Return the shape that a ``config.json`` describes; errors as `load_config`."""
    path = Path(path)
    return shape_of(files.read_json(path), name=model_name(path), file=path)


def model_name(path: Path) -> str:
    """Return the name of a file's model: that of the folder of a ``config.json``, otherwise that of the file."""
    return (path.resolve().parent.name if path.name == "config.json" else path.stem) or "transformer"


def shape_of(config: Any, *, name: str, file: str | Path | None = None) -> TransformerShape:
    """Return the shape that the data of a ``config.json`` describes.

    Raises:
        GraphError: another model type, a missing key or an impossible value.
    """
    if not isinstance(config, dict):
        raise GraphError("a model configuration is a JSON object", file=file, value=type(config).__name__)
    model_type = config.get("model_type")
    if model_type is None:
        raise GraphError("the key is missing", file=file, field="model_type")
    text = _text_part(config)
    family = str(model_type if text is None else text["model_type"])
    if family not in families():
        raise GraphError(_why_not(config, model_type), file=file, field="model_type", value=model_type)
    keys = ConfigKeys(config, file) if text is None else ConfigKeys(text, file, "text_config")
    shape, constants = family_shape(keys, name, family), model_constants(keys)
    shape = shape if constants is None else shape.model_copy(update={"constants": constants})
    if "long_skips" not in config:  # a key of our own: no such model is written by the library
        return shape
    try:
        return TransformerShape(**shape.model_dump() | {"long_skips": keys.count("long_skips")})
    except GraphError as error:
        raise error.at(file=file) from None


def left_out(config: Any) -> tuple[str, ...]:
    """Describe the parts of a configuration's model that are not read."""
    text = _text_part(config) if isinstance(config, dict) else None
    if text is None:
        return ()
    others = [
        key for key, value in config.items() if key.endswith("_config") and key != "text_config" and isinstance(value, dict)
    ]
    rest = f"{', '.join(others)} and what joins them to it" if others else "the parts around it"
    return (f"of this {config['model_type']} the decoder of text ({text['model_type']}) is read; left out: {rest}",)


def _text_part(config: dict[str, Any]) -> dict[str, Any] | None:
    """Return the text decoder of a configuration with several parts; None where it has none that is read.

    ``tie_word_embeddings`` may be a key of the decoder or of the whole.
    """
    text = config.get("text_config")
    if not isinstance(text, dict) or str(config.get("model_type")) in families() or str(text.get("model_type")) not in families():
        return None
    return {key: config[key] for key in ("tie_word_embeddings",) if key in config} | text


def _why_not(config: dict[str, Any], model_type: object) -> str:
    """Return why a model type is not read, and what can be done.

    A program wrote it, so another spelling is another architecture and no slip: none is ever suggested.
    """
    others, _ = settings.read_yaml(shipped_path("other_models.yaml"))
    kinds = {one: kind for kind, types in others.items() for one in types}
    if isinstance(config.get("text_config"), dict) or kinds.get(str(model_type)) == "around text":
        return f"{_AROUND_TEXT}; {_AS_OPS}"
    if str(model_type) in kinds:
        return f"{kinds[str(model_type)]}; {_AS_OPS}"
    return f"unsupported model type; supported are {', '.join(families())}; `meshwright profile` traces others"


def model_constants(keys: ConfigKeys) -> ModelConstants | None:
    """Return the constants in a configuration, whichever family it is of; None where it has none.

    Keys that no framework needs are not checked: an unknown rule of scaling keeps its name. Newer releases of transformers write
    ``rope_parameters`` in place of ``rope_theta`` and ``rope_scaling``.

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
