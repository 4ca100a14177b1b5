"""The config of a run that trains a policy of operator placement: ``method: operators``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ... import settings
from ...models.operators.network import OperatorNetworkSettings
from ..hooks.names import LogName


class OperatorPPOSettings(settings.Settings):
    """PPO (Schulman et al. 2017) on whole placements; the mean over the samples of an instance is the baseline.

    Attributes:
        instances_per_update: placed in one update; of about the same size.
        samples_per_instance: placements of each.
        epochs: passes over them.
        minibatches: into which the instances of an update are divided; each is a gradient step of each pass.
        clip: of the ratio of probabilities.
        learning_rate: Adam's step size at the start; it falls linearly to a twentieth.
        entropy: weight of the entropy's bonus at the start; it falls linearly to 0.
        gae_lambda: weight of later surprises in a decision's advantage; 1 credits each with the whole outcome.
        value: weight of the error of foreseen values.
        most_gradient: longer gradients are shortened to this norm.
    """

    instances_per_update: int = Field(default=16, ge=1, le=1024)
    samples_per_instance: int = Field(default=16, ge=2, le=1024)
    epochs: int = Field(default=2, ge=1, le=20)
    minibatches: int = Field(default=1, ge=1, le=1024)
    clip: float = Field(default=0.2, gt=0, lt=1)
    learning_rate: float = Field(default=1e-3, gt=0)
    entropy: float = Field(default=0.01, ge=0)
    gae_lambda: float = Field(default=0.95, ge=0, le=1)
    value: float = Field(default=0.5, ge=0)
    most_gradient: float = Field(default=1.0, gt=0)


class ImitatedSearchSettings(settings.Settings):
    """The first stage: placements of a search are learned, of one from rules, then of others from what was learned.

    Attributes:
        rounds: searches, each followed by learning. The first starts from rules; the others start from the best of the network's
            own draws (expert iteration, Anthony et al. 2017), find better placements so, and such as it can imitate.
        draws: for each training instance in the rounds after the first.
        moves_per_op: of annealing, for each training instance in each round.
        steps: gradient steps of a round.
        minibatch: instances of one.
        learning_rate: Adam's step size at the start of a round; it falls linearly to a twentieth.
        validate_every_steps: steps between two validations.
        order: in which ops are learned where the policy chooses it: as the found ``schedule`` starts them, or by ``upward-rank``.
    """

    rounds: int = Field(default=1, ge=1, le=100)
    draws: int = Field(default=16, ge=1, le=4096)
    moves_per_op: int = Field(default=300, ge=1)
    steps: int = Field(default=1500, ge=1)
    minibatch: int = Field(default=32, ge=1, le=1024)
    learning_rate: float = Field(default=2e-3, gt=0)
    validate_every_steps: int = Field(default=250, ge=1)
    order: Literal["schedule", "upward-rank"] = "schedule"


class OperatorTrainSettings(settings.Settings):
    """What is learned on, by which network, with which constants, and when it is validated.

    Attributes:
        method: ``operators``.
        name: of the run.
        benchmark: ``preset:NAME`` or a path; of operator placement.
        changes: ``key=value`` texts that change the benchmark's keys.
        seed: of the network and of what is drawn.
        updates: of PPO, after the imitation.
        num_training_instances: drawn once, from the seeds of training.
        validate_every_updates: updates between two validations.
        num_threads: threads of torch.
        log: writers of the validations (see `training.hooks.names`).
        imitation: the first stage; null: none.
        averaging: weight of the newest weights in the running average of them that is validated and kept, per step of the
            imitation and per update; 1: the newest alone.
        network: kind and widths.
        ppo: constants.
    """

    method: Literal["operators"]
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")
    benchmark: str
    changes: tuple[str, ...] = ()
    seed: int = Field(default=0, ge=0, le=1_000_000)
    updates: int = Field(ge=0)
    num_training_instances: int = Field(default=3000, ge=16, le=1_000_000)
    validate_every_updates: int = Field(default=50, ge=1)
    num_threads: int = Field(default=1, ge=1, le=256)
    log: tuple[LogName, ...] = ()
    imitation: ImitatedSearchSettings | None = None
    averaging: float = Field(default=0.01, gt=0, le=1)
    network: OperatorNetworkSettings = OperatorNetworkSettings()
    ppo: OperatorPPOSettings = OperatorPPOSettings()

    @property
    def imitation_steps(self) -> int:
        """Gradient steps of the first stage."""
        return self.imitation.rounds * self.imitation.steps if self.imitation is not None else 0

    @property
    def total_updates(self) -> int:
        """Steps of the imitation and updates of PPO."""
        return self.imitation_steps + self.updates
