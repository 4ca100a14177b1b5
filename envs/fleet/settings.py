"""A fleet as YAML: the ``fleet`` part of a benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from ... import settings
from ...costs.settings import CostSettings
from ...packaged import path_in_folder
from ...planners.menu.settings import JobTypeSettings, MenuSettings
from ...simulation.cluster.interruptions import DeviceFailureSettings
from ...simulation.decision_space.splitting import SplitSettings

PlacementName = Literal["packed", "spread", "nearest", "construct", "blocks"]
ObjectiveName = Literal[
    "blocking_rate", "mean_completion_s", "p95_completion_s", "mean_wait_s", "makespan_s", "deadline_met_rate", "device_hours"
]
CandidateFeatures = Literal["none", "analytic", "simulated"]
Share = Annotated[float, Field(gt=0)]


class DurationSettings(settings.Settings):
    """How long jobs would take on the devices that their users ask for: a lognormal distribution.

    Attributes:
        median_s: of it.
        sigma: standard deviation of its logarithm.
        most_s: longer draws are cut to this.
    """

    median_s: float = Field(gt=0)
    sigma: float = Field(ge=0, le=4)
    most_s: float = Field(gt=0)


class DeadlineSettings(settings.Settings):
    """The deadline of a job: its duration on the devices that its user asks for, times a uniform factor.

    Attributes:
        low, high: ends of the range of the factor.
    """

    low: float = Field(gt=0)
    high: float = Field(gt=0)

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low {self.low:g} is above high {self.high:g}")
        return self


class ElasticSettings(settings.Settings):
    """Running jobs are decided again in rounds.

    Attributes:
        every_s: seconds between rounds; may be left out with ``at_events``.
        at_events: whether each arrival and each end of a job is a round too.
        restart_s: fixed seconds of a restart.
        storage_gbytes_per_s: at which parameters and optimizer state of a job are written and read.
        storage_of: whether that rate is of each ``job``, or of each of its ``hosts``. All hosts that it leaves write, and all
            that it starts on read.
        min_degree, max_degree: of what a job that has run may get.
        visible_jobs: running jobs that are offered in a round, oldest start first.
    """

    every_s: float | None = Field(default=None, gt=0)
    at_events: settings.Switch = Field(default=False, exclude_if=lambda value: not value)
    restart_s: float = Field(ge=0)
    storage_gbytes_per_s: float = Field(gt=0)
    storage_of: Literal["job", "hosts"] = Field(default="job", exclude_if=lambda whose: whose == "job")
    min_degree: int = Field(default=1, ge=1)
    max_degree: int = Field(default=65_536, ge=1)
    visible_jobs: int = Field(default=16, ge=1, le=256)

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if self.min_degree > self.max_degree:
            raise ValueError(f"min_degree {self.min_degree} is above max_degree {self.max_degree}")
        if self.every_s is None and not self.at_events:
            raise ValueError("every_s: the key is missing; give the seconds between rounds, or at_events: true")
        return self


class HostFailureSettings(DeviceFailureSettings):
    """Hosts that fail: one of eight devices eight times as often as a device, and all its devices are out until it is repaired.

    Attributes:
        restart_s: fixed seconds of the next start of a job that a failure stopped, 300 unless given; with ``elastic`` it costs
            what that says.
    """

    restart_s: float | None = Field(default=None, ge=0)


class SplitsSettings(settings.Settings):
    """The jobs of the first world: op graphs, each of whose ops is split, on aligned blocks of devices.

    Attributes:
        workload: ``preset:NAME`` or a path to a workload's YAML, which says which jobs come, when, how long they are and when
            they must be done.
        max_degree: most devices of a job.
        splitting: how far each op is split when a job gets a number of devices.
    """

    workload: str
    max_degree: int = Field(default=16, ge=1, le=65_536)
    splitting: SplitSettings = SplitSettings()


class FleetSettings(settings.Settings):
    """A cluster, the jobs that come to it, their menu and the rules of the game.

    Attributes:
        cluster: ``preset:NAME`` or a path to a cluster's YAML.
        splits: jobs of `JobPartitioning-v0`, without ``job_types``, ``weights``, ``menu``, ``load``, ``duration``, ``deadline``.
        job_types: ``preset:NAME``, a path, or the types themselves.
        weights: how often each type comes, relative to the others; equal unless given.
        menu: which layouts there are to choose from.
        num_jobs: arrivals of an episode.
        num_warmup_jobs: first arrivals that the statistics leave out.
        num_cooldown_jobs: last arrivals that they leave out.
        load: work that arrives in a second, in the entry that wastes least, over the devices of the cluster.
        duration: of jobs on the devices that they ask for.
        requested: how often users ask for each number of devices; of those on which the job runs.
        deadline: None where jobs have none.
        queue_capacity: jobs that may wait.
        visible_jobs: waiting jobs that are offered, first come first.
        may_refuse: whether each of these may be refused; it counts as blocked and makes room for the next one.
        placements: rules by which hosts are found.
        sharing: of links by running jobs.
        elastic: None where a job keeps what it got.
        failures: of hosts (see `simulation.fleet.dynamics`).
        objective: what rewards, validation and verdicts are about.
        candidate_features: of actions: ``analytic`` their time alone, ``none`` nothing, ``simulated`` the times of all jobs then.
        observes_links: whether an observation also has the links between hosts and trunks, with their bandwidths.
        costs: choices of the cost model.
        in_network_trees: aggregation trees that the cluster's switches keep at a time, for all jobs together. Entries with
            ``collectives: in-network`` are on offer while enough are free. None: they are not counted.
        parameter_servers: hosts outside the cluster, above its switches, that hold parameters for all jobs together. Entries
            and job types trained by ``ssp`` or ``asp`` are on offer while enough are free.
        synchronous_only: whether inexact entries are masked, with the same jobs and arrivals; for ablations.
    """

    cluster: str
    splits: SplitsSettings | None = None
    job_types: str | tuple[JobTypeSettings, ...] = ()
    weights: tuple[Share, ...] | None = None
    menu: MenuSettings = MenuSettings()
    num_jobs: int = Field(ge=1, le=100_000)
    num_warmup_jobs: int = Field(default=0, ge=0)
    num_cooldown_jobs: int = Field(default=0, ge=0)
    load: float | None = Field(default=None, gt=0, le=10)
    duration: DurationSettings | None = None
    requested: dict[Annotated[int, Field(ge=1)], Share] = Field(min_length=1)
    deadline: DeadlineSettings | None = None
    queue_capacity: int = Field(default=0, ge=0, le=10_000)
    visible_jobs: int = Field(default=8, ge=1, le=256)
    may_refuse: bool = Field(default=False, exclude_if=lambda value: not value)
    placements: tuple[PlacementName, ...] = ("packed", "spread", "nearest")
    sharing: Literal["none", "fair", "interleaved"] = "fair"
    elastic: ElasticSettings | None = None
    failures: HostFailureSettings = HostFailureSettings()
    objective: ObjectiveName = "mean_completion_s"
    candidate_features: CandidateFeatures = "analytic"
    observes_links: bool = Field(default=False, exclude_if=lambda value: not value)
    costs: CostSettings = CostSettings()
    in_network_trees: int | None = Field(default=None, ge=0, le=1_000_000, exclude_if=lambda trees: trees is None)
    parameter_servers: int = Field(default=0, ge=0, le=1_000_000, exclude_if=lambda servers: servers == 0)
    synchronous_only: bool = Field(default=False, exclude_if=lambda value: not value)

    @field_validator("placements")
    @classmethod
    def _some_once(cls, placements: tuple[PlacementName, ...]) -> tuple[PlacementName, ...]:
        if not placements or len(set(placements)) < len(placements):
            raise ValueError("must name at least one placement, each once")
        return placements

    @field_validator("num_cooldown_jobs")
    @classmethod
    def _some_job_counts(cls, left_out: int, info: ValidationInfo) -> int:
        num_jobs, warmup = info.data.get("num_jobs"), info.data.get("num_warmup_jobs", 0)
        if num_jobs is not None and left_out + warmup >= num_jobs:
            raise ValueError(f"must be less than num_jobs ({num_jobs}) less the {warmup} of the warm-up")
        return left_out

    @field_validator("failures")
    @classmethod
    def _has_one_price_of_restarts(cls, failures: HostFailureSettings, info: ValidationInfo) -> HostFailureSettings:
        if failures.restart_s is not None and info.data.get("elastic") is not None:
            raise ValueError("restart_s: with elastic a restart costs what that says; leave it out")
        return failures

    @model_validator(mode="after")
    def _trees_are_a_choice(self) -> Self:
        if self.in_network_trees is not None and self.costs.collectives == "in-network":
            problem = "where all trees are held nothing would be left; give menu.entries, not costs, collectives: in-network"
            raise ValueError(f"in_network_trees: {problem}")
        return self

    @field_validator("objective")
    @classmethod
    def _has_what_it_needs(cls, objective: ObjectiveName, info: ValidationInfo) -> ObjectiveName:
        if info.data.get("splits") is not None:
            return objective
        if objective == "deadline_met_rate" and info.data.get("deadline") is None:
            raise ValueError("deadline_met_rate wants jobs with deadlines: give the key deadline")
        if objective == "blocking_rate" and info.data.get("deadline") is None and info.data.get("queue_capacity", 0) > 0:
            raise ValueError("blocking_rate: with a queue and no deadlines hardly any job is blocked; give the key deadline")
        return objective

    @model_validator(mode="after")
    def _jobs_are_told_once(self) -> Self:
        if self.splits is None:
            for key in ("job_types", "load", "duration"):
                if not getattr(self, key):
                    raise ValueError(f"{key}: the key is missing")
            if "blocks" in self.placements:
                raise ValueError("placements: blocks are for jobs of the key splits")
            return self
        for key in ("job_types", "weights", "menu", "load", "duration", "deadline"):
            if getattr(self, key) != type(self).model_fields[key].default:
                raise ValueError(f"{key}: does not go with splits; leave it out")
        if self.placements != ("blocks",) or self.sharing != "none":
            raise ValueError("splits: such jobs run on blocks and share no links; give placements: [blocks] and sharing: none")
        return self

    @property
    def has_deadlines(self) -> bool:
        """Whether jobs may have deadlines."""
        return self.deadline is not None or self.splits is not None

    @property
    def has_failures(self) -> bool:
        """Whether hosts fail."""
        return self.failures.mean_time_between_failures_h is not None

    @property
    def counted(self) -> slice:
        """The arrivals that the statistics count."""
        return slice(self.num_warmup_jobs, self.num_jobs - self.num_cooldown_jobs)

    def relative_to(self, folder: Path) -> FleetSettings:
        """Return the settings with relative paths resolved against a folder."""
        types = self.job_types
        results: dict[str, Any] = {
            "cluster": path_in_folder(self.cluster, folder),
            "job_types": path_in_folder(types, folder)
            if isinstance(types, str)
            else tuple(one.relative_to(folder) for one in types),
            "costs": self.costs.relative_to(folder),
        }
        if self.splits is not None:
            results["splits"] = self.splits.model_copy(update={"workload": path_in_folder(self.splits.workload, folder)})
        return self.model_copy(update={key: value for key, value in results.items() if value != getattr(self, key)})
