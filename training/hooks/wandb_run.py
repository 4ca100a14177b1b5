"""Validations as a run of Weights & Biases, by its own library; offline unless ``WANDB_MODE`` says otherwise.

``wandb sync RUN/wandb/offline-run-*`` uploads it. The run's id is in ``wandb.json`` of the run folder together with how many
validations were logged, so that a run that goes on after it was killed logs each once, under the same id.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any

from ... import files
from .callback import RunEnd, RunStart, TrainingCallback, ValidationRecord

FILE = "wandb.json"
PROJECT = "meshwright"


class WandbWriter(TrainingCallback):
    """Logs validations to a run; the step of its history is the number of the validation."""

    def __init__(self) -> None:
        self._run: Any = None
        self._path = Path(FILE)
        self._id, self._num_logged = "", 0

    def on_start(self, start: RunStart) -> None:
        """See `TrainingCallback.on_start`."""
        import wandb

        self._path = start.folder / FILE
        known = files.read_json(self._path) if start.is_resumed and self._path.is_file() else {}
        self._id, self._num_logged = str(known.get("id") or secrets.token_hex(4)), int(known.get("logged", 0))
        mode: Any = os.environ.get("WANDB_MODE", "offline")
        is_quiet = wandb.Settings(silent=True, console="off", disable_git=True, disable_code=True, x_disable_stats=True)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=start.name,
            id=self._id,
            dir=str(start.folder),
            mode=mode,
            resume="allow" if mode == "online" else None,
            config={**start.config, "method": start.method},
            settings=is_quiet,
        )
        self._run.define_metric("step")
        for name in (f"validation/{start.measure}", f"best/{start.measure}"):
            self._run.define_metric(name, step_metric="step")
        self._keep()

    def on_validation(self, record: ValidationRecord) -> None:
        """See `TrainingCallback.on_validation`."""
        if record.number < self._num_logged:
            return
        own = {f"validation/{record.measure}": record.value, f"best/{record.measure}": record.best}
        told = {**record.figures, **own, "step": record.step, "elapsed_s": record.elapsed_s}
        self._run.log(told, step=record.number, commit=True)
        self._num_logged = record.number + 1
        self._keep()

    def on_end(self, end: RunEnd) -> None:
        """See `TrainingCallback.on_end`."""
        if self._run is not None:
            if end.best is not None:
                self._run.summary["best"] = end.best
            self._run.finish(exit_code=1 if end.ending in ("interrupted", "failed") else 0)

    def _keep(self) -> None:
        files.write_json(self._path, {"id": self._id, "logged": self._num_logged})
