"""Runs: what became of the decisions in a store, and how long their steps took against what was predicted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ... import files, settings
from ...errors import ConfigError, InputFileError
from ..decisions import JobRequest, KeptDecision, Observation
from ..ledger import Ledger

WARM_UP_STEPS = 10
"""First steps of a run that do not count: they compile, fill caches and find the fastest kernels."""

LEAST_STEPS = 30
"""Steps after them from which a run says how long its steps take."""


class JobRun(NamedTuple):
    """A decision whose job got devices.

    Attributes:
        decision: its id.
        request: the job.
        graph: a hash of its computation in a step; None for decisions without one.
        hosts: of its plan, one for each rank.
        predicted_step_s, observed_step_s: seconds of a step; observed as the median, None where too few steps were.
        began_at, ended_at: begin and end on its devices, as schedulers reported; None before.
        ended_by: the cause of its end, by a mention; empty while it runs.
    """

    decision: str
    request: JobRequest
    graph: str | None
    hosts: tuple[str, ...]
    predicted_step_s: float
    observed_step_s: float | None
    began_at: datetime | None
    ended_at: datetime | None
    ended_by: str

    @property
    def kind(self) -> tuple[int, bool]:
        """The number of devices of the run, and whether all are in one host."""
        return len(self.hosts), len(set(self.hosts)) == 1

    @property
    def ran_s(self) -> float | None:
        """Seconds from its begin to its end."""
        if self.began_at is None or self.ended_at is None:
            return None
        return (self.ended_at - self.began_at).total_seconds()


def observed_runs(store: Ledger, known: Mapping[str, JobRun] | None = None) -> list[JobRun]:
    """Return the runs with measured steps, in the order of their decisions' requests.

    Args:
        store: of them.
        known: runs that have ended and need not be read again, by decision.
    """
    results = []
    for name in store.observed():
        record = store.decision(name)
        if record is not None and record.decision.plan is not None:
            run = None if known is None else known.get(name)
            results.append((record.number, run or run_of(record, store)))
    return [run for _, run in sorted(results, key=lambda row: row[0])]


def run_of(record: KeptDecision, store: Ledger) -> JobRun:
    """Return a decision of a store that has a plan as a run."""
    decision, mentions = record.decision, store.mentions(record.decision.id)
    began = next((mention for mention in mentions if mention.status == "running"), None)
    began = began or next((mention for mention in mentions if mention.status == "confirmed"), None)
    ends = [] if began is None else [mention for mention in mentions if mention.seq > began.seq]
    last = ends[-1] if ends and ends[-1].status in ("ended", "released") else None
    return JobRun(
        decision=decision.id,
        request=decision.request,
        graph=None if decision.inputs is None else decision.inputs.graph,
        hosts=() if decision.plan is None else tuple(rank["host"] for rank in decision.plan["ranks"]),
        predicted_step_s=decision.predicted["step_s"],
        observed_step_s=observed_step_s(store.observations(decision.id)),
        began_at=None if began is None else datetime.fromisoformat(began.at),
        ended_at=None if last is None else datetime.fromisoformat(last.at),
        ended_by="" if last is None else f"{last.status}{': ' * bool(last.detail)}{last.detail}",
    )


def read_observations(path: str | Path) -> list[Observation]:
    """Return the rows of a file of JSON lines, each as ``{"step": 10, "step_s": 0.53, "rank": 0}``; blank lines do not count.

    Raises:
        InputFileError: the file is missing, no text, holds no row, or a line is no JSON object.
        ConfigError: an unknown key or impossible value, by its line.
    """
    rows = []
    for number, line in enumerate(files.read_text(path).splitlines(), 1):
        if not line.strip():
            continue
        try:
            data = json.loads(line)
        except ValueError:
            raise InputFileError("is no JSON", file=path, line=number, value=line[:80]) from None
        if not isinstance(data, dict):
            raise InputFileError('a row is an object as {"step": 10, "step_s": 0.53}', file=path, line=number, value=line[:80])
        try:
            rows.append(settings.build_settings(Observation, data))
        except ConfigError as error:
            raise error.at(file=path, line=number) from None
    if not rows:
        raise InputFileError("holds no step times", file=path)
    return rows


def counted_steps(observed: Sequence[Observation]) -> list[tuple[int, float]]:
    """Return the steps after the warm-up with their seconds, which are those of the slowest rank that measured it."""
    return _by_step(observed)[WARM_UP_STEPS:]


def median_step_s(observed: Sequence[Observation]) -> float | None:
    """Return the median of what was measured so far; None where nothing was.

    That of `observed_step_s` where enough steps were measured, else of all of them.
    """
    steps = [step_s for _, step_s in _by_step(observed)]
    return observed_step_s(observed) or (float(np.median(steps)) if steps else None)


def observed_step_s(observed: Sequence[Observation]) -> float | None:
    """Return the median of the steps of a run after its first `WARM_UP_STEPS`; None where there are fewer than `LEAST_STEPS`."""
    steps = counted_steps(observed)
    return float(np.median([step_s for _, step_s in steps])) if len(steps) >= LEAST_STEPS else None


def _by_step(observed: Sequence[Observation]) -> list[tuple[int, float]]:
    slowest: dict[int, float] = {}
    for one in observed:
        slowest[one.step] = max(one.step_s, slowest.get(one.step, 0.0))
    return sorted(slowest.items())
