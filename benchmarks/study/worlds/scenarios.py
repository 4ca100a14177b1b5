"""Benchmarks with the key ``scenario`` in a study."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from meshwright import files, settings
from meshwright.clusters import load_cluster
from meshwright.envs.benchmark import BenchmarkSettings, load_benchmark, load_variants
from meshwright.envs.benchmark_files import SCENARIO
from meshwright.errors import ConfigError, GraphError, MeshwrightError
from meshwright.evaluation.evaluate import FORMAT_VERSION
from meshwright.evaluation.saved_results import (
    read_curve,
    read_results,
)
from meshwright.jobs.workload import load_workload
from meshwright.planning.policies import base_of, is_rollout, trained_file

from ..measures import BLOCKING, Measure
from ..places import Places
from .world import World

# Of a scenario: how observations count time ahead.
OF_SLOTS = ("slot_growth", "arrivals_per_slot")


@dataclass(frozen=True)
class Scenarios(World):
    """Benchmarks with the key ``scenario``.

    Attributes:
        places: of profiles and trace.
    """

    key = SCENARIO
    format_version = FORMAT_VERSION
    first_stage, kept_as, prefix = "pretraining", "pretrained.pt", "td"
    takes_profiles = True

    places: Places
    _digests: dict[str, str] = field(default_factory=dict)
    _traced: dict[str, bool] = field(default_factory=dict)

    def load(self, spec: str, changes: Sequence[str], trace: Path | None = None) -> BenchmarkSettings:
        """See `World.load`."""
        return load_benchmark(spec, changes=changes, trace=trace)

    def variants(self, spec: str, changes: Sequence[str]) -> Sequence[BenchmarkSettings]:
        """See `World.variants`."""
        return load_variants(spec, changes=changes)

    def digest(self, benchmark: BenchmarkSettings) -> str:
        """See `World.digest`; rewards and what is observed do not count."""
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

    def observed(self, played: Sequence[BenchmarkSettings]) -> list[object]:
        """See `World.observed`: a network is paid, and sees when blocks become free."""
        found: list[object] = [[one.reward.model_dump(mode="json"), one.scenario.shape_slots] for one in played]
        grown = [[getattr(one.scenario, name) for name in OF_SLOTS] for one in played]
        found += [slots for slots in grown if slots[0] != 1.0]
        for one in (benchmark.scenario for benchmark in played):
            load, deadlines = list(one.load_windows), list(one.deadline_windows)
            if load or deadlines:  # two windows of load alone must not look like a pair of slots
                found.append([load, deadlines] if deadlines or len(load) == len(OF_SLOTS) else load)
            if one.work_windows:
                found.append(["work_windows", *one.work_windows])
        return found

    def follows_trace(self, benchmark: BenchmarkSettings) -> bool:
        """See `World.follows_trace`."""
        key = files.digest(benchmark.scenario.model_dump(mode="json"))
        if key not in self._traced:
            self._traced[key] = self._lacks_a_trace(benchmark)
        return self._traced[key]

    def policy_files(self, specs: Sequence[str]) -> list[Path]:
        """See `World.policy_files`."""
        played = [base_of(spec) if is_rollout(spec) else spec for spec in specs]
        return [file for spec in played if (file := trained_file(spec)) is not None]

    def measure(self, benchmark: BenchmarkSettings) -> Measure:
        """See `World.measure`."""
        return BLOCKING

    def results(self, path: Path) -> Mapping[str, Any]:
        """See `World.results`."""
        return read_results(path)

    def curve(self, path: Path) -> Sequence[Mapping[str, Any]]:
        """See `World.curve`."""
        return read_curve(path)

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
