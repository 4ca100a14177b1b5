"""A cluster as one self-contained SVG picture, its devices coloured by type or by the job that holds them."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape, quoteattr

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ClusterError
from .cluster import Cluster
from .scenes import CHARACTER, Scene, scene

PALETTE = ("#56b4e9", "#e69f00", "#009e73", "#f0e442", "#cc79a7", "#d55e00", "#0072b2", "#999999")
"""Colours that all common kinds of colour vision tell apart. Source: Okabe and Ito, "Color universal design", 2008."""

FREE = "#ffffff"

_DARK = {"#0072b2", "#d55e00", "#009e73"}
_MARGIN = 20.0
_LEGEND_LINE = 20.0


def draw_svg(cluster: Cluster, *, occupancy: ArrayLike | None = None, labels: Sequence[str] = ()) -> str:
    """Draw a cluster.

    Args:
        cluster: what to draw.
        occupancy: for each device the number of the job that holds it, or -1 where it is free, ``(n,)``; without
            it, devices are coloured by type.
        labels: what to call each job in the legend; its number if not given. Colours repeat after eight jobs, so
            squares carry the number too.

    Raises:
        ClusterError: ``occupancy`` has not one number for each device.
    """
    found = scene(cluster)
    if occupancy is None:
        index = cluster.device_type
        texts = found.texts
        names = [kind.name for kind in cluster.device_types]
        keys = [(PALETTE[i % len(PALETTE)], "", name) for i, name in enumerate(names)]
    else:
        index = np.asarray(occupancy, np.int64)
        if index.shape != (cluster.num_devices,):
            raise ClusterError(f"has shape {index.shape} for {cluster.num_devices} devices", field="occupancy")
        texts = ["" if job < 0 else str(job) for job in index.tolist()]
        held = sorted({job for job in index.tolist() if job >= 0})
        keys = [(_colour(job), str(job), labels[job] if job < len(labels) else f"job {job}") for job in held]
        keys += [(FREE, "", "free")] * bool((index < 0).any())
    return _painted(cluster, found, index, texts, keys)


def _painted(cluster: Cluster, found: Scene, index: NDArray[np.int64], texts: list[str], keys: list[tuple[str, str, str]]) -> str:
    kinds = ", ".join(f"{int((cluster.device_type == i).sum())} {kind.name}" for i, kind in enumerate(cluster.device_types))
    title = f"{cluster.name}: {kinds} in {cluster.num_hosts} host{'s' * (cluster.num_hosts > 1)}"
    width, height = found.size
    width = max(width, len(title) * 9, len(found.summary) * CHARACTER, 320)
    legend, legend_height = _legend(keys, width)
    top = _MARGIN + 52
    full = width + 2 * _MARGIN, top + height + legend_height + 2 * _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {full[0]:.0f} {full[1]:.0f}" width="{full[0]:.0f}" '
        f'height="{full[1]:.0f}" font-family="sans-serif" font-size="12" role="img" aria-label={quoteattr(title)}>',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="{_MARGIN}" y="{_MARGIN + 14}" font-size="16" font-weight="bold">{escape(title)}</text>',
        f'<text x="{_MARGIN}" y="{_MARGIN + 34}" fill="#333333">{escape(found.summary)}</text>',
        f'<g transform="translate({_MARGIN} {top})">',
        *_frames(found),
        *_devices(cluster, found, index, texts),
        "</g>",
        f'<g transform="translate({_MARGIN} {top + height + _MARGIN})">',
        *legend,
        "</g>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _frames(found: Scene) -> list[str]:
    parts = [
        f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="#b0b0b0" stroke-width="1"/>' for x1, y1, x2, y2 in found.lines
    ]
    for x, y, width, height, is_switch in found.boxes:
        fill = "#dde3ea" if is_switch else "none"
        parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="3" fill="{fill}" stroke="#777777"/>'
        )
    for x, y, width, share, text in found.tiles:
        grey = f"#{round(235 - 185 * share):02x}{round(242 - 150 * share):02x}{round(250 - 90 * share):02x}"
        parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{width:.1f}" fill="{grey}"/>')
        if text:
            ink = "#ffffff" if share > 0.5 else "#000000"
            parts.append(_text(x + width / 2, y + width / 2 + 4, text, "middle", ink, 11))
    parts += [_text(x, y, text, anchor, "#333333", 12) for x, y, text, anchor in found.labels if text]
    return parts


def _devices(cluster: Cluster, found: Scene, index: NDArray[np.int64], texts: list[str]) -> list[str]:
    parts = []
    side = found.cell
    numbers = zip(found.places.tolist(), index.tolist(), texts, strict=True)
    for device, ((x, y), number, text) in enumerate(numbers):
        colour = FREE if number < 0 else _colour(number)
        about = f"{cluster.device_name(device)} ({cluster.device_types[cluster.device_type[device]].name})"
        parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{side:.1f}" height="{side:.1f}" rx="2" fill="{colour}" stroke="#444444" '
            f'stroke-width="{0.5 if side < 12 else 1}"><title>{escape(about)}</title></rect>'
        )
        size = min(12.0, 0.6 * side, 1.5 * side / max(1, len(text)))
        if text and size >= 6:
            parts.append(_text(x + side / 2, y + side / 2 + 0.36 * size, text, "middle", _ink(colour), size))
    return parts


def _legend(keys: list[tuple[str, str, str]], width: float) -> tuple[list[str], float]:
    """Squares with names, in as many lines as they need, and their height."""
    parts = []
    x, y = 0.0, 0.0
    wide = 34 + max(len(name) for _, _, name in keys) * 7.2
    for colour, number, name in keys:
        if x and x + wide > width:
            x, y = 0.0, y + _LEGEND_LINE
        parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="14" height="14" rx="2" fill="{colour}" stroke="#444444"/>')
        if number:
            parts.append(_text(x + 7, y + 10.5, number, "middle", _ink(colour), min(10.0, 19.0 / len(number))))
        parts.append(_text(x + 20, y + 11.5, name, "start", "#333333", 12))
        x += wide
    return parts, y + _LEGEND_LINE


def _text(x: float, y: float, text: str, anchor: str, colour: str, size: float) -> str:
    shown = "".join(letter if letter.isprintable() else "?" for letter in text)
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" font-size="{size:.3g}">{escape(shown)}</text>'


def _colour(number: int) -> str:
    return PALETTE[number % len(PALETTE)]


def _ink(colour: str) -> str:
    return "#ffffff" if colour in _DARK else "#000000"
