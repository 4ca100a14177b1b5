"""A workload: which jobs arrive, how long they are, when they come and how urgent they are.

A workload is a YAML file. `Workload.sample` draws the jobs of one episode from a random generator, so that the same generator
state gives the same episode.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from .. import files, quantities, settings
from ..devices import device_type
from ..errors import ConfigError, GraphError, InputFileError, MeshwrightError
from ..packaged import shipped_path
from .arrivals import Arrivals, FixedArrivals, PoissonArrivals
from .deadlines import Deadline
from .graph import JobGraph
from .job import MAX_STEPS
from .load import load_graph, profile_names
from .trace import Trace, TraceArrivals, load_trace

__all__ = ["Arrivals", "FixedSteps", "SequentialTimeSteps", "Workload", "WorkloadSettings", "load_workload", "workload_names"]


class FixedSteps(settings.Settings):
    """Every job runs the same number of steps."""

    kind: Literal["fixed"]
    num_steps: int = Field(gt=0, le=MAX_STEPS)

    def draw(self, rng: np.random.Generator, step_s: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the steps of each job, given the seconds of its graph's step; the generator is not used."""
        return np.full(len(step_s), self.num_steps, np.int64)


class SequentialTimeSteps(settings.Settings):
    """Every job runs as many steps as fill a random time on a single reference device."""

    kind: Literal["sequential_time"]
    low_s: float = Field(gt=0)
    high_s: float = Field(gt=0)

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        if self.low_s > self.high_s:
            raise ValueError(f"low_s {self.low_s} is above high_s {self.high_s}")
        return self

    def draw(self, rng: np.random.Generator, step_s: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the steps of each job, given the seconds of its graph's step; at least one."""
        return _steps_of(rng.uniform(self.low_s, self.high_s, len(step_s)), step_s)


class WorkloadSettings(settings.Settings):
    """A workload as YAML spells it; the shipped files explain every key."""

    graphs: tuple[str, ...] = Field(min_length=1)
    weights: tuple[Annotated[float, Field(gt=0)], ...] | None = None
    draw: Literal["independent", "pool"] = "independent"
    device: str = "a100"
    drop_input_ops: bool = True
    add_profiles: bool = True
    steps: Annotated[FixedSteps | SequentialTimeSteps, Field(discriminator="kind")] | None = None
    arrivals: Annotated[FixedArrivals | PoissonArrivals | TraceArrivals, Field(discriminator="kind")]
    deadline: Deadline

    @field_validator("graphs")
    @classmethod
    def _are_distinct(cls, graphs: tuple[str, ...]) -> tuple[str, ...]:
        for spec in graphs:
            if graphs.count(spec) > 1:
                raise ValueError(f"{spec} appears twice; weights make a graph more frequent")
        return graphs

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        is_trace = isinstance(self.arrivals, TraceArrivals)
        if self.weights is not None and len(self.weights) != len(self.graphs):
            raise ValueError(f"weights: {len(self.weights)} for {len(self.graphs)} graphs")
        if self.draw == "pool" and (is_trace or self.weights is not None):
            raise ValueError("draw: a pool holds each graph equally often; it takes neither weights nor a trace")
        if is_trace and self.steps is not None:
            raise ValueError("steps: a trace gives the work of each job; leave this key out")
        if not is_trace and self.steps is None:
            raise ValueError("steps: the key is missing")
        return self


@dataclass(frozen=True, eq=False)
class Workload:
    """The jobs that may arrive; made by `from_settings` or `load_workload`.

    Attributes:
        settings: the validated YAML.
        graphs: the loaded job graphs, in the order of the settings.
        trace: the recorded jobs where arrivals follow a trace.
    """

    settings: WorkloadSettings
    graphs: tuple[JobGraph, ...]
    trace: Trace | None = None

    @classmethod
    def from_settings(
        cls, settings: WorkloadSettings, *, graphs_dir: str | Path | None = None, base_folder: str | Path | None = None
    ) -> Workload:
        """Load the graphs, and the trace if there is one.

        Args:
            settings: the validated YAML.
            graphs_dir: folder of profiles ``NAME/graph.txt`` in which bare graph names are looked up. Where the
                settings name none of them, all are added to the workload, each as ``profile-NAME`` and without its
                ``Input`` ops, unless ``add_profiles`` is off.
            base_folder: folder to which relative paths in the settings refer; by default the current one.

        Raises:
            InputFileError: a file is missing or malformed.
            GraphError: a graph is unknown, malformed, or takes no time.
            ConfigError: the device is unknown, or a trace is wanted and none is named.
        """
        base = Path(base_folder or ".")
        try:
            device = device_type(settings.device)
        except ConfigError as error:
            raise ConfigError(error.problem, field="device", value=error.value, choices=error.choices) from None
        profiles = profile_names(graphs_dir) if graphs_dir is not None else []
        graphs = []
        for spec in settings.graphs:
            is_path = not spec.startswith("zoo:") and os.path.exists(base / spec) and spec not in profiles
            named, keeps = str(base / spec) if is_path else spec, not settings.drop_input_ops
            try:
                graphs.append(load_graph(named, device=device, graphs_dir=graphs_dir, keep_input_ops=keeps))
            except GraphError as error:
                raise error if error.file else error.at(field="graphs") from None
        if settings.add_profiles and profiles and not set(profiles) & set(settings.graphs):
            if settings.weights is not None:
                raise ConfigError("the profiles of --graphs would have no weight; name them under graphs", field="weights")
            graphs += [replace(load_graph(name, graphs_dir=graphs_dir), name=f"profile-{name}") for name in profiles]
        for graph in graphs:
            if graph.step_s <= 0:
                raise GraphError("a step of this job takes no time", field="graphs", value=graph.name)
            num_steps = settings.steps.num_steps if isinstance(settings.steps, FixedSteps) else 1
            problem = quantities.problem("sequential_s", num_steps * graph.step_s)
            if problem is not None:
                message = f"{num_steps} steps of {graph.name} on one device: the seconds {problem}"
                raise GraphError(message, field="steps", value=num_steps * graph.step_s)
        trace: Trace | None = None
        arrivals = settings.arrivals
        if isinstance(arrivals, TraceArrivals):
            if arrivals.file is None:
                problem = (
                    "jobs arrive as a trace recorded them, which is not part of the package: give its CSV file with --trace FILE"
                )
                raise ConfigError(problem + ("" if arrivals.source is None else f"; {arrivals.source}"), field="arrivals.file")
            trace = load_trace(base / arrivals.file, min_gpus=arrivals.min_gpus, form=arrivals.format, columns=arrivals.columns)
            trace = replace(trace, is_split=arrivals.split is not False)
        result = cls(settings, tuple(graphs), trace)
        _ = result._graph_of_model  # a model without a graph is refused now
        return result

    def for_rules(self) -> Workload:
        """Return the same where nothing was trained: a trace is not split unless the settings say so."""
        arrivals = self.settings.arrivals
        if self.trace is None or not isinstance(arrivals, TraceArrivals) or arrivals.split is not None:
            return self
        settings = self.settings.model_copy(update={"arrivals": arrivals.model_copy(update={"split": False})})
        return replace(self, settings=settings, trace=replace(self.trace, is_split=False))

    def sample(self, rng: np.random.Generator, num_jobs: int) -> Arrivals:
        """Draw the jobs of one episode.

        Args:
            rng: the episode's generator; the only source of randomness.
            num_jobs: how many jobs arrive.

        Raises:
            ConfigError: no job is asked for.
            InputFileError: the trace is too short.
        """
        if num_jobs < 1:
            raise ConfigError("must be at least 1", field="num_jobs", value=num_jobs)
        if self.trace is not None:
            window = self.trace.window(rng, num_jobs)
            mean_s = self._interarrival_s(self._traced_steps[window] * self._step_s[self.traced_graphs[window]])
            arrival_s = self.trace.times_s(window) if mean_s is None else self.trace.scaled_times_s(window, mean_s)
            return self._traced(window, arrival_s, rng)
        graph_id = self._draw_graphs(rng, num_jobs)
        assert self.settings.steps is not None
        num_steps = self.settings.steps.draw(rng, self._step_s[graph_id])
        assert not isinstance(self.settings.arrivals, TraceArrivals)
        arrival_s = self.settings.arrivals.times_s(rng, num_jobs)
        return Arrivals(arrival_s, graph_id, num_steps, self.settings.deadline.draw(rng, num_jobs))

    def _traced(self, rows: slice | NDArray[np.int64], arrival_s: NDArray[np.float64], rng: np.random.Generator) -> Arrivals:
        """Return some rows of the trace; what it says of deadlines goes before what the settings draw."""
        assert self.trace is not None
        graph_id, num_steps = self.traced_graphs[rows], self._traced_steps[rows]
        fraction = self.settings.deadline.draw(rng, len(graph_id))
        if self.trace.deadline_s is not None:
            allowed_s = self.trace.deadline_s[rows]
            fraction = np.where(np.isfinite(allowed_s), allowed_s / (num_steps * self._step_s[graph_id]), fraction)
        requested = self.trace.requested_gpus
        return Arrivals(arrival_s, graph_id, num_steps, fraction, None if requested is None else requested[rows])

    def trace_lines(self, seed: int, num_jobs: int) -> list[int]:
        """Return lines of the trace's file that `sample` takes for the episode of a seed, in order; none where jobs are drawn."""
        if self.trace is None or self.trace.line is None:
            return []
        result: list[int] = self.trace.line[self.trace.window(np.random.default_rng(seed), num_jobs)].tolist()
        return result

    @cached_property
    def mean_interarrival_s(self) -> float:
        """Expected seconds between two arrivals; over the whole trace where there is one."""
        if isinstance(self.settings.arrivals, TraceArrivals):
            assert self.trace is not None
            scaled_s = self._interarrival_s(self._traced_steps * self._step_s[self.traced_graphs])
            recorded_s = float(self.trace.time_s[-1]) / max(1, len(self.trace.time_s) - 1)
            return recorded_s if scaled_s is None else scaled_s
        return self.settings.arrivals.mean_interarrival_s

    @cached_property
    def digest(self) -> str:
        """A hash of everything that a simulation of this workload depends on; names of files and graphs do not count."""
        settings_data = self.settings.model_dump(
            mode="json", exclude={"graphs": True, "device": True, "add_profiles": True, "arrivals": {"file", "source"}}
        )
        trace: list[object] = []
        if self.trace is not None:
            trace = [self.trace.time_s, self.trace.work_s, self.trace.hash_fraction]
            traced = (self.trace.num_steps, self.trace.deadline_s, None if self.trace.model is None else self.traced_graphs)
            trace += [column for column in traced if column is not None]
        return files.digest([graph.digest for graph in self.graphs], settings_data, trace)

    @cached_property
    def digest_but_arrivals(self) -> str:
        """A hash that workloads share which differ in nothing but when and how often jobs arrive."""
        settings_data = self.settings.model_dump(mode="json", exclude={"graphs", "device", "add_profiles", "arrivals"})
        return files.digest([graph.digest for graph in self.graphs], settings_data)

    @cached_property
    def _step_s(self) -> NDArray[np.float64]:
        return np.array([graph.step_s for graph in self.graphs])

    @cached_property
    def _shares(self) -> NDArray[np.float64]:
        weights = np.array(self.settings.weights or [1.0] * len(self.graphs))
        return np.asarray(weights / weights.sum(), np.float64)

    @cached_property
    def traced_graphs(self) -> NDArray[np.int64]:
        """The graph of each row of the trace: its model's, or where the row's hash falls among the graphs' shares."""
        assert self.trace is not None
        drawn = np.searchsorted(np.cumsum(self._shares)[:-1], self.trace.hash_fraction, side="right")
        if self.trace.model is None:
            return drawn
        graphs = np.array([self._graph_of_model[model] for model in self.trace.model])
        return np.where(graphs < 0, drawn, graphs)

    @cached_property
    def _graph_of_model(self) -> dict[str, int]:
        """Return the graph of each model in the trace; -1 for rows without one.

        Raises:
            InputFileError: a model is no graph of the workload.
        """
        if self.trace is None or self.trace.model is None:
            return {}
        assert isinstance(self.settings.arrivals, TraceArrivals)
        graph = {spec: number for number, spec in enumerate(self.settings.graphs)}
        graph |= {graph.name: number for number, graph in reversed(list(enumerate(self.graphs)))}
        called = self.settings.arrivals.models or {}
        result = {"": -1}
        for model in self.trace.model:
            if model and (spec := called.get(model, model)) not in graph:
                problem = "no graph of the workload has this name; arrivals.models says which one it is"
                raise InputFileError(problem, file=self.trace.file, field="model", value=spec, choices=self.settings.graphs)
            if model:
                result[model] = graph[spec]
        return result

    @cached_property
    def _traced_steps(self) -> NDArray[np.int64]:
        assert self.trace is not None
        filled = _steps_of(self.trace.work_s, self._step_s[self.traced_graphs])
        return filled if self.trace.num_steps is None else np.where(self.trace.num_steps > 0, self.trace.num_steps, filled)

    @cached_property
    def traced_work_s(self) -> NDArray[np.float64]:
        """Device-seconds of each row of the trace: as recorded, or those of as many steps as it says, ``(rows,)``."""
        assert self.trace is not None
        if self.trace.num_steps is None:
            return self.trace.work_s
        return np.where(self.trace.num_steps > 0, self.trace.num_steps * self._step_s[self.traced_graphs], self.trace.work_s)

    def rows(self, rng: np.random.Generator, num_jobs: int) -> Arrivals:
        """Return the jobs of the trace drawn one by one, of any part of it, all at time zero; without a trace as `sample`."""
        if self.trace is None:
            return self.sample(rng, num_jobs)
        return self._traced(rng.integers(len(self.trace.time_s), size=num_jobs), np.zeros(num_jobs), rng)

    def _interarrival_s(self, work_s: NDArray[np.float64]) -> float | None:
        """Return the mean time between arrivals at which work arrives at the offered load; None where jobs arrive as recorded."""
        arrivals = self.settings.arrivals
        assert isinstance(arrivals, TraceArrivals)
        if arrivals.offered_load is None or arrivals.num_devices is None:
            return None
        return float(work_s.mean() / (arrivals.offered_load * arrivals.num_devices))

    def _draw_graphs(self, rng: np.random.Generator, num_jobs: int) -> NDArray[np.int64]:
        if self.settings.draw == "independent":
            return rng.choice(len(self.graphs), num_jobs, p=self._shares)
        copies = -(-num_jobs // len(self.graphs))
        return rng.permutation(np.repeat(np.arange(len(self.graphs)), copies))[:num_jobs]


def workload_names() -> list[str]:
    """Return the names of the workloads that ship with the package."""
    return sorted(path.stem for path in shipped_path("workloads").glob("*.yaml"))


def load_workload(spec: str | Path, *, graphs_dir: str | Path | None = None, changes: Sequence[str] = ()) -> Workload:
    """Return a workload by ``preset:NAME`` or by the path of its YAML, whose relative paths refer to its own folder.

    Args:
        spec: the preset or path.
        graphs_dir: folder of profiles in which bare graph names are looked up.
        changes: ``key=value`` texts that override keys of the file.

    Raises:
        InputFileError: a file is missing or malformed.
        ConfigError: an unknown preset or key, or an impossible value.
        GraphError: a graph is unknown or malformed.
    """
    presets = {f"preset:{name}": shipped_path("workloads") / f"{name}.yaml" for name in workload_names()}
    path = presets.get(str(spec), Path(spec))
    if str(spec) not in presets and not os.path.exists(path) and (str(spec).startswith("preset:") or path.name == str(spec)):
        raise ConfigError("no such workload", field="workload", value=str(spec), choices=presets)
    loaded = settings.load(WorkloadSettings, path, changes=list(changes))
    try:
        return Workload.from_settings(loaded, graphs_dir=graphs_dir, base_folder=path.parent)
    except MeshwrightError as error:
        raise error.at(file=path) from None


def _steps_of(sequential_s: NDArray[np.float64], step_s: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return whole steps that fill a time, at least one."""
    steps = np.maximum(1, np.round(sequential_s / step_s))
    if steps.max(initial=1) > MAX_STEPS:
        raise ConfigError(f"a job would have more than {MAX_STEPS} steps", field="steps", value=float(steps.max()))
    return steps.astype(np.int64)
