"""Benchmarks with the key ``fleet`` in a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from meshwright import files
from meshwright.clusters import load_cluster
from meshwright.envs.benchmark_files import FLEET
from meshwright.envs.fleet.benchmark import FleetBenchmark, load_fleet_benchmark
from meshwright.evaluation.fleet.evaluate import FLEET_FORMAT_VERSION
from meshwright.evaluation.fleet.policies import is_rule
from meshwright.evaluation.saved_results import (
    read_fleet_curve,
    read_fleet_results,
)
from meshwright.planners.menu.job_types import job_type
from meshwright.planners.menu.settings import load_job_types
from meshwright.planning.policies import fleet_policy_file, policy_file

from ..measures import Measure, measure_of
from .world import World


class Fleets(World):
    """Benchmarks with the key ``fleet``."""

    key = FLEET
    format_version = FLEET_FORMAT_VERSION

    def load(self, spec: str, changes: Sequence[str], trace: Path | None = None) -> FleetBenchmark:
        """See `World.load`."""
        return load_fleet_benchmark(spec, changes=changes)

    def digest(self, benchmark: FleetBenchmark) -> str:
        """See `World.digest`; what is as by default is left out, so that a setting that a later version adds changes nothing."""
        chosen = benchmark.fleet
        types = load_job_types(chosen.job_types) if isinstance(chosen.job_types, str) else chosen.job_types
        told_apart = {"cluster", "job_types", "costs"}
        kept = chosen.model_dump(mode="json", exclude=told_apart, exclude_defaults=True)
        jobs = [job_type(one).digest for one in types]
        return files.digest(kept, load_cluster(chosen.cluster).digest, jobs, chosen.costs.digest)

    def policy_files(self, specs: Sequence[str]) -> list[Path]:
        """See `World.policy_files`."""
        return [policy_file(str(fleet_policy_file(spec))) for spec in specs if not is_rule(spec)]

    def measure(self, benchmark: FleetBenchmark) -> Measure:
        """See `World.measure`."""
        return measure_of({"objective": benchmark.fleet.objective})

    def results(self, path: Path) -> Mapping[str, Any]:
        """See `World.results`."""
        found = read_fleet_results(path)
        return found | {"scenario": found["fleet"], "best_fixed": found["best_fixed_entry"]}

    def curve(self, path: Path) -> Sequence[Mapping[str, Any]]:
        """See `World.curve`."""
        return read_fleet_curve(path)
