"""A sheet of paper measured in pixels that becomes SVG text: matplotlib without its global state.

The same drawing gives the same bytes: no date, fixed identifiers, the style of this module whatever a user's
``matplotlibrc`` says. Text stays text, so that it can be selected and searched. Widths are measured in DejaVu Sans,
which comes with matplotlib and is wider than the usual sans-serif fonts, so that text fits where it is shown in
another one.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from html import escape
from io import StringIO
from typing import TYPE_CHECKING, NamedTuple
from unicodedata import east_asian_width

import numpy as np

from .style import INK, MUTED, RULE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 1040
"""Width of the report's figures, in pixels."""

PANEL = 440.0
"""Width of one of several drawings of a figure that stand side by side, or below each other on a narrow screen."""

TEXT, SMALL = 12.0, 10.5
"""Sizes of text, in pixels."""

FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"

_POINTS = 0.75  # a CSS pixel is 1/96 inch, a point 1/72 inch
_LEGEND_LINE = 20.0
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "meshwright",
    "font.family": ["DejaVu Sans"],
    "text.parse_math": False,
    "axes.formatter.use_mathtext": False,
    "axes.unicode_minus": False,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 3,
    "ytick.major.size": 3,
    "hatch.linewidth": 0.7,
    "font.size": TEXT * _POINTS,
    "axes.labelsize": TEXT * _POINTS,
    "xtick.labelsize": SMALL * _POINTS,
    "ytick.labelsize": SMALL * _POINTS,
}


class LegendEntry(NamedTuple):
    """An entry of a legend.

    Attributes:
        text: what it means.
        colour: of the swatch, mark or line.
        hatch: of the swatch.
        marker: matplotlib's letter for a mark instead of a swatch.
        dash: line style of a line instead of a swatch.
    """

    text: str
    colour: str
    hatch: str = ""
    marker: str = ""
    dash: str = ""


class Canvas:
    """A figure whose coordinates are pixels from its upper left corner; made by `svg`."""

    def __init__(self, width: float, height: float) -> None:
        from matplotlib.figure import Figure

        self.width, self.height = width, height
        self._figure = Figure(figsize=(width / 96, height / 96), dpi=72, facecolor="white")
        self.paper = self.axes(0, 0, width, height)
        self.paper.set(xlim=(0, width), ylim=(height, 0))
        self.paper.set_axis_off()
        self.paper.set_zorder(10)  # text lies above bars

    def axes(self, left: float, top: float, width: float, height: float) -> Axes:
        """Axes whose frame is a given rectangle."""
        share = (left / self.width, 1 - (top + height) / self.height, width / self.width, height / self.height)
        return self._figure.add_axes(share)

    def write(
        self, x: float, y: float, text: str, *, size: float = TEXT, colour: str = INK, align: str = "left", bold: bool = False
    ) -> None:
        """Text on one line whose middle is at height ``y``."""
        self.paper.text(
            x,
            y,
            printable(text),
            fontsize=size * _POINTS,
            color=colour,
            ha=align,
            va="center_baseline",
            fontweight="bold" if bold else "normal",
        )

    def boxes(
        self, axes: Axes, boxes: Sequence[tuple[float, float, float, float]], colour: str, *, hatch: str = "", edge: float = 0.0
    ) -> None:
        """Rectangles (left, lower, width, height, in units of the axes) of one colour with white edges, as one path."""
        from matplotlib.patches import PathPatch
        from matplotlib.path import Path

        if not boxes:
            return
        left, low, width, height = np.array(boxes, np.float64).T
        right, high = left + width, low + height
        corners = np.stack([left, low, right, low, right, high, left, high, left, low], axis=-1).reshape(-1, 2)
        codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(boxes)
        axes.add_patch(PathPatch(Path(corners, codes), fc=colour, ec="white", lw=edge, hatch=hatch or None))

    def legend(self, keys: Sequence[LegendEntry], left: float, top: float, width: float) -> None:
        """Swatches or marks with their meaning, in as many lines as `legend_height` says."""
        from matplotlib.patches import Rectangle

        for key, (x, y) in zip(keys, _legend_places(keys, width), strict=True):
            middle = top + y + _LEGEND_LINE / 2
            if key.marker:
                self.paper.plot([left + x + 6], [middle], key.marker, color=key.colour, markersize=6, markeredgewidth=0)
            elif key.dash:
                self.paper.plot([left + x - 2, left + x + 14], [middle] * 2, color=key.colour, linestyle=key.dash, linewidth=1.8)
            else:
                edge = "white" if key.hatch else key.colour
                self.paper.add_patch(Rectangle((left + x, middle - 6), 12, 12, fc=key.colour, ec=edge, hatch=key.hatch, lw=0.3))
            self.write(left + x + 18, middle, key.text)

    def svg(self, name: str, label: str) -> str:
        """The drawing as one ``svg`` element.

        Args:
            name: put before every identifier, so that several drawings can stand in one page.
            label: what the drawing shows, for readers who do not see it.
        """
        out = StringIO()
        self._figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
        drawn = out.getvalue()
        drawn = drawn[drawn.index("<svg") :]
        drawn = re.sub(r"<defs>\s*<style[^>]*>.*?</style>\s*</defs>", "", drawn, count=1, flags=re.DOTALL)
        drawn = re.sub(r"<!--.*?-->\n?", "", drawn, flags=re.DOTALL)
        drawn = re.sub(r"<[^>]*>", lambda tag: _tag(tag[0], name), drawn)
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" role="img" '
            f'aria-label="{escape(printable(label))}" width="{self.width:.0f}" height="{self.height:.0f}" '
            f'viewBox="0 0 {self.width * _POINTS:g} {self.height * _POINTS:g}" font-family="{FONTS}" '
            'style="stroke-linejoin: round; stroke-linecap: butt">'
        )
        return head + drawn[drawn.index(">") + 1 :].strip() + "\n"


@contextmanager
def canvas(width: float, height: float) -> Iterator[Canvas]:
    """An empty sheet; draw on it and take its text inside the ``with`` block, where this module's style holds."""
    with _style():
        yield Canvas(width, height)


@lru_cache(maxsize=4096)
def text_width(text: str, size: float = TEXT) -> float:
    """Width of text in pixels; letters as wide as they are high, which DejaVu Sans lacks, count as the letter W."""
    measured = "".join("W" if east_asian_width(letter) in "WF" else letter for letter in printable(text))
    with _style():
        from matplotlib.font_manager import FontProperties
        from matplotlib.textpath import text_to_path

        font = FontProperties(size=size)
        return float(text_to_path.get_text_width_height_descent(measured, font, ismath=False)[0])


def legend_height(keys: Sequence[LegendEntry], width: float) -> float:
    """Height of a legend that is ``width`` wide, in pixels."""
    return max((y for _, y in _legend_places(keys, width)), default=-_LEGEND_LINE) + _LEGEND_LINE


def printable(text: str) -> str:
    """Text without characters that a drawing cannot hold; they become question marks."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def shortened(text: str, length: int) -> str:
    """Text of at most ``length`` letters, cut in the middle."""
    half = (length - 1) // 2
    return text if len(text) <= length else f"{text[: length - 1 - half]}…{text[-half:]}"


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions between ``low`` and ``high``, near the given ones and at least ``gap`` apart where there is room."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    gap = min(gap, (high - low) / max(1, len(wanted) - 1))
    places = [0.0] * len(wanted)
    floor = low
    for i in order:
        places[i] = max(wanted[i], floor)
        floor = places[i] + gap
    ceiling = high
    for i in reversed(order):
        places[i] = min(places[i], ceiling)
        ceiling = places[i] - gap
    return places


def _tag(tag: str, name: str) -> str:
    """A tag with the drawing's name before its identifiers; the font is told once, at the root."""
    tag = re.sub(r'\b(id|xlink:href)="(#?)', rf'\1="\2{name}-', tag)
    tag = tag.replace("url(#", f"url(#{name}-")
    return re.sub(r"; font-family: [^;\"]*", "", tag)


def _legend_places(keys: Sequence[LegendEntry], width: float) -> list[tuple[float, float]]:
    places = []
    x, y = 0.0, 0.0
    for key in keys:
        wide = 18 + text_width(key.text) + 22
        if x and x + wide > width:
            x, y = 0.0, y + _LEGEND_LINE
        places.append((x, y))
        x += wide
    return places


_holds_style: ContextVar[bool] = ContextVar("_holds_style", default=False)
"""Whether this module's style holds already: matplotlib takes milliseconds to change and restore its own."""


@contextmanager
def _style() -> Iterator[None]:
    if _holds_style.get():
        yield
        return
    before = _holds_style.set(True)
    try:
        with _own_style():
            yield
    finally:
        _holds_style.reset(before)


@contextmanager
def _own_style() -> Iterator[None]:
    import matplotlib.style

    with matplotlib.style.context(["default", _STYLE]), warnings.catch_warnings():
        # The reader's font draws the text; that DejaVu Sans lacks a letter only makes its measured width a guess.
        warnings.filterwarnings("ignore", message=r"(?s)Glyph .* missing from font", category=UserWarning)
        yield
