"""A step of any training strategy in closed form: what it takes, holds and sends, compared with synchronous training."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ...errors import PlanError
from ...plans.compression import AnyCompression, Quantise, check_compression
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
    check_training,
)
from ...quantities import counted
from .compressed import coded_messages, coded_shards, compressed_s, compression_bytes, sent_share, shard_bytes
from .gossip import gossip_s
from .local_update import held_more_bytes, local_blocks, parts_training, trained_parts
from .masked import PhaseStep, core_replicas, cycle_s, masked_step, parameter_share
from .replicas import Replicas
from .subnets import subnets_s
from .synchronisation import bytes_of_period, periodic_s, server_s, synchronous_s


class StrategyStep(NamedTuple):
    """A layout trained by a strategy.

    Attributes:
        step_s: mean seconds of a step.
        extra_bytes: held by the fullest rank in addition; below 0 where it holds less than in a synchronous step.
        sent_bytes: of gradients or parameters for each step and rank, as buffers; the network carries about twice as much.
        remarks: what the strategy cannot promise, for people.
        phases: steps of each phase, where a job has several.
    """

    step_s: float
    extra_bytes: float
    sent_bytes: float
    remarks: tuple[str, ...] = ()
    phases: tuple[PhaseStep, ...] = ()


def strategy_step(replicas: Replicas, training: AnyTraining, compression: AnyCompression | None = None) -> StrategyStep:
    """Return the closed form of a strategy.

    Args:
        replicas: of the layout; `check_strategy` has accepted the strategy.
        training: the strategy.
        compression: the code of the gradients.

    Raises:
        PlanError: the job or layout cannot be trained so.
    """
    held, n = replicas.gradient_bytes, replicas.num_replicas
    extra, sent = training.extra_bytes(held, n), held if n > 1 else 0.0
    remarks: list[str] = []
    phases: tuple[PhaseStep, ...] = ()
    match training:
        case Synchronous():
            step_s = synchronous_s(replicas)
            if isinstance(compression, Quantise) and replicas.layout.zero >= 3:
                coded = coded_shards(replicas.work, compression)
                step_s = synchronous_s(replace(replicas, work=coded))
                extra, sent = extra + shard_bytes(coded, compression), sent * sent_share(coded, compression)
            elif compression is not None and replicas.num_summing > 1:
                step_s = compressed_s(replicas, compression)
                extra += compression_bytes(replicas, compression)
                sent = sum(message.payload_bytes for message in coded_messages(replicas, compression)[0](0))
        case LocalSgd() | PostLocalSgd() | DiLoCo():
            step_s = periodic_s(replicas, training)
            sent = bytes_of_period(training, sent)
        case StaleSynchronous() | Asynchronous():
            step_s = server_s(replicas, training)
            remarks.append(f"the parameter server is {counted(training.servers, 'more host')}, not in the layout")
        case Gossip():
            step_s = gossip_s(replicas, training)
        case IndependentSubnets():
            step_s, sent = subnets_s(replicas, training)
            remarks.append("biased: may not reach the data-parallel optimum")
            if n > 1:
                remarks.append(f"a weight between hidden layers is trained in one of {n} rounds in the mean")
        case LocalUpdate() if training.has_epochs:
            parts = parts_training(training, trained_parts(replicas, training), replicas.layout, synchronous_s(replicas))
            step_s, sent = parts.step_s, 0.0
            extra += held_more_bytes(replicas.work, training) + parts.label_bytes
            remarks += [*parts.remarks(), _shown_on(training)]
        case LocalUpdate():
            blocks, layout = local_blocks(replicas, training), replicas.layout
            # Micro-batches stream through the stages, which send activations and errors behind computation.
            step_s = layout.num_micro_batches * blocks.streaming_s(training.error_stride(layout.pp))
            sent, extra = 0.0, extra + held_more_bytes(replicas.work, training)
            error_bytes = sum(blocks.error_bytes) * layout.num_micro_batches
            if error_bytes:
                remarks.append(f"error signals of {error_bytes / 1e6:,.4g} MB go back in a step, and no gradients of activations")
            remarks.append(_shown_on(training))
        case Masked():
            core = core_replicas(replicas, training)
            result = masked_step(training, replicas, core, parameter_share(replicas.work, core.work))
            phases, sent = (result.core, result.full), result.sent_bytes
            step_s = cycle_s(result.core.step_s, result.full.step_s, training) / training.num_steps
            remarks.append(result.remark(training))
    return StrategyStep(step_s, extra, sent, tuple(remarks), phases)


def check_strategy(job: str, layout: Layout, training: AnyTraining, compression: AnyCompression | None) -> None:
    """Refuse a strategy that a job or layout cannot be trained by.

    Args:
        job: its name, for the refusal.
        layout, training, compression: what goes together or does not.

    Raises:
        PlanError: with the key that is in the way.
    """
    check_training(training, layout)
    if layout.is_meshed and (compression is not None or training.kind != "synchronous"):
        problem = "of its own for a stage goes with synchronous training, whose gradients go as they are"
        raise PlanError(problem, field="layout.stage_meshes", value=training.kind)
    if compression is not None:
        check_compression(layout, compression)
        if training.kind != "synchronous":
            raise PlanError("goes with kind=synchronous, whose gradients it codes", field="compression", value=training.kind)
    if isinstance(training, LocalUpdate) and not training.force:
        problem = f"{_shown_on(training)}; force=true prices it for {job}"
        raise PlanError(problem, field="training.preset")


def _shown_on(training: LocalUpdate) -> str:
    return f"preset={training.preset} was shown on small dense networks only"
