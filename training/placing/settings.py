"""What the configs of trainings that imitate a search and go on by PPO have in common."""

from __future__ import annotations

from typing import Protocol

from pydantic import Field

from ... import settings
from ..hooks.names import LogName


class Imitated(Protocol):
    """What `PlacingTrainer` asks of the first stage."""

    @property
    def steps(self) -> int:
        """Gradient steps of a round."""

    @property
    def validate_every_steps(self) -> int:
        """Steps between two validations."""


class PlacingTrainSettings(settings.Settings):
    """Settings of a run; what is imitated, network and constants of PPO are in the settings of each method.

    Attributes:
        name: of the run.
        benchmark: ``preset:NAME`` or a path.
        changes: ``key=value`` texts that change the benchmark's keys.
        seed: of the network and of what is drawn.
        updates: of PPO, after the imitation.
        validate_every_updates: updates between two validations.
        num_threads: threads of torch and of compiled play.
        log: writers of the validations (see `training.hooks.names`).
        averaging: weight of the newest weights in the running average of them that is validated and kept, per step of the
            imitation and per update; 1: the newest alone.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")
    benchmark: str
    changes: tuple[str, ...] = ()
    seed: int = Field(default=0, ge=0, le=1_000_000)
    updates: int = Field(ge=0)
    validate_every_updates: int = Field(default=50, ge=1)
    num_threads: int = Field(default=1, ge=1, le=256)
    log: tuple[LogName, ...] = ()
    averaging: float = Field(default=0.01, gt=0, le=1)

    @property
    def imitated(self) -> Imitated | None:
        """The first stage; None where there is none."""
        raise NotImplementedError

    @property
    def imitation_steps(self) -> int:
        """Gradient steps of the first stage."""
        return self.imitated.steps if self.imitated is not None else 0

    @property
    def total_updates(self) -> int:
        """Steps of the imitation and updates of PPO."""
        return self.imitation_steps + self.updates
