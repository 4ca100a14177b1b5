"""Benchmarks with the key ``elastic`` in a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from meshwright import files
from meshwright.envs.benchmark_files import ELASTIC
from meshwright.envs.elastic.benchmark import ElasticBenchmark, load_elastic_benchmark
from meshwright.errors import InputFileError, MeshwrightError
from meshwright.evaluation.elastic.evaluate import ELASTIC_FORMAT_VERSION
from meshwright.evaluation.elastic.policies import BASELINES
from meshwright.evaluation.saved_results import (
    read_elastic_curve,
    read_elastic_results,
)
from meshwright.planning.policies import policy_file

from ..measures import OF_ELASTIC, Measure
from .world import World


class Elastic(World):
    """Benchmarks with the key ``elastic``: published workloads, which are its episodes."""

    key = ELASTIC
    format_version = ELASTIC_FORMAT_VERSION

    def load(self, spec: str, changes: Sequence[str], trace: Path | None = None) -> ElasticBenchmark:
        """See `World.load`."""
        return load_elastic_benchmark(spec, changes=changes)

    def digest(self, benchmark: ElasticBenchmark) -> str:
        """See `World.digest`; what is as by default is left out, and the folder of data counts by what it holds of the load."""
        chosen = benchmark.elastic
        kept = chosen.model_dump(mode="json", exclude={"data"}, exclude_defaults=True)
        played = ["applications/**/*", f"workloads/{chosen.load}/*"]
        played += [f"published/{name}-{chosen.load}.json" for name in chosen.published]
        found = sorted(path for each in played for path in chosen.folder.glob(each) if path.is_file())
        if not found:
            raise InputFileError("holds no published workloads", file=chosen.folder)
        held = [[path.relative_to(chosen.folder).as_posix(), path.read_bytes()] for path in found]
        return files.digest(kept, held)

    def lacks(self, benchmark: ElasticBenchmark) -> str | None:
        """See `World.lacks`."""
        try:
            self.digest(benchmark)
        except MeshwrightError:
            return "needs the published elastic workloads (MESHWRIGHT_REFERENCE)"
        return None

    def episodes(self, benchmark: ElasticBenchmark, num_seeds: int | None) -> list[object]:
        """See `World.episodes`; all workloads of the load unless there are to be fewer."""
        return [num_seeds]

    def policy_files(self, specs: Sequence[str]) -> list[Path]:
        """See `World.policy_files`."""
        return [policy_file(spec, BASELINES) for spec in specs if spec not in BASELINES]

    def measure(self, benchmark: ElasticBenchmark) -> Measure:
        """See `World.measure`."""
        return OF_ELASTIC

    def results(self, path: Path) -> Mapping[str, Any]:
        """See `World.results`; stored times of published schedulers are baselines."""
        found = read_elastic_results(path)
        rows = [row | {"kind": "baseline" if row["kind"] == "published" else row["kind"]} for row in found["rows"]]
        return found | {"seeds": found["workloads"], "rows": rows, "best_fixed": {}, "scenario": found[self.key]}

    def curve(self, path: Path) -> Sequence[Mapping[str, Any]]:
        """See `World.curve`."""
        return read_elastic_curve(path)
