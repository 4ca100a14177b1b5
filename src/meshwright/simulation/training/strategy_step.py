"""A step of any training strategy, or of parts that learn apart, by events; `costs.training.strategy_step` has closed forms."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...clusters.cluster import Cluster
from ...costs.pipelines.schedules import orders
from ...costs.pipelines.tasks import BACKWARD, FORWARD
from ...costs.settings import CostSettings
from ...costs.training.compressed import coded_messages, coded_shards
from ...costs.training.gossip import round_s, rounds_of
from ...costs.training.local_update import TrainedPart, local_blocks, makes_own_targets, parts_training, trained_parts
from ...costs.training.masked import core_replicas
from ...costs.training.replicas import Replicas, shown
from ...costs.training.strategy_step import check_strategy
from ...costs.training.subnets import subnet_round
from ...costs.training.synchronisation import drawn_steps, num_carrying, server_round_s
from ...costs.work.step_work import StepWork
from ...errors import PlanError
from ...plans.compression import AnyCompression, Quantise
from ...plans.partition import Layout
from ...plans.strategies.local_update import LocalUpdate
from ...plans.training import (
    AnyTraining,
    Asynchronous,
    DiLoCo,
    Gossip,
    IndependentSubnets,
    LocalSgd,
    Masked,
    PostLocalSgd,
    StaleSynchronous,
    Synchronous,
)
from ..layouts.running import run_layout
from ..layouts.step_model import StepModel
from .phases import masked_step_s, periodic_step_s
from .rounds import WorkerRounds, gossip_rounds_s, local_blocks_s, periodic_rounds_s, server_rounds_rate, subnet_rounds_s

LOWERED_STEPS = 3
"""Steps of a part that are lowered; a step takes what the last of them takes behind the others."""

SIMULATED_ROUNDS = 64
"""Steps of every worker that are simulated where workers do not wait for each other in every step."""

STREAMED_STEPS = 4
"""Steps of a stream of micro-batches that are simulated; all but the first count, as a stream may end in a burst."""


class TrainedJob(Protocol):
    """A job on a cluster, such as `planning.job_work.JobWork`."""

    @property
    def name(self) -> str:
        """The job's name."""

    @property
    def cluster(self) -> Cluster:
        """Where it is trained."""

    @property
    def costs(self) -> CostSettings:
        """Choices of the cost model."""

    def devices(self, count: int) -> NDArray[np.int64]:
        """Return the devices of a number of ranks, in rank order, ``(count,)``."""

    def replicas(self, work: Any) -> Replicas:
        """Return the replicas of a layout."""

    def simulated(self, work: Any) -> StepModel:
        """Return the step as the event path reads it."""


def simulated_training_s(
    job: TrainedJob,
    work: StepWork,
    training: AnyTraining,
    compression: AnyCompression | None = None,
    costs: CostSettings | None = None,
) -> float:
    """Return the mean seconds of a step by the event path: the execution graph of the strategy, run.

    Args:
        job: with its cluster.
        work: of a layout.
        training: the strategy.
        compression: the code of the gradients.
        costs: choices of the cost model; by default those of the job.

    Raises:
        PlanError: the job or layout cannot be trained so, or has no event path, as a core and coded gradients with stragglers.
    """
    check_strategy(job.name, work.layout, training, compression)
    costs = (costs or job.costs).of_layouts
    devices = job.devices(work.layout.world)
    replicas = replace(job.replicas(work), straggler_sigma=costs.straggler_sigma)
    n, sigma = replicas.num_replicas, costs.straggler_sigma
    is_coded = compression is not None and replicas.num_summing > 1
    if sigma > 0 and (is_coded or isinstance(training, Masked)):
        problem = "has closed forms alone where gradients are coded or a core is trained"
        raise PlanError(problem, field="costs.straggler_sigma", value=sigma)

    def run(one: Any) -> float:
        return run_layout(job.simulated(one), job.cluster, devices, costs).step_s

    if isinstance(training, Synchronous) and sigma == 0:
        if compression is None or not is_coded:
            return run(work)
        if isinstance(compression, Quantise) and work.layout.zero >= 3:
            return run(coded_shards(work, compression))
        sent, codecs = coded_messages(replicas, compression)
        step = job.simulated(work).over(lambda stage, _: sent(stage), codecs)
        return run_layout(step, job.cluster, devices, costs).step_s
    if isinstance(training, Masked):
        narrow = core_replicas(replicas, training).work
        return masked_step_s(job.simulated(work), job.simulated(narrow), training, job.cluster, devices, costs)
    if isinstance(training, LocalUpdate) and training.has_epochs:
        return simulated_parts_s(training, trained_parts(replicas, training), work.layout, run(work))
    if isinstance(training, LocalUpdate):
        blocks, m = local_blocks(replicas, training), replicas.layout.num_micro_batches
        stride, is_local = training.error_stride(replicas.layout.pp), makes_own_targets(training)
        ends = local_blocks_s(*blocks[:5], stride, STREAMED_STEPS * m, is_local=is_local)
        return (ends[-1] - ends[m - 1]) / (STREAMED_STEPS - 1)
    local_s = run(shown(work).with_gradient_share(0.0))
    if n == 1:
        return local_s
    workers_s = replicas.workers_s if replicas.alone else np.full(n, local_s)
    times_s = drawn_steps(workers_s, sigma, SIMULATED_ROUNDS if sigma == 0 else 16 * SIMULATED_ROUNDS)
    if isinstance(training, DiLoCo | LocalSgd | PostLocalSgd | Synchronous):
        share, fragments, overlap = 1.0, 1, False
        if isinstance(training, DiLoCo):
            share, fragments, overlap = training.quantise_bits / 32, training.fragments, training.overlap

        def period_s(every: int) -> float:
            if sigma == 0 and not overlap and fragments == 1:
                return periodic_step_s(job.simulated(work), every, share, job.cluster, devices, costs)
            sent = share / fragments
            drawn_s = np.resize(times_s, (max(4, len(times_s) // every) * every, n))
            sent_s, payload_bytes = replicas.averaged_s(sent) - replicas.local_s, sent * replicas.gradient_bytes
            return periodic_rounds_s(drawn_s, every, sent_s, fragments, overlap=overlap, payload_bytes=payload_bytes)

        return sum(part * period_s(every) for part, every in _periods(training) if part)
    if isinstance(training, Gossip):
        rounds = rounds_of(replicas, training.topology)
        return gossip_rounds_s(times_s, rounds, [round_s(replicas, one) for one in rounds], replicas.gradient_bytes)
    if isinstance(training, StaleSynchronous | Asynchronous):
        staleness = training.staleness if isinstance(training, StaleSynchronous) else None
        way_s = server_round_s(replicas)
        rate = server_rounds_rate(times_s, way_s, staleness)
        return n / (min(rate, num_carrying(replicas, training) / way_s) if way_s > 0 else rate)
    if isinstance(training, IndependentSubnets):
        dealt, rounds_lowered = subnet_round(replicas), 8 if sigma == 0 else 4 * SIMULATED_ROUNDS
        steps = drawn_steps(np.full(n, dealt.sub_s), sigma, rounds_lowered * training.every)
        spans_s = steps.reshape(rounds_lowered, training.every, n).sum(axis=1)  # the local steps of a round are one task
        is_central = training.server == "central"
        return subnet_rounds_s(spans_s, dealt.way_s, is_central=is_central, payload_bytes=dealt.subnet_bytes) / training.every
    raise PlanError("has a closed form alone", field="training.kind", value=training.kind)


def _periods(training: DiLoCo | LocalSgd | PostLocalSgd | Synchronous) -> list[tuple[float, int]]:
    """Return the shares of all steps, and the steps of a period there."""
    if isinstance(training, PostLocalSgd):
        first = training.warmup_steps / training.num_steps
        return [(first, 1), (1 - first, training.every)]
    return [(1.0, 1 if isinstance(training, Synchronous) else training.every)]


def simulated_parts_s(training: LocalUpdate, parts: Sequence[TrainedPart], layout: Layout, recovery_s: float) -> float:
    """Return mean step seconds by the event path: steps of each part, and what goes forward through it, lowered and run.

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
        """Let a stage keep the order of its tasks, whatever is there already."""
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
    """Return the time at which each of some micro-batches has gone forward through a part and over the cut behind it."""
    ways_s = (*part.send_s, part.crossing_s)
    put, lasts = WorkerRounds(len(part.forward_s)), []
    for _ in range(num_micro_batches):
        destinations: list[int] = []
        for stage, forward_s in enumerate(part.forward_s):
            destinations = [put.sent([stage], ways_s[stage], 0.0, [put.step(stage, forward_s, destinations)])]
        lasts += destinations
    return [float(one) for one in put.finish_s()[lasts]]
