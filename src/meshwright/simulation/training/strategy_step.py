"""A step of any training strategy by the event path; `costs.training.strategy_step` has the closed form."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...clusters.cluster import Cluster
from ...costs.settings import CostSettings
from ...costs.training.compressed import coded_messages, coded_shards
from ...costs.training.gossip import round_s, rounds_of
from ...costs.training.local_update import local_blocks, makes_own_targets, trained_parts
from ...costs.training.masked import core_replicas
from ...costs.training.replicas import Replicas, shown
from ...costs.training.strategy_step import check_strategy
from ...costs.training.subnets import subnet_round
from ...costs.training.synchronisation import drawn_steps, num_carrying, server_round_s
from ...costs.work.step_work import StepWork
from ...errors import PlanError
from ...plans.compression import AnyCompression, Quantise
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
from .parts import simulated_parts_s
from .phases import masked_step_s, periodic_step_s
from .rounds import gossip_rounds_s, local_blocks_s, periodic_rounds_s, server_rounds_rate, subnet_rounds_s

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
        """The devices of a number of ranks, in rank order, ``(count,)``."""

    def replicas(self, work: Any) -> Replicas:
        """The replicas of a layout."""

    def simulated(self, work: Any) -> StepModel:
        """The step as the event path reads it."""


def simulated_training_s(
    job: TrainedJob,
    work: StepWork,
    training: AnyTraining,
    compression: AnyCompression | None = None,
    costs: CostSettings | None = None,
) -> float:
    """Mean seconds of a step by the event path: the execution graph of the strategy, run.

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
    """Shares of all steps, and the steps of a period there."""
    if isinstance(training, PostLocalSgd):
        first = training.warmup_steps / training.num_steps
        return [(first, 1), (1 - first, training.every)]
    return [(1.0, 1 if isinstance(training, Synchronous) else training.every)]
