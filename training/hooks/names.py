"""`RunSettings`, the keys of every training config, and writers of a learning curve by name, without their libraries."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from ... import settings

LogName = Literal["stdout", "csv", "tensorboard"]
MOST_MINUTES = 1e6
WITHOUT_EFFECT = frozenset({"name", "num_threads", "num_workers", "device", "log", "minutes"})
"""Keys of configs on which the numbers of a run do not depend, so that a resumed run may have others."""


class RunSettings(settings.Settings):
    """Keys of every training config.

    Attributes:
        name: for tables and the run folder.
        benchmark: ``preset:NAME`` or a path, of the kind that the method plays.
        changes: ``key=value`` texts applied to every benchmark of the run, for example ``scenario.num_jobs=200``.
        seed: of weights, of what is drawn, and of training episodes.
        log: writers of the validations.
        minutes: of CPU time after which the run ends, or earlier (see `callback.StopInTime`); null: when its steps are done.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")
    benchmark: str
    changes: tuple[str, ...] = ()
    seed: int = Field(default=0, ge=0, le=1_000_000)
    log: tuple[LogName, ...] = ()
    minutes: float | None = Field(default=None, gt=0, le=MOST_MINUTES, exclude_if=lambda minutes: minutes is None)

    @field_validator("log")
    @classmethod
    def _each_once(cls, names: tuple[LogName, ...]) -> tuple[LogName, ...]:
        return tuple(dict.fromkeys(names))
