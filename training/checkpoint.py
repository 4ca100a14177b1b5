"""Checkpoints: all that a run needs to go on as if it had never stopped.

A checkpoint is taken between an update and the next decisions, of PPO or of a pretraining before it. It holds weights,
optimizer, the random generators that PPO draws from, the state of every episode, the returns of the latest ones, the learning
curve so far, and of a pretraining what else that needs. It also holds a digest of all that: of the state of episodes,
which compiled code takes as it is, nothing may have changed since it was written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sb3_contrib import MaskablePPO

from .. import files
from ..errors import CheckpointError
from ..models.network import CandidateNetwork
from ..models.saved import SavedNetwork
from ..models.tensor_file import load_tensors, save_tensors
from ..planners.linear import LinearWeights
from .ppo import NUM_RECENT, model_state, restore_generators, restore_weights
from .vec_env_wrappers import AfterstateFeatures, CentredReward, wrapper_of

FORMAT_VERSION = 9
DIGEST = "digest"

KEYS = (
    "key",
    "num_timesteps",
    "num_updates",
    "policy",
    "optimizer",
    "torch_generator",
    "cuda_generator",
    "numpy_generator",
    "episodes",
    "episode_starts",
    "recent_episodes",
    "progress",
    "best",
    "prior",
    "pretraining",
)


class Restored(NamedTuple):
    """What a checkpoint holds in addition to the state of the model.

    Attributes:
        progress: the caller's data.
        best: the best policy so far.
        pretraining: of a checkpoint within the pretraining, what that goes on from.
    """

    progress: dict[str, Any]
    best: SavedNetwork | None
    pretraining: dict[str, Any] | None


def save(
    path: Path,
    model: MaskablePPO,
    progress: dict[str, Any],
    best: SavedNetwork | None,
    key: str,
    pretraining: dict[str, Any] | None = None,
) -> None:
    """Write a checkpoint, whole or not at all.

    Args:
        path: where.
        model: between an update and the next decisions.
        progress: plain data that the caller wants back.
        best: the best policy so far.
        key: a hash of config and scenario; `restore` refuses another one.
        pretraining: within the pretraining, tensors and plain data that it goes on from.
    """
    starts = model._last_episode_starts
    prior = wrapper_of(model, AfterstateFeatures).prior
    data = {
        "format_version": FORMAT_VERSION,
        "key": key,
        **model_state(model),
        "episodes": {name: torch.as_tensor(array) for name, array in wrapper_of(model, CentredReward).state().items()},
        "episode_starts": None if starts is None else torch.as_tensor(np.asarray(starts)),
        "recent_episodes": list(model.ep_info_buffer or ()),
        "progress": progress,
        "best": None if best is None else best.to_data(),
        "prior": None if prior is None else prior.to_data(),
        "pretraining": pretraining,
    }
    save_tensors(path, {**data, DIGEST: digest_of(data)})


def load(path: Path, version: int = FORMAT_VERSION, keys: Sequence[str] = KEYS) -> dict[str, Any]:
    """What `restore` takes; ``num_timesteps`` are the decisions of PPO so far.

    Args:
        path: the file.
        version: of its form; each method has its own.
        keys: that it has to hold.

    Raises:
        CheckpointError: missing, truncated, of another version, or not as it was written.
    """
    data = load_tensors(path)
    if not isinstance(data, dict) or data.get("format_version") != version or not all(k in data for k in keys):
        raise CheckpointError(f"is no checkpoint of version {version}", file=path)
    if data.pop(DIGEST, None) != digest_of(data):
        raise CheckpointError("is damaged: it is not as it was written", file=path)
    return data


def digest_of(data: dict[str, Any]) -> str:
    """A hash of tensors and plain data."""
    return files.digest(_hashable(data))


def on_cpu(data: Any) -> Any:
    """The same tensors and plain data, readable where there is no GPU."""
    if isinstance(data, torch.Tensor):
        return data.detach().cpu()
    if isinstance(data, dict):
        return {name: on_cpu(value) for name, value in data.items()}
    return data


def _hashable(data: Any) -> Any:
    if isinstance(data, torch.Tensor):
        return data.detach().cpu().numpy()
    if isinstance(data, dict):
        return {key: _hashable(value) for key, value in data.items()}
    return [_hashable(item) for item in data] if isinstance(data, list | tuple) else data


def restore(data: dict[str, Any], path: Path, model: MaskablePPO, key: str) -> Restored:
    """Bring a fresh model into the state of a checkpoint.

    Args:
        data: from `load`.
        path: of the checkpoint, for messages.
        model: of the same config.
        key: as for `save`.

    Raises:
        CheckpointError: of another config or scenario.
    """
    if data["key"] != key:
        raise CheckpointError("belongs to another config, workload or cluster than this run's", file=path)
    restore_weights(data, model)
    network = model.policy.get_submodule("network")
    assert isinstance(network, CandidateNetwork)
    best = None if data["best"] is None else SavedNetwork.from_data(data["best"], path)
    features = wrapper_of(model, AfterstateFeatures)
    features.set_linear_prior(None if data["prior"] is None else LinearWeights.from_data(data["prior"], path))
    features.set_value_network(network)  # which PPO does not change
    seen = wrapper_of(model, CentredReward).restore({name: tensor.numpy() for name, tensor in data["episodes"].items()})
    if data["episode_starts"] is not None:  # else PPO has yet to begin, and the episodes anew with it
        model._last_obs, model._last_episode_starts = seen, data["episode_starts"].numpy()
    model.ep_info_buffer = deque(data["recent_episodes"], maxlen=NUM_RECENT)
    model.ep_success_buffer = deque(maxlen=NUM_RECENT)
    restore_generators(data, model)
    return Restored(data["progress"], best, data["pretraining"])
