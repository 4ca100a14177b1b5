"""Benchmarks with the key ``placement`` in a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from meshwright import files
from meshwright.envs.benchmark_files import PLACEMENT
from meshwright.envs.operators.benchmark import FileDraw, JobDraw, PlacementBenchmark, load_placement_benchmark
from meshwright.evaluation.fleet.policies import is_rule, policy_name
from meshwright.evaluation.operators.evaluate import OPERATORS_FORMAT_VERSION
from meshwright.evaluation.saved_results import (
    read_operator_curve,
    read_operator_results,
)
from meshwright.jobs.load import load_graph
from meshwright.planning.policies import policy_file
from meshwright.simulation.operators.instance_files import load_instance

from ..contents import GREEDY
from ..measures import OVER_BOUND, Measure
from .world import World

BEST_RULE = "best-rule"
"""On each instance the best of all rules, which are those that neither learn, search nor prove."""


class Operators(World):
    """Benchmarks with the key ``placement``."""

    key = PLACEMENT
    format_version = OPERATORS_FORMAT_VERSION

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
