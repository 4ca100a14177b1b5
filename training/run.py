"""`Learner`: the part of a method in a run. `TrainingRun`: the common part of the runs of all methods.

A learner goes through its stages by itself and calls `TrainingRun.between` between two steps. There the run validates, keeps the
best policy, writes a checkpoint, calls the callbacks and leaves where one of them asks for it. The same seed gives the same
numbers, also if a run was stopped or killed and resumed. On a GPU that holds for one type and one version of torch.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from .. import files
from ..errors import CheckpointError, PolicyError
from . import checkpoint
from .hooks.callback import (
    Ending,
    RunEnd,
    RunStart,
    StageRecord,
    StopInTime,
    TrainingCallback,
    TrainingStopped,
    UpdateRecord,
    ValidationRecord,
)
from .hooks.writers import writers
from .methods import method_of

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from .hooks.names import RunSettings
    from .run_folder import RunFolder

NOT_FIGURES = ("steps", "step", "update", "generation", "elapsed_s")
"""Numbers of a row of the learning curve that a record has fields for."""


@dataclass(frozen=True)
class ReportedMeasure:
    """The measure of a method's validation.

    Attributes:
        method: of training.
        measure: as ``blocking_rate``.
        unit: what steps count.
        is_less_better: whether less of it is better.
    """

    method: str
    measure: str
    unit: str
    is_less_better: bool = True


class KeptPolicy(Protocol):
    """A policy as its file holds it."""

    def save(self, path: str | Path) -> None:
        """Write the file, whole or not at all."""


class Learner(ABC):
    """The part of a method in a run.

    It is made of the config, and refuses what is wrong before anything is written.

    Attributes:
        reported: the measure of its validation.
        total_steps: steps in all.
        key: a hash of all that its numbers depend on.
        clocks: of `TrainingRun`, those that a row of the learning curve has.
    """

    reported: ReportedMeasure
    total_steps: int
    key: str
    clocks: ClassVar[tuple[str, ...]] = ("elapsed_s",)

    @property
    @abstractmethod
    def step(self) -> int:
        """Steps so far."""

    def begin(self) -> None:  # noqa: B027 - most begin with what they are made of
        """Take what a run without a checkpoint begins with; called before anything is written."""

    @abstractmethod
    def learn(self, run: TrainingRun) -> None:
        """Go through the stages that are left, from where it is; call `TrainingRun.between` between two steps."""

    @abstractmethod
    def validate(self, run: TrainingRun, stage: str) -> dict[str, Any]:
        """Play the validation episodes; a row of the learning curve without its clocks."""

    @abstractmethod
    def policy(self, run: TrainingRun) -> KeptPolicy:
        """Return the policy whose validation is the latest row of the curve."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return tensors and plain data that `restore` continues from."""

    @abstractmethod
    def restore(self, state: dict[str, Any], file: Path) -> None:
        """Continue from a state, of a file for messages; any error of look-up, type or value says that it is none of this run."""

    def in_fixed_order(self) -> AbstractContextManager[None]:
        """Return a context for all learning of the run."""
        return nullcontext()


class TrainingRun:
    """A training run of any method.

    Args:
        settings: the config.
        folder: where it is written.
        learner: what is trained.
        callbacks: of the user; the clock of the config's ``minutes`` and writers of its ``log`` are called before them.

    Attributes:
        curve: a row per validation.
        best: the best value of all validations; None before the first.
        is_resumed: whether the run was begun before.
    """

    def __init__(self, settings: RunSettings, folder: RunFolder, learner: Learner, callbacks: Sequence[Any]) -> None:
        self._settings, self.folder, self._learner, self._method = settings, folder, learner, method_of(settings)
        self._clocks = [] if settings.minutes is None else [StopInTime(settings.minutes)]
        self._options, self._called = list[TrainingCallback](callbacks), list[TrainingCallback]()
        self._is_stopping, self._is_best, self.is_resumed = False, False, False
        self.curve: list[dict[str, Any]] = []
        self.best: float | None = None
        self._before = (0.0, 0.0)
        self._began = (time.perf_counter(), time.process_time())

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run began, interruptions left out."""
        return self._before[0] + time.perf_counter() - self._began[0]

    @property
    def cpu_s(self) -> float:
        """The same of this process's CPU."""
        return self._before[1] + time.process_time() - self._began[1]

    def begin(self, *, resume: bool) -> None:
        """Begin anew, or continue from the folder's checkpoint where there is one; nothing is written yet.

        Raises:
            CheckpointError: it is damaged, or of another run.
        """
        self.is_resumed, path = resume, self.folder.checkpoint
        if not resume or not path.exists():
            self._learner.begin()
            return
        data = checkpoint.load(path, self._learner.key)
        try:
            self.curve, self._before = list(data["curve"]), (float(data["elapsed_s"]), float(data["cpu_s"]))
            for row in self.curve:
                self._take(float(row[self._method.key]))
            self._learner.restore(data["state"], path)
        except (ArithmeticError, LookupError, TypeError, ValueError, RuntimeError):
            raise CheckpointError("is damaged: it does not fit this run", file=path) from None

    def learn(self) -> None:
        """Train until the end, or until a callback stops the run."""
        with self._running(), self._learner.in_fixed_order():
            self._learner.learn(self)

    def is_due(self, every: int, **of: Any) -> bool:
        """Return whether a validation is due: so many steps after the latest row with these values."""
        last = next((row for row in reversed(self.curve) if of.items() <= row.items()), None)
        return last is None or self._learner.step - int(last[self._method.step_key]) >= every

    def between(
        self,
        stage: str,
        figures: Mapping[str, float] | None = None,
        *,
        validates: bool = False,
        saves: bool = False,
        also: Path | None = None,
    ) -> None:
        """Validate, save and report between two steps.

        Args:
            stage: of the run.
            figures: of the method, of the latest step.
            validates: whether to play the validation episodes.
            saves: whether to write a checkpoint; one is written anyway where the run has none.
            also: see `validate`.

        Raises:
            TrainingStopped: a callback has stopped the run; it is saved.
        """
        row = self.validate(stage, also) if validates else None
        if saves := saves or not self.folder.checkpoint.exists():
            self.save()
        if row is not None:
            self.report(row, stage, figures)
        record = UpdateRecord(stage, self._learner.step, self._learner.total_steps, figures or {})
        for callback in self._called:
            self._is_stopping |= callback.on_update(record) is False
        if self._is_stopping and not saves:
            self.save()
        self.stop_if_requested()

    def validate(self, stage: str, also: Path | None = None) -> dict[str, Any]:
        """Play the validation episodes, keep the policy where it is the best so far, and write the learning curve; the new row.

        Args:
            stage: of the run.
            also: a file in which the policy is kept, the best or not.
        """
        learner = self._learner
        row = learner.validate(self, stage)
        row = row | {name: getattr(self, name) for name in learner.clocks}
        self.curve.append(row)
        self._is_best = self._take(float(row[self._method.key]))
        policy = learner.policy(self) if self._is_best or also is not None else None
        for path in (self.folder.policy if self._is_best else None, also):
            if path is not None and policy is not None:
                policy.save(path)
        files.write_json(self.folder.learning_curve, self.curve)
        return row

    def report(self, row: Mapping[str, Any], stage: str, figures: Mapping[str, float] | None = None) -> None:
        """Report the latest row of the learning curve, with figures in addition to its own."""
        about, key = self._learner.reported, self._method.key
        numbers = {name: row[name] for name in row if name not in (*NOT_FIGURES, key)} | dict(figures or {})
        assert self.best is not None
        record = ValidationRecord(
            number=len(self.curve) - 1,
            stage=stage,
            step=int(row[self._method.step_key]),
            total_steps=self._learner.total_steps,
            unit=about.unit,
            measure=about.measure,
            value=float(row[key]),
            best=self.best,
            is_best=self._is_best,
            elapsed_s=float(row["elapsed_s"]),
            figures={key: float(x) for key, x in numbers.items() if isinstance(x, int | float) and not isinstance(x, bool)},
        )
        for callback in self._called:
            self._is_stopping |= callback.on_validation(record) is False

    def staged(self, stage: str, share: float, value: float | None = None, best: float | None = None) -> None:
        """Report how far a stage before the first update is, and what it has found where that was validated.

        Raises:
            TrainingStopped: a callback has stopped the run.
        """
        record = StageRecord(stage, share, self._learner.reported.measure, value, best, self.elapsed_s)
        for callback in self._called:
            self._is_stopping |= callback.on_stage(record) is False
        self.stop_if_requested()

    def save(self) -> None:
        """Write a checkpoint."""
        data = {"curve": self.curve, "elapsed_s": self.elapsed_s, "cpu_s": self.cpu_s, "state": self._learner.state()}
        checkpoint.save(self.folder.checkpoint, self._learner.key, data)

    def stop_if_requested(self) -> None:
        """Leave the run where a callback has stopped it; to be called where it is saved.

        Raises:
            TrainingStopped: one has.
        """
        if self._is_stopping:
            raise TrainingStopped

    @contextmanager
    def _running(self) -> Iterator[None]:
        """Time the span in which the run trains; a stop by a callback ends it without an error."""
        learner, about = self._learner, self._learner.reported
        self._called = [*self._clocks, *writers(self._settings.log, about.method), *self._options]
        start = RunStart(
            name=self._settings.name,
            method=about.method,
            folder=self.folder.path,
            config=self._settings.model_dump(mode="json"),
            measure=about.measure,
            is_less_better=about.is_less_better,
            unit=about.unit,
            total_steps=learner.total_steps,
            step=learner.step,
            num_validations=len(self.curve),
            is_resumed=self.is_resumed,
        )
        begun: list[TrainingCallback] = []
        ending: Ending = "failed"
        try:
            for callback in self._called:
                begun.append(callback)
                callback.on_start(start)
            yield
            ending = "done"
        except TrainingStopped:
            ending = "stopped"
        except KeyboardInterrupt:
            ending = "interrupted"
            raise
        finally:
            end = RunEnd(ending, learner.step, self.best, "".join(clock.reason for clock in self._clocks))
            for callback in begun:
                callback.on_end(end)

    def _take(self, value: float) -> bool:
        """Return whether a value is better than all before."""
        sign = 1.0 if self._learner.reported.is_less_better else -1.0
        is_best = self.best is None or sign * value < sign * self.best
        if is_best:
            self.best = value
        return is_best


def check_callbacks(callbacks: Sequence[Any]) -> None:
    """Refuse what is no callback.

    Raises:
        PolicyError: one is none.
    """
    for callback in callbacks:
        if not isinstance(callback, TrainingCallback):
            problem = "is no callback: derive its class from meshwright.TrainingCallback, and pass an object of it"
            raise PolicyError(problem, field="callbacks", value=callback)
