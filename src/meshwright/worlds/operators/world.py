"""`OperatorWorld`: ops on devices as a world."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ...errors import ConfigError, GraphError, PlanError
from ...planners.operators.place import PLACEMENT_PLANNERS, place
from ...planners.operators.request import PlacementRequest
from ...planners.operators.search.annealing import anneal
from ...simulation.operators.decisions.placing import CANDIDATE_FEATURES
from ...simulation.operators.generators import DeviceDraw, Split
from ...simulation.operators.instance import OperatorInstance
from ...simulation.operators.placement import OperatorObjective, OperatorPlacement, lower_bound, placed
from ..typed_graph import Sizes, WorldSpec
from ..world import KnownPart, World
from .benchmark import FileDraw, PlacementBenchmark, load_placement_benchmark
from .episodes import STATE, OperatorEpisodes
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


class FamiliarPart(KnownPart[OperatorInstance]):
    """An instance, without devices that are far slower than in training and hosts that were not in it, and a rule's placement.

    Args:
        whole: the instance.
        part: on the devices that are kept.
        devices: of these in ``whole``, ``(k,)``.
        rule: a rule's placement of ``whole``.
        note: why devices are left out; empty if none are.
    """

    def __init__(
        self,
        whole: OperatorInstance,
        part: OperatorInstance,
        devices: NDArray[np.int64],
        rule: OperatorPlacement,
        note: str,
    ) -> None:
        super().__init__(part)
        self.devices, self.note, self._whole, self._rule = devices, note, whole, rule

    def of_whole(self, outcome: OperatorPlacement, or_rule: bool = True) -> OperatorPlacement:
        """See `KnownPart`."""
        made = outcome
        if self.instance is not self._whole:
            devices = self.devices[outcome.device_of]
            made = placed(self._whole, devices, outcome.objective, outcome.planner, order=outcome.order, note=self.note)
        if not or_rule or made.value_s <= self._rule.value_s:
            return made
        notes = filter(None, (self.note, f"{self._rule.planner}'s placement is better and taken"))
        return replace(self._rule, planner=outcome.planner, note="; ".join(notes))


def familiar_part(
    whole: OperatorInstance,
    most_slowdown: float,
    by_rule: Callable[[OperatorInstance], OperatorPlacement],
    met_hosts: bool = True,
) -> KnownPart[OperatorInstance]:
    """Return an instance without its far slower devices, and without hosts if the policy met none in training.

    It has ``k`` of the ``m`` devices, and all ``n`` ops. The better of the policy's placement and a rule's is taken.
    Where the others cannot run and hold all ops, those that a rule puts on such a device can run there alone.

    Args:
        whole: the instance.
        most_slowdown: an op takes at most so many times as long on the slowest device as on the fastest one in training.
        by_rule: places an instance, or raises `PlanError`.
        met_hosts: whether there were processors of hosts in training.
    """
    every, is_slow = np.arange(whole.num_devices), far_slower(whole, most_slowdown)
    if not met_hosts:
        is_slow |= whole.is_host
    try:
        rule = by_rule(whole)
    except PlanError:  # the network may find what the rule does not
        return KnownPart(whole)
    if not is_slow.any():
        return FamiliarPart(whole, whole, every, rule, "")
    others = "no " if met_hosts else "no host and no "
    note = f"the policy met {others}device over {most_slowdown:.3g} times as slow as the fastest in training: such are left out"
    try:
        devices = every[~is_slow]
        part = _on(whole, whole.times_s, devices)
        by_rule(part)
    except (GraphError, PlanError):
        on_slow = is_slow[rule.device_of]
        is_barred = (is_slow | on_slow[:, None]) & (every != rule.device_of[:, None])
        devices = np.union1d(every[~is_slow], rule.device_of)
        part = _on(whole, np.where(is_barred, np.inf, whole.times_s), devices)
        note += f", but for ops that {rule.planner} puts there, as the others cannot take all"
    return FamiliarPart(whole, part, devices, rule, note)


def far_slower(instance: OperatorInstance, most_slowdown: float) -> NDArray[np.bool_]:
    """Return which devices take more than so many times as long as another one for the ops that both can run, ``(m,)``."""
    runs = np.isfinite(instance.times_s)
    together_s = np.where(runs, instance.times_s, 0.0).T @ runs  # of a row's device for the ops that a column's runs too
    return np.asarray((together_s / most_slowdown > together_s.T * (1.0 + 1e-9)).any(axis=1))


def _on(whole: OperatorInstance, times_s: NDArray[np.float64], devices: NDArray[np.int64]) -> OperatorInstance:
    """Return some devices of an instance, with other times, ``(n, m)``.

    Raises:
        GraphError: an op can run on none of them.
    """
    pairs = np.ix_(devices, devices)
    return replace(
        whole,
        times_s=times_s[:, devices],
        device_names=tuple(whole.device_names[device] for device in devices),
        device_types=tuple(whole.device_types[device] for device in devices),
        memory_bytes=whole.memory_bytes[devices],
        latency_s=whole.latency_s[pairs],
        bandwidth_bytes_per_s=whole.bandwidth_bytes_per_s[pairs],
        is_host=whole.is_host[devices],
    )
