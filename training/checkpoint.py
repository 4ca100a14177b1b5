"""Checkpoints: all that a run of any method needs to continue as if it had never stopped.

A checkpoint is taken between two steps. It holds the state of the method, the learning curve so far, and a digest of both.
Compiled code reads the state of episodes unchecked, so the digest shows that nothing changed since the file was written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from .. import files
from ..errors import CheckpointError, InputFileError
from ..models.tensor_file import load_tensors, save_tensors

FORMAT_VERSION = 10
DIGEST = "digest"


def save(path: Path, key: str, data: dict[str, Any]) -> None:
    """Write a checkpoint, whole or not at all.

    Args:
        path: where; tensors and plain data, or plain data alone for a name that ends in ``.json``.
        key: a hash of all that the run's numbers depend on; `load` refuses another one.
        data: what `load` returns.
    """
    held = {"format_version": FORMAT_VERSION, "key": key, **data}
    (files.write_json if path.suffix == ".json" else save_tensors)(path, {**held, DIGEST: digest_of(held)})


def load(path: Path, key: str) -> dict[str, Any]:
    """Return what `save` wrote.

    Raises:
        CheckpointError: missing, truncated, of another version or run, or not as it was written.
    """
    try:
        data = files.read_json(path) if path.suffix == ".json" else load_tensors(path)
    except InputFileError as error:
        raise CheckpointError(error.problem, file=path, line=error.line) from None
    if not isinstance(data, dict) or data.get("format_version") != FORMAT_VERSION:
        raise CheckpointError(f"is no checkpoint of version {FORMAT_VERSION}", file=path)
    if data.pop(DIGEST, None) != digest_of(data):
        raise CheckpointError("is damaged: it is not as it was written", file=path)
    if data.get("key") != key:
        raise CheckpointError("belongs to another config, workload or cluster than this run's", file=path)
    return data


def digest_of(data: dict[str, Any]) -> str:
    """Return a hash of tensors and plain data."""
    return files.digest(_hashable(data))


def _hashable(data: Any) -> Any:
    if isinstance(data, torch.Tensor):
        return data.detach().cpu().numpy()
    if isinstance(data, dict):
        return {key: _hashable(value) for key, value in data.items()}
    return [_hashable(item) for item in data] if isinstance(data, list | tuple) else data
