"""The rules of the game as YAML: the ``scenario`` part of a benchmark."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from ... import settings
from ...costs.settings import CostSettings
from ...plans.compression import Compression
from ...plans.training import Synchronous, Training
from ..decision_space.splitting import SplitSettings
from ..decision_space.trained_steps import KINDS, GivenTraining
from ..pacml.semantics import PHYSICAL, Defects, GeneralSemantics, PacmlSemantics, Semantics
from .interruptions import FailureSettings, PreemptionSettings

# A job that is interrupted more often than this before each checkpoint needs more than exp(5) = 148 tries for it.
MAX_INTERRUPTIONS_PER_CHECKPOINT = 5.0
# What only observations depend on, not what happens.
OBSERVED = ("arrivals_per_slot",)

QueueOrderName = Literal["fifo", "shortest-remaining", "least-attained-service", "deadline"]

RuleName = Literal["first-fit", "best-fit", "aligned", "fastest", "published", "all-blocks"]


class ScenarioSettings(settings.Settings):
    """A cluster, a workload and the rules of the game.

    Attributes:
        cluster: ``preset:NAME`` or a path to a cluster's YAML.
        workload: ``preset:NAME`` or a path to a workload's YAML.
        workload_changes: keys of the workload that replace those of its YAML, nested as there. A ``kind`` needs all of its keys.
            Paths refer to the folder of the workload.
        num_jobs: arrivals of one episode.
        num_warmup_jobs: first arrivals of an episode that the statistics leave out.
        num_cooldown_jobs: last arrivals that they leave out.
        queue_capacity: jobs that may wait at a time (see `simulation.cluster.dynamics`); 0: a job starts on arrival or never.
        queue_order: which waiting job is decided first: by arrival, time on its best block, deadline, or attained service. The
            latter is zero, as running jobs never wait again.
        max_degree: most ranks that a job may be cut into.
        placement_rules: for each degree, one candidate block per rule. ``all-blocks`` lists every free block of every degree.
            ``published`` is the first fit of the published PAC-ML simulator and needs its semantics.
        max_listed_blocks: most candidates of ``all-blocks`` (see `simulation.cluster.candidates`).
        semantics: whose rules hold, our own or those of the published PAC-ML simulator.
        arrivals_per_slot: length of the slots of observations in mean inter-arrival times (see `envs.observation`). A cluster
            with eight times the devices and arrivals looks the same with a value eight times as large.
        failures: of devices (see `simulation.cluster.interruptions`).
        preemption: pauses of running jobs.
        splitting: how far each op is split when a job gets a number of ranks.
        costs: one choice per layer of the cost model.
        training, compression: how all jobs are trained; a declared multiplier is the number of steps that replace one.
    """

    cluster: str
    workload: str
    workload_changes: dict[str, Any] = Field(default_factory=dict)
    num_jobs: int = Field(ge=1, le=1_000_000)
    num_warmup_jobs: int = Field(default=0, ge=0)
    num_cooldown_jobs: int = Field(default=0, ge=0)
    queue_capacity: int = Field(default=0, ge=0, le=10_000)
    queue_order: QueueOrderName = Field(default="fifo", exclude_if=lambda order: order == "fifo")
    max_degree: int = Field(default=16, ge=1, le=65_536)
    placement_rules: tuple[RuleName, ...] = ("first-fit", "best-fit")
    max_listed_blocks: int = Field(default=48, ge=1, le=4096)
    semantics: Semantics = GeneralSemantics()
    arrivals_per_slot: float = Field(default=1.0, gt=0, le=1000)
    failures: FailureSettings = FailureSettings()
    preemption: PreemptionSettings = PreemptionSettings()
    splitting: SplitSettings = SplitSettings()
    costs: CostSettings = CostSettings()
    # Left out of dumps where they are not given, so that no digest of earlier scenarios changes.
    training: Training = Field(default=Synchronous(), exclude_if=lambda training: training == Synchronous())
    compression: Compression | None = Field(default=None, exclude_if=lambda compression: compression is None)

    @field_validator("queue_order")
    @classmethod
    def _has_a_queue(cls, order: QueueOrderName, info: ValidationInfo) -> QueueOrderName:
        if order != "fifo" and not info.data.get("queue_capacity", 0):
            raise ValueError(f"{order} wants jobs that wait: set queue_capacity too")
        return order

    @field_validator("placement_rules")
    @classmethod
    def _some_rule_once(cls, rules: tuple[RuleName, ...]) -> tuple[RuleName, ...]:
        if not rules or len(set(rules)) < len(rules):
            raise ValueError("must name at least one rule, each once")
        return rules

    @field_validator("num_warmup_jobs", "num_cooldown_jobs")
    @classmethod
    def _some_job_counts(cls, left_out: int, info: ValidationInfo) -> int:
        num_jobs, num_warmup_jobs = info.data.get("num_jobs"), info.data.get("num_warmup_jobs", 0)
        if num_jobs is not None and left_out + num_warmup_jobs >= num_jobs:
            others = f" less the {num_warmup_jobs} of the warm-up" if num_warmup_jobs else ""
            raise ValueError(f"must be less than num_jobs ({num_jobs}){others}")
        return left_out

    @model_validator(mode="after")
    def _jobs_reach_their_checkpoints(self) -> ScenarioSettings:
        failures, mean_h = self.failures, self.failures.mean_time_between_failures_h
        per_h = self.preemption.rate_per_job_h + (0.0 if mean_h is None else self.max_degree / mean_h)
        expected = per_h * (failures.checkpoint_every_s + failures.restart_s) / 3600.0
        if expected > MAX_INTERRUPTIONS_PER_CHECKPOINT:
            raise ValueError(
                f"a job of max_degree ranks ({self.max_degree}) would be interrupted {expected:.3g} times between two "
                f"checkpoints and hardly ever end; at most {MAX_INTERRUPTIONS_PER_CHECKPOINT:g} times is allowed"
            )
        return self

    @field_validator("costs")
    @classmethod
    def _kernels_price_layouts(cls, costs: CostSettings) -> CostSettings:
        for key in ("kernels", "software"):
            if getattr(costs, key) is not None:
                raise ValueError(f"{key}: is read where layouts of transformers are priced, which no scenario does; leave it out")
        return costs

    @model_validator(mode="after")
    def _trains_whole_replicas(self) -> ScenarioSettings:
        kind = self.training.kind
        if kind not in KINDS:
            raise ValueError(
                f"training: kind={kind} is no choice of a scenario, whose devices hold whole replicas and no stages; "
                f"it takes {', '.join(KINDS)}; a type of jobs of a fleet takes kind={kind} too"
            )
        if self.compression is not None and kind != "synchronous":
            raise ValueError("compression: goes with training of kind synchronous, whose gradients it codes")
        if not self.given_training.is_plain and self.splitting.rule != "uniform":
            key = "training" if self.compression is None else "compression"
            raise ValueError(f"{key}: wants whole replicas, which splitting of rule {self.splitting.rule} has not; give uniform")
        return self

    @model_validator(mode="after")
    def _semantics_agree(self) -> ScenarioSettings:
        if not isinstance(self.semantics, PacmlSemantics):
            if "published" in self.placement_rules:
                raise ValueError("placement_rules: published is a rule of the semantics pacml")
            return self
        for name in ("splitting", "costs", "training", "compression"):
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name}: the semantics pacml cut and price jobs by rules of their own; leave this key out")
        return self

    @property
    def given_training(self) -> GivenTraining:
        """How jobs are trained."""
        return GivenTraining(self.training, self.compression)

    @property
    def defects(self) -> Defects:
        """Defects of the published simulator that are kept; none under our own semantics."""
        return self.semantics.defects if isinstance(self.semantics, PacmlSemantics) else PHYSICAL

    @property
    def counted(self) -> slice:
        """The arrivals that the statistics count."""
        return slice(self.num_warmup_jobs, self.num_jobs - self.num_cooldown_jobs)

    def to_digest(self) -> dict[str, Any]:
        """Return the settings on which an episode depends, without cluster and workload; defaults that are off are left out."""
        data = self.model_dump(exclude={"cluster", "workload", "workload_changes", *OBSERVED})
        for name in ("num_cooldown_jobs", "queue_capacity", "failures", "preemption", "semantics", "max_listed_blocks"):
            if getattr(self, name) == type(self).model_fields[name].default:
                del data[name]
        return data
