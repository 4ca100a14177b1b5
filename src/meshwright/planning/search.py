"""`plan --search`: every parallel layout of a job on a cluster, the best first, and a plan of the winner.

The search itself is `planners.layouts.search` for a transformer and `planners.layouts.graph_search` for any other job. Here job
and cluster are read, what was found becomes rows for tables, and the winner becomes a `PlacementPlan`: ranks host by host in the
chosen order, stages with the layers that were priced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from .. import quantities
from ..clusters import load_cluster
from ..clusters.cluster import Cluster
from ..costs.process_groups.group_network import group_network
from ..costs.settings import CostSettings
from ..costs.training_step.idle_keys import remarks
from ..costs.training_step.kernels import kernel_model
from ..costs.work.work import describe
from ..errors import PlanError
from ..jobs.job import Job
from ..jobs.load import JobSource, load_graph
from ..jobs.transformer import TransformerShape
from ..planners.layouts.request import SearchRequest
from ..planners.layouts.results import RankedLayout
from ..planners.layouts.search import LayoutSearch
from ..planners.layouts.space import LayoutSpace
from ..plans import PlacementPlan, layout_plan, place
from .graph_search import search_graph
from .priced import check_kernels
from .search_table import LayoutRow, RankedLayouts


@dataclass(frozen=True)
class LayoutsFound(RankedLayouts):
    """What a search over a transformer's layouts found.

    Attributes:
        shape: the model.
        search: what priced it.
    """

    shape: TransformerShape
    search: LayoutSearch

    @property
    def name(self) -> str:
        """The model's name."""
        return self.shape.name

    @property
    def batch_text(self) -> str:
        """Sequences and their length."""
        return f"{self.search.space.global_batch} sequences of {self.search.space.sequence_length}"

    @property
    def batch(self) -> dict[str, int]:
        """Sequences and their length."""
        return {"sequence_length": self.search.space.sequence_length, "global_batch": self.search.space.global_batch}

    @property
    def capacity_bytes(self) -> float:
        """Memory of a device."""
        return self.search.capacity_bytes

    @property
    def tried_orders(self) -> tuple[str, ...]:
        """Of the layouts of all sizes that were asked for."""
        return self.search.space.tried_orders

    def row(self, found: RankedLayout) -> LayoutRow:
        """A layout with its figures."""
        work = describe(self.shape, found.layout, self.search.space.sequence_length)
        step = self.search.pricer(found.order).price_work(work)
        return LayoutRow(found, step, ("tokens_per_s", step.tokens_per_s), found[:3] in self.front)

    def with_batch(self, batch: int) -> LayoutRow:
        """See `RankedLayouts.with_batch`."""
        old = self.search
        search = LayoutSearch(
            replace(old.space, global_batch=batch, request=replace(old.space.request, top=1, on_best=SearchRequest.on_best)),
            old.device,
            old.capacity_bytes,
            old.wires,
            old.slowdown,
            kernels=old.kernels,
        )
        searched = search.run([self.best.devices])
        other = replace(self, searched=searched, search=search)
        return other.row(other.best)

    @cached_property
    def plan(self) -> PlacementPlan:
        """The plan of the best layout."""
        found, space = self.best, self.search.space
        length, batch = space.sequence_length, space.global_batch
        graph = load_graph(self.job, device=self.search.device, batch_size=batch, sequence_length=length)
        work = describe(self.shape, found.layout, length)
        return layout_plan(
            Job(graph, self.num_steps),
            self.cluster,
            type(found.layout)(**found.layout.model_dump()),
            place(self.cluster, np.arange(found.devices)),
            order=found.order,
            layers=[chunk.num_layers for chunk in work.chunks],
            predicted=self.row(found).figures(),
            why=self.why,
            shape=self.shape,
            sequence_length=length,
        )


def search_layouts(
    job: str,
    cluster: str | Cluster,
    request: SearchRequest | None = None,
    *,
    costs: CostSettings | None = None,
    graphs_dir: str | Path | None = None,
    keep_input_ops: bool = False,
    profile_batch: int | None = None,
    **options: Any,
) -> RankedLayouts:
    """Search all layouts.

    Args:
        job: as `load_graph` reads it; a transformer (``zoo:NAME`` or the path of a ``config.json``) is cut along all axes, any
            other job graph by ``dp`` and ``pp``.
        cluster: ``preset:NAME``, a path, or a cluster of equal devices.
        request: batch, devices, what is kept, and how many layouts are ranked.
        costs: choices of the cost model, as for `estimate.estimate`.
        graphs_dir: where bare names are looked up.
        keep_input_ops: whether the ``Input`` ops of a profile, which time the data loader, count.
        profile_batch: samples for which the figures of a profile hold; by default the batch.
        options: in place of a request the fields of `SearchRequest`, as ``batch=64, devices="8,16"``.

    Returns:
        `LayoutsFound` of a transformer, `GraphLayoutsFound` of any other job.

    Raises:
        PlanError: no batch, an impossible number of devices, or no layout is legal or fits.
        MeshwrightError: job, cluster or a file that the costs name are missing or wrong.
    """
    request = request or SearchRequest(**options)
    where = load_cluster(cluster) if isinstance(cluster, str) else cluster
    chosen = (costs or CostSettings()).of_layouts
    if len(where.device_types) > 1:
        names = ", ".join(kind.name for kind in where.device_types)
        raise PlanError(f"a search wants devices of one type, {where.name} has {names}", field="cluster")
    counts = device_counts(request.devices, where)
    source = JobSource(job, graphs_dir, keep_input_ops, profile_batch)
    known = source.shape()
    if known is None:
        if request.sequence_length is not None:
            raise PlanError("the job has no sequences", field="--sequence-length", value=request.sequence_length)
        check_kernels(chosen)
        return search_graph(source, where, counts, chosen, request)
    shape, own_batch = known
    if request.batch is None and not job.startswith("zoo:"):
        raise PlanError("a config.json has no batch; say how many sequences a step has over all ranks", field="--batch")
    length = request.sequence_length or shape.default_sequence_length
    if shape.learned_positions and length > shape.max_positions:
        raise PlanError(f"{shape.name} has only {shape.max_positions} positions", field="--sequence-length", value=length)
    space = LayoutSpace(shape, length, request.batch or own_batch, where.num_devices // where.num_hosts, request)
    search = LayoutSearch(
        space,
        where.device_types[0],
        float(where.memory_bytes.min()),
        group_network(where, chosen),
        chosen.overlap_slowdown,
        kernels=kernel_model(where.device_types[0], chosen.kernels, chosen.software),
    )
    searched = search.run(counts)
    told = remarks(searched.ranking[0].layout, has_layers=True, asked=request.kept)
    return LayoutsFound(job, request.num_steps, where, searched, shape, search, remarks=told)


def device_counts(wanted: str | Sequence[int] | None, cluster: Cluster) -> list[int]:
    """How many devices to try, rising: whole hosts, or a part of one.

    Args:
        wanted: as `SearchRequest.devices` says.
        cluster: of which the first devices are taken.

    Raises:
        PlanError: not a number or range, none or more than the cluster has, a host in part beside whole ones, or hosts
            that are not alike.
    """
    sizes = np.bincount(cluster.device_host, minlength=cluster.num_hosts)
    per_host, most = int(sizes[0]), cluster.num_devices
    if (sizes != per_host).any():
        raise PlanError(f"a search wants equally many devices on each host of {cluster.name}", field="cluster")
    possible = [n for n in range(1, most + 1) if n < per_host or n % per_host == 0]
    if wanted is None:
        return [most]
    found: set[int] = set()
    for part in wanted.split(",") if isinstance(wanted, str) else [str(number) for number in wanted]:
        low, dash, high = part.partition("-")
        try:
            first, last = quantities.whole(low), quantities.whole(high if dash else low)
        except ValueError:
            problem = "must be a number, several with commas between, or a range A-B"
            raise PlanError(problem, field="--devices", value=part) from None
        if not 1 <= first <= last <= most:
            raise PlanError(f"{cluster.name} has 1 to {most} devices", field="--devices", value=part)
        inside = [n for n in possible if first <= n <= last]
        if not inside:
            near = sorted(possible, key=lambda n: abs(n - first))[:2]
            problem = f"whole hosts of {per_host} are wanted; next are {' and '.join(map(str, sorted(near)))}"
            raise PlanError(problem, field="--devices", value=part)
        found.update(inside)
    return sorted(found)
