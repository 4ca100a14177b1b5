"""One step among others on unequal hosts: replicas and stages are not ready together, and wait for each other.

On equal hosts one lane determines the time of a step (`steady_steps`). Elsewhere a stage that is done early begins its next
step early, and a lane goes through its passes at its own pace. Ranks that share a group wait for the slowest of it. So two
steps are played, lane by lane and group by group, as the event path runs them. The time of a step is the time between their
ends.

Legend: ``p`` stages, ``v`` chunks of a stage, ``w`` ranks of a stage, ``l`` lanes of ``w / l`` ranks each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...plans.partition import Layout
from ..pipelines.schedules import continued, played_from, steady_round
from ..pipelines.steady_steps import PlayedPipeline, unhidden_s
from ..pipelines.waits import waits
from ..process_groups.group_network import PlacedNetwork
from ..process_groups.lanes import Lane, PlacedLayout, RegularLayout
from ..process_groups.rank_groups import stage_groups, stage_width
from ..work.operations import BETWEEN_STAGES

if TYPE_CHECKING:
    from .step_pricer import StepPricer

Tail = tuple[float, float, float]
"""Seconds of gradients, of parameters and of the optimizer behind the passes of a stage, as far as nothing hides them."""

STEPS = 2
"""Steps that are played: the first, whose ranks begin all at once, and one behind it."""


class Passes(NamedTuple):
    """Times of the passes of a lane.

    Attributes:
        task_s: seconds of a forward, backward and weight-gradient pass of each chunk, ``(p, v, 3)``; of a bidirectional
            schedule those of `pipelines.bidirectional`, ``(p, 2, 5)``.
        send_s: of a transfer between each chunk and the next one, ``(p v,)``, or forward and then back, ``(2 p v,)``.
        computed_s: of the passes without what belongs to transfers, as ``task_s``.
    """

    task_s: NDArray[np.float64]
    send_s: NDArray[np.float64]
    computed_s: NDArray[np.float64]


class UnevenStep(NamedTuple):
    """A step among others, and what the stage that ends last does in it.

    Attributes:
        step_s: from the end of the step before to its end.
        stage, lane: where it ends last.
        waiting_s: why it does not compute, see `waits`.
        sync_s, gather_s, optimizer_s: what follows the passes, as far as nothing hides it.
    """

    step_s: float
    stage: int
    lane: int
    waiting_s: dict[str, float]
    sync_s: float
    gather_s: float
    optimizer_s: float


class _Line(NamedTuple):
    """Messages that follow each other on a stage.

    Attributes:
        rows: ranks of the groups of each message, counted within the stage, ``(g, k)``.
        seconds: of each message over each group, ``(g,)``.
        givers: ranks whose passes overlap with the messages of each rank, itself first, ``(w, c)``.
        own_s: exposed seconds of the messages of each rank behind these passes, or all of them where they do not hide, ``(w,
            c)``. Where chunks are distinguished: behind the last chunk to go backward, or before the first to go forward.
        is_hidden: whether they overlap with passes.
        is_backward: whether these are the last backward passes, else the first forward ones of the next step.
        gaps_s: lags or waits of the chunks of each rank, ``(w, v)``; None where chunks are not distinguished.
        whole_s: of all messages of each rank, ``(w,)``.
        slowdown: factor on computing and sending that run side by side.
    """

    rows: list[NDArray[np.int64]]
    seconds: list[NDArray[np.float64]]
    givers: NDArray[np.int64]
    own_s: NDArray[np.float64]
    is_hidden: bool
    is_backward: bool
    gaps_s: NDArray[np.float64] | None = None
    whole_s: NDArray[np.float64] | None = None
    slowdown: float = 1.0

    def after(self, clock: NDArray[np.float64], lasts_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return when each rank is done with all of them: a group begins when the last of it is ready.

        Messages that hide behind backward passes end for all of a group when they end for the last one. Messages that hide
        behind forward passes begin for all together, and each rank waits for them by itself.

        Args:
            clock: when each rank is done with what comes before, ``(w,)``.
            lasts_s: when its last backward pass of each chunk is computed, ``(w, v)``.
        """
        hides_back = self.is_hidden and self.is_backward
        done = (clock[self.givers] + self.left_s(clock, lasts_s)).max(axis=1) if hides_back else clock.copy()
        for rows, seconds in zip(self.rows, self.seconds, strict=True):
            latest = done[rows].max(axis=1)
            done[rows] = (latest if self.is_hidden else latest + seconds)[:, None]
        return done + self.own_s[:, 0] - self.first_s if self.is_hidden and not self.is_backward else done

    def left_s(self, clock: NDArray[np.float64], lasts_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return exposed seconds of the messages of each rank behind the passes that they overlap with, ``(w, c)``."""
        if self.gaps_s is None or self.whole_s is None:
            return self.own_s
        return unhidden_s(clock[self.givers], lasts_s[self.givers], self.gaps_s[:, None], self.whole_s[:, None], self.slowdown)

    @property
    def first_s(self) -> NDArray[np.float64]:
        """Waiting time of the first chunk, where each chunk waits in its passes, ``(w,)``."""
        return np.zeros(len(self.own_s)) if self.gaps_s is None else self.gaps_s[:, 0]


class _Uneven(NamedTuple):
    """A layout whose lanes are priced by themselves.

    Attributes:
        pricer: prices what follows the passes.
        work: what every rank does.
        placed: the groups of the layout.
        lanes, passes: all lanes and the passes of each, equal ones the same object.
    """

    pricer: StepPricer
    work: Any
    placed: PlacedLayout | RegularLayout
    lanes: Sequence[Lane]
    passes: Sequence[Passes]


def uneven_step(pricer: StepPricer, work: Any, of_lanes: Sequence[Lane], passes: Sequence[Passes]) -> UnevenStep:
    """Return the time of one step among others.

    It is never less than any rank's own work in it. Two steps may not show this where they do not end in the same way.

    Args:
        pricer: prices what follows the passes.
        work: the work of every rank.
        of_lanes: the lanes.
        passes: of each lane; equal ones may be the same object.
    """
    layout, wires = work.layout, pricer.wires
    placed: PlacedLayout | RegularLayout = RegularLayout(layout, wires.devices_per_host, pricer.order)
    if isinstance(wires, PlacedNetwork):
        placed = wires.layout(layout, pricer.order, pass_axes=work.pass_axes)
    uneven = _Uneven(pricer, work, placed, of_lanes, passes)
    pp, width = layout.pp, stage_width(layout)
    lanes = [slice(first, first + width // len(passes)) for first in range(0, width, width // len(passes))]
    none_s = np.zeros(len(lanes))
    sync = [_line(uneven, stage, lanes, _held_s(layout, passes, stage), is_backward=True) for stage in range(pp)]
    gather = [_line(uneven, stage, lanes, none_s, is_backward=False) for stage in range(pp)]
    updates_s = [[pricer.optimizer_s(work, stage, lane.kinds_at(stage)) for lane in of_lanes] for stage in range(pp)]
    update_s = np.repeat(np.array(updates_s, np.float64), width // len(of_lanes), axis=1)
    partners, between_s = _between_stages(uneven)
    own_s = np.stack([before.own_s[:, 0] + after.own_s[:, 0] for before, after in zip(sync, gather, strict=True)]) + update_s
    own_s += between_s
    clock, last_s, least_s = np.zeros((pp, width)), 0.0, 0.0
    passed = done = np.zeros((pp, width))
    computed_s = np.zeros((pp, width, layout.chunks_per_rank))
    waits_s = np.zeros((pp, width, layout.chunks_per_rank))  # of chunks for their parameters, from the second step on
    step_s, busy_s = 0.0, np.zeros((len(lanes), pp))
    for number in range(STEPS):
        passed = np.empty((pp, width))
        known: dict[tuple[int, bytes], tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]] = {}
        for lane, (ranks, of_lane) in enumerate(zip(lanes, passes, strict=True)):
            start_s = clock[:, ranks].max(axis=1)
            wait_s = waits_s[:, ranks].max(axis=1)
            key = id(of_lane), start_s.tobytes() + wait_s.tobytes()
            if key not in known:
                known[key] = _played(layout, of_lane.task_s, of_lane.send_s, start_s, wait_s)
            lane_ends_s, lane_busy_s, lane_lasts_s = known[key]
            passed[:, ranks] = lane_ends_s[:, None]
            computed_s[:, ranks] = lane_lasts_s[:, None]
            if number == 0:
                busy_s[lane] = lane_busy_s
                # All passes wait for the first stage, where micro-batches enter there alone.
                is_first = (np.arange(pp) == 0) & (not layout.has_mirrored_stages)
                alone_s = np.maximum(lane_busy_s, np.where(is_first, lane_ends_s, 0.0))
                least_s = max(least_s, float((alone_s + own_s[:, ranks].max(axis=1)).max()))
        done = np.stack([line.after(*clocks) for line, *clocks in zip(sync, passed, computed_s, strict=True)])
        done = np.maximum(done, done[partners]) + between_s + update_s
        step_s, last_s = float(done.max()) - last_s, float(done.max())
        clock = np.stack([line.after(*clocks) for line, *clocks in zip(gather, done, computed_s, strict=True)])
        for stage, line in enumerate(gather):
            waits_s[stage] = 0.0 if line.gaps_s is None else line.gaps_s
    step_s = max(step_s, least_s)
    latest = np.where(done >= last_s * (1.0 - 1e-12), passed, -1.0)
    stage, rank = (int(place) for place in np.unravel_index(latest.argmax(), latest.shape))
    lane = next(number for number, ranks in enumerate(lanes) if ranks.start <= rank < ranks.stop)
    gather_s, optimizer_s = float(gather[stage].own_s[rank, 0]), float(update_s[stage, rank])
    left_s = step_s - float(busy_s[lane, stage]) - gather_s - optimizer_s
    sync_s = min(last_s - optimizer_s - float(passed[stage, rank]), left_s)
    computed = passes[lane].computed_s
    unsent = PlayedPipeline.play(layout, computed, np.zeros(computed.shape[0] * computed.shape[1]))
    span_s = step_s - sync_s - gather_s - optimizer_s
    waiting_s = waits(span_s, float(unsent.late_spans_s[stage]), unsent.played.busy_s, stage)
    return UnevenStep(step_s, stage, lane, waiting_s, sync_s, gather_s, optimizer_s)


def _played(
    layout: Layout,
    task_s: NDArray[np.float64],
    send_s: NDArray[np.float64],
    starts_s: NDArray[np.float64],
    waits_s: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Play a lane whose stages begin no earlier than given; no chunk begins before ``waits_s`` after the start of its stage.

    Returns:
        When each stage ends and how long it is busy, with its transfers, ``(p,)`` each. And when the last backward pass of
        each chunk is computed, ``(p, v)``.
    """
    p, v, m = layout.pp, layout.chunks_per_rank, layout.num_micro_batches
    if p == 1:
        busy_s = np.array([m * float(task_s.sum())])
        return starts_s + busy_s, busy_s, (starts_s + busy_s)[:, None]
    task_s, sends = np.ascontiguousarray(task_s, np.float64), np.ascontiguousarray(send_s, np.float64)

    def played(count: int, round_of: int | None) -> tuple[NDArray[np.float64], ...]:
        hides = layout.overlap_pp
        return played_from(layout.schedule, count, task_s, sends, starts_s, waits_s, overlaps_sends=hides, round_of=round_of)

    ends_s, busy_s, lasts_s, _ = continued(played, m, steady_round(layout.schedule, p, v, m), p * v * 3)
    return ends_s, busy_s, lasts_s


def _held_s(layout: Layout, passes: Sequence[Passes], stage: int) -> NDArray[np.float64]:
    """Return seconds for which each lane's last pass is followed by its transfer, which its gradients ignore, ``(l,)``."""
    if stage == 0 or layout.overlap_pp or layout.parts_gradients:
        return np.zeros(len(passes))
    return np.array([one.send_s[stage - 1 - layout.pp * layout.virtual_stages] for one in passes])


def _line(uneven: _Uneven, stage: int, lanes: Sequence[slice], held_s: NDArray[np.float64], *, is_backward: bool) -> _Line:
    """Return the messages of a stage but for those between two stages; ``held_s`` hides messages that overlap with passes too."""
    pricer, work, placed, of_lanes, passes = uneven
    layout, every = work.layout, work.sync(stage) if is_backward else work.gather(stage)
    messages = [m for m in every if m.axis not in BETWEEN_STAGES and m.payload_bytes > 0]
    width = stage_width(layout)
    rows, seconds, of_rank = [], [], np.zeros((len(messages), width))
    for number, message in enumerate(messages):
        rows.append(stage_groups(layout, message.axis))
        seconds.append(np.array([pricer.message_s(message, layout, one) for one in placed.singles(message.axis, stage)]))
        of_rank[number, rows[-1]] = seconds[-1][:, None]
    givers, own_s = np.arange(width)[:, None], of_rank.sum(axis=0)[:, None]
    if not (layout.overlap_dp and messages):
        return _Line(rows, seconds, givers, own_s, False, is_backward)
    if is_backward and [message.axis for message in messages[:2]] == ["shard", "replica"]:
        # The second message waits for the passes of all who take part in a rank's first one.
        givers = np.empty((width, rows[0].shape[1]), np.int64)
        givers[rows[0]] = np.stack([np.roll(rows[0], -turn, axis=1) for turn in range(rows[0].shape[1])], axis=2)
    lane_of = np.empty(width, np.int64)
    for lane, ranks in enumerate(lanes):
        lane_of[ranks] = lane
    gaps = [pricer.chunk_gaps_s(work, stage, one.tolist(), is_backward=is_backward) for one in of_rank.T]
    if timed := [gap for gap in gaps if gap is not None]:
        gaps_s = np.stack(timed)
        whole_s, held = of_rank.sum(axis=0), np.array([held_s[lane_of[ranks]] for ranks in givers])
        if is_backward:
            own_s = unhidden_s(np.zeros(givers.shape), -held[:, :, None], gaps_s[:, None, :1], whole_s[:, None], pricer.slowdown)
        else:
            own_s = (gaps_s[:, 0] + (pricer.slowdown - 1) * np.maximum(0.0, whole_s - gaps_s[:, 0]))[:, None]
        return _Line(rows, seconds, givers, own_s, True, is_backward, gaps_s, whole_s, pricer.slowdown)
    known: dict[tuple[int, bytes], float] = {}
    own_s = np.zeros(givers.shape)
    for rank, place in np.ndindex(givers.shape):
        lane = int(lane_of[givers[rank, place]])
        key = lane, of_rank[:, rank].tobytes()
        if key not in known:
            sent = [(str(m.axis), float(s)) for m, s in zip(messages, of_rank[:, rank], strict=True)]
            whole, way_s = sum(seconds for _, seconds in sent), float(passes[lane].send_s[: layout.pp].mean())
            shown_s = pricer.exposed_s(work, stage, of_lanes[lane], sent, whole, is_backward=is_backward, way_s=way_s)
            known[key] = max(0.0, shown_s - held_s[lane])
        own_s[rank, place] = known[key]
    return _Line(rows, seconds, givers, own_s, True, is_backward)


def _between_stages(uneven: _Uneven) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return with which each stage sums gradients behind all others (itself: none), ``(p,)``, and for how long, ``(p, w)``."""
    pricer, layout = uneven.pricer, uneven.work.layout
    partners, total = np.arange(layout.pp), np.zeros((layout.pp, stage_width(layout)))
    for stage in range(layout.pp if layout.pp > 1 else 0):
        for message in uneven.work.sync(stage):
            if message.axis in BETWEEN_STAGES:
                partners[stage] = layout.pp - 1 - stage
                total[stage] += [pricer.message_s(message, layout, pair) for pair in uneven.placed.singles(message.axis, stage)]
    return partners, total
