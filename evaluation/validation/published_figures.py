"""Figures that others published, each next to ours, with the time that ours took."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from ...budget_clock import clock_s

Progress = Callable[[str, int, int | None], None]
"""Called with a family of figures, how many are done, and at its end how many there are."""


@dataclass(frozen=True)
class PublishedFigure:
    """One published figure and ours.

    Attributes:
        item: what it is a figure of.
        figure: which figure of it.
        ours: computed here.
        published: as printed.
        tolerance: relative deviation up to which the two agree.
        is_limit: whether ours may also be less.
        is_floor: whether ours may also be more.
        family: kind of figure, which `collect` fills in.
        seconds: since the figure before it, which `collect` fills in too where it is asked to; else 0.
    """

    item: str
    figure: str
    ours: float | str
    published: str
    tolerance: float
    is_limit: bool = False
    is_floor: bool = False
    family: str = ""
    seconds: float = 0.0

    @property
    def deviation(self) -> float:
        """Ours over theirs, less 1; ours where theirs is zero; 0 or 1 where it is no number."""
        if isinstance(self.ours, str):
            return float(self.ours != self.published)
        return self.ours / float(self.published) - 1 if float(self.published) else self.ours

    @property
    def agrees(self) -> bool:
        """Whether ours is as near as tolerance and printed digits ask, or on the side of it where that side is right."""
        if isinstance(self.ours, str):
            return self.ours == self.published
        digits = self.published.partition(".")[2]
        rounding = 0.5000001 * 10.0 ** -len(digits) / abs(float(self.published) or 1.0)
        # A count is exact, unless a tolerance is all that it has.
        allowed = max(self.tolerance, rounding) if digits else 0.0 if self.tolerance <= COUNTED else self.tolerance
        deviation = self.deviation if self.is_limit else -self.deviation if self.is_floor else abs(self.deviation)
        return deviation <= allowed

    @property
    def text(self) -> str:
        """The published figure with the side that ours may lie on."""
        return f"{'<= ' if self.is_limit else '>= ' if self.is_floor else ''}{self.published}"

    def to_data(self) -> dict[str, Any]:
        """Return the figure as plain data."""
        return {**asdict(self), "deviation": self.deviation, "agrees": self.agrees}


COUNTED = 1e-6
"""Up to this tolerance whole numbers must be equal."""

Figures = Callable[[], Iterator[PublishedFigure]]
"""Computes the figures of a family."""


def collect(
    families: Mapping[str, Figures], progress: Progress | None = None, *, is_timed: bool = False
) -> list[PublishedFigure]:
    """Compute the figures of all families, in order; their seconds only where they are searches whose time matters."""
    published_figures: list[PublishedFigure] = []
    report = progress or (lambda family, done, of: None)
    for name, figures in families.items():
        done, began = 0, clock_s()
        for done, figure in enumerate(figures(), start=1):
            now = clock_s()
            published_figures.append(replace(figure, family=name, seconds=(now - began) * is_timed))
            began = now
            report(name, done, None)
        report(name, done, done)
    return published_figures
