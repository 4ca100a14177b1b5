"""A benchmark of the published elastic workloads as YAML: where they lie, and what an evaluation of them compares.

The workloads are not part of the project. A benchmark names their folder; without, it is the folder ``elastic`` of what the
environment variable ``MESHWRIGHT_REFERENCE`` names.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from ... import settings
from ...errors import ConfigError
from ...jobs.readers.elastic import ElasticWorkload, load_applications, load_published_times, load_workloads, subfolder
from ...packaged import beside
from ...simulation.elastic.simulation import ElasticCluster, ElasticSimulation
from ...worlds.benchmark import Benchmark
from ...worlds.benchmark_files import ELASTIC, NAME

VARIABLE = "MESHWRIGHT_REFERENCE"

TRACE = "traces/philly.csv"
"""Below that folder, from which workloads are drawn."""


class PublishedElasticSettings(settings.Settings):
    """The published workloads that are played, and on which devices.

    Attributes:
        data: folder of ``applications/``, ``workloads/LOAD/*.csv`` and ``published/POLICY-LOAD.json``; null: see above.
        load: the folder of workloads, for example ``load-1.0``.
        published: schedulers whose stored completion times are compared, too.
        against: one of these, to whose stored times every policy's difference is told.
        cluster: where the workloads run.
    """

    data: str | None = None
    load: str = Field(pattern=NAME)
    published: tuple[str, ...] = ("tiresias", "optimus", "pollux")
    against: str = "pollux"
    cluster: ElasticCluster = ElasticCluster()

    @property
    def folder(self) -> Path:
        """The folder of the published data.

        Raises:
            ConfigError: none is named.
        """
        return Path(self.data) if self.data is not None else reference_path("elastic", "elastic.data")


class ElasticBenchmark(Benchmark):
    """Published workloads and what is compared on them.

    Attributes:
        name: for tables; the file's stem in the built-in ones.
        elastic: workloads and cluster.
        policies: compared in addition to those given, where the command names none (see `evaluation.elastic.policies`).
    """

    kind = ELASTIC
    about = "elastic jobs"

    name: str = Field(pattern=NAME)
    elastic: PublishedElasticSettings
    policies: tuple[str, ...] = ()

    @field_validator("elastic")
    @classmethod
    def _against_is_published(cls, elastic: PublishedElasticSettings) -> PublishedElasticSettings:
        if elastic.against not in elastic.published:
            raise ValueError(f"against ({elastic.against}) must be one of published: {', '.join(elastic.published)}")
        return elastic

    def read_from(self, path: Path, changes: Sequence[str]) -> ElasticBenchmark:
        """See `Benchmark`: the data, unless a change says where it lies."""
        if self.elastic.data is None or any(change.startswith("elastic.data=") for change in changes):
            return self
        data = beside(self.elastic.data, path.parent, is_folder_too=True)
        return self.model_copy(update={"elastic": self.elastic.model_copy(update={"data": data})})

    def simulation(self) -> ElasticSimulation:
        """The measured applications on the cluster.

        Raises:
            InputFileError: a folder, file or column is missing, or something in them is malformed.
            ConfigError: no folder is named.
        """
        folder = subfolder(self.elastic.folder)
        return ElasticSimulation(load_applications(folder / "applications"), self.elastic.cluster)

    def build(self) -> PublishedElastic:
        """Read the data.

        Raises:
            InputFileError: a folder, file, column, workload or job is missing, or something in them is malformed.
            ConfigError: no folder is named.
        """
        simulation, folder, load = self.simulation(), self.elastic.folder, self.elastic.load
        workloads = load_workloads(subfolder(folder / "workloads") / load, simulation.applications)
        files = {name: folder / "published" / f"{name}-{load}.json" for name in self.elastic.published}
        published = {name: load_published_times(file, workloads) for name, file in files.items()}
        return PublishedElastic(simulation, workloads, published)


load_elastic_benchmark = ElasticBenchmark.load


@dataclass(frozen=True, eq=False)
class PublishedElastic:
    """What a benchmark plays.

    Attributes:
        simulation: of its cluster.
        workloads: all of the load, by name.
        published: completion times of the jobs of each workload, in seconds, by scheduler.
    """

    simulation: ElasticSimulation
    workloads: tuple[ElasticWorkload, ...]
    published: dict[str, tuple[NDArray[np.int64], ...]]


def reference_path(below: str, field: str) -> Path:
    """A path below the folder of published data.

    Args:
        below: that folder.
        field: of the config, for the error.

    Raises:
        ConfigError: the environment names no such folder.
    """
    named = os.environ.get(VARIABLE)
    if not named:
        raise ConfigError(f"name it, or the folder of published data in the environment variable {VARIABLE}", field=field)
    return Path(named) / below
