"""`RunReporter`: calls the callbacks of a run with what its method reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import PolicyError
from .callback import Ending, RunEnd, RunStart, StageRecord, TrainingCallback, TrainingStopped, UpdateRecord, ValidationRecord
from .names import RunSettings
from .stopping import StopInTime
from .writers import writers

NOT_FIGURES = ("steps", "step", "update", "generation", "elapsed_s")
"""Numbers of a row of the learning curve that a record has fields for."""


@dataclass(frozen=True)
class ReportedMeasure:
    """What the validation of a method measures.

    Attributes:
        method: of training.
        measure: as ``blocking_rate``.
        key: of the measure in a row of the learning curve.
        step_key: of the steps there.
        unit: what steps count.
        is_less_better: whether less of it is better.
    """

    method: str
    measure: str
    key: str
    step_key: str
    unit: str
    is_less_better: bool = True


class RunReporter:
    """Calls the callbacks of updates and validations, and says whether one of them has stopped the run.

    Args:
        chosen: the config.
        folder: the run folder.
        reported: what the method measures.
        total_steps: steps in all.
        callbacks: of the user; the clock of the config's ``minutes`` and writers of its ``log`` are called before them.

    Attributes:
        is_stopping: whether a callback has stopped the run.

    Raises:
        PolicyError: a callback is none.
    """

    def __init__(
        self, chosen: RunSettings, folder: Path, reported: ReportedMeasure, total_steps: int, callbacks: Sequence[Any]
    ) -> None:
        for callback in callbacks:
            if not isinstance(callback, TrainingCallback):
                problem = "is no callback: derive its class from meshwright.TrainingCallback, and pass an object of it"
                raise PolicyError(problem, field="callbacks", value=callback)
        self._clocks = [] if chosen.minutes is None else [StopInTime(chosen.minutes)]
        self._chosen, self._folder, self._of, self._total = chosen, folder, reported, total_steps
        self._given, self._called = list[TrainingCallback](callbacks), list[TrainingCallback]()
        self._step, self._number = 0, 0
        self._best: tuple[float, ...] = ()
        self.is_stopping = False

    @contextmanager
    def running(self, curve: Sequence[Mapping[str, Any]], step: int, *, is_resumed: bool) -> Iterator[None]:
        """The time in which the run trains; a stop by a callback ends it without an error.

        Args:
            curve: rows of the learning curve so far.
            step: steps so far.
            is_resumed: whether the run was begun before.
        """
        self._step, self._number = step, len(curve)
        for row in curve:
            self._take(float(row[self._of.key]))
        self._called = [*self._clocks, *writers(self._chosen.log, self._of.method), *self._given]
        about = self._of
        start = RunStart(
            name=self._chosen.name,
            method=about.method,
            folder=self._folder,
            config=self._chosen.model_dump(mode="json"),
            measure=about.measure,
            is_less_better=about.is_less_better,
            unit=about.unit,
            total_steps=self._total,
            step=step,
            num_validations=len(curve),
            is_resumed=is_resumed,
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
            reason = "".join(clock.reason for clock in self._clocks)
            end = RunEnd(ending, self._step, self._best[0] if self._best else None, reason)
            for callback in begun:
                callback.on_end(end)

    def validated(self, row: Mapping[str, Any], stage: str, more: Mapping[str, float] | None = None) -> None:
        """Report a new row of the learning curve.

        Args:
            row: of the learning curve.
            stage: of the run.
            more: figures in addition to those of the row.
        """
        about, value = self._of, float(row[self._of.key])
        is_best = self._take(value)
        numbers = {key: row[key] for key in row if key not in (*NOT_FIGURES, about.key)} | dict(more or {})
        figures = {key: float(x) for key, x in numbers.items() if isinstance(x, int | float) and not isinstance(x, bool)}
        self._step = int(row[about.step_key])
        record = ValidationRecord(
            number=self._number,
            stage=stage,
            step=self._step,
            total_steps=self._total,
            unit=about.unit,
            measure=about.measure,
            value=value,
            best=self._best[0],
            is_best=is_best,
            elapsed_s=float(row["elapsed_s"]),
            figures=figures,
        )
        self._number += 1
        for callback in self._called:
            self.is_stopping |= callback.on_validation(record) is False

    def staged(self, stage: str, share: float, elapsed_s: float, value: float | None = None, best: float | None = None) -> None:
        """Report how far a stage before the first update is, and what it has found where that was validated."""
        record = StageRecord(stage, share, self._of.measure, value, best, elapsed_s)
        for callback in self._called:
            self.is_stopping |= callback.on_stage(record) is False

    def updated(self, stage: str, step: int, figures: Mapping[str, float] | None = None) -> None:
        """Report an update."""
        self._step = step
        record = UpdateRecord(stage, step, self._total, figures or {})
        for callback in self._called:
            self.is_stopping |= callback.on_update(record) is False

    def searched(self, curve: Sequence[Mapping[str, Any]], generation: int) -> None:
        """Report a generation of a search, which is saved, with its row of the learning curve where it was validated.

        Raises:
            TrainingStopped: a callback has stopped the run.
        """
        if curve[-1]["generation"] == generation:
            self.validated(curve[-1], "search")
        self.updated("search", generation)
        self.stop_if_asked()

    def stop_if_asked(self) -> None:
        """Leave the run where a callback has stopped it; to be called where the run is saved.

        Raises:
            TrainingStopped: one has.
        """
        if self.is_stopping:
            raise TrainingStopped

    def _take(self, value: float) -> bool:
        """Whether a value is better than all before."""
        is_best = not self._best or (value < self._best[0] if self._of.is_less_better else value > self._best[0])
        if is_best:
            self._best = (value,)
        return is_best
