"""The file of figures and decision logs that the published PAC-ML simulator left; what it must hold and may hold.

Keys that are not read (times on its authors' machine, for example) are passed over.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from .... import files, settings
from ....clusters import load_cluster
from ....clusters.cluster import Cluster
from ....clusters.settings import ClusterSettings
from ....errors import InputFileError
from ....settings import Settings
from ....simulation.pacml.simulator import NUM_STEPS
from .episodes import INTERARRIVAL_S

LEAST_FIGURE = 1e-100
"""Divisors below this overflow a float."""


def _number(value: Any) -> Any:
    if isinstance(value, bool | str):
        raise ValueError("must be a number")
    if isinstance(value, float) and 0 < abs(value) < LEAST_FIGURE:
        raise ValueError(f"must be 0, or {LEAST_FIGURE:g} at least: errors are relative to it")
    return value


Number = Annotated[float, BeforeValidator(_number)]
Count = Annotated[int, BeforeValidator(_number)]
Degree = Annotated[int, Field(ge=1, le=1_000_000)]


class _Figures(Settings):
    model_config = ConfigDict(extra="ignore")


class RampNetwork(_Figures):
    """``config.topology``: a RAMP network."""

    type: Literal["ramp"]
    num_communication_groups: Count
    num_racks_per_communication_group: Count
    num_servers_per_rack: Count
    total_node_bandwidth: Number
    intra_gpu_propagation_latency: Number
    worker_io_latency: Number


class JobSettings(_Figures):
    """The section ``config.jobs``."""

    num_training_steps: Count = Field(gt=0)


class Config(_Figures):
    """``config``: what the figures were measured with; the published setting where it is left out."""

    topology: RampNetwork | None = None
    jobs: JobSettings | None = None


class SingleJob(_Figures):
    """A job alone on the empty cluster; every figure of it is compared."""

    valid: bool
    placed: bool | None = None
    jct: Number | None = None
    step_time: Number | None = None
    communication_overhead_time: Number | None = None
    computation_overhead_time: Number | None = None
    busy_worker_time: Number | None = None
    sequential_jct: Number | None = None
    num_ops: Count | None = None
    num_deps: Count | None = None
    num_sync_deps: Count | None = None
    num_flow_deps: Count | None = None
    total_dep_size: Number | None = None
    total_flow_size: Number | None = None
    total_op_memory: Number | None = None
    num_workers: Count | None = None
    num_channels: Count | None = None
    servers: list[str] | None = None
    lookahead_ticks: Count | None = None
    max_dep_run_time: Number | None = None
    mean_mounted_worker_utilisation_frac_ref: Number | None = None
    reward_at_frac_1: Literal[1, -1] | None = None


class Converted(_Figures):
    """A job alone on the empty cluster if milliseconds were milliseconds."""

    jct: Number
    comm: Number
    comp: Number
    speedup: Number
    workers: Count


class CompletionRange(_Figures):
    """Completion times of one job and degree over the placements that were met."""

    jct_min: Number
    jct_max: Number


class Log(_Figures):
    """One episode: graph, allowed fraction, chosen degree and reward of each decision, and its totals."""

    agent: str = "?"
    dist: str = "?"
    seed: int | None = None
    max_simulation_run_time: Number | None = None
    arrived: Number | None = None
    blocked: Number
    completed: Number
    mean_jct: Number | None
    mean_demand_total_throughput: Number
    lookaheads: Count | None = None
    log: list[tuple[str, Number, Annotated[Count, Field(ge=0)], Literal[1, -1]]] = Field(min_length=1)

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        end_s = self.max_simulation_run_time
        if end_s is not None and end_s != len(self.log) * INTERARRIVAL_S:
            raise ValueError(f"log: {len(self.log)} decisions, but {end_s / INTERARRIVAL_S:g} jobs are decided in {end_s:g} s")
        for _, fraction, _, _ in self.log:
            if fraction <= 0:
                raise ValueError(f"log: an allowed fraction must be positive, not {fraction:g}")
        return self


class EpisodeFigures(_Figures):
    """One episode of the statistics."""

    blocking_rate: Number
    mean_jct: Number | None
    demand_thr: Number


class Reference(_Figures):
    """The whole file; each family of figures may be left out, but not all of them."""

    config: Config = Config()
    single_job_empty_cluster: dict[str, dict[Degree, SingleJob]] = Field(default_factory=dict)
    single_job_if_ms_were_converted_to_s: dict[str, dict[Degree | Literal["seq"], Converted | Number]] = Field(
        default_factory=dict
    )
    placement_dependence: dict[str, dict[Degree, CompletionRange]] = Field(default_factory=dict)
    episode_logs: list[Log] = Field(default_factory=list)
    ten_seed_statistics: dict[Literal["A", "B", "C", "D"], dict[str, list[EpisodeFigures]]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _holds_something(self) -> Self:
        families = [key for key in type(self).model_fields if key != "config"]
        if not any(getattr(self, key) for key in families):
            raise ValueError(f"holds none of {', '.join(families)}")
        return self

    @property
    def num_steps(self) -> int:
        """Training steps of every job."""
        return self.config.jobs.num_training_steps if self.config.jobs else NUM_STEPS

    def graph_fields(self) -> dict[str, str]:
        """Return each graph that the file names, and where it does so first."""
        result: dict[str, str] = {}
        for key in ("single_job_empty_cluster", "single_job_if_ms_were_converted_to_s", "placement_dependence"):
            for name in getattr(self, key):
                result.setdefault(name, key)
        for number, episode in enumerate(self.episode_logs):
            for row, (name, *_) in enumerate(episode.log):
                result.setdefault(name, f"episode_logs.{number}.log.{row}")
        return result

    def cluster(self) -> Cluster:
        """Return the RAMP cluster that the file describes, the published one unless it does.

        Raises:
            ConfigError: an impossible topology.
        """
        topology = self.config.topology
        if topology is None:
            return load_cluster("preset:ramp-4x4x2")
        described = {
            "name": "ramp",
            "device": "a100",
            "topology": {
                "kind": "ramp",
                "num_groups": topology.num_communication_groups,
                "num_racks": topology.num_racks_per_communication_group,
                "servers_per_rack": topology.num_servers_per_rack,
                "node_bandwidth_gbytes_per_s": topology.total_node_bandwidth / 1e9,
                "propagation_ns": topology.intra_gpu_propagation_latency * 1e9,
                "io_ns": topology.worker_io_latency * 1e9,
            },
        }
        return Cluster.from_settings(settings.build_settings(ClusterSettings, described))


def load_reference(path: str | Path) -> Reference:
    """Read a file of figures.

    Raises:
        InputFileError: missing, not JSON, or not of the form; the field and its value are named.
    """
    data = files.read_json(path)
    if not isinstance(data, dict):
        raise InputFileError("a JSON object is wanted", file=path, value=type(data).__name__)
    return settings.build_read(Reference, data, path)
