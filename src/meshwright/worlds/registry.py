"""The worlds that graph policies play, by the key of their benchmarks; packages may add others.

A package adds a world by an entry point of the group ``meshwright.worlds``. Its name is the key of the draw in benchmark files.
It is a function from the path of a benchmark and changes (``key=value`` texts) to a `world.World`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from ..errors import ConfigError
from .benchmark_files import ELASTIC, PLACEMENT, TASKLETS, find_benchmark, keys_of, kind_of
from .world import World

Loader = Callable[[str, Sequence[str] | None], World[Any]]

_OWN = {
    ELASTIC: "meshwright.worlds.elastic.world:load_elastic_world",
    PLACEMENT: "meshwright.worlds.operators.world:load_operator_world",
    TASKLETS: "meshwright.worlds.tasklets.world:load_tasklet_world",
}
GROUP = "meshwright.worlds"


@cache
def worlds() -> dict[str, Callable[[], Loader]]:
    """Return a function for each key that imports the loader of its world."""
    added = {each.name: each.load for each in entry_points(group=GROUP)}
    return added | {key: _importer(path) for key, path in _OWN.items()}


def world_key(spec: str) -> str | None:
    """Return the key by which a benchmark belongs to a world; None where it belongs to none."""
    return next((key for key in (kind_of(spec), *keys_of(spec)) if key in worlds()), None)


def load_world(spec: str, changes: Sequence[str] | None = None) -> World[Any]:
    """Return the world of a benchmark.

    Args:
        spec: ``preset:NAME`` or a path.
        changes: ``key=value`` texts that change its keys.

    Raises:
        ConfigError: no such benchmark, or it belongs to no world.
        InputFileError: the file is missing.
    """
    key = world_key(spec)
    if key is None:
        path, _ = find_benchmark(spec)
        raise ConfigError("is a benchmark of no world that a graph policy plays", file=path, choices=tuple(worlds()))
    return worlds()[key]()(spec, changes)


def _importer(path: str) -> Callable[[], Loader]:
    module, _, name = path.partition(":")

    def load() -> Loader:
        loader: Loader = getattr(import_module(module), name)
        return loader

    return load
