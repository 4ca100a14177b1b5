"""The training config of a benchmark that has none of its own: the preset of its kind, sized by the time that there is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .... import settings
from ....errors import ConfigError
from ....packaged import config_path
from ....training.methods import SeedSettings, load_config
from ....worlds.benchmark_files import ELASTIC, FLEET, PLACEMENT, PRESET, SCENARIO, TASKLETS, find_benchmark, kind_of
from ....worlds.registry import load_world, world_key

MINUTES = 10.0
"""Of one core, by default."""
_SEARCH_SHARE = 0.6
"""Of them, at most, in which weights of a fleet are searched for."""
_GENERATIONS = (8, 60)
"""Fewest and most of that search; below the fewest, generations play fewer episodes."""


def is_benchmark(spec: str) -> bool:
    """Whether a spelling is that of a benchmark and of no training config."""
    is_config = spec.startswith(PRESET) and _is_preset(spec)
    return not is_config and (kind_of(spec) is not None or world_key(spec) is not None)


def config_of(spec: str, minutes: float = MINUTES, changes: Sequence[str] = ()) -> SeedSettings:
    """Return the config of a benchmark.

    A fleet is built and an episode timed, so that the search of its weights ends in time; the config holds its size.

    Args:
        spec: of the benchmark.
        minutes: CPU minutes that the training may take.
        changes: ``key=value`` texts that change the config.

    Raises:
        ConfigError: the benchmark is wrong, or a key is none of its config.
        InputFileError: a file is missing.
    """
    kind = kind_of(spec) or world_key(spec)
    path, is_built_in = find_benchmark(spec)
    name = path.stem
    where = PRESET + name if is_built_in else str(path.resolve())
    preset, sized = _OF_KIND.get(kind, _of_graphs(None, 30.0))(where, minutes)
    own = [f"name={name}", f"benchmark={where}", "changes=[]", *sized]
    if preset is None:
        data: Any = {"method": "graph"}
        for change in (*own, *changes):
            data = settings.override(data, change)
        from ....training.graph.settings import GraphTrainSettings  # loads torch

        return settings.build_settings(GraphTrainSettings, data)
    return load_config(config_path(PRESET + preset), [*own, *changes])


def _is_preset(spec: str) -> bool:
    try:
        return config_path(spec).is_file()
    except ConfigError:
        return False


def _of_fleet(spec: str, minutes: float) -> tuple[str, list[str]]:
    """Prices where jobs count by their time, scores where they count by deadlines or where hosts are picked one by one."""
    from ....envs.fleet.benchmark import load_fleet_benchmark
    from ....training.fleet.weight_search import prices_of, scores_of, seconds_of_episode

    chosen = load_fleet_benchmark(spec)
    picks = "construct" in chosen.fleet.placements
    by_scores = picks or chosen.fleet.objective in ("blocking_rate", "deadline_met_rate")
    fleet = chosen.build()
    begun = scores_of(fleet, "fifo") if by_scores else prices_of(fleet, relative=True)
    population, episodes = (24, 32) if by_scores else (20, 12)
    wanted_s = 60.0 * minutes * _SEARCH_SHARE / (population * seconds_of_episode(begun))
    generations = round(min(max(wanted_s / episodes, _GENERATIONS[0]), _GENERATIONS[1]))
    episodes = round(min(max(wanted_s / generations, 1), episodes))
    sized = [f"search.generations={generations}", f"search.num_episodes={episodes}", f"search.population={population}"]
    if by_scores:
        return "uneven-64", sized if picks else [*sized, "imitation=null"]
    fits = fleet.settings.menu.entries == ()
    return "llm-anywhere", [*sized, "mixed=[]", *(["search.start=shipped:llm-anywhere"] if fits else [])]


def _of_graphs(preset: str | None, full_minutes: float) -> Callable[[str, float], tuple[str | None, list[str]]]:
    """Return what a graph policy is trained by: by less time than its preset takes, on fewer instances and larger ones alike."""

    def sized(spec: str, minutes: float) -> tuple[str | None, list[str]]:
        from ....training.graph.settings import GraphTrainSettings, SearchImitationSettings

        world = load_world(spec)
        members, share = world.sizes.nodes[world.spec.member], minutes / full_minutes
        chosen = GraphTrainSettings(method="graph", name="default", benchmark=spec, imitation=SearchImitationSettings())
        named = preset and preset.format(name=world.spec.name)
        if named is not None:
            loaded = load_config(config_path(PRESET + named))
            assert isinstance(loaded, GraphTrainSettings)
            chosen = loaded
        imitation, ppo = chosen.imitation or SearchImitationSettings(), chosen.ppo
        rollout = max(ppo.rollout_steps, 8 * members // 5)
        groups = max(2, ppo.num_envs * ppo.rollout_steps // (rollout * ppo.group))
        steps = max(40, round(imitation.steps * min(share, 1.0)))
        return named, [
            f"imitation.instances={max(2 * imitation.minibatch, round(imitation.instances * min(share, 1.0)))}",
            f"imitation.steps={steps}",
            f"imitation.validate_every_steps={max(1, steps // 2)}",
            f"ppo.rollout_steps={rollout}",
            f"ppo.num_envs={groups * ppo.group}",
            f"ppo.minibatch={max(2, groups * ppo.group * rollout // 4)}",
            "validate_every_updates=10",
        ]

    return sized


def _as_preset(preset: str) -> Callable[[str, float], tuple[str | None, list[str]]]:
    return lambda spec, minutes: (preset, [])


_OF_KIND: dict[str | None, Callable[[str, float], tuple[str | None, list[str]]]] = {
    SCENARIO: _as_preset("quickstart"),
    FLEET: _of_fleet,
    ELASTIC: _as_preset("learned-shares"),
    PLACEMENT: _of_graphs("{name}", 60.0),
    TASKLETS: _of_graphs("tasklets", 30.0),
}
"""By kind of benchmark: from its spelling and minutes, a preset, None for the defaults of graph policies, and changes of it."""
