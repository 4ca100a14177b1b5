"""The config of a run that trains a policy of tasklets: ``method: tasklets``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ... import settings
from ...models.tasklets.network import TaskletNetworkSettings
from ..hooks.names import LogName


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


class TaskletTrainSettings(settings.Settings):
    """What is learned on, by which network, with which constants, and when it is validated.

    Attributes:
        method: ``tasklets``.
        name: of the run.
        benchmark: ``preset:NAME`` or a path; of tasklets.
        changes: ``key=value`` texts that change the benchmark's keys.
        seed: of the network and of what is drawn.
        updates: of PPO, after the imitation.
        num_training_networks: from so many seeds of training those of each update are drawn.
        validate_every_updates: updates between two validations.
        num_threads: threads of torch.
        num_workers: processes of the search that is imitated; 1: this one alone.
        device: ``cpu``, ``cuda`` or ``auto``; a GPU learns, and this process plays. On a GPU sums are in no fixed order, so
            that the same seed gives the same numbers on a CPU alone.
        log: writers of the validations (see `training.hooks.names`).
        imitation: the first stage; null: none.
        averaging: weight of the newest weights in the running average of them that is validated and kept, per step of the
            imitation and per update; 1: the newest alone.
        network: widths.
        ppo: constants.
    """

    method: Literal["tasklets"]
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")
    benchmark: str
    changes: tuple[str, ...] = ()
    seed: int = Field(default=0, ge=0, le=1_000_000)
    updates: int = Field(ge=0)
    num_training_networks: int = Field(default=1_000_000, ge=1, le=1_000_000)
    validate_every_updates: int = Field(default=50, ge=1)
    num_threads: int = Field(default=1, ge=1, le=256)
    num_workers: int = Field(default=1, ge=1, le=256)
    device: Literal["cpu", "cuda", "auto"] = "cpu"
    log: tuple[LogName, ...] = ()
    imitation: ImitatedChainSettings | None = None
    averaging: float = Field(default=0.05, gt=0, le=1)
    network: TaskletNetworkSettings = TaskletNetworkSettings()
    ppo: TaskletPPOSettings = TaskletPPOSettings()

    @property
    def imitation_steps(self) -> int:
        """Gradient steps of the first stage."""
        return self.imitation.steps if self.imitation is not None else 0

    @property
    def total_updates(self) -> int:
        """Steps of the imitation and updates of PPO."""
        return self.imitation_steps + self.updates
