"""How a network is prepared before PPO."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from ... import settings
from ..linear.settings import SearchSettings

PRIOR_DEFAULTS: dict[str, Any] = {
    "strategy": "cma-es",
    "generations": 60,
    "population": 16,
    "num_episodes": 8,
    "spread": 0.1,
    "num_validation_seeds": 40,
}
"""Defaults of the search for a linear scorer that is added to values, where they differ from those of a scorer by itself.

Its weights start at 0; their spread is in the unit of values."""


def _with_prior_defaults(value: Any) -> Any:
    return {**PRIOR_DEFAULTS, **value} if isinstance(value, dict) else value


class ValuePretraining(settings.Settings):
    """Values of afterstates are learned by TD(lambda) from a policy that is greedy in them.

    Attributes:
        kind: ``values``.
        steps: decisions to learn from.
        learning_rate: Adam's step size at the start.
        final_learning_rate: the same at the end; in between it falls linearly.
        rollout_steps: decisions of each episode between two updates.
        minibatch: decisions of one gradient step.
        memory: number of latest rollouts that are learned from.
        epochs: passes of one update, each over as many decisions as a rollout has, sampled from the memory.
        trace: lambda of the returns that are learned.
        averaging: share of the newest weights in their running average, which acts, per update.
        slow_averaging: share of that average in the slower running average, which is kept, per update.
        explore: share of random decisions at the start; it falls linearly to 0.
        centred: which mean reward is subtracted where benchmarks are mixed: that of all ``together``, or of each ``apart``.
            Together, values first of all distinguish the benchmarks, which helps a network that has to recognise them. Where
            mean rewards differ most, as at very different loads, values then show nothing else.
        reward_scale: factor on PPO's rewards, so that the loss of the values does not outweigh that of the policy.
        temperature: difference in score at which PPO's first policy prefers the better candidate by a factor e.
        linear: how a linear scorer that is added to values is tuned afterwards, with the defaults `PRIOR_DEFAULTS`; null:
            there is none. Needs ``network.prior``.

    Source:
        Sutton and Barto, "Reinforcement learning: an introduction", 2018, chapter 12.
    """

    kind: Literal["values"] = "values"
    steps: int = Field(default=1_000_000, ge=1)
    learning_rate: float = Field(default=1e-3, gt=0)
    final_learning_rate: float = Field(default=5e-5, gt=0)
    rollout_steps: int = Field(default=64, ge=2, le=65_536)
    minibatch: int = Field(default=64, ge=2)
    memory: int = Field(default=16, ge=1, le=1000)
    epochs: int = Field(default=3, ge=1, le=100)
    trace: float = Field(default=0.8, ge=0, le=1)
    averaging: float = Field(default=0.1, gt=0, le=1)
    slow_averaging: float = Field(default=0.02, gt=0, le=1)
    explore: float = Field(default=0.05, ge=0, le=1)
    centred: Literal["together", "apart"] = "together"
    reward_scale: float = Field(default=0.1, gt=0)
    temperature: float = Field(default=0.05, gt=0)
    linear: Annotated[SearchSettings, BeforeValidator(_with_prior_defaults)] | None = None
