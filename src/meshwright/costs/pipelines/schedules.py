"""Pipeline schedules: the order of passes on every stage, and the exact time that the order takes.

A schedule is a table of tasks, a row for each stage. A task has a ``kind`` (0 forward, 1 backward or input gradient, 2 weight
gradient; see `tasks`), ``place`` (chunk of the stage) and ``micro`` (micro-batch). `play_schedule` plays the table. A task
starts when the one before it on its stage and the one that it needs on another stage are done. Where `plain_schedules` has a
closed form, that is taken.

Legend: ``p`` stages, ``v`` chunks of a stage, ``m`` micro-batches, ``n`` tasks of a stage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from ...plans.frameworks.defaults import BIDIRECTIONAL, EAGER
from .bidirectional import both_ways
from .plain_schedules import kept_s, plain_spans_s
from .schedule_kernel import in_turn, play_chunks, ways_s
from .tasks import BACKWARD, FORWARD, Tasks

MAX_TASKS = 1_048_576
"""Beyond so many tasks, some hundredths of a second, a schedule is played with fewer micro-batches, twice, and continued by
its steady state."""

KEPT_TASKS = 65_536
"""Orders of so many tasks are kept in numbers; of longer ones the last few."""

KEPT_TURNS = 2 * KEPT_TASKS
"""The same of turns, which take less memory."""

STEADY_ROUNDS = 4
"""Rounds of `round_size` micro-batches after which a stage keeps no more of them."""


@njit
def zero_bubble(p, m, is_double):  # type: ignore[no-untyped-def]
    """Schedule greedily for passes of equal length: a weight gradient where nothing else can be done.

    ZB-H1 keeps ``p`` micro-batches at most, and before the first gradient comes back as many as 1F1B; a forward pass goes
    first. ZB-2P keeps ``2 p - 1``, before the first gradient what comes back by then; a gradient goes first.

    Source: Qi et al., "Zero bubble pipeline parallelism", 2024.
    """
    limit = 2 * p - 1 if is_double else p
    made = np.zeros((p, 3 * m, 3), np.int32)
    done = np.full((p, 2, m), -1, np.int64)  # time at which the pass is done
    count = np.zeros((p, 3), np.int64)
    warm_ups = np.zeros(p, np.int64)
    time = 0
    left = 3 * m * p
    while left > 0:
        for stage in range(p):
            forwards, backwards, weights = count[stage]
            first = 2 * (p - stage) - 1 if is_double else p - stage
            room = limit if backwards > 0 else first
            can_forward = forwards < m and forwards - weights < room
            if can_forward and stage > 0:
                can_forward = 0 <= done[stage - 1, 0, forwards] <= time
            can_backward = backwards < forwards
            if can_backward:
                arrival = done[stage, 0, backwards] if stage == p - 1 else done[stage + 1, 1, backwards]
                can_backward = 0 <= arrival <= time
            if can_backward and (is_double or not can_forward):
                warm_ups[stage] = 1
            elif can_forward:
                warm_ups[stage] = 0
            elif weights < backwards:
                warm_ups[stage] = 2
            else:
                warm_ups[stage] = -1
        for stage in range(p):
            kind = warm_ups[stage]
            if kind >= 0:
                micro = count[stage, kind]
                place = count[stage, 0] + count[stage, 1] + count[stage, 2]
                made[stage, place, 0] = kind
                made[stage, place, 2] = micro
                count[stage, kind] += 1
                left -= 1
                if kind < 2:
                    done[stage, kind, micro] = time + 1
        time += 1
    return made


class Played(NamedTuple):
    """How a schedule went.

    Attributes:
        period_s: longest time from the first to the last task of a stage. Stages follow each other into the next step as they
            followed each other into this one, so this is the time of a step. On the first stage of GPipe, 1F1B and interleaved
            schedules it is the makespan. A zero-bubble schedule needs an optimizer that does not wait for all stages (Qi et
            al., 2024, section 4).
        span_s: from the first to the last task of each stage, ``(p,)``.
        busy_s: of the tasks of each stage, with its transfers, ``(p,)``.
        first_s: when each stage starts, ``(p,)``.
    """

    period_s: float
    span_s: NDArray[np.float64]
    busy_s: NDArray[np.float64]
    first_s: NDArray[np.float64]


def round_size(num_stages: int, num_micro_batches: int) -> int:
    """Return micro-batches that an interleaved schedule takes through every chunk before the next ones, ``n``.

    As many as stages, ``p``, where these divide the micro-batches, as in the first published schedule. Otherwise Megatron Core
    takes any ``n`` of ``p`` to ``m`` whose last round has at least ``p`` too, since fewer leave bubbles. The least such ``n``
    is taken here. Fewer micro-batches than stages, which Megatron Core refuses, are one round, as in PyTorch.

    Source:
        Narayanan et al., "Efficient large-scale language model training on GPU clusters", 2021, section 2.2.
        NVIDIA/Megatron-LM, megatron/core/pipeline_parallel/schedules.py since core 0.9
        (``microbatch_group_size_per_vp_stage``). pytorch/pytorch, pull request 129597 (``ScheduleInterleaved1F1B``).
    """
    p, m = num_stages, num_micro_batches
    if m <= p:
        return m
    return next(n for n in range(p, m + 1) if m % n == 0 or m % n >= p)


def orders(schedule: str, num_stages: int, virtual_stages: int, num_micro_batches: int, round_of: int | None = None) -> Tasks:
    """Return the tasks of a schedule, ``(p, n, 3)``: kind, place of the chunk on its stage, micro-batch.

    Args:
        schedule: as `Layout.schedule`.
        num_stages: ``p``.
        virtual_stages: ``v``.
        num_micro_batches: ``m``.
        round_of: micro-batches of a round of an interleaved schedule; by default `round_size`.

    Source:
        GPipe: Huang et al., 2019. 1F1B and interleaved: Narayanan et al., "Efficient large-scale language model training
        on GPU clusters", 2021, section 2.2. ZB-H1 and ZB-2P: Qi et al., "Zero bubble pipeline parallelism", 2024. Eager
        1F1B: Zhuang et al., "On optimizing the communication of model parallelism", 2022, section 4. DualPipe and DualPipeV:
        see `bidirectional`.
    """
    p, v, m = num_stages, virtual_stages, num_micro_batches
    made = _kept_orders if 3 * p * v * m <= KEPT_TASKS else _long_orders
    return made(schedule, p, v, m, round_size(p, m) if round_of is None else round_of)


def turns_of(
    schedule: str, num_stages: int, virtual_stages: int, num_micro_batches: int, round_of: int | None = None
) -> NDArray[np.int32]:
    """Return the tasks of a schedule in a possible order, see `schedule_kernel.in_turn`; arguments as of `orders`."""
    p, v, m = num_stages, virtual_stages, num_micro_batches
    made = _kept_turns if 3 * p * v * m <= KEPT_TURNS else _long_turns
    return made(schedule, p, v, m, round_size(p, m) if round_of is None else round_of)


def _made_turns(schedule: str, p: int, v: int, m: int, round_of: int) -> NDArray[np.int32]:
    tasks = orders(schedule, p, v, m, round_of)
    made: NDArray[np.int32] = in_turn(tasks, v, through_chunk(schedule, m), schedule in BIDIRECTIONAL, schedule == "dualpipe")
    assert len(made), "a schedule waits for itself"
    made.flags.writeable = False
    return made


def _made_orders(schedule: str, p: int, v: int, m: int, round_of: int) -> Tasks:
    made: Tasks
    if schedule in ("zb-h1", "zb-2p"):
        made = zero_bubble(p, m, schedule == "zb-2p")
    elif schedule in BIDIRECTIONAL:
        made = both_ways(p, through_chunk(schedule, m), is_mirrored=schedule == "dualpipe")
    elif v > 1:
        made = _interleaved(p, v, m, round_of)
    else:
        made = _plain(p, m, schedule)
    made.flags.writeable = False
    return made


def through_chunk(schedule: str, num_micro_batches: int) -> int:
    """Return the micro-batches that go through each chunk; of the two directions of DualPipe each has half."""
    return num_micro_batches // 2 if schedule == "dualpipe" else num_micro_batches


_kept_orders = lru_cache(maxsize=512)(_made_orders)
_long_orders = lru_cache(maxsize=4)(_made_orders)
_kept_turns = lru_cache(maxsize=128)(_made_turns)
_long_turns = lru_cache(maxsize=16)(_made_turns)


def play_schedule(
    schedule: str,
    virtual_stages: int,
    num_micro_batches: int,
    task_s: NDArray[np.float64],
    send_s: float | NDArray[np.float64],
    *,
    overlaps_sends: bool = False,
) -> Played:
    """Return the time of a schedule.

    Args:
        schedule: as `Layout.schedule`.
        virtual_stages: chunks of a stage, ``v``; two of a bidirectional schedule.
        num_micro_batches: ``m``.
        task_s: seconds of a forward, backward and weight-gradient pass of each chunk, ``(p, v, 3)``. The last is read only
            where the schedule splits the two gradients. Of a bidirectional schedule those of `bidirectional`, ``(p, 2, 5)``.
        send_s: seconds of a transfer between chunks on different stages. One number for all, or one from each chunk of the
            model to the next, ``(p v,)``, the last of them unread. Or those forward and then those back, ``(2 p v,)``.
        overlaps_sends: whether a stage continues while it sends; else both ends are occupied until the transfer is done.
    """
    p, v, m = task_s.shape[0], virtual_stages, num_micro_batches
    if p == 1:
        busy = m * float(task_s.sum())
        return Played(busy, np.array([busy]), np.array([busy]), np.zeros(1))
    send_s = ways_s(send_s, p * v)
    if is_plain(schedule, v, overlaps_sends=overlaps_sends):
        return _plain_play(schedule == "gpipe", m, task_s[:, 0], send_s, overlaps_sends)
    task_s, sends = np.ascontiguousarray(task_s, np.float64), np.ascontiguousarray(send_s)

    def played(count: int, round_of: int | None) -> Played:
        begun_s, none_s = np.zeros(p), np.zeros((p, v))
        ends_s, busy_s, _, first_s = played_from(
            schedule, count, task_s, sends, begun_s, none_s, overlaps_sends=overlaps_sends, round_of=round_of
        )
        span_s = ends_s - first_s
        return Played(float(span_s.max()), span_s, busy_s, first_s)

    kinds = 3 if schedule in ("zb-h1", "zb-2p") else 2
    return Played(*continued(played, m, steady_round(schedule, p, v, m), p * v * kinds))


def continued(
    played: Callable[[int, int | None], tuple[Any, ...]], num_micro_batches: int, steady: int, num_tasks: int
) -> tuple[Any, ...]:
    """Return the figures of a schedule as played or, beyond `MAX_TASKS`, as continued by its steady state.

    That repeats round by round; what is left over after the last whole round stays as it is.

    Args:
        played: figures of the schedule of a number of micro-batches, with rounds of a size or, if None, of its own.
        num_micro_batches: ``m``.
        steady: micro-batches after which the steady state repeats itself.
        num_tasks: tasks of a micro-batch.
    """
    m, n = num_micro_batches, steady
    fewer = max(STEADY_ROUNDS, MAX_TASKS // num_tasks // n) * n + m % n
    if m <= fewer + n:
        return played(m, None)
    times, both = (m - fewer) // n, zip(played(fewer, n), played(fewer + n, n), strict=True)
    return tuple(short + times * (longer - short) for short, longer in both)


def steady_round(schedule: str, num_stages: int, virtual_stages: int, num_micro_batches: int) -> int:
    """Return the micro-batches after which the steady state of a schedule repeats itself."""
    p = num_stages
    if schedule in BIDIRECTIONAL:
        return 2 * p
    return round_size(p, num_micro_batches) if virtual_stages > 1 else p


def alone_s(num_stages: int, stages: Sequence[int]) -> NDArray[np.float64]:
    """Return starts of stages, a row for each of some stages, which begins at zero while no other ever begins, ``(s, p)``."""
    starts_s = np.full((len(stages), num_stages), -np.inf)
    starts_s[np.arange(len(stages)), list(stages)] = 0.0
    return starts_s


def played_from(
    schedule: str,
    num_micro_batches: int,
    task_s: NDArray[np.float64],
    send_s: NDArray[np.float64],
    starts_s: NDArray[np.float64],
    waits_s: NDArray[np.float64],
    *,
    overlaps_sends: bool,
    round_of: int | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return end and busy time of every stage, ``(p,)`` each, ends of last backward passes, ``(p, v)``, and starts, ``(p,)``.

    The chunks of a bidirectional schedule wait for no parameters, and no message overlaps with their last passes.

    Args:
        schedule, num_micro_batches, task_s, send_s, overlaps_sends: as for `play_schedule`.
        starts_s: stages begin no earlier, ``(p,)``.
        waits_s: after the start of its stage each chunk begins no earlier than that, ``(p, v)``.
        round_of: as for `orders`.
    """
    (p, v), m = waits_s.shape, num_micro_batches
    turns, task_s = turns_of(schedule, p, v, m, round_of), np.ascontiguousarray(task_s, np.float64)
    lasts_s = np.zeros((p, v))
    both, n = schedule in BIDIRECTIONAL, through_chunk(schedule, m)
    times_s = task_s, send_s, overlaps_sends, starts_s, np.zeros((p, v)) if both else waits_s, lasts_s
    ends_s, busy_s, first_s = play_chunks(turns, v, n, *times_s, both, schedule == "dualpipe")
    if both:
        lasts_s[:] = ends_s[:, None]
    return ends_s, busy_s, lasts_s, first_s


def is_plain(schedule: str, virtual_stages: int, *, overlaps_sends: bool) -> bool:
    """Return whether `plain_schedules` has a closed form of a schedule."""
    return virtual_stages == 1 and (schedule == "gpipe" or not (schedule in ("zb-h1", "zb-2p", EAGER) or overlaps_sends))


@lru_cache(maxsize=65_536)
def in_flight(schedule: str, num_stages: int, virtual_stages: int, num_micro_batches: int, stage: int) -> float:
    """Return most micro-batches whose activations a stage keeps at once, counted in chunks over chunks of the stage.

    A weight gradient that is put off keeps its activations.

    Source:
        Narayanan et al., 2021, section 2.2. Korthikanti et al., "Reducing activation recomputation in large transformer
        models", 2022, section 4.2.3: ``1 + (p - 1) / (p v)`` times the layers of the model on the first stage. Qi et al.,
        2024, table 1. Eager 1F1B: ``2 (p - s) - 1``, Zhuang et al., 2022, section 4. DualPipe ``p + 1`` and DualPipeV ``2 p +
        1`` of two chunks, see `bidirectional`.
    """
    p, v, m = num_stages, virtual_stages, num_micro_batches
    if schedule in BIDIRECTIONAL:
        return (p + 1) / 2 if schedule == "dualpipe" else p + 0.5
    if schedule == "gpipe":
        return float(m)
    if schedule == "zb-h1":
        return float(min(m, p))
    if schedule == "zb-2p":
        return float(min(m, 2 * p - 1))
    if schedule == EAGER:
        return float(min(m, 2 * (p - stage) - 1))
    if v > 1:
        return min(float(m), (_warm_up(p, v, m, stage, round_size(p, m)) + 1) / v)
    return float(min(m, p - stage))


def _warm_up(p: int, v: int, m: int, stage: int, round_of: int) -> int:
    """Return forward passes of an interleaved schedule before the first backward one; all if ``m`` equals ``p``."""
    return m * v if m == p else min((p - stage - 1) * 2 + (v - 1) * round_of, m * v)


def _plain_play(is_gpipe: bool, m: int, task_s: NDArray[np.float64], send_s: NDArray[np.float64], overlaps_sends: bool) -> Played:
    """Play by the closed forms of `plain_schedules`."""
    forward, backward, way = kept_s(task_s, send_s, overlaps_sends)
    span = plain_spans_s(is_gpipe, m, forward, backward, way)
    send_forward = np.append(send_s[: len(way) - 1], 0.0) if overlaps_sends else np.zeros(len(way))
    first = np.append(0.0, np.cumsum(forward + send_forward)[:-1])
    return Played(float(span.max()), span, m * (forward + backward), first)


def _plain(p: int, m: int, schedule: str) -> Tasks:
    """Play GPipe, 1F1B and eager 1F1B, which differ in the forward passes before the first backward one."""
    made = np.zeros((p, 2 * m, 3), np.int32)
    for stage in range(p):
        behind = p - stage - 1
        warm_up = m if schedule == "gpipe" else min(2 * behind if schedule == EAGER else behind, m)
        kinds = [FORWARD] * warm_up + [FORWARD, BACKWARD] * (m - warm_up) + [BACKWARD] * warm_up
        made[stage, :, 0] = kinds
        for kind in (FORWARD, BACKWARD):
            made[stage, made[stage, :, 0] == kind, 2] = np.arange(m)
    return made


def _interleaved(p: int, v: int, m: int, round_of: int) -> Tasks:
    """Play Megatron-LM's order: rounds of micro-batches through every chunk in turn, the last one of what is left."""
    total = m * v
    made = np.zeros((p, 2 * total, 3), np.int32)
    k = np.arange(total)
    first = k // (round_of * v) * round_of
    size = np.minimum(round_of, m - first)
    place = (k - first * v) // size
    micro = first + (k - first * v) % size
    for stage in range(p):
        warm_up = _warm_up(p, v, m, stage, round_of)
        steady = total - warm_up
        kind = np.concatenate([np.full(warm_up, FORWARD), np.tile([FORWARD, BACKWARD], steady), np.full(warm_up, BACKWARD)])
        made[stage, :, 0] = kind
        forward, backward = kind == FORWARD, kind == BACKWARD
        made[stage, forward, 1], made[stage, forward, 2] = place, micro
        made[stage, backward, 1], made[stage, backward, 2] = v - 1 - place, micro
    return made
