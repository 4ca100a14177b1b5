"""Chakra: the plan's execution graph as MLCommons Chakra execution traces, one for each rank.

One training step is lowered and simulated with the default cost settings. `simulation.step.timeline.simulate` does so for op
splits and plain data parallelism, `simulation.layouts` for other layouts (see `layouts`), `simulation.operators.lowering` for
one micro-batch of ops on devices. It is written in the form that ASTRA-sim and other readers of Chakra traces take:
``trace.RANK.et`` and, for ``--comm-group-configuration``, ``comm_groups.json``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ... import files
from ...costs.settings import CostSettings
from ...errors import ConfigError, ExportError, GraphError, PlanError
from ...jobs.graph import JobGraph
from ...jobs.masked import Core
from ...plans.document import PlacementPlan
from ...plans.partition import Layout
from ...plans.splitting.op_splits import OpSplits
from ...plans.training import Masked
from ..options import ExportOptions
from ..requirements import hosts_of
from ..target import Files, Target
from .schema import RankTrace, Value, encode

if TYPE_CHECKING:
    from ...simulation.step.timeline import Timeline
    from .nodes import TaskWork

GROUPS = "comm_groups.json"

_EMBEDDED_BY = "`meshwright plan` and `meshwright plan --ops` embed it"

_NOT_GUARANTEED = (
    "Placement: a trace knows ranks and no devices; host and device of the rank are in its metadata, and the reader's network "
    "must be described in rank order.",
    "Times: duration_micros is whole microseconds, so short operations may read 0; duration_s is exact.",
    "Messages: readers such as ASTRA-sim take sizes and make their own times; the simulated ones are those of the default cost "
    "settings.",
    "Order: ctrl_deps keep the simulated order on each rank's streams; a reader that follows data_deps only may choose another.",
    "Signals: a dependency between ranks that moves no bytes is a message of size 0, which some readers refuse.",
    "Sizes: comm_size of an all-gather or reduce-scatter is the gathered size; some readers count one rank's part.",
    "Tensors: inputs and outputs are left empty; the job graph knows sizes, not shapes.",
)


def trace_name(rank: int) -> str:
    """Return the file name of a rank's trace; ASTRA-sim takes ``trace`` as the workload."""
    return f"trace.{rank}.et"


def step_of(plan: PlacementPlan, core: Core | None = None) -> tuple[Timeline, TaskWork]:
    """Return one simulated step of a plan, and what its tasks are; of a core, where one is named.

    Raises:
        ExportError: the plan embeds no job graph or cluster, its partition is not lowered, or the job cannot be timed on
            the planned devices.
    """
    from ...simulation.step.timeline import simulate  # compiles; other targets do without
    from .layouts import layout_step_of
    from .nodes import op_split_work

    hosts_of(plan)  # refuses what is no host name
    graph, cluster = plan.job_graph(), plan.embedded_cluster()
    if graph is None:
        raise ExportError(f"the plan embeds no job graph, so there is nothing to execute; {_EMBEDDED_BY}", field="job.graph")
    if cluster is None:
        raise ExportError(f"the plan embeds no cluster, so the time of messages is unknown; {_EMBEDDED_BY}", field="cluster")
    layout, splits = plan.layout(), plan.op_splits()
    is_trained = plan.training is not None or plan.compression is not None or core is not None
    if is_trained and layout is None:
        raise ExportError("strategies are traced for layouts", field="partition")
    if layout is not None and _is_plain(layout, graph) and not is_trained:
        splits = OpSplits(np.full(graph.num_ops, layout.dp))
    try:
        if plan.op_placement() is not None:
            from ...simulation.operators.lowering import run_plan

            step = run_plan(plan, contention=CostSettings().contention)
            return step, op_split_work(step.execution, graph, OpSplits(np.ones(graph.num_ops, np.int64)))
        if splits is not None:
            timeline = simulate(graph, cluster, splits, plan.placement().devices, CostSettings())
            return timeline, op_split_work(timeline.execution, graph, splits)
        if layout is not None:
            return layout_step_of(plan, layout, graph, cluster, core)
    except (ConfigError, GraphError, PlanError) as error:
        raise ExportError(error.problem, field=error.field, value=error.value, choices=error.choices) from None
    raise ExportError("has neither op splits nor a layout nor ops on devices, so the ranks' work is unknown", field="partition")


def traces_of(plan: PlacementPlan, core: Core | None = None) -> tuple[list[RankTrace], dict[str, tuple[int, ...]]]:
    """Return the trace of each rank, and the members of each communicator group; of a step of a core, where one is named.

    Raises:
        ExportError: as `step_of`, or a size that the format cannot hold.
    """
    from .nodes import RankNodes

    timeline, work = step_of(plan, core)
    ranks = RankNodes(timeline, work)
    common: dict[str, Value] = {
        "not_guaranteed": _NOT_GUARANTEED,
        "job": plan.job.name,
        "num_ranks": plan.num_ranks,
        "simulated_step_s": timeline.step_s,
        "cost_settings": CostSettings().digest,
        "comm_groups": files.json_text({name: list(members) for name, members in ranks.groups.items()}),
    }
    predicted = plan.figure("step_s")
    if predicted is not None:
        common["predicted_step_s"] = float(predicted.value)
    traces = [
        RankTrace({**common, "rank": rank.rank, "host": rank.host, "local_rank": rank.local_rank}, tuple(nodes))
        for rank, nodes in zip(plan.ranks, ranks.nodes, strict=True)
    ]
    return traces, ranks.groups


def render(plan: PlacementPlan, options: ExportOptions) -> Files:
    """Return the traces and the communicator groups, of a masked job those of a step of each phase; no option matters.

    Raises:
        ExportError: as `traces_of`.
    """
    if not isinstance(plan.training, Masked):
        return _rendered(plan)
    phases: dict[str, PlacementPlan] = {phase.name: plan.of_phase(phase) for phase in plan.phases or ()}
    whole = plan.model_copy(update={"training": None, "phases": None})
    cores = {"core": plan.training.core, "full": None}
    return {
        f"{name}.{file}": text for name, core in cores.items() for file, text in _rendered(phases.get(name, whole), core).items()
    }


def _rendered(plan: PlacementPlan, core: Core | None = None) -> Files:
    traces, groups = traces_of(plan, core)
    rendered: Files = {trace_name(rank): encode(trace) for rank, trace in enumerate(traces)}
    rendered[GROUPS] = files.json_text({name: list(members) for name, members in groups.items()}) + "\n"
    return rendered


def _is_plain(layout: Layout, graph: JobGraph) -> bool:
    """Return whether a layout is data parallelism in one pass over the graph's own batch, which op splits say as well."""
    return (
        layout.world == layout.dp
        and not layout.shards_optimizer
        and layout.num_micro_batches == 1
        and graph.samples_per_step in (None, layout.global_batch)
        and layout.recompute == "none"
    )


TARGET = Target(
    name="chakra",
    summary="MLCommons Chakra execution traces of one simulated step, one for each rank, schema 0.0.4",
    guaranteed=(
        "Each rank's trace holds its computations, sends, receives and collectives of one step, in one order for all ranks.",
        "Each receive has its send with the same tag and size; a collective is once in the trace of each member.",
        "Sizes in bytes are rounded up, equally on both sides.",
    ),
    not_guaranteed=_NOT_GUARANTEED,
    render=render,
    names_devices=False,
)
