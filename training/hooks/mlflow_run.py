"""Validations as a run of MLflow, by its own client; in ``mlflow.db`` of the run folder unless ``MLFLOW_TRACKING_URI`` is set.

``mlflow ui --backend-store-uri sqlite:///RUN/mlflow.db`` shows it. The run's id is in ``mlflow.json`` of the run folder; how
many validations it holds already is asked of MLflow itself, so that a run that goes on after it was killed logs each once.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ... import files
from .callback import RunEnd, RunStart, TrainingCallback, ValidationRecord

FILE, DATABASE = "mlflow.json", "mlflow.db"
EXPERIMENT = "meshwright"
MOST_LETTERS = 500
"""Of the value of a parameter; MLflow refuses longer ones in some of its stores."""

_ENDINGS = {"done": "FINISHED", "stopped": "KILLED", "interrupted": "KILLED", "failed": "FAILED"}


class MlflowWriter(TrainingCallback):
    """Logs the config as parameters and validations as metrics, at the steps that were done."""

    def __init__(self) -> None:
        self._client: Any = None
        self._run_id = ""
        self._num_logged = 0

    def on_start(self, start: RunStart) -> None:
        """See `TrainingCallback.on_start`."""
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # nothing leaves the machine unasked
        for name in ("alembic", "mlflow"):
            logging.getLogger(name).setLevel(logging.WARNING)
        import mlflow

        folder = start.folder.absolute()
        uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder / DATABASE}"
        self._client = mlflow.MlflowClient(tracking_uri=uri)
        path = folder / FILE
        known = files.read_json(path) if start.is_resumed and path.is_file() else {}
        if known.get("tracking_uri") == uri:
            self._run_id = str(known["run_id"])
            self._client.update_run(self._run_id, status="RUNNING")
            self._num_logged = len(self._client.get_metric_history(self._run_id, f"validation/{start.measure}"))
            return
        found = self._client.get_experiment_by_name(EXPERIMENT)
        at = found.experiment_id if found else self._client.create_experiment(EXPERIMENT, _artifacts(folder, uri))
        self._run_id = self._client.create_run(at, run_name=start.name).info.run_id
        files.write_json(path, {"run_id": self._run_id, "tracking_uri": uri})
        config = {**start.config, "method": start.method, "run_folder": str(folder)}
        params = [mlflow.entities.Param(key, text[:MOST_LETTERS]) for key, text in _flat(config)]
        self._client.log_batch(self._run_id, params=params)

    def on_validation(self, record: ValidationRecord) -> None:
        """See `TrainingCallback.on_validation`."""
        from mlflow.entities import Metric

        if record.number < self._num_logged:
            return
        now_ms = int(time.time() * 1000)
        own = {f"validation/{record.measure}": record.value, f"best/{record.measure}": record.best}
        told = {**record.figures, **own, "elapsed_s": record.elapsed_s}
        metrics = [Metric(key, value, now_ms, record.step) for key, value in told.items()]
        self._client.log_batch(self._run_id, metrics=metrics)

    def on_end(self, end: RunEnd) -> None:
        """See `TrainingCallback.on_end`."""
        if self._run_id:
            self._client.set_terminated(self._run_id, status=_ENDINGS[end.ending])


def _artifacts(folder: Path, uri: str) -> str | None:
    return (folder / "mlflow-artifacts").as_uri() if uri.endswith(str(folder / DATABASE)) else None


def _flat(config: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Each value at the end of nested keys with its dotted key."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield before + key, str(value)
