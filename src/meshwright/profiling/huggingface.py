"""Models of Hugging Face by their ``config.json``, made by the transformers package on the ``meta`` device."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import torch

from .. import files
from ..errors import TraceError
from ..jobs.readers.huggingface import DEFAULT_BATCH_SIZE, model_name
from .inputs import DTYPES
from .trace import Model, first_line, quiet

MAX_DEFAULT_LENGTH = 2_048
"""Tokens of a sequence where nothing is said."""

_LENGTHS = ("max_position_embeddings", "n_positions", "max_target_positions")
_FALLBACK_LENGTH = 512
_IMAGE_SIZE = 224
"""Pixels of a side where a model of images does not say, as of ImageNet."""

_AUDIO_SAMPLES = 160_000
"""Ten seconds at 16 kHz, of models that read sound as it is."""


def load_model(path: Path, *, batch_size: int | None = None, sequence_length: int | None = None, dtype: str = "bf16") -> Model:
    """Return the model of a ``config.json``, with inputs for a training step.

    Args:
        path: the file, or the folder that holds it.
        batch_size: samples of a step, 8 by default.
        sequence_length: tokens of each; by default what the model is made for, 2,048 at most.
        dtype: of weights and of the inputs of floating-point numbers.

    Raises:
        InputFileError: the file is missing or not JSON.
        TraceError: the transformers package is not installed, does not know the model, or cannot make it of this file.
    """
    path = path / "config.json" if path.is_dir() else path
    data = files.read_json(path)
    if not isinstance(data, dict) or not isinstance(data.get("model_type"), str):
        raise TraceError("is no configuration of a model: the key is missing", file=path, field="model_type")
    try:
        import transformers
    except ImportError:
        raise TraceError(
            "the transformers package makes it, which the extra [hf] installs: pip install '.[hf]' in the checkout", file=path
        ) from None
    transformers.logging.set_verbosity_error()
    batch = DEFAULT_BATCH_SIZE if batch_size is None else batch_size
    with quiet():
        try:
            module = _made(transformers, data, DTYPES[dtype])
            kwargs = _inputs(module, batch, sequence_length, DTYPES[dtype])
        except TraceError as error:
            raise error.at(file=path) from None
        except Exception as error:  # of a configuration that the package cannot use
            raise TraceError(f"transformers cannot make the model: {first_line(error)}", file=path) from None
    shapes = " ".join(f"{name}={'x'.join(map(str, value.shape))}" for name, value in kwargs.items())
    remarks: tuple[str, ...] = (f"{type(module).__name__} of transformers, inputs {shapes}",)
    if "pixel_values" in inspect.signature(module.forward).parameters and "pixel_values" not in kwargs:
        remarks += ("left out: images, as vision_config gives no image_size; the ops are those of a step on text",)
    return Model(model_name(path), module.train(), (), kwargs, batch, remarks)


def _made(transformers: Any, data: dict[str, Any], dtype: torch.dtype) -> torch.nn.Module:
    config = transformers.AutoConfig.for_model(**_without_precision(data))
    for one in (config, config.get_text_config()):
        one.dtype, one.use_cache = dtype, False
    named = next((name for name in data.get("architectures") or [] if hasattr(transformers, str(name))), None)
    make = getattr(transformers, named) if named else transformers.AutoModel.from_config
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device("meta"):
            module: torch.nn.Module = make(config)  # with fused attention where it has some
            return module
    finally:
        torch.set_default_dtype(before)


def _without_precision(data: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration without the precisions and attention kernels of it and of its parts."""
    kept = {key: data[key] for key in data if key not in ("dtype", "torch_dtype") and not key.endswith("attn_implementation")}
    return {key: _without_precision(value) if isinstance(value, dict) else value for key, value in kept.items()}


def _inputs(module: Any, batch: int, length: int | None, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Return the inputs of a training step's forward pass, by the arguments that it accepts."""
    config, taken = module.config, inspect.signature(module.forward).parameters
    text = config.get_text_config()
    main = module.main_input_name
    if length is None:
        lengths = [getattr(text, key) for key in _LENGTHS if isinstance(getattr(text, key, None), int)]
        length = min(lengths[0], MAX_DEFAULT_LENGTH) if lengths else _FALLBACK_LENGTH
    result: dict[str, torch.Tensor] = {}
    if "input_ids" in taken:
        result["input_ids"] = _ids(batch, length)
    vision = getattr(config, "vision_config", None) or config
    size = getattr(vision, "image_size", None if "input_ids" in result else _IMAGE_SIZE)
    if "pixel_values" in taken and size is not None:
        height, width = size if isinstance(size, list | tuple) else (size, size)
        channels = getattr(vision, "num_channels", 3)
        result["pixel_values"] = torch.empty(batch, channels, height, width, dtype=dtype, device="meta")
    if main == "input_features":
        frames = 2 * getattr(config, "max_source_positions", 1_500)
        result["input_features"] = torch.empty(batch, config.num_mel_bins, frames, dtype=dtype, device="meta")
    if main == "input_values":
        result["input_values"] = torch.empty(batch, _AUDIO_SAMPLES, dtype=dtype, device="meta")
    if not result:
        raise TraceError("no input is known for this model; name a factory, as FILE.py:NAME", value=main)
    if "labels" in taken and "Classification" in type(module).__name__:
        result["labels"] = _ids(batch)
    elif "labels" in taken and (main == "input_features" or "input_ids" in result):
        result["labels"] = _ids(batch, length)
    elif "decoder_input_ids" in taken:
        result["decoder_input_ids"] = _ids(batch, length)
    return result


def _ids(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int64, device="meta")
