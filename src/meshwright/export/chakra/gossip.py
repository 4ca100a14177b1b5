"""Gossip as Chakra traces: steps of replicas of one rank each, and behind them the averages of one cycle of rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...errors import ExportError
from ...jobs.graph import JobGraph
from ...plans.training import Gossip
from ...simulation.layouts.step_model import StepModel
from ...simulation.step import kernel
from ...simulation.step.execution import TaskKind
from ...simulation.step.timeline import Timeline

if TYPE_CHECKING:
    from .nodes import TaskWork


def gossip_steps(training: Gossip, step: StepModel, graph: JobGraph, rank_of: tuple[int, ...]) -> tuple[Timeline, TaskWork]:
    """The steps of a cycle of rounds, each a computation of every rank and the messages of its round.

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
    from ...simulation.training.rounds import gossip_rounds
    from .nodes import TaskWork

    layout = step.layout
    if layout.world > layout.dp:
        key = "pp" if layout.pp > 1 else "tp"
        raise ExportError("gossip is traced for replicas of one rank", field=f"layout.{key}", value=getattr(layout, key))
    replicas = Replicas(step.work, step.pricer)
    found = rounds_of(replicas, training.topology)
    times_s = np.full((max(1, len(found)), layout.dp), replicas.local_s)
    put, _ = gossip_rounds(times_s, found, [round_s(replicas, one) for one in found], replicas.gradient_bytes)
    execution = put.execution()
    names = ("step", *(f"average of round {number + 1}" for number in range(len(found))))
    operations = ("all_reduce", *("send_recv" if one.is_exchange else "all_reduce" for one in found))
    computes = execution.kind == TaskKind.COMPUTE
    share = layout.global_batch / (graph.samples_per_step or layout.global_batch) / layout.dp
    flops = share * float(graph.forward_flops.sum() + graph.backward_flops.sum()) * computes
    moved = 3.0 * share * float(graph.moved_bytes.sum()) * computes
    return Timeline(execution, *kernel.schedule(execution)), TaskWork(names, operations, flops, moved, rank_of)
