"""Callbacks of a training run of any method: its start, updates, validations and its end.

A callback is any object of a class derived from `TrainingCallback`; it overrides the methods that it needs. If `on_stage`,
`on_update` or `on_validation` returns False, the run writes a checkpoint at once and stops. Resumed, the run reaches the same
numbers as without the stop.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Ending = Literal["done", "stopped", "interrupted", "failed"]


class TrainingStopped(Exception):  # noqa: N818 - no error: a callback has asked for it
    """A callback has stopped the run; raised where the run is saved, and caught by the method's own function."""


@dataclass(frozen=True)
class RunStart:
    """A run that begins or is resumed.

    Attributes:
        name: of the config.
        method: ``ppo``, ``linear``, ``fleet``, ``elastic`` or ``graph``.
        folder: the run folder.
        config: the resolved config as plain data.
        measure: what the validation measures, as ``blocking_rate``.
        is_less_better: whether less of it is better.
        unit: what steps count: ``decisions``, ``generations`` or ``updates``.
        total_steps: steps in all.
        step: steps that were done before.
        num_validations: validations that were done before; records from this number on follow.
        is_resumed: whether the run was begun before.
    """

    name: str
    method: str
    folder: Path
    config: Mapping[str, Any]
    measure: str
    is_less_better: bool
    unit: str
    total_steps: int
    step: int
    num_validations: int
    is_resumed: bool


@dataclass(frozen=True)
class UpdateRecord:
    """The state of a run after an update.

    Attributes:
        stage: of the run, as ``search`` or ``ppo``.
        step: steps so far.
        total_steps: steps in all.
        figures: of the method, by name, as ``train/loss``; may be empty.
    """

    stage: str
    step: int
    total_steps: int
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class StageRecord:
    """How far a stage before the run's own steps is: a search for weights, or imitation.

    Attributes:
        stage: ``search`` or ``imitation``.
        share: that is done, from 0 to 1.
        measure: what the validation measures.
        value: of the measure, where the stage has just validated what it has found; else None.
        best: the best value of the stage so far; None before the first.
        elapsed_s: since the run began, interruptions left out.
    """

    stage: str
    share: float
    measure: str
    value: float | None
    best: float | None
    elapsed_s: float


@dataclass(frozen=True)
class ValidationRecord:
    """A validation: one row of the learning curve.

    Attributes:
        number: of the validation in the run, counted from 0, interruptions left out.
        stage: of the run.
        step: steps so far.
        total_steps: steps in all.
        unit: what steps count.
        measure: what was measured.
        value: of the measure.
        best: the best value so far, this one among them.
        is_best: whether this is the first of that value.
        elapsed_s: since the run began, interruptions left out.
        figures: all other numbers of the row and of the latest update, by name.
    """

    number: int
    stage: str
    step: int
    total_steps: int
    unit: str
    measure: str
    value: float
    best: float
    is_best: bool
    elapsed_s: float
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class RunEnd:
    """A run that ends.

    Attributes:
        ending: ``done``, ``stopped`` by a callback, ``interrupted``, or ``failed`` by an error.
        step: steps so far.
        best: the best value; None where nothing was validated.
        reason: why the config's ``minutes`` stopped the run; empty where they did not.
    """

    ending: Ending
    step: int
    best: float | None
    reason: str = ""


class TrainingCallback:
    """Is called while a policy is trained; each method does nothing here.

    What a callback raises ends the run and is passed on as it is.
    """

    def on_start(self, start: RunStart) -> None:
        """Receive the start: the run folder exists, and training begins or is resumed."""

    def on_stage(self, record: StageRecord) -> bool | None:
        """Receive a part of a stage before the first update is done. Return False to stop."""

    def on_update(self, record: UpdateRecord) -> bool | None:
        """Receive the figures of an update. Return False to stop."""

    def on_validation(self, record: ValidationRecord) -> bool | None:
        """Receive the figures of a validation. Return False to stop."""

    def on_end(self, end: RunEnd) -> None:
        """Receive the end of the run, also after an error and on Ctrl-C."""


_LEAST = 9
"""Validations of PPO before the run may end for want of a better one."""


@dataclass
class StopInTime(TrainingCallback):
    """Stops after CPU minutes of this process, or where the last third of PPO's validations has no better one than those before.

    Args:
        minutes: from the start of the run; a run that is resumed has as many again.

    Attributes:
        reason: why it has stopped the run; empty before.
    """

    minutes: float
    reason: str = ""
    _values: list[tuple[int, float]] = field(default_factory=list)

    def on_start(self, start: RunStart) -> None:
        """See `TrainingCallback`."""
        self._sign, self._unit = 1.0 if start.is_less_better else -1.0, start.unit
        self._until_s = time.process_time() + 60.0 * self.minutes

    def on_stage(self, record: StageRecord) -> bool | None:
        """See `TrainingCallback`."""
        return self._in_time()

    def on_update(self, record: UpdateRecord) -> bool | None:
        """See `TrainingCallback`."""
        return self._in_time()

    def on_validation(self, record: ValidationRecord) -> bool | None:
        """See `TrainingCallback`."""
        if record.stage == "ppo":
            self._values.append((record.step, self._sign * record.value))
        last = len(self._values) // 3
        if len(self._values) < _LEAST:
            return None
        step, best = min(self._values[:-last], key=lambda each: each[1])
        if min(value for _, value in self._values[-last:]) < best:
            return None
        self.reason = f"no better validation since {step:,} {self._unit}"
        return False

    def _in_time(self) -> bool:
        is_over = time.process_time() >= self._until_s
        if is_over:
            self.reason = f"its {self.minutes:g} CPU minutes are over"
        return not is_over
