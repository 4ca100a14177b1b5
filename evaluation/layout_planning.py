"""`plan --search`: every parallel layout of a transformer on a cluster, the best first, and a plan of the winner.

The search itself is `planners.layout_search`. Here job and cluster are read, what was found becomes rows for tables, and the
winner becomes a `PlacementPlan`: ranks host by host in the chosen order, stages with the layers that were priced.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..clusters import load_cluster
from ..clusters.cluster import Cluster
from ..costs.layouts.step_time import StepTime
from ..costs.layouts.wires import wiring
from ..costs.layouts.work import describe
from ..costs.model import CostSettings
from ..errors import PlanError
from ..jobs.job import Job
from ..jobs.load import load_graph, load_shape
from ..jobs.transformer import TransformerShape
from ..planners.layout_front import Counts, Found, Searched
from ..planners.layout_search import LayoutSearch
from ..planners.layout_space import LayoutSpace, parse_keep
from ..plans import PlacementPlan, layout_plan, place
from ..plans.document import Figure
from ..plans.rank_order import ORDERS, check_order

DEFAULT_NUM_STEPS = 10_000


@dataclass(frozen=True)
class Row:
    """A layout with its figures.

    Attributes:
        found: the layout.
        step: what its step consists of.
        on_front: whether no other layout beats it in time, memory and devices at once.
    """

    found: Found
    step: StepTime
    on_front: bool

    @property
    def bubble_share(self) -> float:
        """Share of the step in which the stage that ends last waits for others."""
        return self.step.breakdown_s["bubble"] / self.step.step_s

    @property
    def exposed_share(self) -> float:
        """Share of the step in which it waits for messages."""
        names = ("pipeline transfers", "gradient sync", "parameter gather")
        waits = [s for name, s in self.step.breakdown_s.items() if name.startswith("exposed ") or name in names]
        return sum(waits) / self.step.step_s

    def figures(self) -> tuple[Figure, ...]:
        """What is predicted of it; all of it estimated."""
        values = [
            ("step_s", self.step.step_s, "s"),
            ("step_s_uncertainty", self.step.uncertainty, "1"),
            ("tokens_per_s", self.step.tokens_per_s, "1/s"),
            ("mfu", self.step.mfu, "1"),
            ("hfu", self.step.hfu, "1"),
            ("memory_bytes", self.found.memory_bytes, "bytes"),
            ("bubble_share", self.bubble_share, "1"),
            ("exposed_communication_share", self.exposed_share, "1"),
        ]
        return tuple(Figure(name=name, value=value, unit=unit, provenance="estimated") for name, value, unit in values)


@dataclass(frozen=True)
class LayoutsFound:
    """What a search found.

    Attributes:
        job: how the job was named.
        num_steps: training steps of the plan.
        shape: the model.
        cluster: where.
        search: what priced it.
        searched: ranking, front and counts.
    """

    job: str
    num_steps: int
    shape: TransformerShape
    cluster: Cluster
    search: LayoutSearch
    searched: Searched

    @property
    def best(self) -> Found:
        """The fastest layout; of equal ones the one with the least memory."""
        return self.searched.ranking[0]

    @cached_property
    def plan(self) -> PlacementPlan:
        """The plan of the best layout."""
        found, space = self.best, self.search.space
        length, batch = space.sequence_length, space.global_batch
        graph = load_graph(self.job, device=self.search.device, batch_size=batch, sequence_length=length)
        work = describe(self.shape, found.layout, length)
        counts = self.searched.counts
        why = (
            f"fastest of {counts.legal:,} legal layouts: {counts.examined:,} priced, {counts.pruned:,} passed by because their "
            f"bounds are worse, {counts.infeasible:,} too large for a device; ranks in the order {found.order}"
        )
        return layout_plan(
            Job(graph, self.num_steps),
            self.cluster,
            type(found.layout)(**found.layout.model_dump()),
            place(self.cluster, np.arange(found.devices)),
            order=found.order,
            layers=[chunk.num_layers for chunk in work.chunks],
            predicted=self.row(found).figures(),
            why=why,
            shape=self.shape,
            sequence_length=length,
        )

    def rows(self, num_rows: int) -> list[Row]:
        """The first of the ranking."""
        return [self.row(found) for found in self.searched.ranking[:num_rows]]

    def row(self, found: Found) -> Row:
        """A layout with its figures."""
        work = describe(self.shape, found.layout, self.search.space.sequence_length)
        return Row(found, self.search.pricer(found.order).price_work(work), found[:3] in self._front)

    @cached_property
    def _front(self) -> frozenset[tuple[float, float, int]]:
        return frozenset(found[:3] for found in self.searched.front)

    def table(self) -> list[dict[str, Any]]:
        """The whole ranking as plain rows."""
        front, step = {found[:4] for found in self.searched.front}, self.row(self.best).step
        peak, rows = self.search.device.peak_flops_per_s, []
        for place_, found in enumerate(self.searched.ranking, start=1):
            figures = {
                "rank": place_,
                "step_s": found.step_s,
                "tokens_per_s": step.tokens / found.step_s,
                "mfu": step.model_flops / found.step_s / (peak * found.devices),
                "memory_bytes": found.memory_bytes,
                "devices": found.devices,
                "on_front": found[:4] in front,
                "order": found.order,
            }
            rows.append(figures | found.layout.model_dump(mode="json"))
        return rows

    def to_data(self) -> dict[str, Any]:
        """The whole ranking with what became of the other layouts, for JSON."""
        counts = self.searched.counts
        return {
            "job": self.shape.name,
            "cluster": self.cluster.name,
            "sequence_length": self.search.space.sequence_length,
            "global_batch": self.search.space.global_batch,
            "counts": counts.__dict__ | {"legal": counts.legal},
            "layouts": self.table(),
        }

    def to_csv(self) -> str:
        """The whole ranking as CSV."""
        rows, text = self.table(), io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return text.getvalue()


def search_layouts(
    job: str,
    cluster: str | Cluster,
    *,
    batch: int | None = None,
    sequence_length: int | None = None,
    devices: str | Sequence[int] | None = None,
    keep: str = "",
    order: str | None = None,
    top: int | None = 10,
    num_steps: int = DEFAULT_NUM_STEPS,
    costs: CostSettings | None = None,
    on_best: Callable[[Found, Counts], None] = lambda found, counts: None,
) -> LayoutsFound:
    """Search all layouts.

    Args:
        job: ``zoo:NAME`` of a transformer or the path of a ``config.json``.
        cluster: ``preset:NAME``, a path, or a cluster of equal devices.
        batch: sequences of a step over all ranks; by default the job's own, which a ``config.json`` does not have.
        sequence_length: tokens of a sequence; by default the model's own, 2,048 at most.
        devices: how many to use: all, or a number, several with commas between, or a range ``A-B``.
        keep: values to which keys of the layout are kept (see `planners.layout_space.parse_keep`).
        order: the only rank order to try.
        top: how many layouts to rank; None ranks every one that fits.
        num_steps: training steps of the plan.
        costs: choices of the cost model, as for `estimating.estimate`.
        on_best: called with each layout that is better than all before.

    Raises:
        PlanError: no batch, an impossible number of devices, or no layout is legal or fits.
        MeshwrightError: job or cluster are missing or wrong.
    """
    shape, own_batch = load_shape(job)
    where = load_cluster(cluster) if isinstance(cluster, str) else cluster
    chosen = costs or CostSettings(overlap_slowdown=1.126)
    if batch is None and not job.startswith("zoo:"):
        raise PlanError("a config.json has no batch; say how many sequences a step has over all ranks", field="--batch")
    length = shape.default_sequence_length if sequence_length is None else sequence_length
    for field, value, least in (("--batch", batch, 1), ("--sequence-length", length, 1), ("--top", top, 1)):
        if value is not None and value < least:
            raise PlanError(f"must be at least {least}", field=field, value=value)
    if shape.learned_positions and length > shape.max_positions:
        raise PlanError(f"{shape.name} has only {shape.max_positions} positions", field="--sequence-length", value=length)
    if len(where.device_types) > 1:
        names = ", ".join(kind.name for kind in where.device_types)
        raise PlanError(f"a search wants devices of one type, {where.name} has {names}", field="cluster")
    space = LayoutSpace(
        shape,
        length,
        own_batch if batch is None else batch,
        where.num_devices // where.num_hosts,
        parse_keep(keep),
        ORDERS if order is None else (check_order(order),),
    )
    search = LayoutSearch(
        space,
        where.device_types[0],
        float(where.memory_bytes.min()),
        wiring(where, chosen),
        chosen.overlap_slowdown,
        top,
        on_best,
    )
    searched = search.run(device_counts(devices, where))
    return LayoutsFound(job, num_steps, shape, where, search, searched)


def device_counts(wanted: str | Sequence[int] | None, cluster: Cluster) -> list[int]:
    """How many devices to try, rising: whole hosts, or a part of one.

    Args:
        wanted: as `search_layouts` says.
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
        low, dash, high = (word.strip() for word in part.partition("-"))
        if not low.isdecimal() or (dash and not high.isdecimal()):
            raise PlanError("must be a number, several with commas between, or a range A-B", field="--devices", value=part)
        first, last = int(low), int(high if dash else low)
        if not 1 <= first <= last <= most:
            raise PlanError(f"{cluster.name} has 1 to {most} devices", field="--devices", value=part)
        inside = [n for n in possible if first <= n <= last]
        if not inside:
            near = sorted(possible, key=lambda n: abs(n - first))[:2]
            problem = f"whole hosts of {per_host} are wanted; next are {' and '.join(map(str, sorted(near)))}"
            raise PlanError(problem, field="--devices", value=part)
        found.update(inside)
    return sorted(found)
