"""How a network is prepared before PPO."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from .. import settings
from .linear_settings import SearchSettings

MIXTURES = ((0.1, 1.0), (0.5, 1.0), (1.0, 1.0), (2.0, 1.0))
"""Times which worth and a linear scorer's score are counted, beside worth alone. A tenth of worth settles what else is equal."""


class ValuePretraining(settings.Settings):
    """The worth of states after decisions is learned by TD(lambda) from a policy that always takes the best of it.

    Attributes:
        kind: ``values``.
        steps: decisions to learn from.
        learning_rate: Adam's step size at the start.
        final_learning_rate: the same at the end; in between it falls linearly.
        rollout_steps: decisions of each episode between two updates.
        minibatch: decisions of one gradient step.
        memory: rollouts that are learned from, the latest ones.
        epochs: passes of one update, each over as many decisions as a rollout has, drawn from those in memory.
        trace: lambda of the returns that are learned.
        averaging: weight of the newest weights in the running average of them that plays, per update.
        slow_averaging: weight of what plays in the running average of that which is kept, per update.
        explore: share of decisions taken by chance at the start; it falls linearly to none.
        reward_scale: times which PPO's rewards are paid, so that the errors of its values do not outweigh its choices.
        temperature: difference in worth, or in the score of a linear scorer, at which PPO's first policy prefers the better
            candidate by a factor e.
        linear: how a linear scorer is tuned first, by the blocking rate itself; null: there is none. PPO begins with that
            mixture of worth and its scores which does best on the validation episodes (see `MIXTURES`). Needs ``network.prior``.
        follow: share of ``steps``, the first ones, in which the linear scorer plays in place of the best worth.

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
    reward_scale: float = Field(default=0.1, gt=0)
    temperature: float = Field(default=0.05, gt=0)
    linear: SearchSettings | None = None
    follow: float = Field(default=0.0, ge=0, le=1)

    @model_validator(mode="after")
    def _someone_is_followed(self) -> Self:
        if self.follow and self.linear is None:
            raise ValueError("follow needs a linear scorer: add pretraining.linear={}")
        return self


class RulePretraining(settings.Settings):
    """The network is taught to choose as a baseline does, on the states that the baseline comes to.

    Attributes:
        kind: ``rule``.
        rule: a baseline's name, for example ``fixed-8@best-fit``.
        steps: decisions to learn from.
        learning_rate: Adam's step size.
        rollout_steps: decisions of each episode between two updates.
        minibatch: decisions of one gradient step.
        epochs: passes over the decisions of one update.
    """

    kind: Literal["rule"]
    rule: str
    steps: int = Field(default=200_000, ge=1)
    learning_rate: float = Field(default=1e-3, gt=0)
    rollout_steps: int = Field(default=64, ge=2, le=65_536)
    minibatch: int = Field(default=256, ge=2)
    epochs: int = Field(default=2, ge=1, le=100)
