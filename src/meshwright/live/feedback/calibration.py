"""Feedback: the ratio of measured to predicted step times of a job, learned from its runs on the same cluster.

A layer over the predictions, never a change to the cost model. It has a factor for each graph and number of devices, on one
host or on several. The factor is the median of observed over predicted step time of the runs, drawn towards 1 as if `FEW_RUNS`
more had been as predicted. The layer is accepted if it reduces the mean error on unseen runs, each predicted by the others of
its kind alone. Otherwise it stays off, and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ... import settings
from ..decisions import ObservedFactor
from ..ledger import Ledger
from .runs import LEAST_STEPS, WARM_UP_STEPS, JobRun, observed_runs

FEW_RUNS = 3
"""Runs as predicted that are added in thought: one run alone moves a prediction by a quarter of what it shows."""

SPREAD = (10, 90)
"""Percentiles of the runs between which the spread of a ratio lies."""

FORMAT_VERSION = 1


class CalibrationRow(settings.Settings):
    """The figures of the runs of one kind.

    Attributes:
        graph: a hash of what the job computes in a step.
        job: name of its last run.
        num_devices, is_on_one_host: of the plans.
        num_runs: with `LEAST_STEPS` steps or more.
        ratio: observed over predicted step time, the median of the runs.
        low, high: `SPREAD` of it.
        factor: the ratio, drawn towards 1.
    """

    graph: str
    job: str
    num_devices: int
    is_on_one_host: bool
    num_runs: int
    ratio: float
    low: float
    high: float
    factor: float


class ObservedCalibration(settings.Settings):
    """The layer.

    Attributes:
        format_version: of this document.
        is_accepted: whether it makes predictions better.
        why: a sentence.
        num_runs: measured ones.
        num_compared: those of them that have another of their kind.
        mean_error, mean_error_as_observed: of the step times of these against what was observed, relative, without the layer and
            by the others' factors.
        rows: by graph, number of devices and hosts.
    """

    format_version: int = FORMAT_VERSION
    is_accepted: bool
    why: str
    num_runs: int
    num_compared: int
    mean_error: float | None = None
    mean_error_as_observed: float | None = None
    rows: tuple[CalibrationRow, ...] = ()

    def factors(self, graph: str | None) -> tuple[ObservedFactor, ...]:
        """Return the factors of a graph; none where the layer is off."""
        if not self.is_accepted:
            return ()
        return tuple(ObservedFactor(row.num_devices, row.is_on_one_host, row.factor) for row in self.rows if row.graph == graph)


class ObservedLayer:
    """The layer, as a `controller.Controller` asks for it; it knows nothing until it `learns <learn>`.

    Args:
        is_on: whether factors are given at all.
    """

    def __init__(self, *, is_on: bool = True) -> None:
        self.is_on = is_on
        self.calibration = calibration(())
        self._ended: dict[str, JobRun] = {}

    def learn(self, store: Ledger) -> ObservedCalibration:
        """Read what was measured so far; runs that have ended are read once."""
        result = observed_runs(store, self._ended)
        self._ended = {run.decision: run for run in result if run.ended_at is not None}
        self.calibration = calibration(result)
        return self.calibration

    def __call__(self, graph: str | None) -> tuple[ObservedFactor, ...]:
        """Return the factors of a graph; none where the layer is off or was not accepted."""
        return self.calibration.factors(graph) if self.is_on else ()


def calibration(job_runs: Iterable[JobRun]) -> ObservedCalibration:
    """Return the calibration by some runs, the latest one last."""
    last: dict[tuple[str, int, bool], JobRun] = {}
    measured: dict[tuple[str, int, bool], list[float]] = {}
    for run in job_runs:
        if run.graph is not None and run.observed_step_s is not None:
            last[run.graph, *run.kind] = run
            measured.setdefault((run.graph, *run.kind), []).append(run.observed_step_s / run.predicted_step_s)
    ratios = {kind: np.array(of_kind) for kind, of_kind in measured.items()}
    rows = []
    for graph, num_devices, is_on_one_host in sorted(last):
        kind = graph, num_devices, is_on_one_host
        low, high = np.percentile(ratios[kind], SPREAD)
        row = CalibrationRow(
            graph=graph,
            job=last[kind].request.job_name,
            num_devices=num_devices,
            is_on_one_host=is_on_one_host,
            num_runs=len(ratios[kind]),
            ratio=float(np.median(ratios[kind])),
            low=float(low),
            high=float(high),
            factor=factor_of(ratios[kind]),
        )
        rows.append(row)
    plain: list[float] = []
    layered: list[float] = []
    for shown in ratios.values():
        for number in range(len(shown) if len(shown) > 1 else 0):
            plain.append(abs(1.0 / shown[number] - 1.0))
            layered.append(abs(factor_of(np.delete(shown, number)) / shown[number] - 1.0))
    num_runs = sum(map(len, ratios.values()))
    if not plain:
        message = f"{num_runs} measured runs" if num_runs else f"no run with {WARM_UP_STEPS + LEAST_STEPS} measured steps"
        why = f"off: {message}, and no two of one job on as many devices, so that it cannot be tried on a run that it did not see"
        return ObservedCalibration(is_accepted=False, why=why, num_runs=num_runs, num_compared=0, rows=tuple(rows))
    error, error_with = float(np.mean(plain)), float(np.mean(layered))
    is_better = error_with < error
    against = f"{100 * error_with:.3g} % in place of {100 * error:.3g} % on {len(plain)} runs, each unseen"
    why = f"on: the mean error of step times is {against}" if is_better else f"off: the mean error would be {against}"
    return ObservedCalibration(
        is_accepted=is_better,
        why=why,
        num_runs=num_runs,
        num_compared=len(plain),
        mean_error=error,
        mean_error_as_observed=error_with,
        rows=tuple(rows),
    )


def factor_of(ratios: Sequence[float] | np.ndarray) -> float:
    """Return the median of some runs' ratios of observed to predicted step time, drawn towards 1."""
    return float((len(ratios) * np.median(ratios) + FEW_RUNS) / (len(ratios) + FEW_RUNS))
