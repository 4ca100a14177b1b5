"""Draws a job graph as one self-contained SVG file: ops as labelled boxes in layers, coloured by kind.

Each box tells the op's share of the step's time; pointing at it shows all its figures. The colours can be told apart
with any colour vision (Okabe and Ito, "Color universal design", 2008), and each kind is named in the labels or the
legend.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

from .. import files
from ..errors import InputFileError
from .graph import JobGraph
from .layers import OP_HEIGHT, Layout, Place, layout

_PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#F0E442")
_OTHER = "#999999"
_INK = "#222222"
_LINE = "#777777"
_LETTER_WIDTH = 6.1
_MAX_LETTERS = 30
_MARGIN = 20.0
_LEGEND_ROW = 18.0


def draw_svg(graph: JobGraph, path: str | Path) -> None:
    """Draw a graph into an SVG file.

    Raises:
        InputFileError: the file is not called ``.svg`` or cannot be written.
    """
    if Path(path).suffix.lower() != ".svg":
        raise InputFileError("the drawing is an SVG; its name must end in .svg", file=path)
    files.write_text(path, svg(graph))


def svg(graph: JobGraph) -> str:
    """The drawing of a graph as SVG text."""
    labels = [_label(graph, op) for op in range(graph.num_ops)]
    op_width = _LETTER_WIDTH * (max(len(label) for label in labels) + 8) + 14
    plan = layout(graph, op_width)
    legend = _legend(graph)
    colors = {kind: color for color, _, kinds in legend for kind in kinds}
    width = max(plan.width, 460.0) + 2 * _MARGIN
    title, legend_height = _heading(graph, legend, width)
    height = plan.height + legend_height + 2 * _MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" '
            f'font-size="10" fill="{_INK}">',
            f"<title>{escape(graph.name)}</title>",
            '<rect width="100%" height="100%" fill="#ffffff"/>',
            f'<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
            f'<path d="M0,0 L8,4 L0,8 z" fill="{_LINE}"/></marker></defs>',
            title,
            f'<g transform="translate({_MARGIN:.0f},{_MARGIN + legend_height:.0f})">',
            f'<g fill="none" stroke="{_LINE}" stroke-width="1.2" stroke-linejoin="round">',
            *_paths(plan),
            "</g>",
            *(_box(graph, place, labels[place.op], colors) for place in plan.places if not place.is_lane),
            "</g>",
            "</svg>\n",
        ]
    )


def _label(graph: JobGraph, op: int) -> str:
    """The op's name, with its kind where the name does not tell it, shortened in the middle if need be."""
    name, kind = graph.op_names[op], graph.op_kinds[op]
    text = name if kind.lower() in name.lower() or "." in name or "_" in name else f"{name} {kind}"
    half = (_MAX_LETTERS - 1) // 2
    return text if len(text) <= _MAX_LETTERS else f"{text[:half]}…{text[-half:]}"


def _legend(graph: JobGraph) -> list[tuple[str, str, list[str]]]:
    """Colour, text and kinds of each entry: the kinds that take most time have one each, the rest share grey."""
    time_s = dict.fromkeys(graph.op_kinds, 0.0)
    count = dict.fromkeys(graph.op_kinds, 0)
    for op, kind in enumerate(graph.op_kinds):
        time_s[kind] += float(graph.forward_s[op] + graph.backward_s[op])
        count[kind] += 1
    ranked = sorted(time_s, key=lambda kind: (-time_s[kind], -count[kind], kind))
    step_s = graph.step_s

    def text(name: str, kinds: list[str]) -> str:
        share = f", {_percent(sum(time_s[kind] for kind in kinds) / step_s)}" if step_s > 0 else ""
        return f"{name} ({sum(count[kind] for kind in kinds)}{share})"

    entries = [(color, text(kind, [kind]), [kind]) for color, kind in zip(_PALETTE, ranked, strict=False)]
    rest = ranked[len(_PALETTE) :]
    if rest:
        entries.append((_OTHER, text("other", rest), rest))
    return entries


def _heading(graph: JobGraph, legend: list[tuple[str, str, list[str]]], width: float) -> tuple[str, float]:
    """Title, summary and legend, and the height that they take."""
    times = "not timed" if graph.step_s == 0 else f"{_seconds(graph.step_s)} a step"
    device = f" on {graph.reference_device}" if graph.reference_device else ""
    batch = f", {graph.samples_per_step} samples a step" if graph.samples_per_step else ""
    summary = f"{graph.num_ops} ops, {graph.num_edges} edges, {times}{device} ({graph.source}){batch}"
    sizes = f"parameters {_bytes(graph.parameter_bytes.sum())}, activations {_bytes(graph.activation_bytes.sum())}"
    parts = [
        f'<text x="{_MARGIN:.0f}" y="{_MARGIN + 10:.0f}" font-size="16" font-weight="bold">{escape(graph.name)}</text>',
        f'<text x="{_MARGIN:.0f}" y="{_MARGIN + 28:.0f}">{escape(summary)}</text>',
        f'<text x="{_MARGIN:.0f}" y="{_MARGIN + 43:.0f}">{escape(sizes)}</text>',
    ]
    x, y = _MARGIN, _MARGIN + 64
    for color, text, _ in legend:
        entry = 20 + _LETTER_WIDTH * len(text) + 16
        if x > _MARGIN and x + entry > width - _MARGIN:
            x, y = _MARGIN, y + _LEGEND_ROW
        parts.append(
            f'<rect x="{x:.1f}" y="{y - 9:.1f}" width="12" height="12" fill="{color}" stroke="{_INK}" stroke-width="0.5"/>'
        )
        parts.append(f'<text x="{x + 18:.1f}" y="{y + 1:.1f}">{escape(text)}</text>')
        x += entry
    return "\n".join(parts), y - _MARGIN + 14


def _paths(plan: Layout) -> list[str]:
    paths = []
    for place in plan.places:
        if place.is_lane:
            paths.append(f'<path d="M{place.x:.1f},{place.y:.1f} V{place.bottom:.1f}"/>')
    for source, target, corners in plan.lines:
        if corners:
            middle = " ".join(f"L{x:.1f},{y:.1f}" for x, y in corners) + f" L{target.x:.1f},{target.y:.1f}"
        else:
            half = (source.bottom + target.y) / 2
            middle = f"C{source.x:.1f},{half:.1f} {target.x:.1f},{half:.1f} {target.x:.1f},{target.y:.1f}"
        arrow = "" if target.is_lane else ' marker-end="url(#arrow)"'
        paths.append(f'<path d="M{source.x:.1f},{source.bottom:.1f} {middle}"{arrow}/>')
    return paths


def _box(graph: JobGraph, place: Place, label: str, colors: dict[str, str]) -> str:
    op = place.op
    left, top, width, height = place.x - place.width / 2, place.y, place.width, f"{OP_HEIGHT:.1f}"
    forward_s, backward_s = float(graph.forward_s[op]), float(graph.backward_s[op])
    facts = [
        f"{graph.op_names[op]}: {graph.op_kinds[op]}",
        f"forward {_seconds(forward_s)}, backward {_seconds(backward_s)}",
        f"output {_bytes(graph.activation_bytes[op])}, parameters {_bytes(graph.parameter_bytes[op])}",
    ]
    share = _percent((forward_s + backward_s) / graph.step_s) if graph.step_s > 0 else ""
    baseline = top + OP_HEIGHT / 2 + 3.5
    return (
        f"<g><title>{escape(chr(10).join(facts))}</title>"
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height}" fill="#fafafa" stroke="{_LINE}" rx="2"/>'
        f'<rect x="{left:.1f}" y="{top:.1f}" width="8" height="{height}" fill="{colors[graph.op_kinds[op]]}" rx="2"/>'
        f'<text x="{left + 13:.1f}" y="{baseline:.1f}">{escape(label)}</text>'
        f'<text x="{left + width - 5:.1f}" y="{baseline:.1f}" text-anchor="end" fill="#555555">{share}</text></g>'
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _seconds(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e6:.2g} us" if seconds else "0 s"


def _bytes(size: float) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:.3g} {unit}"
    return f"{size:.0f} B"
