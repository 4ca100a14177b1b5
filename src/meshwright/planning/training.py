"""Training strategies of a job under a layout: what a step takes, in closed form and by the event path.

A strategy with a declared multiplier is compared by ``multiplier x step``. Of one without, only its break-even is told: how many
times the steps of synchronous training it may want before it is no faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..costs.settings import CostSettings
from ..costs.training.compressed import coded_messages, coded_shards
from ..costs.training.gossip import round_s, rounds_of
from ..costs.training.local_update import local_blocks, makes_own_targets, trained_parts
from ..costs.training.masked import PhaseStep, core_replicas
from ..costs.training.replicas import shown
from ..costs.training.strategy_step import check_strategy, strategy_step
from ..costs.training.subnets import subnet_round
from ..costs.training.synchronisation import drawn_steps, num_carrying, server_round_s, synchronous_s
from ..costs.work.step_work import StepWork
from ..errors import PlanError
from ..plans.compression import AnyCompression, Quantise, exactness_of, multiplier_source, parse_compression, steps_multiplier
from ..plans.document import Figure
from ..plans.strategies.local_update import LocalUpdate
from ..plans.training import (
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
    parse_training,
)
from ..simulation.layouts.running import run_layout
from ..simulation.training.parts import simulated_parts_s
from ..simulation.training.phases import masked_step_s, periodic_step_s
from ..simulation.training.rounds import (
    gossip_rounds_s,
    local_blocks_s,
    periodic_rounds_s,
    server_rounds_rate,
    subnet_rounds_s,
)
from .job_work import JobWork

SIMULATED_ROUNDS = 64
"""Steps of every worker that are simulated where workers do not wait for each other in every step."""


STREAMED_STEPS = 4
"""Steps of a stream of micro-batches that are simulated; all but the first count, as a stream may end in a burst."""


@dataclass(frozen=True)
class TrainingPrice:
    """A layout trained by a strategy.

    Attributes:
        training: the strategy.
        compression: the code of its gradients, if any.
        step_s: mean seconds of a step.
        synchronous_s: of a synchronous step of the same layout, with the same stragglers.
        extra_bytes: held by the fullest rank in addition.
        sent_bytes: of gradients or parameters for each step and rank, as buffers; the network carries about twice as much.
        remarks: what the strategy cannot promise, for people.
        phases: steps of each phase, where a job has several.
        resharding_s: in which the model goes from the places of one phase to those of the next; none where both have one plan.
    """

    training: AnyTraining
    compression: AnyCompression | None
    step_s: float
    synchronous_s: float
    extra_bytes: float
    sent_bytes: float
    remarks: tuple[str, ...] = ()
    phases: tuple[PhaseStep, ...] = ()
    resharding_s: float = 0.0

    @property
    def multiplier(self) -> float | None:
        """Steps needed over synchronous ones; None where none was declared."""
        return steps_multiplier(self.training, self.compression)

    @property
    def source(self) -> str:
        """The source of the multiplier."""
        return multiplier_source(self.training, self.compression)

    @property
    def effective_s(self) -> float | None:
        """``multiplier x step``, in which strategies may be compared; None without a multiplier."""
        return None if self.multiplier is None else self.multiplier * self.step_s

    @property
    def is_exact(self) -> bool:
        """Whether it is synchronous training up to the order of additions."""
        return exactness_of(self.training, self.compression) == "exact"

    @property
    def text(self) -> str:
        """The strategy as ``--training`` and ``--compression`` spell it."""
        return self.training.text + (f" with {self.compression.text}" if self.compression else "")

    def break_even(self, exact_s: float | None = None) -> float:
        """The break-even ``rho*``: the strategy is faster only if it needs fewer than this many times the steps.

        Args:
            exact_s: seconds of a step of the best exact training; by default of the same layout.
        """
        return (self.synchronous_s if exact_s is None else exact_s) / self.step_s

    def told(self, exact_s: float | None = None) -> str:
        """What may be said of it, for people."""
        if self.is_exact:
            return ""
        rho = self.break_even(exact_s)
        if self.multiplier is None:
            return f"faster only if it needs fewer than {rho:.4g} times the steps; no multiplier is declared, so it is not ranked"
        return f"{self.multiplier:g} times the steps ({self.source}); break-even {rho:.4g}"

    def figures(self) -> tuple[Figure, ...]:
        """``steps_multiplier`` and ``effective_step_s``, where a multiplier is declared, with what is held in addition."""
        found = [("extra_memory_bytes", self.extra_bytes, "bytes")] if self.extra_bytes > 0 else []
        if self.multiplier is not None and not self.is_exact:
            assert self.effective_s is not None
            found += [("steps_multiplier", self.multiplier, "1"), ("effective_step_s", self.effective_s, "s")]
        return tuple(Figure.predicted(name, value, unit) for name, value, unit in found)

    def to_data(self, exact_s: float | None = None) -> dict[str, Any]:
        """The price as plain data."""
        data: dict[str, Any] = {
            "training": self.training.model_dump(mode="json", exclude_none=True),
            "exactness": exactness_of(self.training, self.compression),
            "step_s": self.step_s,
            "synchronous_step_s": self.synchronous_s,
            "break_even_multiplier": self.break_even(exact_s),
            "extra_memory_bytes": self.extra_bytes,
            "sent_bytes_per_step": self.sent_bytes,
            "remarks": list(self.remarks),
        }
        if self.compression is not None:
            data["compression"] = self.compression.model_dump(mode="json", exclude_none=True)
        if self.phases:
            data["phases"] = [one._asdict() for one in self.phases]
            data["resharding_s"] = self.resharding_s
        if self.multiplier is not None:
            data |= {"steps_multiplier": self.multiplier, "effective_step_s": self.effective_s, "multiplier_source": self.source}
        return data


def strategies_of(training: str | None, compression: str | None) -> list[tuple[AnyTraining, AnyCompression | None]]:
    """The strategies that two texts spell; a code goes with synchronous training, which need not be named.

    Raises:
        PlanError: an unknown kind or key, or an impossible value.
    """
    kinds: tuple[AnyTraining, ...] = parse_training(training) if training else ()
    codes = parse_compression(compression) if compression else ()
    return [(one, None) for one in kinds] + [(Synchronous(), code) for code in codes]


def check_trained_on(maker: JobWork, asked: Sequence[tuple[AnyTraining, AnyCompression | None]]) -> None:
    """Refuse strategies that are not priced on devices of several types.

    Raises:
        PlanError: there is one.
    """
    if maker.stage_devices is None:
        return
    names = ", ".join(kind.name for kind in maker.cluster.device_types)
    if any(training.kind == "masked" for training, _ in asked):
        raise PlanError(f"kind=masked is priced on devices of one type, not {names}", field="training")


def price_training(
    maker: JobWork, work: Any, training: AnyTraining, compression: AnyCompression | None = None, order: str | None = None
) -> TrainingPrice:
    """The closed form of a strategy.

    Args:
        maker: the job on its cluster.
        work: of a layout.
        training: the strategy.
        compression: the code of the gradients.
        order: how ranks are numbered; by default in the layout's own order.

    Raises:
        PlanError: the job or layout cannot be trained so.
    """
    check_strategy(maker.name, work.layout, training, compression)
    replicas = maker.replicas(work, order)
    found = strategy_step(replicas, training, compression)
    exact_s = synchronous_s(replicas)
    return TrainingPrice(
        training, compression, found.step_s, exact_s, found.extra_bytes, found.sent_bytes, found.remarks, found.phases
    )


def simulated_training_s(
    maker: JobWork,
    work: StepWork,
    training: AnyTraining,
    compression: AnyCompression | None = None,
    costs: CostSettings | None = None,
) -> float:
    """Mean seconds of a step by the event path: the execution graph of the strategy, run.

    Raises:
        PlanError: the job or layout cannot be trained so, or the kind has no event path of its own.
    """
    check_strategy(maker.name, work.layout, training, compression)
    costs = (costs or maker.costs).of_layouts
    devices = maker.devices(work.layout.world)
    replicas = replace(maker.replicas(work), straggler_sigma=costs.straggler_sigma)
    n, sigma = replicas.num_replicas, costs.straggler_sigma

    def run(one: Any) -> float:
        return run_layout(maker.simulated(one), maker.cluster, devices, costs).step_s

    if isinstance(training, Synchronous) and sigma == 0:
        if compression is None or replicas.num_summing == 1:
            return run(work)
        if isinstance(compression, Quantise) and work.layout.zero >= 3:
            return run(coded_shards(work, compression))
        sent, codecs = coded_messages(replicas, compression)
        step = maker.simulated(work).over(lambda stage, _: sent(stage), codecs)
        return run_layout(step, maker.cluster, devices, costs).step_s
    if isinstance(training, Masked) and sigma == 0:
        narrow = core_replicas(replicas, training).work
        return masked_step_s(maker.simulated(work), maker.simulated(narrow), training, maker.cluster, devices, costs)
    if isinstance(training, LocalUpdate) and training.has_epochs:
        return simulated_parts_s(training, trained_parts(replicas, training), work.layout, run(work))
    if isinstance(training, LocalUpdate):
        blocks, m = local_blocks(replicas, training), replicas.layout.num_micro_batches
        stride, is_local = training.error_stride(replicas.layout.pp), makes_own_targets(training)
        ends = local_blocks_s(*blocks[:5], stride, STREAMED_STEPS * m, is_local=is_local)
        return (ends[-1] - ends[m - 1]) / (STREAMED_STEPS - 1)
    local = shown(work).with_gradient_share(0.0)
    local_s = run(local)
    if n == 1:
        return local_s
    if isinstance(training, LocalSgd | PostLocalSgd | DiLoCo) and sigma == 0:
        parts = [(1.0, training.every)]
        if isinstance(training, PostLocalSgd):
            first = training.warmup_steps / training.num_steps
            parts = [(first, 1), (1 - first, training.every)]
        share = training.quantise_bits / 32 if isinstance(training, DiLoCo) else 1.0
        if not (isinstance(training, DiLoCo) and (training.overlap or training.fragments > 1)):
            step = maker.simulated(work)
            return sum(part * periodic_step_s(step, every, share, maker.cluster, devices, costs) for part, every in parts if part)
    workers_s = replicas.workers_s if replicas.alone else np.full(n, local_s)
    times_s = drawn_steps(workers_s, sigma, SIMULATED_ROUNDS if sigma == 0 else 16 * SIMULATED_ROUNDS)
    if isinstance(training, DiLoCo | LocalSgd | Synchronous):
        every = 1 if isinstance(training, Synchronous) else training.every
        fragments = training.fragments if isinstance(training, DiLoCo) else 1
        share = (training.quantise_bits / 32 if isinstance(training, DiLoCo) else 1.0) / fragments
        sent_s = replicas.averaged_s(share) - replicas.local_s
        periods = max(4, len(times_s) // every)
        times_s = np.resize(times_s, (periods * every, n))
        overlap = isinstance(training, DiLoCo) and training.overlap
        return periodic_rounds_s(
            times_s, every, sent_s, fragments, overlap=overlap, payload_bytes=share * replicas.gradient_bytes
        )
    if isinstance(training, Gossip):
        found = rounds_of(replicas, training.topology)
        return gossip_rounds_s(times_s, found, [round_s(replicas, one) for one in found], replicas.gradient_bytes)
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
    raise PlanError("is told in closed form only", field="training.kind", value=training.kind)
