"""Layouts as Chakra traces, gossip, and the choice of the job's description for the work of its ranks.

A layout of data and pipeline parallelism needs the plan's job graph and its stages alone. One that cuts layers or gathers their
parameters also needs the shape of a transformer, since a job graph has no heads. The plan embeds the shape, or it comes from
the zoo and must give the plan's graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...clusters.cluster import Cluster
from ...costs.process_groups.group_network import group_network
from ...costs.settings import CostSettings
from ...costs.training_step.graph_step_time import GraphPricer
from ...costs.work.graph_work import describe_graph
from ...costs.work.work import describe
from ...errors import ExportError, GraphError
from ...jobs.graph import JobGraph
from ...jobs.masked import Core
from ...jobs.transformer import TransformerShape
from ...jobs.zoo.catalogue import zoo_shape
from ...plans.compression import Quantise
from ...plans.document import PlacementPlan
from ...plans.partition import Layout
from ...plans.training import DiLoCo, Gossip, LocalSgd, PostLocalSgd
from ...plans.transformer import gives

if TYPE_CHECKING:
    from ...simulation.layouts.step_model import StepModel
    from ...simulation.step.timeline import Timeline
    from .nodes import TaskWork


MOST_STEPS = 64
"""Steps of a period that a trace holds."""


def layout_step_of(
    plan: PlacementPlan, layout: Layout, graph: JobGraph, cluster: Cluster, core: Core | None = None
) -> tuple[Timeline, TaskWork]:
    """Return one simulated step of a layout and the work of its tasks; of a core, where one is named.

    Raises:
        ExportError: the layout cuts layers and the plan has no shape of a transformer, or the ranks have devices of several
            types.
        GraphError, PlanError, ConfigError: the job cannot be cut or timed so.
    """
    from ...simulation.layouts.running import run_layout
    from .nodes import TaskWork

    place = {_number(plan, layout, rank): rank for rank in range(plan.num_ranks)}
    rank_of = tuple(place[number] for number in range(plan.num_ranks))
    devices = plan.placement().devices[list(rank_of)]
    whole = _step(plan, layout, graph, cluster, devices)
    if isinstance(plan.training, Gossip):
        return gossip_steps(plan.training, whole.on(devices), graph, rank_of)
    step, num_steps = _trained(plan, whole, core)
    ran = run_layout(step, cluster, devices, CostSettings(), num_steps=num_steps)
    lowered = ran.lowered
    return ran.timeline, TaskWork(lowered.op_names, lowered.operations, lowered.flops, lowered.moved_bytes, rank_of)


def _trained(plan: PlacementPlan, step: StepModel, core: Core | None) -> tuple[StepModel, int]:
    """Return the step with coded gradients, or the steps from one average to the next, and how many steps that is.

    Of post-local SGD those are the steps behind its warm-up.

    Raises:
        ExportError: a period of more steps than a trace should hold.
    """
    from ...costs.training.compressed import coded_messages, coded_shards
    from ...costs.training.masked import core_work
    from ...costs.training.replicas import Replicas
    from ...simulation.layouts.step_model import StepModel as TrainedStep
    from ...simulation.training.phases import local_period

    if isinstance(plan.compression, Quantise) and step.layout.zero >= 3:
        return type(step)(coded_shards(step.work, plan.compression), step.pricer), 1
    if plan.compression is not None:
        sent, codecs = coded_messages(Replicas(step.work, step.pricer), plan.compression)
        return TrainedStep.over(step, lambda stage, _: sent(stage), codecs), 1
    if isinstance(plan.training, LocalSgd | PostLocalSgd | DiLoCo):
        if isinstance(plan.training, DiLoCo) and (plan.training.overlap or plan.training.fragments > 1):
            key, value = ("overlap", True) if plan.training.overlap else ("fragments", plan.training.fragments)
            raise ExportError("a trace holds steps and then one average", field=f"training.{key}", value=value)
        if plan.training.every > MOST_STEPS:
            problem = f"a trace holds a whole period, of {MOST_STEPS} steps at most"
            raise ExportError(problem, field="training.every", value=plan.training.every)
        share = plan.training.quantise_bits / 32 if isinstance(plan.training, DiLoCo) else 1.0
        return local_period(step, plan.training.every, share), plan.training.every
    if core is not None:
        work = core_work(step.work, core, step.pricer.device.kernel_launch_s)
        return type(step)(work, step.pricer), 1
    return step, 1


def gossip_steps(training: Gossip, step: StepModel, graph: JobGraph, rank_of: tuple[int, ...]) -> tuple[Timeline, TaskWork]:
    """Return the steps of a cycle of rounds, each a computation of every rank and the messages of its round.

    Args:
        training: the topology.
        step: of the layout.
        graph: the job.
        rank_of: the plan's rank of each simulated one.

    Raises:
        ExportError: replicas of several ranks.
        PlanError: replicas that the topology cannot pair.
    """
    from ...costs.training.gossip import round_s, rounds_of
    from ...costs.training.replicas import Replicas
    from ...simulation.step import kernel
    from ...simulation.step.execution import TaskKind
    from ...simulation.step.timeline import Timeline
    from ...simulation.training.rounds import gossip_rounds
    from .nodes import TaskWork

    layout = step.layout
    if layout.world > layout.dp:
        key = "pp" if layout.pp > 1 else "tp"
        raise ExportError("gossip is traced for replicas of one rank", field=f"layout.{key}", value=getattr(layout, key))
    replicas = Replicas(step.work, step.pricer)
    result = rounds_of(replicas, training.topology)
    times_s = np.full((max(1, len(result)), layout.dp), replicas.local_s)
    put, _ = gossip_rounds(times_s, result, [round_s(replicas, one) for one in result], replicas.gradient_bytes)
    execution = put.execution()
    names = ("step", *(f"average of round {number + 1}" for number in range(len(result))))
    operations = ("all_reduce", *("send_recv" if one.is_exchange else "all_reduce" for one in result))
    computes = execution.kind == TaskKind.COMPUTE
    share = layout.global_batch / (graph.samples_per_step or layout.global_batch) / layout.dp
    flops = share * float(graph.forward_flops.sum() + graph.backward_flops.sum()) * computes
    moved = 3.0 * share * float(graph.moved_bytes.sum()) * computes
    return Timeline(execution, *kernel.schedule(execution)), TaskWork(names, operations, flops, moved, rank_of)


def _number(plan: PlacementPlan, layout: Layout, rank: int) -> int:
    """Place of a rank of the plan in the layout's own order."""
    at = plan.ranks[rank].coordinates
    if at is None:
        raise ExportError("has no coordinates", field=f"rank {rank}")
    own = layout.at(at.pp)
    return layout.first_rank(at.pp) + ((at.dp * own.cp + at.cp) * own.sp + at.sp) * own.tp + at.tp


def _step(plan: PlacementPlan, layout: Layout, graph: JobGraph, cluster: Cluster, devices: NDArray[np.int64]) -> StepModel:
    from ...simulation.layouts.running import layout_step
    from ...simulation.layouts.step_model import GraphStep

    if not _cuts_layers(layout):
        types = np.unique(cluster.device_type[devices])
        if len(types) > 1:
            names = ", ".join(cluster.device_types[kind].name for kind in types.tolist())
            raise ExportError(f"a graph of ops is simulated on devices of one type, the ranks have {names}", field="cluster")
        device = cluster.device_types[int(types[0])]
        work = describe_graph(graph, layout, device, CostSettings(), stages=plan.stages)
        return GraphStep(work, GraphPricer(device, group_network(cluster, CostSettings())))
    shape, length = _transformer(plan, graph, layout)
    return layout_step(describe(shape, layout, length), cluster)


def _cuts_layers(layout: Layout) -> bool:
    is_cut = max(layout.tp, layout.cp, layout.ep) > 1
    return (
        is_cut
        or layout.zero >= 2
        or layout.recompute.startswith("selective")
        or layout.parts_gradients
        or layout.is_bidirectional
    )


def _transformer(plan: PlacementPlan, graph: JobGraph, layout: Layout) -> tuple[TransformerShape, int]:
    """Return the shape of a transformer, and the tokens of a sequence, that give this graph: the plan's own, or the zoo's.

    Raises:
        ExportError: there is none.
    """
    problem = (
        "a layout with tp, cp, ep, ZeRO-2 or 3, selective recomputation or a zero-bubble schedule needs job.transformer or a "
        "transformer of the zoo; the job graph does not say what its ranks exchange"
    )
    if plan.job.transformer is not None:
        return plan.job.transformer.shape(graph.name), plan.job.transformer.sequence_length
    try:
        shape = zoo_shape(graph.name)[0]
    except GraphError:
        raise ExportError(problem, field="job", value=graph.name) from None
    samples = graph.samples_per_step or layout.global_batch
    first = graph.activation_bytes[0] / (samples * shape.hidden * 2)  # the embedding's output in half precision
    if first == int(first) and 0 < first <= shape.max_positions and gives(shape.graph(samples, int(first)), graph):
        return shape, int(first)
    raise ExportError(f"{problem}, and this graph is not that of the zoo", field="job", value=graph.name)
