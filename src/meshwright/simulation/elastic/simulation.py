"""Episodes of elastic jobs on a cluster, decided in rounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ...errors import ConfigError, PolicyError
from ...jobs.readers.elastic import ElasticApplication, ElasticWorkload
from ...settings import Settings
from .applications import ApplicationArrays, arrays_of
from .measured import MAX_HOSTS
from .rounds import move_jobs, run_round
from .state import NOT_YET, BatchRule, ElasticJobs, first_state

SINGLE_RANK = ("ncf",)
"""Applications that the artifact of Pollux never gives a second rank, nor another batch than the largest."""
NUM_OBSERVED = 512
"""Kinds of steps that a job remembers."""


class ElasticCluster(Settings):
    """The cluster, and what a change costs; by default those of the published workloads."""

    num_nodes: int = Field(default=16, ge=1, le=MAX_HOSTS)
    devices_per_node: int = Field(default=4, ge=1, le=4)
    round_s: int = Field(default=60, ge=1)
    restart_s: int = Field(default=30, ge=0)
    interference: float = Field(default=0.0, ge=0, lt=1)

    @property
    def num_devices(self) -> int:
        """Number of devices."""
        return self.num_nodes * self.devices_per_node


class ElasticSimulation:
    """Episodes side by side, one for each workload; every round an allocation moves all of them on.

    Args:
        applications: what was measured.
        cluster: where they run.

    Attributes:
        apps: the applications as arrays.
        most_ranks: of a job of each application, ``(a,)``.
        jobs: the state, to be read by policies; ``jobs.now_s`` is when the next allocation is decided.
    """

    apps: ApplicationArrays
    jobs: ElasticJobs

    def __init__(self, applications: Sequence[ElasticApplication], cluster: ElasticCluster | None = None) -> None:
        self.applications, self.cluster = tuple(applications), cluster or ElasticCluster()
        self.apps = arrays_of(self.applications)
        is_single = np.array([each.name in SINGLE_RANK for each in self.applications])
        self.most_ranks = np.where(is_single, 1, self.apps.max_batch // self.apps.min_local)
        self._fixed_batch = np.where(is_single, self.apps.max_batch, 0)

    def reset(self, workloads: Sequence[ElasticWorkload], batch_rule: BatchRule) -> ElasticJobs:
        """Start again; the first decision is due after one round.

        Raises:
            ConfigError: a job asks for more ranks than there are devices.
        """
        for each in workloads:
            for name, ranks in zip(each.job_names, each.num_ranks.tolist(), strict=True):
                if ranks > self.cluster.num_devices:
                    raise ConfigError(f"the cluster has {self.cluster.num_devices} devices", field=name, value=ranks)
        self.workloads = tuple(workloads)
        is_fixed = batch_rule is BatchRule.FIXED
        fixed = [each.batch if is_fixed else self._fixed_batch[each.application] for each in workloads]
        observed = NUM_OBSERVED if batch_rule is BatchRule.ESTIMATED else 0
        self.learns = batch_rule is BatchRule.ESTIMATED
        self.jobs = first_state(workloads, batch_rule, fixed, self.cluster.num_devices, observed)
        self._run()
        return self.jobs

    def step(self, node_of_rank: NDArray[np.int16]) -> ElasticJobs:
        """Move the active jobs to the decided ranks, and run to the next decision.

        Args:
            node_of_rank: see `ElasticJobs`, ``(e, j, d)``.

        Raises:
            PolicyError: no such node, more ranks on a node than it has devices, ranks of a node apart, or behind a gap.
            ConfigError: a step of so many ranks and samples was not measured.
        """
        cluster = self.cluster
        at = move_jobs(self.apps, self.jobs, node_of_rank, cluster.num_nodes, cluster.devices_per_node, cluster.restart_s)
        if at[0] >= 0:
            ranks = node_of_rank[at]
            devices = ranks[: len(ranks) - int((ranks[::-1] >= 0).argmax())].tolist()
            raise PolicyError("impossible nodes of its ranks", field=self.workloads[at[0]].job_names[at[1]], value=devices)
        self._run()
        return self.jobs

    @property
    def is_over(self) -> bool:
        """Whether every job of every episode has ended."""
        return not ((self.jobs.completion_s == NOT_YET) & self.is_job).any()

    @property
    def is_job(self) -> NDArray[np.bool_]:
        """Whether each place of the arrays holds a job, ``(e, j)``."""
        return np.arange(self.jobs.application.shape[1]) < self.jobs.num_jobs[:, None]

    def _run(self) -> None:
        cluster = self.cluster
        at = run_round(self.apps, self.jobs, cluster.round_s, cluster.num_nodes, cluster.interference, self.learns)
        if at[0] >= 0:
            ranks, local = int(self.jobs.num_ranks[at]), int(self.jobs.local_batch[at])
            problem = f"a step of {ranks} ranks of {local} samples was not measured"
            raise ConfigError(problem, field=self.workloads[at[0]].job_names[at[1]])
