"""Playing cases of a benchmark under many policies, in one process or several, to the same records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from .workers import CarriedPolicies, Workers

Task = tuple[str, tuple[int, ...]]
Play = Callable[[Any, Any, Sequence[int]], "PlayedEpisodes"]
"""Plays cases of what was built by a policy."""


@dataclass
class PlayedEpisodes:
    """A policy on some cases.

    Attributes:
        records: of each case, in order.
        seconds: of each decision, or of many decisions together.
        num_decisions: how many took these seconds; None where each has its own.
    """

    records: list[Any] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    num_decisions: int | None = None

    def add(self, other: PlayedEpisodes) -> None:
        """Take in further cases."""
        self.records += other.records
        self.seconds += other.seconds
        if other.num_decisions is not None:
            self.num_decisions = (self.num_decisions or 0) + other.num_decisions

    def decision_s(self) -> dict[str, float]:
        """Return ``mean``, or ``median`` and ``p99``, seconds of a decision; nothing where none was timed."""
        if self.num_decisions is not None:
            return {"mean": sum(self.seconds) / max(1, self.num_decisions)}
        if not self.seconds:
            return {}
        return dict(zip(("median", "p99"), np.percentile(self.seconds, [50, 99]).tolist(), strict=True))


def play_all(
    play: Play,
    built: Any,
    policies: CarriedPolicies[Any],
    cases: Sequence[int],
    *,
    at_a_time: int = 1,
    workers: Workers = Workers(),  # noqa: B008 - it cannot change
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, PlayedEpisodes]:
    """Play every policy on every case.

    Args:
        play: plays some cases.
        built: what is played.
        policies: to be played.
        cases: the same for every policy.
        at_a_time: cases that are played side by side; the same in one process as in many, so that results are the same too.
        workers: processes that play them; the records are the same with any.
        progress: called with the number of cases played and that of all.

    Raises:
        MeshwrightError: a policy is unknown or does not fit, or did what is impossible.
    """
    tasks = [(spec, tuple(cases[i : i + at_a_time])) for spec in policies.specs for i in range(0, len(cases), at_a_time)]
    result = {spec: PlayedEpisodes() for spec in policies.specs}

    def keep(task: Task, played: PlayedEpisodes) -> None:
        result[task[0]].add(played)
        if progress is not None:
            progress(sum(len(one.records) for one in result.values()), len(result) * len(cases))

    workers.do(partial(_play, play, built, policies), tasks, keep)
    return result


def _play(play: Play, built: Any, policies: CarriedPolicies[Any], task: Task) -> PlayedEpisodes:
    return play(built, policies[task[0]], task[1])
