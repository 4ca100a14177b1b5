"""The config of a run that trains a graph policy: ``method: graph``."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from ... import settings
from ...models.graph.hetero_gnn import GraphNetworkSettings
from ..hooks.names import RunSettings
from ..settings import PPOSettings


class SearchImitationSettings(settings.Settings):
    """The stage before PPO: solutions of the world's search are learned.

    Attributes:
        instances: that are searched and learned.
        rounds: of the search on each.
        steps: gradient steps.
        minibatch: instances of one step.
        decisions: of one step, drawn from those that lead to the solutions.
        learning_rate: Adam's step size at the start; it falls linearly to a twentieth.
        validate_every_steps: steps between two validations.
    """

    instances: int = Field(default=400, ge=1, le=100_000)
    rounds: int = Field(default=2, ge=1, le=1000)
    steps: int = Field(default=600, ge=1)
    minibatch: int = Field(default=16, ge=1, le=1024)
    decisions: int = Field(default=1024, ge=1)
    learning_rate: float = Field(default=2e-3, gt=0)
    validate_every_steps: int = Field(default=200, ge=1)


class GroupedPPOSettings(PPOSettings):
    """Constants of PPO, with groups of episodes that meet the same instances; values are not learned unless ``value`` says so.

    Attributes:
        group: episodes of a group, whose mean advantage is each one's baseline; 1: none.
    """

    num_envs: int = Field(default=64, ge=1, le=4096)
    rollout_steps: int = Field(default=64, ge=2, le=65_536)
    minibatch: int = Field(default=1024, ge=2)
    epochs: int = Field(default=2, ge=1, le=100)
    discount: float = Field(default=1.0, ge=0, le=1)
    gae_lambda: float = Field(default=1.0, ge=0, le=1)
    entropy: float = Field(default=0.0, ge=0)
    value: float = Field(default=0.0, ge=0)
    averaging: float = Field(default=0.05, gt=0, le=1)
    group: int = Field(default=8, ge=1, le=256)

    @model_validator(mode="after")
    def _groups_fit(self) -> Self:
        if self.num_envs % self.group:
            raise ValueError(f"group must divide num_envs, which is {self.num_envs}")
        return self


class GraphTrainSettings(RunSettings):
    """A training run of a graph policy: network, constants and validation.

    Attributes:
        method: ``graph``.
        updates: of PPO, after the imitation.
        validate_every_updates: updates between two validations.
        num_threads: threads of torch and of compiled play.
        num_workers: processes of the search that is imitated; 1, and always with ``minutes``: this one alone, whose time counts.
        device: ``cpu``, ``cuda`` or ``auto``; a GPU learns, and this process plays.
        network: widths.
        start: a policy with whose weights training begins, of a network like this; null: with random ones.
        imitation: the stage before PPO; null: none.
        ppo: constants.
    """

    method: Literal["graph"]
    num_threads: int = Field(default=1, ge=1, le=256)
    updates: int = Field(default=500, ge=0)
    validate_every_updates: int = Field(default=25, ge=1)
    num_workers: int = Field(default=1, ge=1, le=256)
    device: Literal["cpu", "cuda", "auto"] = "cpu"
    network: GraphNetworkSettings = GraphNetworkSettings()
    start: str | None = Field(default=None, exclude_if=lambda start: start is None)
    imitation: SearchImitationSettings | None = None
    ppo: GroupedPPOSettings = GroupedPPOSettings()

    @property
    def imitation_steps(self) -> int:
        """Gradient steps of the first stage."""
        return 0 if self.imitation is None else self.imitation.steps
