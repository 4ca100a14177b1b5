"""MaskablePPO by the constants of a config, and what a checkpoint holds of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sb3_contrib import MaskablePPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
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
    make_network: Callable[[], Any],
    env: VecEnv,
    ppo: PPOSettings,
    *,
    total_steps: int,
    seed: int,
    device: str | torch.device = "cpu",
    buffer: tuple[type[RolloutBuffer], dict[str, Any]] | None = None,
) -> MaskablePPO:
    """Return a model that has yet to learn.

    Args:
        make_network: makes what is learned, see `ScorePolicy`.
        env: what is played.
        ppo: constants.
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
        ScorePolicy,
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
        policy_kwargs={
            "make_network": make_network,
            "optimizer_class": torch.optim.Adam,
            "optimizer_kwargs": {"eps": ADAM_EPSILON, "fused": True},
        },
        seed=seed,
        device=device,
    )
    begun.append(True)
    return model


def learn_by_ppo(
    model: MaskablePPO,
    total_steps: int,
    between: Callable[[bool], None],
    note: Callable[[list[dict[str, Any]]], None] = lambda infos: None,
) -> None:
    """Learn from where the model is.

    Args:
        model: that learns.
        total_steps: decisions in all.
        between: called before every rollout with False, and at the end with True.
        note: called after every step with what the environments say.
    """
    left = total_steps - model.num_timesteps
    if left > 0:
        # The mask travels in the observation, so PPO need not fetch and keep it again.
        model.learn(left, callback=_Between(between, note), reset_num_timesteps=False, use_masking=False)
    between(True)


class _Between(BaseCallback):
    def __init__(self, between: Callable[[bool], None], note: Callable[[list[dict[str, Any]]], None]) -> None:
        super().__init__()
        self._between, self._note = between, note

    def _on_rollout_start(self) -> None:
        self._between(False)

    def _on_step(self) -> bool:
        self._note(self.locals["infos"])
        return True


@torch.no_grad()
def average_in(average: torch.nn.Module, newest: torch.nn.Module, share: float) -> None:
    """Move an average of weights towards the newest ones, which may be on another device.

    Args:
        average: is changed.
        newest: of the same shapes.
        share: weight of the newest in the average.
    """
    for averaged, new in zip(average.parameters(), newest.parameters(), strict=True):
        averaged.lerp_(new.to(averaged.device), share)


def figures_of(logger: Logger) -> dict[str, float]:
    """Return the numbers of the latest update that PPO has logged and not yet written, but for times."""
    figures = logger.name_to_value.items()
    return {key: float(value) for key, value in figures if not key.startswith("time/") and isinstance(value, SCALARS)}


def model_state(model: MaskablePPO) -> dict[str, Any]:
    """Return tensors and plain data that `restore_model` continues from: weights, optimizer, counts, and PPO's generators."""
    kind, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)  # noqa: NPY002 - PPO shuffles with this generator
    return {
        "num_timesteps": model.num_timesteps,
        "num_updates": model._n_updates,  # Stable-Baselines3 shows it by no public name
        "policy": model.policy.state_dict(),
        "optimizer": model.policy.optimizer.state_dict(),
        "torch_generator": torch.get_rng_state(),
        "cuda_generator": torch.cuda.get_rng_state(model.device) if model.device.type == "cuda" else None,
        "numpy_generator": [kind, torch.as_tensor(np.asarray(keys, np.int64)), position, has_gauss, gauss],
    }


def restore_model(data: dict[str, Any], model: MaskablePPO) -> None:
    """Restore weights, optimizer, counts and generators of a fresh model of the same config."""
    model.policy.load_state_dict(data["policy"])
    model.policy.optimizer.load_state_dict(data["optimizer"])
    model.num_timesteps = data["num_timesteps"]
    model._n_updates = data["num_updates"]
    torch.set_rng_state(data["torch_generator"])
    if data["cuda_generator"] is not None and model.device.type == "cuda":
        torch.cuda.set_rng_state(data["cuda_generator"], model.device)
    kind, keys, position, has_gauss, gauss = data["numpy_generator"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, gauss))  # noqa: NPY002


def beyond_group(
    advantages: NDArray[np.floating[Any]], at: NDArray[np.int64], group: int, within: int = 1
) -> NDArray[np.float64]:
    """Return advantages minus the mean of the group's others at the same point; unchanged where no other was there.

    A group are episodes that meet the same input.

    Args:
        advantages: ``(steps, e)``.
        at: point of each, rising from step to step, ``(steps, e)``.
        group: consecutive episodes that form a group.
        within: points with equal quotients by this are of one input. Of each other episode the first decision at or after the
            point counts, if it is of the same input; 1: at that point itself.

    Source:
        Kool et al., "Buy 4 REINFORCE samples, get a baseline for free!", 2019, for the mean of the others as a baseline. Mao et
        al., "Variance reduction for reinforcement learning in input-driven environments", 2019, for the same input as its
        condition.
    """
    result = advantages.astype(np.float64)
    own, steps = result.copy(), len(at)
    for e in range(at.shape[1]):
        first = e // group * group
        sums, count = np.zeros(steps), np.zeros(steps)
        for other in (*range(first, e), *range(e + 1, first + group)):
            place = np.minimum(np.searchsorted(at[:, other], at[:, e]), steps - 1)
            theirs = at[place, other]
            is_there = (theirs >= at[:, e]) & (theirs // within == at[:, e] // within)
            sums += np.where(is_there, own[place, other], 0.0)
            count += is_there
        result[:, e] -= sums / np.maximum(count, 1.0)
    return result
