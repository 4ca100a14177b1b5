"""Parts of a model that are trained by themselves, as execution graphs."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ...costs.pipelines.schedules import orders
from ...costs.pipelines.tasks import BACKWARD, FORWARD
from ...costs.training.local_update import TrainedPart, parts_training
from ...plans.partition import Layout
from ...plans.strategies.local_update import LocalUpdate
from .rounds import WorkerRounds

LOWERED_STEPS = 3
"""Steps of a part that are lowered; a step takes what the last of them takes behind the others."""


def simulated_parts_s(training: LocalUpdate, parts: Sequence[TrainedPart], layout: Layout, recovery_s: float) -> float:
    """Mean seconds of a step by the event path: steps of each part, and what goes forward through it, are lowered and run.

    Args:
        training, parts, layout: as of `parts_training`.
        recovery_s: of a step of the whole model, run too.
    """
    run = []
    for part in parts:
        ends = part_ends_s(part, layout, LOWERED_STEPS)
        run.append(part._replace(step_s=ends[-1] - ends[-2]))

    def sending_s(part: TrainedPart, num_micro_batches: float) -> float:
        ends = sending_ends_s(part, LOWERED_STEPS * layout.num_micro_batches + 1)
        return ends[-1] + (num_micro_batches - len(ends)) * (ends[-1] - ends[-2])

    return parts_training(training, run, layout, recovery_s, sending_s).step_s


def part_ends_s(part: TrainedPart, layout: Layout, num_steps: int) -> list[float]:
    """Return the time at which each of some steps of a part of a model ends; the part is a pipeline by itself.

    Args:
        part: its stages.
        layout: its schedule and micro-batches, and whether a stage continues while it sends.
        num_steps: one behind the other; a stage begins the next one when its weights are updated.
    """
    k, m = len(part.forward_s), layout.num_micro_batches
    put, lasts = WorkerRounds(k), []
    rows, last = orders(layout.schedule, k, 1, m), [list[int]() for _ in range(k)]

    def follow(stage: int, seconds: float, after: Sequence[int] = ()) -> int:
        """A stage keeps the order of its tasks, whatever is there already."""
        task = put.step(stage, seconds, [*last[stage], *after])
        last[stage] = [task]
        return task

    for _ in range(num_steps):
        done: dict[tuple[int, int, int], list[int]] = {(FORWARD, -1, micro_batch): [] for micro_batch in range(m)}
        left = [deque((int(kind), int(micro_batch)) for kind, _, micro_batch in row) for row in rows]
        while any(left):
            for stage, row in enumerate(left):
                while row:
                    kind, micro_batch = row[0]
                    before = (FORWARD, stage - 1, micro_batch)
                    if kind == BACKWARD:
                        before = (BACKWARD, stage + 1, micro_batch) if stage < k - 1 else (FORWARD, stage, micro_batch)
                    if before not in done:
                        break
                    row.popleft()
                    task = follow(stage, (part.forward_s, part.backward_s)[kind][stage], done[before])
                    way = stage if kind == FORWARD else stage - 1
                    if 0 <= way < k - 1:
                        sent_s = part.send_s[way]
                        task = put.sent([stage], sent_s, 0.0, [task]) if layout.overlap_pp else follow(stage, sent_s)
                    done[kind, stage, micro_batch] = [task]
        lasts.append([follow(stage, part.update_s[stage]) for stage in range(k)])
    finish = put.finish_s()
    return [float(finish[tasks].max()) for tasks in lasts]


def sending_ends_s(part: TrainedPart, num_micro_batches: int) -> list[float]:
    """Time at which each of some micro-batches has gone forward through a part and over the cut behind it."""
    ways_s = (*part.send_s, part.crossing_s)
    put, lasts = WorkerRounds(len(part.forward_s)), []
    for _ in range(num_micro_batches):
        destinations: list[int] = []
        for stage, forward_s in enumerate(part.forward_s):
            destinations = [put.sent([stage], ways_s[stage], 0.0, [put.step(stage, forward_s, destinations)])]
        lasts += destinations
    return [float(one) for one in put.finish_s()[lasts]]
