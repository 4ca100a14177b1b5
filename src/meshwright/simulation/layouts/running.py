"""A layout run on a cluster: when every task starts and finishes, and how long a step takes among others."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from ...clusters.cluster import Cluster
from ...costs.network import RankNetwork
from ...costs.pipelines.tasks import BACKWARD, FORWARD, WEIGHT
from ...costs.routing import Routing
from ...costs.settings import CostSettings
from ...costs.training_step.step_time import Pricer
from ...costs.work.work import LayoutWork
from ...errors import PlanError
from ..contention.concurrent_jobs import schedule as schedule_together
from ..contention.placed_job import PlacedJob, check_devices
from ..step import kernel
from ..step.timeline import Timeline
from .axes import Axes
from .lowering import Lowered, lower
from .step_model import StepModel, TransformerStep

STEPS = 2
"""Steps that are run to measure one: the first, whose stages begin all at once, and one behind it."""


@dataclass(frozen=True, eq=False)
class LayoutRun:
    """Steps of a layout as they went.

    Attributes:
        lowered: the tasks, and what they belong to.
        timeline: when they ran; of all steps.
    """

    lowered: Lowered
    timeline: Timeline

    @property
    def num_steps(self) -> int:
        """Steps that were run."""
        return len(self.lowered.optimizers)

    @cached_property
    def step_s(self) -> float:
        """Seconds of a step among others: from the end of the last but one to that of the last.

        A step ends with the last optimizer. A stage begins the next one when its own optimizer is done. So this is less than the
        time of one step alone where stages do not end together. Where only one step was run, it is that time.
        """
        ends = self.timeline.finish_s[self.lowered.optimizers].max(axis=1)
        return float(ends[-1] - ends[-2]) if self.num_steps > 1 else self.timeline.step_s


def layout_step(work: LayoutWork, cluster: Cluster, costs: CostSettings | None = None) -> StepModel:
    """Return a transformer under a layout, priced for a cluster.

    Raises:
        InputFileError, ConfigError: the tables or constants that the costs name are missing, wrong, or of another device.
    """
    return TransformerStep(work, Pricer.from_cluster(cluster, costs or CostSettings()))


def run_layout(
    step: StepModel,
    cluster: Cluster,
    devices: ArrayLike | None = None,
    costs: CostSettings | None = None,
    *,
    num_steps: int = STEPS,
) -> LayoutRun:
    """Lower a layout on its placement and run it.

    Args:
        step: a `TransformerStep` or a `GraphStep`.
        cluster: where.
        devices: device of each rank in the layout's order; by default the first ones.
        costs: one choice per layer; those by which ``step`` was priced.
        num_steps: steps one after another.

    Raises:
        PlanError: fewer or more devices than ranks, or one that is absent or named twice.
        ConfigError: the collectives do not run on the cluster.
    """
    costs = costs or CostSettings()
    placed = np.arange(step.layout.world) if devices is None else np.array(devices, np.int64)
    if len(placed) != step.layout.world:
        raise PlanError(f"{step.layout.world} ranks for {len(placed)} devices", field="devices")
    for device in placed[(placed < 0) | (placed >= cluster.num_devices)][:1].tolist():
        raise PlanError(f"{cluster.name} has devices 0..{cluster.num_devices - 1}", field="devices", value=device)
    routing = Routing.from_settings(costs)
    network = RankNetwork(cluster, placed, routing=routing)
    lowered = lower(step.on(placed), network, costs, num_steps=num_steps)
    job = PlacedJob(
        lowered.execution, placed, 0.0, costs.contention == "fair", costs.overlap_slowdown, routing, costs.flows_priority
    )
    check_devices([job], cluster)
    is_plain = not job.is_fair and job.overlap_slowdown == 1
    times = kernel.schedule(job.execution) if is_plain else schedule_together([job], cluster)[0]
    return LayoutRun(lowered, Timeline(lowered.execution, *times))


def num_tasks(step: StepModel, network: RankNetwork, num_steps: int = STEPS) -> int:
    """Return about how many tasks a layout lowers to, of its passes and of transfers between stages.

    Gradients and parameters are left out, so it is some more, above all where they are cut into many chunks.
    """
    layout, axes = step.layout, Axes(step.layout, network)
    result = 0
    for chunk in range(layout.pp * layout.chunks_per_rank):
        for kind in (FORWARD, BACKWARD, WEIGHT) if layout.parts_gradients else (FORWARD, BACKWARD):
            for entry in step.template(chunk, kind, cut=False).entries:
                size = 1 if entry.message is None else axes.size(entry.message.axis, layout.stage_of(chunk))
                result += axes.width(layout.stage_of(chunk)) // size
    widths = [axes.width(layout.stage_of(chunk)) for chunk in range(layout.pp * layout.chunks_per_rank)]
    sends = 2 * sum(widths[1:]) if layout.pp > 1 else 0
    return num_steps * layout.micro_batches_per_chunk * (result + sends)
