"""What a step takes when steps follow each other and each stage goes on as soon as it may.

A stage begins its next step when its tasks of this one, its synchronisation and its update are done. Let ``A`` hold the
longest path from the first task of each stage to the end of each stage, with what follows there. Then the time in which
steps follow each other is the largest mean of ``A`` over the cycles of stages, as in every timed event graph.

For 1F1B, GPipe and zero-bubble schedules a bound is good enough that is worked out in one go: stages follow each other into
the next step as they followed each other into this one, so that a step takes the longest time of a stage from its first task
to its end (`schedules.Played`). Each path to a stage passes all stages before it, so that this never grows when a task
shrinks. It may where paths pass stages by: where schedules are interleaved, or where the ends of the pipeline wait for each
other. There the bound stands only if the first stage is the one that it is about: it begins when the step does.

Legend: ``p`` stages, ``v`` chunks of a stage.

Source:
    Baccelli, Cohen, Olsder and Quadrat, "Synchronization and linearity", 1992, section 2.5; Karp, "A characterization of the
    minimum cycle mean in a digraph", 1978.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from ...plans.partition import Layout
from .schedules import Played, paths_s, play


class PlayedPipeline(NamedTuple):
    """A pipeline and how it went.

    Attributes:
        layout: its schedule and micro-batches.
        task_s: seconds of the passes of each chunk, ``(p, v, 3)``.
        send_s: seconds of a transfer from each chunk of the model to the next one, ``(p v,)``.
        played: as its schedule orders it.
    """

    layout: Layout
    task_s: NDArray[np.float64]
    send_s: NDArray[np.float64]
    played: Played

    @classmethod
    def of(cls, layout: Layout, task_s: NDArray[np.float64], send_s: NDArray[np.float64]) -> Self:
        """Play a pipeline."""
        v, m = layout.virtual_stages, layout.num_micro_batches
        return cls(layout, task_s, send_s, play(layout.schedule, v, m, task_s, send_s, overlaps_sends=layout.overlap_pp))

    @property
    def unsent(self) -> Played:
        """How it would go if transfers took no time."""
        return self.of(self.layout, self.task_s, np.zeros_like(self.send_s)).played


def ends_s(played: Played, tails_s: Mapping[int, float], *, is_tied: bool) -> dict[int, float]:
    """When stages have done all of a step, counted from their first tasks.

    Args:
        played: the pipeline.
        tails_s: by stage, what follows its last task; stages that are left out end no later than others.
        is_tied: whether the first and the last stage wait for each other before that.
    """
    last = len(played.span_s) - 1
    done = played.first_s + played.span_s
    both = max(float(done[0]), float(done[last]))
    return {
        stage: (both if is_tied and stage in (0, last) else float(done[stage])) - float(played.first_s[stage]) + tail_s
        for stage, tail_s in tails_s.items()
    }


def step_s(pipeline: PlayedPipeline, tails_s: Mapping[int, float], *, is_tied: bool = False) -> tuple[float, int]:
    """Seconds of a step, and the stage that decides.

    Args:
        pipeline: as played.
        tails_s: by stage, see `ends_s`; of the first one at least.
        is_tied: see `ends_s`.
    """
    layout, _, _, played = pipeline
    ends = ends_s(played, tails_s, is_tied=is_tied)
    stage = max(ends, key=lambda one: ends[one])
    if stage == 0 or not (layout.virtual_stages > 1 or is_tied):
        return ends[stage], stage
    stages = list(tails_s)
    between = paths_s(
        layout.schedule,
        layout.virtual_stages,
        layout.num_micro_batches,
        pipeline.task_s,
        pipeline.send_s,
        stages,
        overlaps_sends=layout.overlap_pp,
    )
    if is_tied:
        outer = [0, layout.pp - 1]
        between[:, outer] = between[:, outer].max(axis=1, keepdims=True)
    return float(largest_mean(between[:, stages] + np.array(list(tails_s.values())))), stage


@njit()
def largest_mean(weights):  # type: ignore[no-untyped-def]
    """Largest mean of the weights along a cycle, ``(n, n)``, by Karp's algorithm; minus infinity where there is no way."""
    n = len(weights)
    walks = np.full((n + 1, n), -np.inf)
    walks[0] = 0.0
    for length in range(n):
        for source in range(n):
            for target in range(n):
                walks[length + 1, target] = max(walks[length + 1, target], walks[length, source] + weights[source, target])
    best = -np.inf
    for target in range(n):
        if walks[n, target] > -np.inf:
            least = np.inf
            for length in range(n):
                if walks[length, target] > -np.inf:
                    least = min(least, (walks[n, target] - walks[length, target]) / (n - length))
            best = max(best, least)
    return best
