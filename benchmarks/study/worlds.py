"""The worlds that a study plays in, told apart by the kind of a benchmark: scenarios, fleets and operator placement.

A world says how its benchmarks are read, what results on them depend on, and what training and evaluating on them leaves.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from meshwright import files, settings
from meshwright.clusters import load_cluster
from meshwright.envs.benchmark import BenchmarkSettings, load_benchmark, load_variants
from meshwright.envs.benchmark_files import FLEET, PLACEMENT, SCENARIO, kind_of
from meshwright.envs.fleet.benchmark import FleetBenchmark, load_fleet_benchmark
from meshwright.envs.operators.benchmark import FileDraw, JobDraw, PlacementBenchmark, load_placement_benchmark
from meshwright.errors import ConfigError, GraphError, MeshwrightError
from meshwright.evaluation.evaluate import FORMAT_VERSION
from meshwright.evaluation.fleet.evaluate import FLEET_FORMAT_VERSION
from meshwright.evaluation.fleet.policies import is_rule, policy_name
from meshwright.evaluation.operators.evaluate import OPERATORS_FORMAT_VERSION
from meshwright.evaluation.saved_results import (
    read_curve,
    read_fleet_curve,
    read_fleet_results,
    read_operator_curve,
    read_operator_results,
    read_results,
)
from meshwright.jobs.load import load_graph
from meshwright.jobs.workload import load_workload
from meshwright.planners.menu.job_types import job_type
from meshwright.planners.menu.settings import load_job_types
from meshwright.planning.policies import base_of, fleet_policy_file, is_rollout, policy_file, trained_file
from meshwright.simulation.operators.instance_files import load_instance

from .contents import GREEDY
from .measures import BLOCKING, OVER_BOUND, Measure, measure_of
from .places import Places

AnyBenchmark = BenchmarkSettings | FleetBenchmark | PlacementBenchmark

BEST_RULE = "best-rule"
"""Of operator placement: on each instance the best of all rules, which are those that neither learn, search nor prove."""

# Of a scenario: how observations count time ahead.
OF_SLOTS = ("slot_growth", "arrivals_per_slot")


class World(ABC):
    """One kind of benchmarks.

    Attributes:
        key: of its benchmarks.
        format_version: of the results of evaluations.
        first_stage: key of a training's config; where it is set, a network is kept as it was before PPO.
        kept_as: file of this network in a run folder.
        prefix: what its name in results begins with, before that of the run.
        takes_profiles: whether commands take ``--graphs`` and ``--trace``.
    """

    key: ClassVar[str]
    format_version: ClassVar[int]
    first_stage: ClassVar[str]
    kept_as: ClassVar[str]
    prefix: ClassVar[str]
    takes_profiles: ClassVar[bool]

    @abstractmethod
    def load(self, spec: str, changes: Sequence[str], trace: Path | None = None) -> Any:
        """A benchmark.

        Raises:
            MeshwrightError: it is wrong.
        """

    def variants(self, spec: str, changes: Sequence[str]) -> Sequence[Any]:
        """What an evaluation of a benchmark plays: the variants of a family, or it alone."""
        return [self.load(spec, changes)]

    @abstractmethod
    def digest(self, benchmark: Any) -> str:
        """A hash of what episodes depend on, but for the simulator itself.

        Raises:
            MeshwrightError: the benchmark is wrong.
        """

    def observed(self, played: Sequence[Any]) -> list[object]:
        """What a network that is trained on some benchmarks depends on beside their digests."""
        return []

    def follows_trace(self, benchmark: Any) -> bool:
        """Whether jobs arrive as a trace of the user's recorded them."""
        return False

    @abstractmethod
    def policy_files(self, specs: Sequence[str]) -> list[Path]:
        """The files of the trained policies among some spellings.

        Raises:
            PolicyError: one of them is not there.
        """

    def asked(self, policy: str, how: str) -> str:
        """The spelling of a trained policy, or its name in results, where it is asked in some way.

        Raises:
            MeshwrightError: policies of this world cannot be asked so.
        """
        if how != GREEDY:
            raise ConfigError(f"policies of a {self.key} are asked in one way", field="asked", value=how, choices=[GREEDY])
        return policy

    @abstractmethod
    def measure(self, benchmark: Any) -> Measure:
        """What a benchmark is about."""

    @abstractmethod
    def results(self, path: Path) -> Mapping[str, Any]:
        """What an evaluation wrote, with the keys that scenarios have.

        Raises:
            InputFileError: the file is not what its name says.
        """

    @abstractmethod
    def curve(self, path: Path) -> Sequence[Mapping[str, Any]]:
        """Rows of a learning curve.

        Raises:
            InputFileError: the file is not what its name says.
        """


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


class Fleets(World):
    """Benchmarks with the key ``fleet``."""

    key = FLEET
    format_version = FLEET_FORMAT_VERSION
    first_stage, kept_as, prefix = "imitation", "imitated.pt", "imitated"
    takes_profiles = False

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


class Operators(World):
    """Benchmarks with the key ``placement``."""

    key = PLACEMENT
    format_version = OPERATORS_FORMAT_VERSION
    first_stage, kept_as, prefix = Fleets.first_stage, Fleets.kept_as, Fleets.prefix
    takes_profiles = False

    def load(self, spec: str, changes: Sequence[str], trace: Path | None = None) -> PlacementBenchmark:
        """See `World.load`."""
        return load_placement_benchmark(spec, changes=changes)

    def digest(self, benchmark: PlacementBenchmark) -> str:
        """See `World.digest`; what is as by default is left out, and files and jobs count by what they hold."""
        drawn = benchmark.placement.instances
        told_apart = {"instances": {"files", "jobs"}}
        kept = benchmark.placement.model_dump(mode="json", exclude=told_apart, exclude_defaults=True)
        held = [load_instance(file).digest for file in drawn.files] if isinstance(drawn, FileDraw) else []
        held += [load_graph(job).digest for job in drawn.jobs] if isinstance(drawn, JobDraw) else []
        return files.digest(kept, held)

    def policy_files(self, specs: Sequence[str]) -> list[Path]:
        """See `World.policy_files`."""
        from meshwright.models.operators.saved import operator_policy_file  # takes a while

        asked = dict.fromkeys(spec.partition("@")[0] for spec in specs)
        return [policy_file(str(operator_policy_file(spec))) for spec in asked if not is_rule(spec)]

    def asked(self, policy: str, how: str) -> str:
        """See `World.asked`."""
        if how == GREEDY:
            return policy
        from meshwright.models.operators.player import PlayMode  # takes a while

        PlayMode.of(how)
        return f"{policy}@{how}"

    def measure(self, benchmark: PlacementBenchmark) -> Measure:
        """See `World.measure`."""
        return OVER_BOUND

    def results(self, path: Path) -> Mapping[str, Any]:
        """See `World.results`; who has no placement for some instance has no figures, and a search is no baseline."""
        found = read_operator_results(path)
        bounds_s = np.array(found["bounds_s"])
        rows = []
        for row in found["rows"]:
            asked, at, how = row["policy"].partition("@")
            kind = "learned" if row["kind"] == "learned" else "baseline" if row["is_rule"] else "planner"
            values_s = row["values_s"] if row["infeasible"] == 0 else np.full(len(bounds_s), np.nan)
            rows.append(_over_bound(policy_name(asked) + at + how, kind, values_s, bounds_s))
        if any(row["against_best_rule"] is not None for row in found["rows"]):
            rules = [row["values_s"] for row in found["rows"] if row["is_rule"]]
            rows.append(_over_bound(BEST_RULE, "baseline", np.min(rules, axis=0), bounds_s))
        read = {"seeds": list(range(len(bounds_s))), "rows": rows, "best_fixed": {}, "scenario": found[self.key]}
        # The same instances have the same bounds, but for last digits on another machine.
        return found | read | {"instances": files.digest([f"{bound_s:.6g}" for bound_s in bounds_s])}

    def curve(self, path: Path) -> Sequence[Mapping[str, Any]]:
        """See `World.curve`."""
        return read_operator_curve(path)


def _over_bound(policy: str, kind: str, values_s: ArrayLike, bounds_s: NDArray[np.float64]) -> dict[str, Any]:
    """A row as those of scenarios are; None where there is no value."""
    ratios = np.asarray(values_s) / bounds_s
    return {"policy": policy, "kind": kind, "per_seed": {OVER_BOUND.metric: [None if np.isnan(x) else float(x) for x in ratios]}}


class Worlds:
    """Every world of a study."""

    def __init__(self, places: Places) -> None:
        self._scenarios = Scenarios(places)
        self._others: dict[str | None, World] = {FLEET: Fleets(), PLACEMENT: Operators()}

    def of(self, spec: str) -> World:
        """That of a benchmark, by its spelling; of one that is not there, scenarios, whose reader tells so."""
        return self._others.get(kind_of(spec), self._scenarios)
