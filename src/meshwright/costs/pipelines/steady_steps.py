"""Time of a step when steps follow each other and each stage continues as soon as it may.

A stage begins its next step when its tasks of this one, its synchronisation and its update are done. Let ``A`` hold the
longest path from the first task of each stage to the end of each stage, with what follows there. The period of consecutive
steps is then the largest mean of ``A`` over the cycles of stages, as in every timed event graph.

For GPipe that is the longest time of a stage from its first task to its end, those before it being ahead (`plain_schedules`).
For 1F1B and zero-bubble schedules a bound suffices that needs one pass. Stages follow each other into the next step as they
followed each other into this one. So a step takes the longest time of a stage from its first task to its end
(`schedules.Played`). Each path to a stage passes all stages before it, so this never grows when a task shrinks. It may where
paths bypass stages: where schedules are interleaved or bidirectional, or where the ends of the pipeline wait for each other.
There the bound holds only if the first stage decides it and no other begins with the step.

Several chunks of a stage may hide gradients and parameters between their passes. The exposed part then depends on when the
passes run, so it is a part of the paths. Messages wait for the last backward pass of each chunk. The first forward pass of
each chunk waits for messages, and a faster task moves everything after it forward (`ChunkTails`).

Legend: ``p`` stages, ``v`` chunks of a stage.

Source:
    Baccelli, Cohen, Olsder and Quadrat, "Synchronization and linearity", 1992, section 2.5; Karp, "A characterization of the
    minimum cycle mean in a digraph", 1978.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from ...plans.partition import Layout
from .plain_schedules import gpipe_alone_s, kept_s
from .schedules import Played, alone_s, play_schedule, played_from

ROUNDING = 1e-12
"""Relative. Bounds that meet differ by no more."""


Partners = Mapping[int, int]
"""Stages that sum gradients with another one behind their passes, and with which."""

NO_PARTNERS: Partners = MappingProxyType({})


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
    def play(cls, layout: Layout, task_s: NDArray[np.float64], send_s: NDArray[np.float64]) -> Self:
        """Play a pipeline; one that went lately is not played again, as layouts that differ in other things share passes."""
        order = layout.schedule, layout.chunks_per_rank, layout.num_micro_batches, layout.overlap_pp
        tasks, sends = (np.asarray(one, np.float64).tobytes() for one in (task_s, send_s))
        return cls(layout, task_s, send_s, _played_once(*order, len(task_s), tasks, sends))

    @property
    def late_spans_s(self) -> NDArray[np.float64]:
        """Seconds from the first to the last task of each stage that begins when earlier ones are ahead, ``(p,)``.

        Of other schedules than GPipe as they are played from the beginning, which is no less.
        """
        layout = self.layout
        if layout.schedule != "gpipe" or len(self.task_s) == 1:
            return self.played.span_s
        kept = kept_s(self.task_s[:, 0], self.send_s, layout.overlap_pp)
        result: NDArray[np.float64] = gpipe_alone_s(layout.num_micro_batches, *kept)
        return result

    def chunk_ends_s(
        self, starts_s: NDArray[np.float64], waits_s: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the ends of every stage, ``(s, p)``, and of its chunks' last backward passes, ``(s, p, v)``, in seconds.

        Args:
            starts_s: stages begin no earlier, ``(s, p)``.
            waits_s: as for `played_from`.
        """
        own = self.layout.schedule, self.layout.num_micro_batches, self.task_s, self.send_s
        played = [played_from(*own, starts, waits_s, overlaps_sends=self.layout.overlap_pp) for starts in starts_s]
        return np.array([one[0] for one in played]), np.array([one[2] for one in played])


@lru_cache(maxsize=4096)
def _played_once(schedule: str, v: int, m: int, overlaps_sends: bool, p: int, tasks: bytes, sends: bytes) -> Played:
    task_s, send_s = np.frombuffer(tasks).copy(), np.frombuffer(sends).copy()
    return play_schedule(schedule, v, m, task_s.reshape(p, v, -1), send_s, overlaps_sends=overlaps_sends)


def ends_s(played: Played, tails_s: Mapping[int, float], partners: Partners) -> dict[int, float]:
    """Return the seconds from the first tasks of stages until they have done all of a step.

    Args:
        played: the pipeline.
        tails_s: by stage, what follows its last task; stages that are left out end no later than others.
        partners: of stages, those that each waits for before that.
    """
    done = played.first_s + played.span_s
    return {
        stage: float(max(done[stage], done[partners.get(stage, stage)]) - played.first_s[stage]) + tail_s
        for stage, tail_s in tails_s.items()
    }


def step_s(pipeline: PlayedPipeline, tails_s: Mapping[int, float], partners: Partners = NO_PARTNERS) -> tuple[float, int]:
    """Return the seconds of a step, and the stage that decides.

    Args:
        pipeline: as played.
        tails_s: by stage, see `ends_s`; of the first one at least.
        partners: see `ends_s`.
    """
    layout, _, _, played = pipeline
    if not partners and layout.schedule == "gpipe":
        spans_s = pipeline.late_spans_s
        ends = {stage: float(spans_s[stage]) + tail_s for stage, tail_s in tails_s.items()}
    else:
        ends = ends_s(played, tails_s, partners)
    stage = max(ends, key=lambda one: ends[one])
    if (stage == 0 and not layout.has_mirrored_stages) or not (layout.chunks_per_rank > 1 or partners):
        return ends[stage], stage
    stages = list(tails_s)
    between = pipeline.chunk_ends_s(alone_s(layout.pp, stages), np.zeros(pipeline.task_s.shape[:2]))[0]
    for one, other in partners.items():
        between[:, [one, other]] = between[:, [one, other]].max(axis=1, keepdims=True)
    return float(largest_mean(between[:, stages] + np.array(list(tails_s.values())))), stage


class ChunkTails(NamedTuple):
    """Messages of the stages of a pipeline that overlap with the passes of their chunks.

    Attributes:
        lags_s: from the end of each chunk's last backward pass to that of all gradients of its stage, ``(p, v)``. Gradients of
            this chunk and of the ones behind it wait for nothing else.
        waits_s: from the start of a stage to that of each chunk's first forward pass, if parameters alone hold it, ``(p, v)``.
        sync_s: of all messages of gradients, ``(p,)``.
        gather_s: of all messages of parameters, ``(p,)``.
        slowdown: factor on computing and sending that run side by side.
    """

    lags_s: NDArray[np.float64]
    waits_s: NDArray[np.float64]
    sync_s: NDArray[np.float64]
    gather_s: NDArray[np.float64]
    slowdown: float

    @property
    def slowed_s(self) -> NDArray[np.float64]:
        """Seconds by which gathering all parameters but those of the first chunk slows passes down, ``(p,)``."""
        slowed: NDArray[np.float64] = (self.slowdown - 1) * np.maximum(0.0, self.gather_s - self.waits_s[:, 0])
        return slowed


def unhidden_s(
    ends_s: NDArray[np.float64],
    lasts_s: NDArray[np.float64],
    lags_s: NDArray[np.float64],
    whole_s: NDArray[np.float64],
    slowdown: float,
) -> NDArray[np.float64]:
    """Return seconds of gradients left at the end of the passes of a stage, and by how much the rest slowed these down.

    Where what runs side by side takes more than twice as long, messages gain by waiting, and a pass that ends later could make
    a step shorter: there the last chunk's gradients alone are taken to be left. With a factor of two it is the same.

    Args:
        ends_s: of the passes, ``(...)``.
        lasts_s: ends of the last backward pass of each chunk, ``(..., v)``.
        lags_s: see `ChunkTails`, ``(..., v)``.
        whole_s: of all messages, ``(...)``.
        slowdown: factor on computing and sending that run side by side.
    """
    done_s = lasts_s + lags_s if slowdown <= 2 else (lasts_s + lags_s)[..., :1]
    left_s = np.maximum(0.0, done_s.max(axis=-1) - ends_s)
    shown: NDArray[np.float64] = left_s + (slowdown - 1) * np.maximum(0.0, whole_s - left_s)
    return shown


def chunk_step_s(pipeline: PlayedPipeline, tails: ChunkTails) -> tuple[float, int, float]:
    """Return seconds of a step of several chunks a stage, the stage that decides, and its exposed gradients.

    Let ``D`` be the ends of stages that begin at any times ``h``. No cycle has a mean above the largest ``D - h``. None of the
    paths from a stage to itself is longer than the largest mean. Where the two meet, few stages have to be played.
    """
    layout, _, _, played = pipeline

    def ends_s(starts_s: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        passed_s, lasts_s = pipeline.chunk_ends_s(starts_s, tails.waits_s)
        left_s = unhidden_s(passed_s, lasts_s, tails.lags_s, tails.sync_s, tails.slowdown)
        return passed_s + left_s + tails.slowed_s, left_s

    done_s, left_s = ends_s(played.first_s[None])
    taken_s = done_s[0] - played.first_s
    stage = int(taken_s.argmax())
    some = sorted({0, stage})
    paths = ends_s(alone_s(layout.pp, some))[0]
    least_s = float(paths[range(len(some)), some].max())
    if least_s < float(taken_s[stage]) * (1 - ROUNDING):
        least_s = float(largest_mean(ends_s(alone_s(layout.pp, range(layout.pp)))[0]))
    return least_s, stage, float(left_s[0, stage])


@njit()
def largest_mean(weights):  # type: ignore[no-untyped-def]
    """Return the largest mean weight along a cycle, ``(n, n)``, by Karp's algorithm; minus infinity where there is no way."""
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
