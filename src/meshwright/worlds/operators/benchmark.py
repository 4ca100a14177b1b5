"""A benchmark of operator placement as YAML: which instances are drawn or read, and what an evaluation of them compares."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast

import numpy as np
from pydantic import AfterValidator, Field, model_validator

from ... import settings
from ...errors import ConfigError, GraphError
from ...jobs.load import load_graph
from ...packaged import path_in_folder
from ...plans.op_placement import OPTIMIZERS, STATE_COPIES
from ...simulation.operators.forms import FORMS, ValueForm
from ...simulation.operators.generators import DeviceDraw, DrawnGraph, GraphDraw, Split, draw_instance
from ...simulation.operators.instance import OperatorInstance, numbered
from ...simulation.operators.instance_files import load_instance, with_accelerators
from ...simulation.operators.placement import OperatorObjective
from ..benchmark import WorldBenchmark
from ..benchmark_files import PLACEMENT

OF_PLACEMENT = ("objective", "form", "order", "refine_steps", "optimizer", "instances")
FILES, JOBS = ("files", "file"), ("jobs", "zoo")


def below_placement(value: Any) -> Any:
    """Return the root of a benchmark with its flat keys moved below ``placement``.

    ``objective``, ``form``, ``optimizer`` and ``instances`` may be at the root in place of below ``placement``, and the draw of
    devices below ``instances``. Keys below ``placement``, its ``instances`` and its ``devices`` have precedence, so that changes
    of keys work with both spellings. ``order`` and ``refine_steps`` of earlier benchmarks are read where their values are today's
    behaviour.
    """
    if not isinstance(value, dict) or not any(key in value for key in OF_PLACEMENT):
        return value
    if value.get("objective") == "tasklets":
        raise ValueError("objective: tasklets are another kind of benchmark, with the key tasklets; see preset:tasklets-64")
    flat = {key: value[key] for key in OF_PLACEMENT if key in value}
    rest = {key: each for key, each in value.items() if key not in OF_PLACEMENT}
    below = value.get("placement")
    if not isinstance(below, dict):
        return rest | {"placement": flat}
    drawn, more = flat.get("instances"), below.get("instances")
    if isinstance(drawn, dict) and isinstance(more, dict):
        below = below | {"instances": drawn | more}
    return rest | {"placement": flat | below}


def below_devices(value: Any) -> Any:
    """Return the keys of ``placement``, with the draw of devices below ``devices`` and an optimizer with its jobs.

    Raises:
        ValueError: no such optimizer, an optimizer is named twice, or the keys ask for decisions that were removed.
    """
    if not isinstance(value, dict):
        return value
    instances, rest = value.get("instances"), dict(value)
    if rest.pop("order", "upward-rank") != "upward-rank":
        raise ValueError("order: ops are placed by upward rank alone, as no other order was better; leave it out")
    if rest.pop("refine_steps", 0) != 0:
        raise ValueError("refine_steps: placements are no longer refined step by step, as nothing was gained; leave it out")
    kind = instances.get("kind") if isinstance(instances, dict) else None
    if isinstance(instances, dict) and kind not in FILES:
        drawn = {key: each for key, each in instances.items() if key in DeviceDraw.model_fields}
        below = value.get("devices", {})
        if drawn and isinstance(below, dict):
            rest["devices"] = drawn | below
            rest["instances"] = instances = {key: each for key, each in instances.items() if key not in drawn}
    if "optimizer" in rest:
        name = known_optimizer(rest.pop("optimizer"))
        if kind in JOBS and isinstance(instances, dict):
            if "optimizer" in instances or "optimizer_bytes" in instances:
                raise ValueError("optimizer: is named here and in instances")
            rest["instances"] = instances | {"optimizer": name}
    return rest


def known_optimizer(name: Any) -> str:
    """Return the name of an optimizer.

    Raises:
        ValueError: there is none of that name.
    """
    if name not in OPTIMIZERS:
        raise ValueError(f"optimizer: choose {' or '.join(sorted(OPTIMIZERS))}, is {name}")
    return str(name)


class JobDraw(settings.Settings):
    """Graphs of known jobs, the same in every split, each on devices that are drawn for it and its split.

    Attributes:
        kind: ``jobs``, or ``zoo``, which is the same.
        jobs: anything that ``--job`` takes as a graph of ops, for example ``zoo:resnet50``; one of them is drawn.
        optimizer_bytes: bytes of state for each byte of parameters; ``optimizer: adam`` in its place is 4, ``sgd`` 2.
    """

    kind: Literal["jobs", "zoo"]
    jobs: tuple[str, ...] = Field(min_length=1)
    optimizer_bytes: float = Field(default=STATE_COPIES["adam"], ge=1, le=64)

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        """Return an optimizer's name as its bytes."""
        if not isinstance(value, dict) or "optimizer" not in value:
            return value
        if "optimizer_bytes" in value:
            raise ValueError("takes optimizer or optimizer_bytes, not both")
        rest = {key: each for key, each in value.items() if key != "optimizer"}
        return rest | {"optimizer_bytes": STATE_COPIES[known_optimizer(value["optimizer"])]}

    def draw(self, rng: np.random.Generator) -> DrawnGraph:
        """Return the forward pass of one of the jobs; speeds of devices are drawn, so that times by device type do not count.

        Raises:
            GraphError: the job cannot be read.
        """
        graph = _graph(self.jobs[int(rng.integers(len(self.jobs)))])
        return DrawnGraph(
            name=graph.name,
            op_s=graph.forward_s,
            output_bytes=graph.activation_bytes,
            resident_bytes=self.optimizer_bytes * graph.parameter_bytes + graph.activation_bytes,
            edges=graph.edges,
            op_names=graph.op_names,
            group=numbered(graph.group) if graph.colocate else None,
        )


class FileDevices(settings.Settings):
    """Devices in place of those of a file; processors of hosts stay as they are.

    Attributes:
        num: how many, each as the file's first that is no host's; null: as many as in the file.
        memory_gb: of each, in 10^9 bytes; null: as in the file.
    """

    num: int | None = Field(default=None, ge=1, le=64)
    memory_gb: float | None = Field(default=None, gt=0, le=1e6)


class FileDraw(settings.Settings):
    """Instances that lie in files, the same in every split, so that nothing can be trained on them; nothing is drawn.

    Attributes:
        kind: ``files``, or ``file``, which is the same.
        files: instances of the project's own format or of dnn-partitioning.
        devices: in place of theirs.
    """

    kind: Literal["files", "file"]
    files: tuple[str, ...] = Field(min_length=1)
    devices: FileDevices = FileDevices()

    def read(self, number: int) -> OperatorInstance:
        """Return the instance of a number; after the last the first comes again.

        Raises:
            MeshwrightError: the file cannot be read, or its devices cannot be changed so.
        """
        path, devices = self.files[number % len(self.files)], self.devices
        result = load_instance(path)
        if devices == FileDevices():
            return result
        try:
            return with_accelerators(result, devices.num, None if devices.memory_gb is None else devices.memory_gb * 1e9)
        except GraphError as error:
            raise error.at(file=path) from None


_graph = cache(load_graph)
_EDGES_PER_OP = 4
"""No kind of drawn graph has more, but for layered ones with more parents."""

Budget = Annotated[float, Field(ge=1e-4, le=3600)]


def _rising(values: tuple[float, ...]) -> tuple[float, ...]:
    if list(values) != sorted(set(values)):
        raise ValueError("must rise")
    return values


InstanceDraw = Annotated[GraphDraw | JobDraw | FileDraw, Field(discriminator="kind")]


class PlacementSettings(settings.Settings):
    """Instances, devices and the objective; for a second spelling see `below_placement`.

    Attributes:
        objective: ``latency``: seconds of one step; ``throughput``: the largest load of a device.
        form: the form of the objective by which an evaluation values placements (see `simulation.operators.forms`). None: the
            default form. Planners and policies optimise the default form in any case.
        instances: graphs of ops.
        devices: where they run; not for files, which name their own.
    """

    objective: OperatorObjective = "latency"
    form: str | None = None
    instances: InstanceDraw = GraphDraw()
    devices: DeviceDraw = DeviceDraw()

    _of_devices = model_validator(mode="before")(below_devices)

    @model_validator(mode="after")
    def _form_is_of_the_objective(self) -> Self:
        able = FORMS[self.objective]
        if self.form is not None and self.form not in able:
            raise ValueError(f"form: {self.form} is no form of {self.objective}; choose {' or '.join(able)}")
        return self

    @property
    def valued_form(self) -> ValueForm:
        """The form by which placements are valued."""
        return FORMS[self.objective][0] if self.form is None else cast(ValueForm, self.form)

    @property
    def has_other_form(self) -> bool:
        """Whether placements are valued by another form than the one that planners optimise."""
        return self.valued_form != FORMS[self.objective][0]

    def check_default_form(self, what: str = "decisions are learned") -> None:
        """Refuse a form for what knows the default one only.

        Args:
            what: is done by the default form, for the message.

        Raises:
            ConfigError: it is not the default one.
        """
        if self.has_other_form:
            default = FORMS[self.objective][0]
            problem = f"values placements in an evaluation; {what} under {default}"
            raise ConfigError(problem, field="placement.form", value=self.form, choices=[default])

    def most(self) -> tuple[int, int, int]:
        """Return how many ops, devices and edges an instance has at most; of drawn graphs a bound on edges.

        Raises:
            GraphError: a job or file cannot be read.
        """
        drawn, devices = self.instances, self.devices.most_devices
        if isinstance(drawn, GraphDraw):
            return drawn.most_ops, devices, max(_EDGES_PER_OP, drawn.parents[1]) * drawn.most_ops
        if isinstance(drawn, JobDraw):
            graphs = [_graph(job) for job in drawn.jobs]
            return max(each.num_ops for each in graphs), devices, max(len(each.edges) for each in graphs)
        read = [drawn.read(number) for number in range(len(drawn.files))]
        return tuple(max(sizes) for sizes in zip(*((i.num_ops, i.num_devices, len(i.edges)) for i in read), strict=True))

    def instance(self, split: Split, seed: int) -> OperatorInstance:
        """Return the instance of a seed; the same seed gives the same one.

        Raises:
            ConfigError: the devices' memory holds the ops in no draw.
            GraphError: a job or file cannot be read.
        """
        drawn = self.instances
        if isinstance(drawn, GraphDraw):
            return draw_instance(drawn, self.devices, split, seed)
        if isinstance(drawn, FileDraw):
            return drawn.read(seed)
        return draw_instance(drawn.draw, self.devices, split, seed)


class PlacementBenchmark(WorldBenchmark):
    """Instances and what is compared on them; splits are drawn apart, so that each has seeds from 0.

    Attributes:
        placement: objective, graphs and devices.
        budgets_s: seconds that searches, and those begun by learned policies, are given one after another, rising.
    """

    kind = PLACEMENT
    about = "operator placement"

    placement: PlacementSettings
    budgets_s: Annotated[tuple[Budget, ...], AfterValidator(_rising)] = ()
    num_seeds: int = Field(default=100, ge=1, le=1000)
    num_validation_seeds: int = Field(default=50, ge=2, le=1000)

    _of_placement = model_validator(mode="before")(below_placement)

    def read_from(self, path: Path, changes: Sequence[str]) -> PlacementBenchmark:
        """See `Benchmark`: instances that lie in files."""
        drawn = self.placement.instances
        if not isinstance(drawn, FileDraw):
            return self
        files = tuple(path_in_folder(each, path.parent) for each in drawn.files)
        placement = self.placement.model_copy(update={"instances": drawn.model_copy(update={"files": files})})
        return self.model_copy(update={"placement": placement})


load_placement_benchmark = PlacementBenchmark.load
