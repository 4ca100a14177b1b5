"""`WORLDS`: the adapter of each kind of benchmark; a new world is a line here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import MeshwrightError
from ...worlds.benchmark_files import kind_of
from ...worlds.registry import world_key
from ...worlds.world import World
from .evaluated_cluster import EvaluatedCluster
from .evaluated_elastic import EvaluatedElastic
from .evaluated_fleet import EvaluatedFleet
from .evaluated_graph_world import EvaluatedGraphWorld, EvaluatedTasklets
from .evaluated_operators import EvaluatedOperators
from .evaluated_world import EvaluatedWorld, Options

WORLDS: dict[str, type[EvaluatedWorld]] = {
    one.name: one
    for one in (
        EvaluatedCluster,
        EvaluatedFleet,
        EvaluatedElastic,
        EvaluatedOperators,
        EvaluatedTasklets,
        EvaluatedGraphWorld,
    )
}
"""By the name that results carry."""


def load_worlds(spec: str, changes: Sequence[str] = (), options: Options = Options()) -> list[EvaluatedWorld]:  # noqa: B008
    """Return what an evaluation of a benchmark plays: one world, of a family one for each variant.

    Args:
        spec: ``preset:NAME``, a built-in's bare name or a path.
        changes: ``key=value`` texts that change its keys.
        options: those that its kind takes.

    Raises:
        MeshwrightError: it is unknown or wrong, or an option is given that its kind does not take.
    """
    key = kind_of(spec)
    of_key = next((one for one in WORLDS.values() if key is not None and one.key == key), None)
    world = of_key or (EvaluatedGraphWorld if world_key(spec) else EvaluatedCluster)
    for option, value in vars(options).items():
        if value not in (None, ()) and option not in world.takes:
            shown = value if not isinstance(value, tuple) else ",".join(map(str, value))
            raise MeshwrightError(
                f"does not go with a benchmark of {world.words}",
                field="POLICY" if option == "references" else f"--{option}",
                value=str(shown),
            )
    return world.load(spec, changes, options)


def world_of(benchmark: Any) -> EvaluatedWorld:
    """Return a benchmark as it is played.

    Args:
        benchmark: name, path, settings, a `World`, or an `EvaluatedWorld`.

    Raises:
        MeshwrightError: it is unknown, or a family.
    """
    if isinstance(benchmark, EvaluatedWorld):
        return benchmark
    if isinstance(benchmark, World):
        adapter = WORLDS.get(benchmark.kind, EvaluatedGraphWorld)
        return (adapter if issubclass(adapter, EvaluatedGraphWorld) else EvaluatedGraphWorld)(benchmark)
    if not isinstance(benchmark, str):
        made_from = {one.made_from: one for one in WORLDS.values()}
        if type(benchmark) not in made_from:
            problem = "must be a benchmark's name, path or settings, or a world; policies come second"
            raise MeshwrightError(problem, field="benchmark", value=benchmark)
        return made_from[type(benchmark)].from_settings(benchmark)
    first, *others = load_worlds(benchmark)
    if others:
        names = [first.benchmark.name, *(one.benchmark.name for one in others)]
        raise MeshwrightError("is a family of benchmarks; name one of them", field="benchmark", value=benchmark, choices=names)
    return first
