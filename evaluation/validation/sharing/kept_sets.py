"""Simulated sets one after another, each kept in a file, so that what was cut short goes on where it stopped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from .... import files, settings
from .drawn_sets import draw
from .simulated_sets import SimulatedSet, simulated


def simulated_sets(seed: int, folder: Path | None = None) -> Iterator[SimulatedSet]:
    """All sets of a seed in which a link is shared, by their number; there is no last one.

    Args:
        seed: of the draws.
        folder: where sets are kept, one file each, and taken from.

    Raises:
        InputFileError, ConfigError: a file in the folder that cannot be read or holds something else.
    """
    number = 0
    while True:
        found = _set(seed, number, folder)
        if found.jobs:
            yield found
        number += 1


def _set(seed: int, number: int, folder: Path | None) -> SimulatedSet:
    path = None if folder is None else folder / f"{seed}-{number}.json"
    if path is not None and path.exists():
        return settings.build_settings(SimulatedSet, files.read_json(path), file=path)
    found = simulated(draw(seed, number))
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_json(path, found.model_dump())
    return found
