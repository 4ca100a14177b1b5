"""All families of figures of training strategies, in the order of their table."""

from __future__ import annotations

from collections.abc import Iterable

from ..published_figures import Figures, Progress, PublishedFigures, collect
from . import eager_pipelines, uneven_networks

FAMILIES: dict[str, Figures] = {
    "uneven networks": (uneven_networks.NUM_FIGURES, uneven_networks.figures),
    "eager 1f1b": (eager_pipelines.NUM_FIGURES, eager_pipelines.figures),
}
"""By name: how many figures there are, and what computes them."""


def validate(names: Iterable[str], progress: Progress | None = None) -> PublishedFigures:
    """Compute the figures of some families.

    Raises:
        KeyError: a name that is no family.
    """
    return collect({name: FAMILIES[name] for name in names}, progress)
