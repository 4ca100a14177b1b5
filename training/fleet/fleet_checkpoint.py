"""Checkpoints of a fleet's run: all that PPO needs to go on as if it had never stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from sb3_contrib import MaskablePPO

from ...errors import CheckpointError
from ...models.tensor_file import load_tensors, save_tensors
from ..checkpoint import DIGEST, digest_of
from .vec_env import FleetVecEnv

FORMAT_VERSION = 1
KEYS = ("key", "num_timesteps", "num_updates", "policy", "optimizer", "torch_generator", "numpy_generator", "episodes", "curve")


def save(path: Path, model: MaskablePPO, env: FleetVecEnv, curve: list[dict[str, Any]], key: str) -> None:
    """Write a checkpoint, whole or not at all, between an update and the next decisions."""
    kind, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)  # noqa: NPY002 - PPO shuffles with this generator
    data = {
        "format_version": FORMAT_VERSION,
        "key": key,
        "num_timesteps": model.num_timesteps,
        "num_updates": model._n_updates,
        "policy": model.policy.state_dict(),
        "optimizer": model.policy.optimizer.state_dict(),
        "torch_generator": torch.get_rng_state(),
        "numpy_generator": [kind, torch.as_tensor(np.asarray(keys, np.int64)), position, has_gauss, gauss],
        "episodes": env.state(),
        "curve": curve,
    }
    save_tensors(path, {**data, DIGEST: digest_of(data)})


def load(path: Path, key: str) -> dict[str, Any]:
    """What `restore` takes.

    Raises:
        CheckpointError: missing, truncated, of another version or run, or not as it was written.
    """
    data = load_tensors(path)
    if not isinstance(data, dict) or data.get("format_version") != FORMAT_VERSION or not all(k in data for k in KEYS):
        raise CheckpointError(f"is no checkpoint of version {FORMAT_VERSION}", file=path)
    if data.pop(DIGEST, None) != digest_of(data):
        raise CheckpointError("is damaged: it is not as it was written", file=path)
    if data["key"] != key:
        raise CheckpointError("belongs to another config, benchmark or cluster than this run's", file=path)
    return data


def restore(data: dict[str, Any], model: MaskablePPO, env: FleetVecEnv) -> list[dict[str, Any]]:
    """Put a fresh model and its episodes into the state of a checkpoint; the learning curve so far."""
    model.policy.load_state_dict(data["policy"])
    model.policy.optimizer.load_state_dict(data["optimizer"])
    model.num_timesteps = data["num_timesteps"]
    model._n_updates = data["num_updates"]
    model._last_obs = env.restore(data["episodes"])
    model._last_episode_starts = data["episodes"]["starts"].numpy()
    torch.set_rng_state(data["torch_generator"])
    kind, keys, position, has_gauss, gauss = data["numpy_generator"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, gauss))  # noqa: NPY002
    curve: list[dict[str, Any]] = data["curve"]
    return curve
