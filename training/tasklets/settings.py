"""The config of a run that trains a policy of tasklets: ``method: tasklets``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ... import settings
from ...models.tasklets.network import TaskletNetworkSettings
from ..placing.settings import Imitated, PlacingTrainSettings


class TaskletPPOSettings(settings.Settings):
    """PPO (Schulman et al. 2017) on whole groupings; the mean over the samples of a network is the baseline.

    Attributes:
        networks_per_update: drawn anew for each update.
        samples_per_network: groupings of each.
        epochs: passes over them.
        minibatches: into which the networks of an update are divided; each is a gradient step of each pass.
        clip: of the ratio of probabilities.
        learning_rate: Adam's step size at the start; it falls linearly to a twentieth.
        entropy: weight of the entropy's bonus at the start; it falls linearly to 0.
        most_gradient: longer gradients are shortened to this norm.
    """

    networks_per_update: int = Field(default=8, ge=1, le=1024)
    samples_per_network: int = Field(default=8, ge=2, le=1024)
    epochs: int = Field(default=2, ge=1, le=20)
    minibatches: int = Field(default=2, ge=1, le=1024)
    clip: float = Field(default=0.2, gt=0, lt=1)
    learning_rate: float = Field(default=1e-3, gt=0)
    entropy: float = Field(default=0.0, ge=0)
    most_gradient: float = Field(default=1.0, gt=0)


class ImitatedChainSettings(settings.Settings):
    """The first stage: groupings that the search ``chain`` found are learned, in either direction of the pipeline.

    Attributes:
        networks: that are searched and learned.
        rounds: of annealing on each.
        steps: gradient steps.
        minibatch: networks of one.
        learning_rate: Adam's step size at the start; it falls linearly to a twentieth.
        validate_every_steps: steps between two validations.
    """

    networks: int = Field(default=400, ge=1, le=1_000_000)
    rounds: int = Field(default=2, ge=1, le=1000)
    steps: int = Field(default=600, ge=1)
    minibatch: int = Field(default=16, ge=1, le=1024)
    learning_rate: float = Field(default=2e-3, gt=0)
    validate_every_steps: int = Field(default=200, ge=1)


class TaskletTrainSettings(PlacingTrainSettings):
    """What is learned on, by which network, with which constants, and when it is validated; `PlacingTrainSettings` has the rest.

    Attributes:
        method: ``tasklets``.
        benchmark: ``preset:NAME`` or a path; of tasklets.
        num_training_networks: from so many seeds of training those of each update are drawn.
        num_workers: processes of the search that is imitated; 1: this one alone.
        device: ``cpu``, ``cuda`` or ``auto``; a GPU learns, and this process plays. On a GPU sums are in no fixed order, so
            that the same seed gives the same numbers on a CPU alone.
        imitation: the first stage; null: none.
        network: widths.
        ppo: constants.
    """

    method: Literal["tasklets"]
    num_training_networks: int = Field(default=1_000_000, ge=1, le=1_000_000)
    num_workers: int = Field(default=1, ge=1, le=256)
    device: Literal["cpu", "cuda", "auto"] = "cpu"
    imitation: ImitatedChainSettings | None = None
    averaging: float = Field(default=0.05, gt=0, le=1)
    network: TaskletNetworkSettings = TaskletNetworkSettings()
    ppo: TaskletPPOSettings = TaskletPPOSettings()

    @property
    def imitated(self) -> Imitated | None:
        """The first stage; None where there is none."""
        return self.imitation
