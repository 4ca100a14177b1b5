"""`estimate`: one job under one layout on one cluster, its step time, utilisation and memory, and why.

The figures are analytic (`costs.training_step`). Each has a provenance and an uncertainty of one standard deviation; a whole is
estimated, of its parts the communications may be read from measurements. A transformer is cut layer by layer; of any other
job graph ops stand in stages (`graph_estimate`). What each co-design switch would change is told by `explain`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..clusters import load_cluster
from ..clusters.cluster import Cluster
from ..costs.network import RankNetwork
from ..costs.process_groups.group_network import group_network
from ..costs.settings import CostSettings
from ..costs.training_step.idle_keys import remarks
from ..costs.training_step.kernels import kernel_model
from ..costs.training_step.step_figures import StepTime
from ..costs.training_step.step_time import Pricer
from ..costs.work.memory import check_fits, stage_memory
from ..costs.work.work import LayoutWork, describe
from ..errors import PlanError
from ..jobs.load import JobSource
from ..plans.partition import Layout
from ..simulation.layouts.running import STEPS, layout_step, num_tasks, simulated_step_s
from ..simulation.layouts.steady import with_micro_batches
from .graph_estimate import estimate_graph
from .priced import MEMORY_UNCERTAINTY, Part, Priced, check_kernels, check_place, read_layout

__all__ = ["MEMORY_UNCERTAINTY", "Estimate", "Part", "estimate", "pricer"]


@dataclass(frozen=True)
class Estimate(Priced):
    """A transformer's layout as priced.

    Attributes:
        step: the step.
        work: what every rank does.
    """

    step: StepTime
    work: LayoutWork

    @property
    def layout(self) -> Layout:
        """How the model is cut."""
        return self.work.layout

    @property
    def rate(self) -> tuple[str, float, str]:
        """Tokens in a second."""
        return "tokens_per_s", self.step.tokens_per_s, "1/s"

    @property
    def details(self) -> dict[str, Any]:
        """The length of a sequence."""
        return {"sequence_length": self.work.sequence_length}

    def repriced_s(self, layout: Layout, costs: CostSettings) -> float:
        """As `pricer` prices it."""
        return pricer(self.cluster, costs).step_s(describe(self.work.shape, layout, self.work.sequence_length))

    def simulated_s(self, costs: CostSettings, num_micro_batches: int | None = None) -> float:
        """See `simulated_step_s`."""
        layout = with_micro_batches(self.layout, num_micro_batches or self.layout.num_micro_batches)
        return simulated_step_s(replace(self.work, layout=layout), self.cluster, costs.of_layouts)

    def num_tasks(self, costs: CostSettings) -> int:
        """See `running.num_tasks`."""
        network = RankNetwork(self.cluster, np.arange(self.layout.world))
        return num_tasks(layout_step(self.work, self.cluster, costs.of_layouts), network, STEPS)


def estimate(
    job: str,
    cluster: str | Cluster,
    layout: str | Layout,
    *,
    sequence_length: int | None = None,
    costs: CostSettings | None = None,
    graphs_dir: str | Path | None = None,
    keep_input_ops: bool = False,
    profile_batch: int | None = None,
) -> Priced:
    """Price one layout.

    Args:
        job: as `load_graph` reads it. A transformer (``zoo:NAME`` or the path of a ``config.json``) is cut by all keys of a
            layout, any other job graph by ``dp`` and ``pp``.
        cluster: ``preset:NAME``, a path, or a cluster.
        layout: the keys of `Layout` as text, where what is left out hides as `plans.partition.hidden_unasked`
            says, or a layout.
        sequence_length: tokens of a transformer's sequence; by default the model's own, 2,048 at most.
        costs: choices of the cost model, what was not given as `CostSettings.of_layouts` says; the layers that an analytic
            price reads are ``collectives`` and ``overlap_slowdown``, of a transformer ``kernels`` and of a job graph
            ``compute`` too.
        graphs_dir: where bare names are looked up.
        keep_input_ops: whether the ``Input`` ops of a profile, which time the data loader, count.
        profile_batch: samples for which the figures of a profile hold; by default the global batch.

    Returns:
        An `Estimate` of a transformer, a `GraphEstimate` of any other job.

    Raises:
        PlanError: the job cannot be cut so, the cluster has too few devices, or it does not fit their memory.
        MeshwrightError: job, cluster or a file that the costs name are missing or wrong.
    """
    chosen = (costs or CostSettings()).of_layouts
    place = load_cluster(cluster) if isinstance(cluster, str) else cluster
    source = JobSource(job, graphs_dir, keep_input_ops, profile_batch)
    found = source.shape()
    if found is None:
        if sequence_length is not None:
            raise PlanError("the job has no sequences", field="--sequence-length", value=sequence_length)
        check_kernels(chosen)
        return estimate_graph(source, place, layout, chosen)
    shape, batch = found
    cut, asked = read_layout(layout, batch)
    work = describe(shape, cut, sequence_length)
    check_place(place, cut)
    check_fits(work, float(place.memory_bytes.min()))
    prices = pricer(place, chosen)
    memory = tuple(stage_memory(work, stage) for stage in range(cut.pp))
    step, told = prices.price_work(work), remarks(cut, has_layers=True, asked=asked)
    return Estimate(shape.name, place, memory, prices.provenance(work), "estimated", step, work, remarks=told, costs=chosen)


def pricer(cluster: Cluster, costs: CostSettings) -> Pricer:
    """What prices layouts on a cluster of equal devices.

    Raises:
        InputFileError, ConfigError: the tables or constants that the costs name are missing, wrong, or of another device.
    """
    device, costs = cluster.device_types[0], costs.of_layouts
    return Pricer(
        device, group_network(cluster, costs), costs.overlap_slowdown, kernel_model(device, costs.kernels, costs.software)
    )
