"""All families of figures of training strategies, in the order of their table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from ....errors import InputFileError
from ..published_figures import Figures, Progress, PublishedFigure, collect
from . import (
    five_layers,
    gradient_exchange,
    masked,
    pipelines,
    placed_groups,
    resharding,
    spatial_parallelism,
    uneven_networks,
)

FAMILIES: dict[str, Figures] = {
    "five layers": five_layers.figures,
    "spatial parallelism": spatial_parallelism.figures,
    "uneven networks": uneven_networks.figures,
    "synchronisation": gradient_exchange.synchronisation_figures,
    "compression": gradient_exchange.compression_figures,
    "gossip": gradient_exchange.gossip_figures,
    "local updates": gradient_exchange.local_updates_figures,
    "masked": masked.figures,
    "eager 1f1b": pipelines.eager_pipelines_figures,
    "resharding": resharding.figures,
    "meshed stages": pipelines.meshed_stages_figures,
    "placed groups": placed_groups.figures,
}
"""The functions that compute the figures, by name."""

OF_REFERENCE: dict[str, Callable[[Path], Iterator[PublishedFigure]]] = {
    "placed groups of the world": placed_groups.world_figures,
}
"""The same of families that read the folder of reference data."""


def validate(names: Iterable[str], progress: Progress | None = None, *, reference: Path | None = None) -> list[PublishedFigure]:
    """Compute the figures of some families.

    Args:
        names: of the families; those of `OF_REFERENCE` are left out without the folder.
        progress: called with each figure.
        reference: the folder of reference data.

    Raises:
        KeyError: a name that is no family.
        InputFileError: a file of the folder is missing or malformed.
    """
    if reference is not None and not reference.is_dir():
        raise InputFileError("no such folder", file=reference)
    read = {} if reference is None else {name: partial(figures, reference) for name, figures in OF_REFERENCE.items()}
    every: dict[str, Figures] = FAMILIES | read
    return collect({name: every[name] for name in names if name in every or name not in OF_REFERENCE}, progress)
