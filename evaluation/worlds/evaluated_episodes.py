"""Worlds whose episodes policies play decision by decision, as `evaluate` plays them."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from io import StringIO
from math import isnan
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ... import files
from ..metrics import figures, metrics_of
from ..playing import play_all
from ..progress import Progress, reported
from ..workers import CarriedPolicies
from .evaluated_world import EvaluatedWorld, Options, PlayedCases

JOB_TIMES = ("arrival_s", "start_s", "finish_s")


class EvaluatedEpisodes(EvaluatedWorld):
    """See `EvaluatedWorld`.

    Attributes:
        carries: makes policies by their spellings, and what was built, something that ``plays``.
        plays: plays some cases, see `playing.Play`.
        views: makes an episode, and what was built, what `evaluation.metrics` reads.
        at_a_time: cases that a policy plays side by side.
        loads: returns the settings of a benchmark by its spelling.
        bound: name of a bound that is computed and never played, and the metric that it bounds.
    """

    takes = frozenset({"dump"})
    carries: ClassVar[Callable[..., CarriedPolicies[Any]]]
    plays: ClassVar[Any]
    views: ClassVar[Callable[..., Any]]
    at_a_time: ClassVar[int] = 1
    loads: ClassVar[Callable[..., Any]]
    bound: ClassVar[tuple[str, str]] = ("", "")

    @classmethod
    def load(cls, spec: str, changes: Sequence[str], options: Options) -> list[EvaluatedWorld]:
        """See `EvaluatedWorld`."""
        return [cls(cls.loads(spec, changes=list(changes)), options)]

    def build(self, progress: Progress | None = None) -> None:
        """See `EvaluatedWorld`."""
        self.built = self.built or self.benchmark.build(progress=progress)

    def least(self, case: int) -> float:
        """Return the bound of an episode."""
        raise NotImplementedError

    def play(self, specs: Sequence[str], cases: Sequence[int], progress: Progress | None, phase: str) -> dict[str, PlayedCases]:
        """See `EvaluatedWorld`."""
        bound, metric = self.bound
        report = None if progress is None else partial(progress, phase)
        policies = type(self).carries([spec for spec in specs if spec != bound], self.built)
        played = play_all(
            type(self).plays, self.built, policies, cases, at_a_time=self.at_a_time, workers=self.workers, progress=report
        )
        result = {
            spec: PlayedCases(
                [figures(self.name, type(self).views(record, self.built)) for record in one.records],
                one.records,
                one.decision_s(),
            )
            for spec, one in played.items()
        }
        if bound in specs:
            nothing = dict.fromkeys(metrics_of(self.name))
            result[bound] = PlayedCases([{**nothing, metric: self.least(case)} for case in reported(cases, bound, progress)])
        return result

    def dump(self, cases: Sequence[int], played: Mapping[str, PlayedCases]) -> None:
        """See `EvaluatedWorld`."""
        if self.options.dump is not None:
            records = {name: one.records for name, one in played.items() if one.records}
            workload, num_jobs = self.built.workload, self.built.settings.num_jobs + 1  # one is known and not decided
            lines = [[] if workload is None else workload.trace_lines(case, num_jobs)[:-1] for case in cases]
            dump_jobs(self.options.dump / f"jobs-{self.benchmark.name}.csv", cases, records, lines)


def dump_jobs(path: Path, cases: Sequence[int], records: Mapping[str, Sequence[Any]], lines: Sequence[Sequence[int]]) -> None:
    """Write a row of CSV for each policy, episode (by its seed) and job: seconds of its arrival, start and end, empty for NaN.

    Where jobs follow a trace its ``line`` in that file comes last.
    """
    rows: list[tuple[object, ...]] = [("policy", "seed", "job", *JOB_TIMES, "line")]
    for spec, of_policy in records.items():
        for seed, record, line in zip(cases, of_policy, lines, strict=True):
            times = np.stack([getattr(record, name) for name in JOB_TIMES], axis=1).tolist()
            each = zip(range(len(times)), times, line or [0] * len(times), strict=True)
            rows += [(spec, seed, job, *("" if isnan(one) else one for one in row), at or "") for job, row, at in each]
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    files.write_text(path, text.getvalue())
