"""The training config of a benchmark that has none of its own: the preset of its kind, sized by the time that there is."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from math import gcd
from typing import TYPE_CHECKING, Any, cast

from ....errors import ConfigError, PlanError
from ....models.policy_files import SHIPPED
from ....packaged import config_path
from ....training.methods import SeedSettings, load_config
from ....worlds.benchmark_files import ELASTIC, FLEET, PLACEMENT, PRESET, SCENARIO, find_benchmark, kind_of
from ....worlds.registry import load_world, world_key

if TYPE_CHECKING:
    from ....training.graph.settings import GraphTrainSettings
    from ....worlds.world import World

MINUTES = 10.0
"""Of one core, by default."""
_SEARCH_SHARE = 0.6
"""Of them, at most, in which weights of a fleet are searched for."""
_TIMED = 4
"""Instances of graphs that are solved to time a solution."""
_GENERATIONS = (8, 60)
"""Fewest and most of that search; below the fewest, generations play fewer episodes."""
_SOLVED_SHARE = 0.25
"""Of the minutes, at most, in which instances are solved that a graph policy imitates."""
_MOST_SCORED = 2**21
"""Actions of a minibatch of a graph policy, at most, so that it fits into memory."""

Sized = tuple[str, list[str]]
"""A preset, and changes of it."""


def is_benchmark(spec: str) -> bool:
    """Return whether a spelling is that of a benchmark and of no training config."""
    with suppress(ConfigError):  # no preset of that name
        if spec.startswith(PRESET) and config_path(spec).is_file():
            return False
    return kind_of(spec) is not None or world_key(spec) is not None


def config_of(spec: str, changes: Sequence[str] = ()) -> SeedSettings:
    """Return the config of a benchmark.

    What takes long in a training is timed, so that it ends in time; the config holds its size. Configs that differ in their
    seed have the same size.

    Args:
        spec: of the benchmark.
        changes: ``key=value`` texts that change the config, as ``minutes=3``.

    Raises:
        ConfigError: the benchmark is wrong, or a key is none of its config.
        InputFileError: a file is missing.
    """
    path, is_built_in = find_benchmark(spec)
    where = PRESET + path.stem if is_built_in else str(path.resolve())
    keys = {change: change.partition("=")[0].strip() for change in changes}
    sizing = [change for change, key in keys.items() if key in ("changes", "minutes")]
    request = load_config(config_path(f"{PRESET}toy"), [f"minutes={MINUTES}", "changes=[]", *sizing])  # refuses wrong ones
    begins_anew = any(key.partition(".")[0] in ("imitation", "network", "start") for key in keys.values())
    preset, sized = _sized(where, request.minutes or MINUTES, request.changes, begins_anew)
    result = load_config(config_path(PRESET + preset), [*sized, *changes])
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("._-")[:63]
    own = {"name": name or "benchmark", "benchmark": where, "changes": request.changes, "minutes": request.minutes}
    return result.model_copy(update={key: value for key, value in own.items() if key not in keys.values()})


@cache
def _sized(spec: str, minutes: float, changes: tuple[str, ...], begins_anew: bool) -> Sized:
    """Return how a benchmark is trained: for latency from the shipped policy or anew; once, as timings differ."""
    if kind_of(spec) != PLACEMENT:
        return _OF_KIND.get(kind_of(spec), _of_graphs("tasklets", 30.0))(spec, minutes, changes)
    named = load_world(spec, changes).spec.name
    starts = named == "operators-latency" and not begins_anew
    return _of_graphs("place" if starts else named, 60.0, f"{SHIPPED}place" if starts else None)(spec, minutes, changes)


def _of_scenario(spec: str, minutes: float, changes: tuple[str, ...]) -> Sized:
    """Return a search, then PPO; where candidates hold several blocks, as published, PPO alone."""
    from ....envs.benchmark import load_benchmark

    is_published = "published" in load_benchmark(spec, changes=changes).scenario.placement_rules
    return "quickstart", ["search=null"] if is_published else []


def _of_fleet(spec: str, minutes: float, changes: tuple[str, ...]) -> Sized:
    """Return prices where jobs count by their time, scores where they count by deadlines or hosts are picked one by one."""
    from ....envs.fleet.benchmark import load_fleet_benchmark
    from ....training.fleet.weight_search import prices_of, scores_of, seconds_of_episode

    benchmark = load_fleet_benchmark(spec, changes=changes)
    picks = "construct" in benchmark.fleet.placements
    by_scores = picks or benchmark.fleet.objective in ("blocking_rate", "deadline_met_rate")
    fleet = benchmark.build()
    begun = scores_of(fleet, "fifo") if by_scores else prices_of(fleet, relative=True)
    population, episodes = (24, 32) if by_scores else (20, 12)
    num_played = 60.0 * minutes * _SEARCH_SHARE / (population * seconds_of_episode(begun))
    generations = round(min(max(num_played / episodes, _GENERATIONS[0]), _GENERATIONS[1]))
    episodes = round(min(max(num_played / generations, 1), episodes))
    sized = [f"search.generations={generations}", f"search.num_episodes={episodes}", f"search.population={population}"]
    if by_scores:
        return "uneven-64", sized if picks else [*sized, "imitation=null"]
    fits = fleet.settings.menu.entries == ()
    return "llm-anywhere", [*sized, "mixed=[]", *(["search.start=shipped:llm-anywhere"] if fits else [])]


def _of_graphs(preset: str, full_minutes: float, start: str | None = None) -> Callable[[str, float, tuple[str, ...]], Sized]:
    """Return how a graph policy is trained: by PPO from another, or in less time than its preset takes on fewer instances."""

    def sized(spec: str, minutes: float, changes: tuple[str, ...]) -> Sized:
        world, share = load_world(spec, changes), min(minutes / full_minutes, 1.0)
        choice = cast("GraphTrainSettings", load_config(config_path(PRESET + preset)))
        imitation, ppo = choice.imitation, choice.ppo
        assert imitation is not None, "these presets imitate"
        rollout = max(ppo.rollout_steps, 8 * world.sizes.nodes[world.spec.member] // 5)
        groups = max(2, ppo.num_envs * ppo.rollout_steps // (rollout * ppo.group))
        envs, most = groups * ppo.group, max(2, _MOST_SCORED // world.sizes.actions)
        minibatch = envs * rollout // 4
        if minibatch > most:
            minibatch = 1 << (most.bit_length() - 1)
            rollout += -rollout % (minibatch // gcd(minibatch, envs))
        result = [f"ppo.rollout_steps={rollout}", f"ppo.num_envs={envs}", f"ppo.minibatch={minibatch}"]
        result += ["num_workers=1", "validate_every_updates=10"]  # one process, whose time is counted
        if start is not None:
            return preset, [*result, f"start={start}", "imitation=null"]
        solved = 60.0 * minutes * _SOLVED_SHARE / _seconds_of_solution(world, imitation.rounds)
        steps = max(40, round(imitation.steps * share))
        return preset, [
            *result,
            f"imitation.instances={max(imitation.minibatch, round(min(imitation.instances * share, solved)))}",
            f"imitation.steps={steps}",
            f"imitation.validate_every_steps={max(1, steps // 2)}",
            f"imitation.decisions={min(imitation.decisions, most)}",
        ]

    return sized


def _seconds_of_solution(world: World[Any], rounds: int) -> float:
    """Return the mean CPU seconds in which an instance is solved that is imitated."""

    def solve(seeds: Iterable[int]) -> None:
        for seed in seeds:
            with suppress(PlanError):
                world.solve(world.instance("training", seed), rounds, 0)

    solve((0,))  # loads compiled code
    begun_s = time.process_time()
    solve(range(_TIMED))
    return max((time.process_time() - begun_s) / _TIMED, 1e-6)


_OF_KIND: dict[str | None, Callable[[str, float, tuple[str, ...]], Sized]] = {
    SCENARIO: _of_scenario,
    FLEET: _of_fleet,
    ELASTIC: lambda *of: ("learned-shares", []),
}
"""By kind of benchmark, other worlds apart: from its spelling, minutes and changes, how it is trained."""
