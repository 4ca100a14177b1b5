"""The config of a run that trains a policy of operator placement: ``method: operators``."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from ... import settings
from ...models.operators.network import OperatorNetworkSettings
from ..placing.settings import Imitated, PlacingTrainSettings


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
    """The first stage: placements of a search from rules are learned.

    Attributes:
        moves_per_op: of annealing, for each training instance.
        steps: gradient steps.
        minibatch: instances of one.
        learning_rate: Adam's step size at the start; it falls linearly to a twentieth.
        validate_every_steps: steps between two validations.
    """

    moves_per_op: int = Field(default=300, ge=1)
    steps: int = Field(default=1500, ge=1)
    minibatch: int = Field(default=32, ge=1, le=1024)
    learning_rate: float = Field(default=2e-3, gt=0)
    validate_every_steps: int = Field(default=250, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _without_what_is_gone(cls, given: Any) -> Any:
        """Leave out what configs of earlier runs say by default; refuse what nothing learns any more."""
        if not isinstance(given, dict):
            return given
        if given.get("order", "schedule") != "schedule":
            raise ValueError("order: policies no longer choose the order of ops, so none is learned; leave it out")
        if given.get("rounds", 1) != 1:
            raise ValueError("rounds: searches from the policy's own draws are gone, so there is one round; leave it out")
        return {key: each for key, each in given.items() if key not in ("order", "rounds", "draws")}


class OperatorTrainSettings(PlacingTrainSettings):
    """What is learned on, by which network, with which constants, and when it is validated; `PlacingTrainSettings` has the rest.

    Attributes:
        method: ``operators``.
        benchmark: ``preset:NAME`` or a path; of operator placement.
        num_training_instances: drawn once, from the seeds of training.
        imitation: the first stage; null: none.
        network: widths.
        ppo: constants.
    """

    method: Literal["operators"]
    num_training_instances: int = Field(default=3000, ge=16, le=1_000_000)
    imitation: ImitatedSearchSettings | None = None
    network: OperatorNetworkSettings = OperatorNetworkSettings()
    ppo: OperatorPPOSettings = OperatorPPOSettings()

    @property
    def imitated(self) -> Imitated | None:
        """The first stage; None where there is none."""
        return self.imitation
