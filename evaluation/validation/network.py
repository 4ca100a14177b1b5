"""Our network model compared with real packets: gloo over shaped wires between network namespaces.

For each scene (`scenes`) the namespaces are built, the ranks started, and then

1. an all-reduce without shapers tells what the machine could carry at most,
2. small all-reduces with shapers tell the latency of a message: the one constant that is calibrated, once per scene and
   on `CALIBRATION_BYTES`, a size that is not validated,
3. each case is measured several times; the median counts, after one round that does not.

Bandwidths are not calibrated: they are the shapers' rates less the headers of each frame.
"""

from __future__ import annotations

import math
import os
import platform
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...clusters.cluster import Cluster
from ...errors import ConfigError
from .comparison import ComparedFigure, Comparison
from .network_lab.gloo_jobs import GlooJobs, Sending, gloo_jobs
from .network_lab.namespaces import namespaces, why_not
from .network_lab.scenes import GOODPUT, MIB, SHARED, Case, Scene, modelled, predicted_s, scenes

MAX_MEAN_ERROR = 0.10
"""The mean relative error of jobs alone, and of each way in which jobs meet, may be this much, unless told otherwise."""

ALONE = "one job"

CALIBRATION_BYTES = 4096
UNSHAPED_BYTES = 16 * MIB

_SHORT_S = 0.5  # below this a case is measured five times, else three times
_CALIBRATION_ROUNDS = 21


@dataclass(frozen=True)
class Conditions:
    """What a scene was measured under.

    Attributes:
        scene: its name.
        latency_s: of a message, calibrated.
        link_bytes_per_s: payload that a host's link carries by its shaper.
        unshaped_bytes_per_s: payload that each rank sent and received at the same time without shapers.
    """

    scene: str
    latency_s: float
    link_bytes_per_s: float
    unshaped_bytes_per_s: float

    def to_data(self) -> dict[str, Any]:
        """The conditions as plain data."""
        return {field: getattr(self, field) for field in self.__dataclass_fields__}


@dataclass(frozen=True)
class NetworkValidation:
    """What was predicted and measured.

    Attributes:
        comparison: a row for each job of each case, in seconds.
        rounds_s: what was measured in each round of each row.
        conditions: of each scene.
        versions: of the kernel, of torch, and whether the ranks ran in real time.
        max_mean_error: what each of `mean_errors` may be.
    """

    comparison: Comparison
    rounds_s: tuple[tuple[float, ...], ...]
    conditions: tuple[Conditions, ...]
    versions: dict[str, Any]
    max_mean_error: float

    @property
    def mean_errors(self) -> dict[str, float]:
        """The mean relative error over all rows of a job alone, and over those of each way to meet, where there are any."""
        errors: dict[str, list[float]] = {}
        for row in self.comparison.rows:
            errors.setdefault(row.family if row.family in SHARED else ALONE, []).append(row.relative_error)
        return {kind: math.fsum(found) / len(found) for kind, found in errors.items()}

    @property
    def agrees(self) -> bool:
        """Whether all means are within what is allowed."""
        return all(error <= self.max_mean_error for error in self.mean_errors.values())

    def to_data(self) -> dict[str, Any]:
        """Plain data: rows, summary, conditions."""
        data = self.comparison.to_data()
        for row, rounds_s in zip(data["rows"], self.rounds_s, strict=True):
            row["measured_s"] = list(rounds_s)
        return data | {
            "agrees": self.agrees,
            "mean_relative_errors": self.mean_errors,
            "max_mean_error": self.max_mean_error,
            "goodput_share": GOODPUT,
            "conditions": [conditions.to_data() for conditions in self.conditions],
            "versions": self.versions,
        }


Progress = Callable[[str, int, int], None]


def validate(
    *,
    quick: bool = False,
    chosen: Sequence[Scene] | None = None,
    max_mean_error: float = MAX_MEAN_ERROR,
    progress: Progress = lambda scene, done, of: None,
) -> NetworkValidation | str:
    """Measure and predict every case.

    Args:
        quick: a selection that takes less than a minute.
        chosen: scenes to measure instead.
        max_mean_error: what each of the means may be.
        progress: told the scene, and how many of its cases are done.

    Returns:
        What was found; or the reason why nothing can be measured here, in a few words.

    Raises:
        ConfigError: an allowed error that is negative or no number.
        MeshwrightError: the system refuses a step half-way, or a rank ends.
    """
    if not max_mean_error >= 0:
        raise ConfigError("must be a number of at least 0", field="--max-mean-error", value=max_mean_error)
    reason = why_not()
    if reason is not None:
        return reason
    rows: list[ComparedFigure] = []
    rounds: list[tuple[float, ...]] = []
    conditions: list[Conditions] = []
    versions: dict[str, Any] = {"kernel": platform.release(), "machine": platform.machine(), "cores": os.cpu_count()}
    for scene in scenes(quick=quick) if chosen is None else chosen:
        progress(scene.name, 0, len(scene.cases))
        hosts = [[scene.cluster.host_names[host] for host in job] for job in scene.jobs]
        with namespaces(scene.cluster) as wires, gloo_jobs(wires, hosts) as jobs:
            versions |= jobs.versions
            unshaped = _unshaped_bytes_per_s(jobs, scene)
            wires.shape()
            latency_s = _latency_s(jobs, scene)
            model = modelled(scene.cluster, latency_s)
            conditions.append(Conditions(scene.name, latency_s, _card_bytes_per_s(model), unshaped))
            for done, case in enumerate(scene.cases, 1):
                expected_s = predicted_s(model, scene.jobs, case.sendings)
                rounds_s = _measured(jobs, case, expected_s)
                for job, sending in enumerate(case.sendings):
                    if sending is not None:
                        measured_s = tuple(row[job] for row in rounds_s)
                        figure = _told(case, job)
                        median_s = statistics.median(measured_s)
                        rows.append(ComparedFigure(case.family, scene.name, figure, expected_s[job], median_s, max_mean_error))
                        rounds.append(measured_s)
                progress(scene.name, done, len(scene.cases))
    return NetworkValidation(Comparison(tuple(rows)), tuple(rounds), tuple(conditions), versions, max_mean_error)


def _measured(jobs: GlooJobs, case: Case, expected_s: Sequence[float]) -> list[list[float]]:
    """Seconds of each job in each round that counts."""
    num_rounds = 5 if max(expected_s) < _SHORT_S else 3
    return [jobs.run(case.sendings) for _ in range(1 + num_rounds)][1:]


def _latency_s(jobs: GlooJobs, scene: Scene) -> float:
    """Seconds of a ring's step with next to nothing to send, the first job alone."""
    small = _first_alone(scene, Sending("all-reduce", CALIBRATION_BYTES))
    steps = 2 * (len(scene.jobs[0]) - 1)
    return statistics.median(jobs.run(small)[0] for _ in range(_CALIBRATION_ROUNDS)) / steps


def _unshaped_bytes_per_s(jobs: GlooJobs, scene: Scene) -> float:
    """What each rank sends and receives while all jobs reduce at once."""
    sendings = [Sending("all-reduce", UNSHAPED_BYTES) for _ in scene.jobs]
    took_s = statistics.median(max(jobs.run(sendings)) for _ in range(3))
    num_ranks = len(scene.jobs[0])
    return 2 * (num_ranks - 1) / num_ranks * UNSHAPED_BYTES / took_s


def _first_alone(scene: Scene, sending: Sending) -> list[Sending | None]:
    return [sending, *[None] * (len(scene.jobs) - 1)]


def _card_bytes_per_s(cluster: Cluster) -> float:
    return float(cluster.bandwidth_bytes_per_s(0, 1))


def _told(case: Case, job: int) -> str:
    """``16 MiB``; of several jobs ``all-reduce 4 MiB beside all-reduce 16 MiB``."""
    texts = [_text(sending) for sending in case.sendings if sending is not None]
    if len(texts) == 1:
        return texts[0].removeprefix(f"{case.family} ")
    others = " and ".join(text for number, text in enumerate(texts) if number != job)
    return f"{texts[job]} beside {others}"


def _text(sending: Sending) -> str:
    times = f" {sending.times} times" if sending.times > 1 else ""
    late = f" from {sending.start_s:g} s on" if sending.start_s else ""
    return f"{sending.kind} {sending.payload_bytes / MIB:g} MiB{times}{late}"
