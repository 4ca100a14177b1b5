"""The benchmarks of a study: what a training or an evaluation on one of them depends on, as a hash, and where things lie."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from meshwright import files, settings
from meshwright.clusters import load_cluster
from meshwright.envs.benchmark import BenchmarkSettings
from meshwright.errors import ConfigError, GraphError, MeshwrightError
from meshwright.jobs.workload import load_workload


@dataclass(frozen=True)
class Places:
    """Where things lie.

    Attributes:
        out: the study's folder.
        graphs: profiles by folder name.
        trace: the CSV file of a trace.
    """

    out: Path
    graphs: Path | None = None
    trace: Path | None = None


SHOWN = Places(Path("runs/results"), Path("PROFILES"), Path("TRACE"))
"""As commands are printed on a page."""


@dataclass(frozen=True)
class Benchmarks:
    """Reads benchmarks, each once.

    Attributes:
        places: of profiles and trace.
    """

    places: Places
    _digests: dict[str, str] = field(default_factory=dict)
    _traced: dict[str, bool] = field(default_factory=dict)

    def digest(self, benchmark: BenchmarkSettings) -> str:
        """A hash of what episodes depend on, but for the simulator itself; rewards and what is observed do not count.

        Raises:
            MeshwrightError: cluster or workload are wrong.
        """
        chosen = benchmark.scenario
        key = files.digest(chosen.model_dump(mode="json"))
        if key not in self._digests:
            try:
                changes = settings.as_changes(chosen.workload_changes)
                workload = load_workload(chosen.workload, graphs_dir=self.places.graphs, changes=changes)
            except GraphError as error:
                if self.places.graphs is None and error.problem == "no such job":
                    raise GraphError("runs profiles: give their folder with --graphs DIR", field=benchmark.name) from None
                raise
            plain = json.loads(json.dumps(chosen.to_digest(), default=str))
            self._digests[key] = files.digest(load_cluster(chosen.cluster).digest, workload.digest, plain)
        return self._digests[key]

    def follows_trace(self, benchmark: BenchmarkSettings) -> bool:
        """Whether jobs arrive as a trace of the user's recorded them."""
        key = files.digest(benchmark.scenario.model_dump(mode="json"))
        if key not in self._traced:
            self._traced[key] = self._lacks_a_trace(benchmark)
        return self._traced[key]

    def _lacks_a_trace(self, benchmark: BenchmarkSettings) -> bool:
        chosen = benchmark.scenario
        try:
            changes = settings.as_changes(chosen.workload_changes)
            load_workload(chosen.workload, graphs_dir=self.places.graphs, changes=changes)
        except ConfigError as error:
            return error.field == "arrivals.file"
        except MeshwrightError:
            return False
        return False
