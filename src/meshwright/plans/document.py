"""The plan as a document: the pydantic models whose JSON users keep, edit, write by hand and export.

`PlacementPlan` holds a decision and its predicted figures. Job and cluster are embedded so that a plan is self-contained; a plan
written by hand may leave them out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, Field, model_validator

from .. import files, quantities, settings
from ..clusters.cluster import Cluster
from ..clusters.topologies.topology import HOST_NAME, is_host_name
from ..errors import ConfigError, PlanError
from ..jobs.graph import JobGraph
from ..quantities import counted
from ..settings import Count, Index
from .compression import Compression
from .frameworks.defaults import LauncherName
from .op_placement import OpPlacementPartition
from .partition import Coordinates, Layout
from .placement import Placement
from .splitting.op_splits import OpSplits
from .stage_meshes import value_text
from .training import Training
from .transformer import PlannedTransformer
from .versions import SCHEMA_VERSION, is_known

Number = Annotated[float, Field(strict=True)]

_NEVER_NEGATIVE = ("s", "bytes", "flops", "1/s")


def _host_name(name: str) -> str:
    if not is_host_name(name):
        raise ValueError("not a host name by RFC 1123 (letters, digits, hyphens and dots, 253 at most)")
    return name


HostName = Annotated[
    str,
    AfterValidator(_host_name),
    Field(json_schema_extra={"pattern": f"^{HOST_NAME}$", "minLength": 1, "maxLength": 253}),
]


class PlannedJob(settings.Settings):
    """The job of a plan."""

    name: str = Field(min_length=1, description="for tables and for the names of exported jobs")
    num_steps: Count | None = Field(default=None, description="training steps")
    deadline_s: Annotated[float, Field(strict=True, gt=0)] | None = Field(
        default=None, description="allowed completion time from arrival; absent where there is no deadline"
    )
    graph: dict[str, Any] | None = Field(default=None, description="the job graph as JobGraph.to_data writes it")
    transformer: PlannedTransformer | None = Field(
        default=None, description="the model's shape where it is a transformer; layouts that cut layers are traced by it"
    )


class PlannedCluster(settings.Settings):
    """Where it runs."""

    name: str = Field(min_length=1)
    data: dict[str, Any] = Field(description="the cluster as its YAML spells it")


class OpSplitsPartition(settings.Settings):
    """A partition by op splits; ranks have no coordinates."""

    kind: Literal["op_splits"] = "op_splits"
    splits: tuple[Count, ...] = Field(min_length=1, description="split degree of each op, in the graph's order")


class LayoutPartition(settings.Settings):
    """A partition by a parallel layout; ranks have coordinates."""

    kind: Literal["layout"] = "layout"
    layout: Layout


class Rank(settings.Settings):
    """One rank and the device that it runs on."""

    rank: Index
    host: HostName = Field(description="name of the host, as the scheduler knows it")
    local_rank: Index = Field(description="index of the device within its host, as the host's driver counts")
    device: Index = Field(description="the cluster's id of the device; without an embedded cluster a number of the user's own")
    coordinates: Coordinates | None = Field(default=None, description="place in the layout's grid; absent for op splits")


class Stage(settings.Settings):
    """Ops that the same ranks hold.

    For a layout: one model chunk of a pipeline stage. For ops on devices that form a pipeline: one group. For op splits: a run of
    ranks that hold the same number of ops (which ones follows from the splits, so ``ops`` stays empty).
    """

    stage: Index = Field(description="pipeline stage, or position among the runs of ranks")
    chunk: Index = Field(default=0, description="model chunk on this stage, above 0 in interleaved schedules only")
    ranks: tuple[Index, ...] = Field(min_length=1)
    num_ops: Count
    ops: tuple[str, ...] = Field(default=(), description="names of the ops in topological order")


class PlannedPhase(settings.Settings):
    """How a job of several phases is cut and placed in one of them; phases go round, each for some steps."""

    name: Literal["core", "full"] = Field(description="the masked core, or the whole model")
    steps: Count = Field(description="steps of the phase before the next one begins")
    partition: LayoutPartition
    ranks: tuple[Rank, ...] = Field(min_length=1, description="every rank once, in rank order")
    stages: tuple[Stage, ...] = ()


class Figure(settings.Settings):
    """A predicted figure and where it comes from; an ``observed`` one is a prediction times what earlier runs showed."""

    name: str = Field(min_length=1, description="for example step_s, completion_s, memory_bytes")
    value: Number
    unit: str = Field(description="for example s, bytes; empty where the figure has none")
    provenance: Literal["measured", "interpolated", "estimated", "observed"]

    @model_validator(mode="after")
    def _can_be(self) -> Figure:
        says_unit = self.name.endswith(f"_{self.unit}")
        problem = quantities.problem(self.name if says_unit else self.unit, self.value)
        if self.value < 0 and self.unit in _NEVER_NEGATIVE:
            problem = "must not be negative"
        if problem is not None:
            raise ValueError(f"{self.name} {problem}, is {self.value:g}")
        return self

    @classmethod
    def predicted(cls, name: str, value: float, unit: str) -> Figure:
        """Return an estimated figure.

        Raises:
            PlanError: nothing is so large or so small, so what it was made of cannot be either.
        """
        try:
            return settings.build_settings(cls, {"name": name, "value": value, "unit": unit, "provenance": "estimated"})
        except ConfigError as error:
            problem = f"{error.problem}; look at the figures of job, cluster and costs"
            raise PlanError(problem, field=f"predicted {name}") from None


class PlacementPlan(settings.Settings):
    """How a job is cut into ranks, on which device each rank runs, and what is predicted of it.

    `meshwright.plans.legality.check` says whether the parts fit together; the functions of `meshwright.plans.making`
    hand out checked plans only.
    """

    schema_version: Literal[3] = Field(default=SCHEMA_VERSION, description="version of this form; older ones are read too")
    job: PlannedJob
    cluster: PlannedCluster | None = None
    partition: Annotated[OpSplitsPartition | LayoutPartition | OpPlacementPartition, Field(discriminator="kind")] | None = None
    ranks: tuple[Rank, ...] = Field(min_length=1, description="every rank once, in rank order")
    host_order: tuple[HostName, ...] = Field(
        default_factory=lambda validated: _hosts_by_lowest_rank(validated.get("ranks", ())),
        description="hosts by their lowest rank; filled in where it is absent",
    )
    stages: tuple[Stage, ...] = ()
    micro_batches: Count | None = Field(default=None, description="micro-batches of a replica in one step")
    predicted: tuple[Figure, ...] = ()
    framework: LauncherName | None = Field(
        default=None, description="training framework that the plan was searched for; exports to launchers hold its arguments"
    )
    taken: str | None = Field(
        default=None, description="which layout of its search it is: fastest, plain, or a reference, as recipe, default or 1f1b"
    )
    training: Training | None = Field(default=None, description="how replicas agree on their parameters; absent: synchronous")
    compression: Compression | None = Field(default=None, description="how gradients are coded; absent: they are not")
    phases: tuple[PlannedPhase, ...] | None = Field(
        default=None, description="plans of the phases of a masked job; absent: of all steps the partition and ranks above"
    )
    why: str | None = Field(default=None, description="the reason for the choice, for people")

    @model_validator(mode="before")
    @classmethod
    def _read_older_versions(cls, data: Any) -> Any:
        """Set the version; each so far adds to the one before: keys with defaults, and kinds of partitions."""
        is_read = isinstance(data, dict) and is_known(data.get("schema_version"))
        return {**data, "schema_version": SCHEMA_VERSION} if is_read else data

    @property
    def num_ranks(self) -> int:
        """Number of ranks."""
        return len(self.ranks)

    def figure(self, name: str) -> Figure | None:
        """Return the predicted figure of that name, or None."""
        return next((figure for figure in self.predicted if figure.name == name), None)

    def job_graph(self) -> JobGraph | None:
        """Return the embedded job graph, or None.

        Raises:
            GraphError: what is embedded is no job graph.
        """
        return None if self.job.graph is None else JobGraph.from_data(self.job.graph)

    def embedded_cluster(self) -> Cluster | None:
        """Return the embedded cluster, or None.

        Raises:
            ClusterError or ConfigError: what is embedded is no cluster.
        """
        return None if self.cluster is None else Cluster.from_data(self.cluster.data)

    def op_splits(self) -> OpSplits | None:
        """Return the op splits, or None where the partition is another."""
        return OpSplits(np.array(self.partition.splits)) if isinstance(self.partition, OpSplitsPartition) else None

    def layout(self) -> Layout | None:
        """Return the layout, or None where the partition is another."""
        return self.partition.layout if isinstance(self.partition, LayoutPartition) else None

    def op_placement(self) -> OpPlacementPartition | None:
        """Return the ops on devices, or None where the partition is another."""
        return self.partition if isinstance(self.partition, OpPlacementPartition) else None

    def placement(self) -> Placement:
        """Return the cluster's device of each rank.

        Raises:
            PlanError: without an embedded cluster, device numbers that repeat from host to host.
        """
        return Placement(np.array([rank.device for rank in self.ranks]))

    def of_phase(self, phase: PlannedPhase) -> PlacementPlan:
        """Return the plan of one phase by itself, without training."""
        update = {
            "partition": phase.partition,
            "ranks": phase.ranks,
            "stages": phase.stages,
            "host_order": _hosts_by_lowest_rank(phase.ranks),
            "micro_batches": phase.partition.layout.num_micro_batches,
            "predicted": (),
            "training": None,
            "phases": None,
        }
        return self.model_copy(update=update)

    def save(self, path: str | Path) -> None:
        """Write the plan as JSON, whole or not at all."""
        files.write_json(path, self.model_dump(mode="json", exclude_none=True))

    def rank_rows(self) -> list[dict[str, str | int]]:
        """Return the rank map as rows for a table: rank, host, local rank, device and coordinates where there are any."""
        rows: list[dict[str, str | int]] = []
        for rank in self.ranks:
            row: dict[str, str | int] = {
                "rank": rank.rank,
                "host": rank.host,
                "local_rank": rank.local_rank,
                "device": rank.device,
            }
            rows.append(row | (rank.coordinates.model_dump() if rank.coordinates else {}))
        return rows

    def summary_rows(self) -> list[tuple[str, str, str]]:
        """Label, value and provenance of the main figures of the plan, as rows for a table."""
        rows = [("job", self.job.name, "")]
        if self.job.num_steps is not None:
            rows.append(("steps", f"{self.job.num_steps:,}", ""))
        if self.job.deadline_s is not None:
            rows.append(("deadline", f"{self.job.deadline_s:.6g} s", ""))
        if self.cluster is not None:
            rows.append(("cluster", self.cluster.name, ""))
        layout = self.layout()
        samples = (self.job.graph or {}).get("samples_per_step") if layout is None else layout.global_batch
        if samples is not None:
            rows.append(("samples per step", f"{samples} over all ranks", ""))
        rows.append(("partition", self._partition_text(), ""))
        rows += [("training", self.training.text, "")] if self.training else []
        rows += [("compression", self.compression.text, "")] if self.compression else []
        for phase in self.phases or ():
            text = _layout_text(phase.partition.layout)
            rows.append((f"{phase.name} phase", f"{counted(phase.steps, 'step')}: {text}", ""))
        for declared in (self.training, self.compression):
            if declared is not None and declared.multiplier is not None:
                rows.append(
                    ("steps", f"{declared.multiplier:g} times those of synchronous training", declared.multiplier_source or "")
                )
        rows.append(("ranks", f"{self.num_ranks} on {counted(len(self.host_order), 'host')}", ""))
        rows += [(_label(f), _text(f), f.provenance) for f in self.predicted]
        if self.why is not None:
            rows.append(("why", self.why, ""))
        return rows

    def _partition_text(self) -> str:
        if isinstance(self.partition, OpSplitsPartition):
            return f"{len(self.partition.splits)} ops split up to {max(self.partition.splits)} ways"
        if isinstance(self.partition, LayoutPartition):
            return _layout_text(self.partition.layout)
        if isinstance(self.partition, OpPlacementPartition):
            kind = "a pipeline of " if self.partition.pipeline and len(self.partition.groups) > 1 else ""
            count = len(self.partition.groups)
            return f"{len(self.partition.device_of)} ops in {kind}{counted(count, 'group')}"
        return "by hand"


def _layout_text(layout: Layout) -> str:
    return " ".join(f"{key}={value_text(value)}" for key, value in layout.model_dump(exclude_defaults=True).items())


def figure_text(figure: Figure) -> tuple[str, str]:
    """Label and value of a figure, for people."""
    return _label(figure), _text(figure)


def _label(figure: Figure) -> str:
    """Return the name of a figure without the unit at its end, in words."""
    return figure.name.removesuffix(f"_{figure.unit}").replace("_", " ")


def _text(figure: Figure) -> str:
    """Return the value of a figure in a unit for people."""
    if figure.unit == "bytes":
        power, prefix = next(((p, x) for p, x in ((12, "T"), (9, "G"), (6, "M"), (3, "k")) if figure.value >= 10**p), (0, ""))
        return f"{figure.value / 10**power:.1f} {prefix}B" if prefix else f"{figure.value:.6g} B"
    if figure.unit == "1":
        return f"{100 * figure.value:.1f} %"
    if figure.unit == "s" and 0 < figure.value < 1:
        return f"{1000 * figure.value:.6g} ms"
    return f"{figure.value:.6g} {figure.unit}".strip()


def _hosts_by_lowest_rank(ranks: tuple[Rank, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(rank.host for rank in ranks))
