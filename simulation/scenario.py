"""A scenario: a cluster, a workload and the rules of the game, joined into the arrays that the dynamics step.

`ScenarioSettings` is the ``scenario`` part of a benchmark's YAML. Building a scenario simulates every job graph on
every placement class once (see `simulation.step_times`); after that an episode costs microseconds per decision.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, ValidationInfo, field_validator, model_validator

from .. import files, settings
from ..clusters import load_cluster
from ..clusters.cluster import Cluster
from ..costs.model import CostSettings
from ..jobs.arrivals import Arrivals
from ..jobs.workload import Workload, load_workload
from . import dynamics, interruptions
from .dynamics import RULE_NAMES, Episodes, Problem
from .interruptions import FailureSettings, PreemptionSettings
from .space import DecisionSpace, decision_space
from .splitting import SplitSettings
from .step_times import StepTimes, step_times

# A job that is interrupted more often than this before each checkpoint needs more than exp(5) = 148 tries for it.
MAX_INTERRUPTIONS_PER_CHECKPOINT = 5.0

RuleName = Literal["first-fit", "best-fit", "aligned", "fastest"]


class ScenarioSettings(settings.Settings):
    """A cluster, a workload and the rules of the game.

    Attributes:
        cluster: ``preset:NAME`` or a path to a cluster's YAML.
        workload: ``preset:NAME`` or a path to a workload's YAML.
        num_jobs: arrivals of one episode.
        num_warmup_jobs: first arrivals of an episode that the statistics leave out.
        num_cooldown_jobs: last arrivals that they leave out.
        queue_capacity: jobs that may wait at a time (see `simulation.dynamics`); 0: a job starts on arrival or never.
        max_degree: most ranks that a job may be cut into.
        placement_rules: for each degree, one candidate block per rule.
        failures: of devices (see `simulation.interruptions`).
        preemption: pauses of running jobs.
        splitting: how far each op is split when a job gets a number of ranks.
        costs: one choice per layer of the cost model.
    """

    cluster: str
    workload: str
    num_jobs: int = Field(ge=1, le=1_000_000)
    num_warmup_jobs: int = Field(default=0, ge=0)
    num_cooldown_jobs: int = Field(default=0, ge=0)
    queue_capacity: int = Field(default=0, ge=0, le=10_000)
    max_degree: int = Field(default=16, ge=1, le=65_536)
    placement_rules: tuple[RuleName, ...] = ("first-fit", "best-fit")
    failures: FailureSettings = FailureSettings()
    preemption: PreemptionSettings = PreemptionSettings()
    splitting: SplitSettings = SplitSettings()
    costs: CostSettings = CostSettings()

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

    @property
    def counted(self) -> slice:
        """The arrivals that the statistics count."""
        return slice(self.num_warmup_jobs, self.num_jobs - self.num_cooldown_jobs)

    def to_digest(self) -> dict[str, Any]:
        """What an episode depends on, cluster and workload apart; what is off by default only where it is on."""
        data = self.model_dump(exclude={"cluster", "workload"})
        for name in ("num_cooldown_jobs", "queue_capacity", "failures", "preemption"):
            if getattr(self, name) == type(self).model_fields[name].default:
                del data[name]
        return data


@dataclass(frozen=True, eq=False)
class Scenario:
    """Everything that is computed once and shared by all episodes.

    Attributes:
        settings: what it was built from.
        cluster: where jobs run.
        workload: which jobs arrive, and when.
        space: the blocks that a job may own.
        times: step time of each graph on each placement class.
    """

    settings: ScenarioSettings
    cluster: Cluster
    workload: Workload
    space: DecisionSpace
    times: StepTimes

    @cached_property
    def problem(self) -> Problem:
        """The arrays that the compiled dynamics read."""
        space = self.space
        per_degree = np.bincount(space.degree, minlength=len(space.degrees))
        return Problem(
            start=space.start,
            devices=space.devices,
            degree=space.degree,
            placement_class=space.placement_class,
            intersects=space.intersects,
            neighbour_start=np.concatenate([[0], np.cumsum(space.intersects.sum(axis=1))]).astype(np.int64),
            neighbours=np.nonzero(space.intersects)[1].astype(np.int64),
            weight=1.0 / per_degree[space.degree],
            degrees=np.array(space.degrees, np.int64),
            rules=np.array([int(RULE_NAMES[name]) for name in self.settings.placement_rules], np.int64),
            step_s=self.times.step_s,
            communication_share=self.times.communication_share,
            can_run=self.times.can_run,
            sequential_step_s=np.array([graph.step_s for graph in self.workload.graphs]),
            horizon_s=16.0 * self.workload.mean_interarrival_s,
            queue_capacity=self.settings.queue_capacity,
            interruptions=interruptions.interruptions(
                self.settings.failures, self.settings.preemption, space.start, space.devices, self.cluster.num_devices
            ),
        )

    @cached_property
    def candidate_degree(self) -> tuple[int, ...]:
        """Ranks of each candidate; zero for the rejection."""
        return (0, *(d for d in self.space.degrees for _ in self.settings.placement_rules))

    @cached_property
    def candidate_rule(self) -> tuple[str, ...]:
        """Placement rule of each candidate; empty for the rejection."""
        return ("", *(rule for _ in self.space.degrees for rule in self.settings.placement_rules))

    @property
    def digest(self) -> str:
        """A hash of everything that an episode's outcome depends on, the policy and the seed apart."""
        table = (self.times.step_s, self.times.communication_share, self.times.can_run)
        return files.digest(self.space.digest, self.workload.digest, list(table), self.settings.to_digest())

    def new_episodes(self, num_episodes: int) -> Episodes:
        """Arrays for a number of episodes, to be filled by `begin`."""
        return dynamics.new_episodes(self.problem, num_episodes, self.settings.num_jobs, self.cluster.num_devices)

    def begin(self, episodes: Episodes, e: int, arrivals: Arrivals, seed: int = 0) -> None:
        """Start episode ``e`` with given jobs, one more than it decides, and show the first one.

        Args:
            episodes: the state.
            e: episode.
            arrivals: the jobs.
            seed: of failures and preemptions, from 0 to 2^63 - 1.
        """
        episodes.seed[e] = seed
        episodes.arrival_s[e] = arrivals.arrival_s
        episodes.graph_id[e] = arrivals.graph_id
        episodes.num_steps[e] = arrivals.num_steps
        sequential_s = arrivals.num_steps * self.problem.sequential_step_s[arrivals.graph_id]
        episodes.allowed_s[e] = arrivals.deadline_fraction * sequential_s
        dynamics.start(self.problem, episodes, e)


def build(
    chosen: ScenarioSettings,
    *,
    graphs_dir: Path | None = None,
    cache: Path | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Scenario:
    """Load cluster and workload and simulate the step times (see `simulation.step_times.step_times`).

    Raises:
        MeshwrightError: cluster or workload are missing or wrong, or a graph cannot be timed on the cluster.
    """
    cluster = load_cluster(chosen.cluster)
    workload = load_workload(chosen.workload, graphs_dir=graphs_dir)
    return assemble(chosen, cluster, workload, cache=cache, progress=progress)


def assemble(
    chosen: ScenarioSettings,
    cluster: Cluster,
    workload: Workload,
    *,
    cache: Path | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Scenario:
    """As `build`, from a cluster and a workload that are loaded already."""
    space = decision_space(cluster, chosen.max_degree)
    times = step_times(workload.graphs, space, chosen.costs, chosen.splitting, cache=cache, progress=progress)
    return Scenario(chosen, cluster, workload, space, times)
