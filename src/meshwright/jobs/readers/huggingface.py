"""Reads a Hugging Face ``config.json`` into the shape of a transformer; the transformers package is not needed.

Known model types: ``gpt2``, ``gpt_neox``, ``llama``, ``mistral``, ``mixtral`` and ``bert``. Keys that the format lets absent take
the format's own defaults; keys that size the model must stand in the file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ... import files
from ...errors import GraphError
from ..graph import JobGraph
from ..transformer import MAX_LAYERS, MAX_SIZE, TransformerShape

DEFAULT_BATCH_SIZE = 8


def load_config(path: str | Path, *, batch_size: int | None = None, sequence_length: int | None = None) -> JobGraph:
    """The untimed job graph of a ``config.json``.

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
    """The shape that a ``config.json`` describes; errors as `load_config`."""
    path = Path(path)
    return shape_of(files.read_json(path), name=model_name(path), file=path)


def model_name(path: Path) -> str:
    """What the model of a file is called: as its folder where the file is a ``config.json``, otherwise as the file."""
    return (path.resolve().parent.name if path.name == "config.json" else path.stem) or "transformer"


def shape_of(config: Any, *, name: str, file: str | Path | None = None) -> TransformerShape:
    """The shape that the data of a ``config.json`` describes.

    Raises:
        GraphError: another model type, a missing key or an impossible value.
    """
    if not isinstance(config, dict):
        raise GraphError("a model configuration is a JSON object", file=file, value=type(config).__name__)
    keys = _Keys(config, file)
    model_type = config.get("model_type")
    if model_type is None:
        raise GraphError("the key is missing", file=file, field="model_type")
    reader = _READERS.get(model_type) if isinstance(model_type, str) else None
    if reader is None:
        # A program wrote it, so another spelling is another architecture and no slip: all are listed, none is suggested.
        known = ", ".join(sorted(_READERS))
        raise GraphError(f"unsupported model type; supported are {known}", file=file, field="model_type", value=model_type)
    return reader(keys, name)


class _Keys:
    """Typed look-ups in a configuration, each with its error."""

    def __init__(self, config: dict[str, Any], file: str | Path | None) -> None:
        self.config = config
        self.file = file

    def count(self, key: str, default: int | None = None, most: int = MAX_SIZE) -> int:
        value = self.config.get(key)
        if value is None:
            if default is None:
                raise self.error("the key is missing", key)
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self.error("must be a positive whole number", key, value)
        if value > most:
            raise self.error(f"must be {most} at most", key, value)
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.config.get(key, default)
        if not isinstance(value, bool):
            raise self.error("must be true or false", key, value)
        return value

    def head_dim(self, hidden_key: str, heads_key: str) -> int:
        """The width of a head: told, or the hidden width divided evenly among the heads."""
        if self.config.get("head_dim") is not None:
            return self.count("head_dim")
        hidden, heads = self.count(hidden_key), self.count(heads_key)
        if hidden % heads:
            raise self.error(f"{heads} heads do not divide {hidden_key} {hidden}", heads_key)
        return hidden // heads

    def error(self, problem: str, key: str, value: object = None) -> GraphError:
        return GraphError(problem, file=self.file, field=key, value=value)


def _gpt2(keys: _Keys, name: str) -> TransformerShape:
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


def _gpt_neox(keys: _Keys, name: str) -> TransformerShape:
    bias = keys.flag("attention_bias", True)
    return TransformerShape(
        name=name,
        num_layers=keys.count("num_hidden_layers", most=MAX_LAYERS),
        hidden=keys.count("hidden_size"),
        num_heads=keys.count("num_attention_heads"),
        num_key_value_heads=keys.count("num_attention_heads"),
        head_dim=keys.head_dim("hidden_size", "num_attention_heads"),
        feed_forward=keys.count("intermediate_size"),
        vocabulary=keys.count("vocab_size"),
        max_positions=keys.count("max_position_embeddings"),
        is_gated=False,
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=True,
        norm_vectors=2,
        is_head_tied=keys.flag("tie_word_embeddings", False),
        is_parallel=keys.flag("use_parallel_residual", True),
    )


def _bert(keys: _Keys, name: str) -> TransformerShape:
    return TransformerShape(
        name=name,
        num_layers=keys.count("num_hidden_layers", most=MAX_LAYERS),
        hidden=keys.count("hidden_size"),
        num_heads=keys.count("num_attention_heads"),
        num_key_value_heads=keys.count("num_attention_heads"),
        head_dim=keys.head_dim("hidden_size", "num_attention_heads"),
        feed_forward=keys.count("intermediate_size"),
        vocabulary=keys.count("vocab_size"),
        max_positions=keys.count("max_position_embeddings"),
        learned_positions=True,
        token_types=keys.count("type_vocab_size", 2),
        is_encoder=True,
        has_dropout=True,
        is_gated=False,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        norm_vectors=2,
    )


def _llama(keys: _Keys, name: str, **more: Any) -> TransformerShape:
    heads = keys.count("num_attention_heads")
    groups = keys.count("num_key_value_heads", heads)
    if heads % groups:
        raise keys.error(f"{groups} key-value heads do not divide {heads} heads", "num_key_value_heads")
    bias = keys.flag("attention_bias", False)
    return TransformerShape(
        name=name,
        num_layers=keys.count("num_hidden_layers", most=MAX_LAYERS),
        hidden=keys.count("hidden_size"),
        num_heads=heads,
        num_key_value_heads=groups,
        head_dim=keys.head_dim("hidden_size", "num_attention_heads"),
        feed_forward=keys.count("intermediate_size"),
        vocabulary=keys.count("vocab_size"),
        max_positions=keys.count("max_position_embeddings"),
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=keys.flag("mlp_bias", False),
        is_head_tied=keys.flag("tie_word_embeddings", False),
        **more,
    )


def _mistral(keys: _Keys, name: str, **more: Any) -> TransformerShape:
    window = None if keys.config.get("sliding_window") is None else keys.count("sliding_window")
    return _llama(keys, name, window=window, **more)


def _mixtral(keys: _Keys, name: str) -> TransformerShape:
    experts, active = keys.count("num_local_experts", most=MAX_LAYERS), keys.count("num_experts_per_tok")
    if active > experts:
        raise keys.error(f"there are only {experts} experts", "num_experts_per_tok", active)
    return _mistral(keys, name, num_experts=experts, experts_per_token=active)


_READERS: dict[str, Callable[[_Keys, str], TransformerShape]] = {
    "bert": _bert,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "llama": _llama,
    "mistral": _mistral,
    "mixtral": _mixtral,
}
