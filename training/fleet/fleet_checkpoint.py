"""Checkpoints of a fleet's run: all that PPO needs to go on as if it had never stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sb3_contrib import MaskablePPO

from ...errors import CheckpointError
from ...models.tensor_file import save_tensors
from .. import checkpoint
from ..ppo import model_state, restore_generators, restore_weights
from .vec_env import FleetVecEnv

FORMAT_VERSION = 3
GENERATORS = ("torch_generator", "cuda_generator", "numpy_generator")
KEYS = ("key", "num_timesteps", "num_updates", "policy", "optimizer", *GENERATORS, "episodes", "curve")


def save(path: Path, model: MaskablePPO, env: FleetVecEnv, curve: list[dict[str, Any]], key: str) -> None:
    """Write a checkpoint, whole or not at all, between an update and the next decisions."""
    data = {
        "format_version": FORMAT_VERSION,
        "key": key,
        **model_state(model),
        "episodes": env.state(),
        "curve": curve,
    }
    save_tensors(path, {**data, checkpoint.DIGEST: checkpoint.digest_of(data)})


def load(path: Path, key: str) -> dict[str, Any]:
    """Read the checkpoint that `restore` takes.

    Raises:
        CheckpointError: missing, truncated, of another version or run, or not as it was written.
    """
    data = checkpoint.load(path, FORMAT_VERSION, KEYS)
    if data["key"] != key:
        raise CheckpointError("belongs to another config, benchmark or cluster than this run's", file=path)
    return data


def restore(data: dict[str, Any], model: MaskablePPO, env: FleetVecEnv) -> list[dict[str, Any]]:
    """Bring a fresh model and its episodes into the state of a checkpoint; returns the learning curve so far."""
    restore_weights(data, model)
    model._last_obs = env.restore(data["episodes"])
    model._last_episode_starts = data["episodes"]["starts"].numpy()
    restore_generators(data, model)
    curve: list[dict[str, Any]] = data["curve"]
    return curve
