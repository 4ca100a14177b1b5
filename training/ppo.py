"""MaskablePPO by the constants of a config, and what a checkpoint holds of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import VecEnv

from ..models.masked_policy import ScorePolicy
from .settings import PPOSettings

# Stable-Baselines3's choice for PPO; torch's own is 1e-8.
ADAM_EPSILON = 1e-5

SCALARS = (int, float, np.floating, np.integer)
NUM_RECENT = 100
"""Latest episodes whose returns are kept."""


def make_ppo(
    policy: type[ScorePolicy],
    env: VecEnv,
    ppo: PPOSettings,
    made_of: dict[str, Any],
    *,
    total_steps: int,
    seed: int,
    device: str | torch.device = "cpu",
    buffer: tuple[type[RolloutBuffer], dict[str, Any]] | None = None,
) -> MaskablePPO:
    """A model that has yet to learn.

    Args:
        policy: its class.
        env: what is played.
        ppo: constants.
        made_of: what the policy is made of, in addition to the spaces.
        total_steps: decisions over which the learning rate falls.
        seed: of the weights and of all that is drawn.
        device: of the weights.
        buffer: class of the rollout buffer and its further arguments; that of sb3-contrib by default.
    """

    def rate(_: float) -> float:
        # The last update may go beyond the total.
        left = max(0.0, 1.0 - float(model.num_timesteps) / max(1.0, float(total_steps))) if begun else 1.0
        return ppo.final_learning_rate + (ppo.learning_rate - ppo.final_learning_rate) * left

    begun: list[bool] = []
    model = MaskablePPO(
        policy,
        env,
        learning_rate=rate,
        n_steps=ppo.rollout_steps,
        batch_size=ppo.minibatch,
        n_epochs=ppo.epochs,
        gamma=ppo.discount,
        gae_lambda=ppo.gae_lambda,
        clip_range=ppo.clip,
        ent_coef=ppo.entropy,
        vf_coef=ppo.value,
        max_grad_norm=ppo.max_grad_norm,
        stats_window_size=NUM_RECENT,
        rollout_buffer_class=None if buffer is None else buffer[0],
        rollout_buffer_kwargs=None if buffer is None else buffer[1],
        policy_kwargs=made_of | {"optimizer_class": torch.optim.Adam, "optimizer_kwargs": {"eps": ADAM_EPSILON, "fused": True}},
        seed=seed,
        device=device,
    )
    begun.append(True)
    return model


def figures_of(logger: Logger) -> dict[str, float]:
    """The numbers of the latest update that PPO has logged and not yet written, but for times."""
    told = logger.name_to_value.items()
    return {key: float(value) for key, value in told if not key.startswith("time/") and isinstance(value, SCALARS)}


def model_state(model: MaskablePPO) -> dict[str, Any]:
    """Tensors and plain data that `restore_model` goes on from: weights, optimizer, counts, and the generators of PPO."""
    kind, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)  # noqa: NPY002 - PPO shuffles with this generator
    return {
        "num_timesteps": model.num_timesteps,
        "num_updates": model._n_updates,
        "policy": model.policy.state_dict(),
        "optimizer": model.policy.optimizer.state_dict(),
        "torch_generator": torch.get_rng_state(),
        "cuda_generator": torch.cuda.get_rng_state(model.device) if model.device.type == "cuda" else None,
        "numpy_generator": [kind, torch.as_tensor(np.asarray(keys, np.int64)), position, has_gauss, gauss],
    }


def restore_weights(data: dict[str, Any], model: MaskablePPO) -> None:
    """Weights, optimizer and counts of a fresh model of the same config."""
    model.policy.load_state_dict(data["policy"])
    model.policy.optimizer.load_state_dict(data["optimizer"])
    model.num_timesteps = data["num_timesteps"]
    model._n_updates = data["num_updates"]


def restore_generators(data: dict[str, Any], model: MaskablePPO) -> None:
    """The generators that PPO draws from."""
    torch.set_rng_state(data["torch_generator"])
    if data["cuda_generator"] is not None and model.device.type == "cuda":
        torch.cuda.set_rng_state(data["cuda_generator"], model.device)
    kind, keys, position, has_gauss, gauss = data["numpy_generator"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, gauss))  # noqa: NPY002
