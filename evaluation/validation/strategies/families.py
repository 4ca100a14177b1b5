"""All families of figures of training strategies, in the order of their table."""

from __future__ import annotations

from collections.abc import Iterable

from ..published_figures import Figures, Progress, PublishedFigures, collect
from . import compression, five_layers, gossip, local_updates, spatial_parallelism, synchronisation, uneven_networks

FAMILIES: dict[str, Figures] = {
    "five layers": (five_layers.NUM_FIGURES, five_layers.figures),
    "spatial parallelism": (spatial_parallelism.NUM_FIGURES, spatial_parallelism.figures),
    "uneven networks": (uneven_networks.NUM_FIGURES, uneven_networks.figures),
    "synchronisation": (synchronisation.NUM_FIGURES, synchronisation.figures),
    "compression": (compression.NUM_FIGURES, compression.figures),
    "gossip": (gossip.NUM_FIGURES, gossip.figures),
    "local updates": (local_updates.NUM_FIGURES, local_updates.figures),
}
"""By name: how many figures there are, and what computes them."""


def validate(names: Iterable[str], progress: Progress | None = None) -> PublishedFigures:
    """Compute the figures of some families.

    Raises:
        KeyError: a name that is no family.
    """
    return collect({name: FAMILIES[name] for name in names}, progress)
