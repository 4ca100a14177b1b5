"""A benchmark of elastic workloads as YAML: the folder of the published ones, and the policies that an evaluation compares.

The published workloads are not part of the project. A benchmark names their folder, or else it is ``elastic`` below the folder in
the environment variable ``MESHWRIGHT_REFERENCE``. Without either, applications and workloads are modelled (see `modelled`).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from ... import settings
from ...errors import ConfigError, MeshwrightWarning
from ...jobs.readers.elastic import (
    ElasticWorkload,
    load_applications,
    load_published_times,
    load_workloads,
    subfolder,
)
from ...packaged import path_in_folder
from ...simulation.elastic.simulation import ElasticCluster, ElasticSimulation
from ...simulation.elastic.workload_draws import WorkloadDraws
from ..benchmark import MOST_VALIDATED, WorldBenchmark
from ..benchmark_files import ELASTIC, NAME
from .modelled import ModelledDraws, modelled_applications

VARIABLE = "MESHWRIGHT_REFERENCE"

TRACE = "traces/philly.csv"
"""Below that folder, from which workloads are drawn."""

MODELLED = (
    "Applications and workloads are modelled: step times by the cost model, progress by an assumed gradient noise scale. For the "
    f"published measurements name their folder by --set elastic.data=DIR or in {VARIABLE}."
)

NUM_MODELLED = 8
"""Modelled workloads of an evaluation, as many as published ones of a load."""


class PublishedElasticSettings(settings.Settings):
    """The published workloads that are compared, where they run, and how the workloads of environments are drawn.

    Attributes:
        data: folder of ``applications/``, ``workloads/LOAD/*.csv`` and ``published/POLICY-LOAD.json``; null: see above.
        load: the folder of workloads, for example ``load-1.0``.
        published: schedulers whose stored completion times are compared, too; empty: none are read.
        against: one of these; results have every policy's difference to its stored times.
        cluster: where the workloads run.
        knows: ``applications``: remaining times are those of jobs whose applications ran before, and jobs choose the best batch
            by measurements. ``profiles``: both follow from the steps of a job so far, as for Pollux.
        num_jobs: of a drawn workload.
        trace: CSV of the trace that workloads are drawn from; null: ``traces/philly.csv`` of what MESHWRIGHT_REFERENCE names.
    """

    data: str | None = None
    load: str = Field(pattern=NAME)
    published: tuple[str, ...] = ("tiresias", "optimus", "pollux")
    against: str = "pollux"
    cluster: ElasticCluster = ElasticCluster()
    knows: Literal["applications", "profiles"] = "applications"
    num_jobs: settings.Count = 160
    trace: str | None = None

    @property
    def folder(self) -> Path | None:
        """The folder of the published data; None where none is named, and all is modelled."""
        named = os.environ.get(VARIABLE)
        return Path(self.data) if self.data is not None else Path(named) / "elastic" if named else None


class ElasticBenchmark(WorldBenchmark):
    """Published workloads and what is compared on them; `evaluate` plays all of them by default.

    Attributes:
        elastic: workloads and cluster.
    """

    kind = ELASTIC
    about = "elastic jobs"

    elastic: PublishedElasticSettings
    num_validation_seeds: int = Field(default=6, ge=2, le=MOST_VALIDATED)

    @field_validator("elastic")
    @classmethod
    def _against_is_published(cls, elastic: PublishedElasticSettings) -> PublishedElasticSettings:
        if elastic.published and elastic.against not in elastic.published:
            raise ValueError(f"against ({elastic.against}) must be one of published: {', '.join(elastic.published)}")
        return elastic

    def read_from(self, path: Path, changes: Sequence[str]) -> ElasticBenchmark:
        """See `Benchmark`: the data, unless a change says where it lies."""
        if self.elastic.data is None or any(change.startswith("elastic.data=") for change in changes):
            return self
        data = path_in_folder(self.elastic.data, path.parent, is_folder_too=True)
        return self.model_copy(update={"elastic": self.elastic.model_copy(update={"data": data})})

    def simulation(self) -> ElasticSimulation:
        """Return the measured or modelled applications on the cluster.

        Raises:
            InputFileError: a folder, file or column is missing, or something in them is malformed.
        """
        folder, cluster = self.elastic.folder, self.elastic.cluster
        if folder is None:
            return ElasticSimulation(modelled_applications(cluster.devices_per_node), cluster)
        return ElasticSimulation(load_applications(subfolder(folder) / "applications"), cluster)

    def draws(self, simulation: ElasticSimulation, trace: str | None) -> WorkloadDraws | ModelledDraws:
        """Return a source of drawn workloads.

        Args:
            simulation: of the benchmark.
            trace: CSV of the trace of measured applications; None: see `PublishedElasticSettings`.

        Raises:
            InputFileError: the trace is missing or malformed.
            ConfigError: an application is missing, or the trace of measured applications is not named.
        """
        if self.elastic.folder is None:
            warnings.warn(MODELLED, MeshwrightWarning, stacklevel=2)
            return ModelledDraws(simulation)
        if trace is None:
            named = os.environ.get(VARIABLE)
            if not named:
                raise ConfigError(
                    f"name it, or the folder of published data in the environment variable {VARIABLE}", field="trace"
                )
            trace = str(Path(named) / TRACE)
        return WorkloadDraws(trace, simulation.applications, simulation.apps, simulation.cluster.devices_per_node)

    def workloads(self, simulation: ElasticSimulation) -> tuple[ElasticWorkload, ...]:
        """Return all workloads of the load, by name; modelled ones are drawn from the test seeds.

        Raises:
            InputFileError: a folder, file or column is missing, or something in them is malformed.
        """
        folder = self.elastic.folder
        if folder is None:
            draws = ModelledDraws(simulation)
            return tuple(draws.draw(self.seed("test", n), self.elastic.num_jobs) for n in range(NUM_MODELLED))
        return load_workloads(subfolder(folder / "workloads") / self.elastic.load, simulation.applications)

    def stored(self, workloads: Sequence[ElasticWorkload]) -> dict[str, tuple[NDArray[np.int64], ...]]:
        """Return the published completion times of the jobs of each workload, in seconds, by scheduler.

        There are none of modelled workloads, and of a folder without ``published/``.

        Raises:
            InputFileError: a file, workload or job is missing, or a file is malformed.
        """
        if self.elastic.folder is None or not (self.elastic.folder / "published").is_dir():
            return {}
        folder, load = self.elastic.folder / "published", self.elastic.load
        return {name: load_published_times(folder / f"{name}-{load}.json", workloads) for name in self.elastic.published}


load_elastic_benchmark = ElasticBenchmark.load
