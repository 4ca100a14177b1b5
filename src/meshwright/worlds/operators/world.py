"""`OperatorWorld`: ops on devices as a world."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ...errors import ConfigError, PlanError
from ...planners.operators.place import PLACEMENT_PLANNERS, place
from ...planners.operators.request import PlacementRequest
from ...planners.operators.search.annealing import anneal
from ...simulation.operators.decisions.placing import CANDIDATE_FEATURES
from ...simulation.operators.generators import DeviceDraw, Split
from ...simulation.operators.instance import OperatorInstance
from ...simulation.operators.placement import OperatorObjective, OperatorPlacement, lower_bound
from ..typed_graph import Sizes, WorldSpec
from ..world import KnownPart, World
from .benchmark import FileDraw, PlacementBenchmark, load_placement_benchmark
from .episodes import STATE, OperatorEpisodes
from .familiar import familiar_part
from .graph import DEVICE, FEEDS, INSTANCE, LINK, LINKS, OP, READ_BY, TRANSFER
from .rules import CONSTANTS, Solver, rule_or_planner

RULE = "heft"
_MOVES_PER_OP = 100
"""Of a round of annealing that is imitated."""
_HOTTEST_AFTER_POLICY = 0.5
"""A search from a policy's placements begins so much hot (see `annealing.HOTTEST`): hotter, it would forget where it started.

A choice by trials on validation instances of ``place-large``."""


class OperatorWorld(World[OperatorInstance]):
    """Place the ops of a job on devices.

    Args:
        objective: what counts; policies of one objective do not play the other.
        benchmark: of the instances, of the same objective; None for instances of the caller's own.
    """

    spec = WorldSpec(
        name="operators",
        nodes={"op": OP, "device": DEVICE},
        edges={FEEDS: TRANSFER, READ_BY: TRANSFER, LINK: LINKS},
        whole=INSTANCE,
        member="op",
        group="device",
        slots=("op", "device"),
        action=CANDIDATE_FEATURES,
        state=STATE,
    )
    reference_name = RULE
    rules = (*PLACEMENT_PLANNERS, *CONSTANTS)
    planners = tuple(name for name, each in PLACEMENT_PLANNERS.items() if each.is_search or each.is_exact)
    sample_temperature = 0.5

    def __init__(self, objective: OperatorObjective, benchmark: PlacementBenchmark | None = None) -> None:
        self.objective, self.benchmark = objective, benchmark
        self.spec = replace(self.spec, name=f"operators-{objective}")

    @property
    def kind(self) -> str:
        """See `World`: one for both objectives."""
        return "operators"

    @property
    def sizes(self) -> Sizes:
        """See `World`."""
        return _sizes(*self._drawn().placement.most())

    def sizes_of(self, instance: OperatorInstance) -> Sizes:
        """See `World`."""
        return _sizes(instance.num_ops, instance.num_devices, len(instance.edges))

    def instance(self, split: str, seed: int) -> OperatorInstance:
        """See `World`."""
        return self._drawn().placement.instance(cast(Split, split), seed)

    def batch(self, num_places: int, num_episodes: int, sizes: Sizes | None = None) -> OperatorEpisodes:
        """See `World`."""
        return OperatorEpisodes(self.spec, sizes or self.sizes, num_places, num_episodes, self.objective)

    def solve(self, instance: OperatorInstance, rounds: int, seed: int) -> NDArray[np.int64]:
        """See `World`: the device of each op by annealing."""
        return anneal(instance, self._request(seed), num_steps=rounds * _MOVES_PER_OP * instance.num_ops).device_of

    def improve(
        self, instance: OperatorInstance, outcomes: Sequence[OperatorPlacement], budget_s: float, seed: int
    ) -> OperatorPlacement:
        """See `World`: by annealing from these and from HEFT's placement."""
        starts = [each.device_of for each in outcomes]
        with suppress(PlanError):
            starts.append(self._ruled(instance).device_of)
        request = replace(self._request(seed), budget_s=budget_s)
        return anneal(instance, request, start=np.stack(starts), hottest=_HOTTEST_AFTER_POLICY)

    def tiny(self) -> OperatorInstance:
        """See `World`."""
        return OperatorInstance.of_outputs("tiny", np.ones((2, 2)), [(0, 1)], [1.0, 1.0])

    def solver(self, spec: str) -> Solver:
        """See `World`: planners take ``@SECONDS`` behind their name where these end them."""
        return rule_or_planner(spec, self, self.objective)

    def best_known(self, instance: OperatorInstance, seed: int) -> OperatorPlacement:
        """See `World`: by annealing."""
        return place(instance, "annealing", replace(self._request(seed), budget_s=self._drawn().best_known_s))

    @property
    def learned_on(self) -> dict[str, Any]:
        """See `World`: how many times as long as on the fastest device an op takes on the slowest, and whether hosts are met."""
        if isinstance(self._drawn().placement.instances, FileDraw):
            raise ConfigError("instances of files are those of the test; train on drawn ones", field="benchmark", value=self.name)
        devices = self._drawn().placement.devices
        return {"most_slowdown": devices.most_slowdown, "met_hosts": max(devices.num_hosts) > 0}

    def known_part(self, instance: OperatorInstance, trained: Mapping[str, Any]) -> KnownPart[OperatorInstance]:
        """See `World`: without far slower devices, and hosts where none were met."""
        most_slowdown = float(trained.get("most_slowdown", DeviceDraw().most_slowdown))
        return familiar_part(instance, most_slowdown, self._ruled, bool(trained.get("met_hosts", False)))

    def fallback(self, instance: OperatorInstance, name: str) -> OperatorPlacement:
        """See `World`: HEFT's placement."""
        note = f"memory left the policy no device for some op, so this is {RULE}'s placement"
        return replace(self._ruled(instance), planner=name, note=note)

    def bound(self, instance: OperatorInstance) -> float:
        """See `World`."""
        return max(lower_bound(instance, self.objective), 1e-30)

    def _ruled(self, instance: OperatorInstance) -> OperatorPlacement:
        return place(instance, RULE, self._request(0))

    def _request(self, seed: int) -> PlacementRequest:
        return PlacementRequest(objective=self.objective, seed=seed)

    def _drawn(self) -> PlacementBenchmark:
        benchmark: PlacementBenchmark = self.benchmark
        return benchmark


def load_operator_world(spec: str, changes: Sequence[str] | None = None) -> OperatorWorld:
    """Return the world of a benchmark; see `benchmark.load_placement_benchmark`.

    Raises:
        ConfigError: also where rewards are not of the benchmark's form.
    """
    benchmark = load_placement_benchmark(spec, changes=changes)
    benchmark.placement.check_default_form()
    return OperatorWorld(benchmark.placement.objective, benchmark)


def _sizes(num_ops: int, num_devices: int, num_edges: int) -> Sizes:
    edges = {FEEDS: num_edges, READ_BY: num_edges, LINK: num_devices * (num_devices - 1)}
    return Sizes({"op": num_ops, "device": num_devices}, edges, num_devices)
