"""Figures for files and for readers without scripts: what `figure` describes, drawn by matplotlib as SVG.

The same figure gives the same bytes whatever a user's ``matplotlibrc`` says, and text stays text.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable
from html import escape, unescape
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from .figure import Figure, Trace
from .style import INK, MUTED, RULE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 1040
"""Of a figure, in pixels."""

_POINT = 0.75  # of a pixel
_DASHES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}
_MARKERS = {"circle": "o", "square": "s", "triangle-up": "^", "triangle-down": "v", "diamond": "D", "cross": "P", "x": "X"}
_MARKERS |= {"circle-open": "o", "line-ns": "|"}
_HATCHES = {"": "", "/": "////", ".": "....", "x": "xxxx"}
_PLACES = {"left": ("right", -5), "right": ("left", 5), "center": ("center", 0)}
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "meshwright",
    "font.family": ["DejaVu Sans"],
    "font.size": 12 * _POINT,
    "text.parse_math": False,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.unicode_minus": False,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.titlesize": 12 * _POINT,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.7,
    "legend.frameon": False,
}


def svg(figure: Figure) -> str:
    """Return the figure as the text of an SVG file."""
    drawn = _saved(figure, "svg", {"Date": None, "Creator": None, "Format": None, "Type": None}).decode()
    drawn = re.sub(r"<!--.*?-->\n?", "", drawn, flags=re.DOTALL)
    head = f'<svg role="img" aria-label="{escape(figure["layout"]["meta"]["label"])}"'
    return drawn[drawn.index("<svg") :].replace("<svg", head, 1)


def data_url(figure: Figure) -> str:
    """Return the drawing as the address of an image that lies in the page: PNG, which thousands of bars do not swell."""
    from PIL import Image

    out = BytesIO()
    Image.open(BytesIO(_saved(figure, "png", {"Software": None}))).convert("RGB").quantize(64).save(out, "png", optimize=True)
    return f"data:image/png;base64,{b64encode(out.getvalue()).decode()}"


def _saved(figure: Figure, form: str, metadata: dict[str, None]) -> bytes:
    import warnings

    import matplotlib.style
    from matplotlib.figure import Figure as Drawing

    with matplotlib.style.context(["default", _STYLE]), warnings.catch_warnings():
        # The reader's font draws the text; that DejaVu Sans lacks a letter only makes its measured width a guess.
        warnings.filterwarnings("ignore", message=r"(?s)Glyph .* missing from font", category=UserWarning)
        drawing = Drawing(figsize=(WIDTH / 96, figure["layout"]["height"] / 96), layout="constrained")
        _draw(drawing, figure)
        out = BytesIO()
        drawing.savefig(out, format=form, dpi=96, metadata=metadata)
    return out.getvalue()


def _draw(drawing: Any, figure: Figure) -> None:
    layout = figure["layout"]
    ends = [key.removeprefix("yaxis") for key in layout if key.startswith("yaxis")]
    heights = [layout[f"yaxis{end}"]["domain"][1] - layout[f"yaxis{end}"]["domain"][0] for end in ends]
    shares_x = any("matches" in layout[f"xaxis{end}"] for end in ends)
    grid = drawing.subplots(len(heights), sharex=shares_x, squeeze=False, height_ratios=heights)
    keys: dict[str, Any] = {}
    for end, axes, title in zip(ends, grid.flat, layout["annotations"], strict=True):
        axes.set_title(_plain(title["text"]))
        for trace in figure["data"]:
            if trace["yaxis"] == f"y{end}":
                _DRAW[trace["type"]](axes, trace, _plain(trace["name"]) if trace["showlegend"] else None)
        _set_axis(axes, "x", layout[f"xaxis{end}"])
        _set_axis(axes, "y", layout[f"yaxis{end}"])
        keys |= {name: artist for artist, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    if keys:
        columns = max(1, min(len(keys), WIDTH // (60 + 7 * max(map(len, keys)))))
        drawing.legend(keys.values(), keys.keys(), loc="outside upper left", ncols=columns)


def _set_axis(axes: Axes, key: str, of: dict[str, Any]) -> None:
    one, is_log = axes.xaxis if key == "x" else axes.yaxis, of["type"] == "log"
    looks: dict[str, Any] = {"label": _plain(of["title"]["text"])} | ({"scale": "log"} if is_log else {})
    if "range" in of:
        looks["lim"] = [10.0**end if is_log else end for end in of["range"]]
    axes.set(**{f"{key}{name}": look for name, look in looks.items()})
    if "tickvals" in of:
        one.set_ticks(of["tickvals"], [_plain(text) for text in of.get("ticktext", map(str, of["tickvals"]))])
        one.set_ticks(of.get("minor", {}).get("tickvals", []), minor=True)
        axes.grid(axis=key, which="minor")  # type: ignore[arg-type]
        one.set_tick_params(which="minor", length=0)
    if of.get("showgrid", True):
        axes.grid(axis=key)  # type: ignore[arg-type]


def _scatter(axes: Axes, trace: Trace, label: str | None) -> None:
    x, y = np.array(trace["x"], np.float64), np.array(trace["y"], np.float64)
    mode, opacity = trace["mode"], trace.get("opacity", 1.0)
    if trace.get("fill") == "toself":
        axes.fill(x, y, color=trace["fillcolor"], alpha=opacity, linewidth=0)
    for end, error in (("xerr", trace.get("error_x")), ("yerr", trace.get("error_y"))):
        if error is not None:
            axes.errorbar(x, y, **{end: error["array"]}, fmt="none", ecolor=error["color"], elinewidth=1.0, capsize=2)
    look = _marker(trace) if "markers" in mode else {}
    if "lines" in mode:
        style = trace["line"]
        look |= {"color": style["color"], "linestyle": _DASHES[style["dash"]], "linewidth": style["width"] * _POINT}
        look |= {"drawstyle": "steps-post" if style.get("shape") == "hv" else "default"}
    if look.get("linewidth", 1.0):
        axes.plot(x, y, label=label, **{"linestyle": "none", "alpha": opacity} | look)
    if "text" in mode:
        places = trace["textposition"]
        places = [places] * len(x) if isinstance(places, str) else places
        for place, left, high, text in zip(places, x, y, trace["text"], strict=True):
            vertical, across = place.split()
            align, dx = _PLACES[across]
            dy = {"top": 7, "middle": 0, "bottom": -7}[vertical]
            background: dict[str, Any] | None = (
                {"fc": "white", "ec": "none", "alpha": 0.8, "pad": 0.8} if "shadow" in trace.get("textfont", {}) else None
            )
            at: dict[str, Any] = {"xytext": (dx, dy), "textcoords": "offset points", "annotation_clip": False, "zorder": 4}
            axes.annotate(_plain(text), (left, high), fontsize=10.5 * _POINT, bbox=background, ha=align, va="center", **at)


def _bar(axes: Axes, trace: Trace, label: str | None) -> None:
    """Draw all bars of one colour as one path, which keeps thousands of them small."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    n = len(trace["y"])
    if n == 0:
        return
    width, base = np.broadcast_to(trace.get("width", 0.8), n), np.broadcast_to(trace.get("base", 0.0), n)
    left, right = base, base + np.array(trace["x"], np.float64)
    low, high = np.array(trace["y"]) - width / 2, np.array(trace["y"]) + width / 2
    bars = Path.make_compound_path_from_polys(
        np.stack([left, low, right, low, right, high, left, high], axis=-1).reshape(-1, 4, 2)
    )
    hatch = _HATCHES[trace["marker"].get("pattern", {}).get("shape", "")] or None
    axes.add_patch(PathPatch(bars, label=label, ec="white", lw=0.4, fc=trace["marker"]["color"], hatch=hatch))
    axes.autoscale_view()
    axes.margins(x=0.02)


def _heatmap(axes: Axes, trace: Trace, label: str | None) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    if not trace["x"]:
        return
    colours = LinearSegmentedColormap.from_list("own", [colour for _, colour in trace["colorscale"]])
    shares = np.array([[np.nan if one is None else one for one in row] for row in trace["z"]], np.float64)
    x, y = np.array(trace["x"], np.float64), np.array(trace["y"], np.float64)
    axes.pcolormesh(x, y, shares, cmap=colours, vmin=trace["zmin"], vmax=trace["zmax"], ec="white", lw=0.5, shading="nearest")
    if "texttemplate" in trace:
        bright = trace["zmin"] + 0.6 * (trace["zmax"] - trace["zmin"])
        for height, row, texts in zip(y, shares, trace["text"], strict=True):
            for left, share, text in zip(x, row, texts, strict=True):
                ink = "white" if share > bright else INK
                axes.text(left, height, _plain(text), ha="center", va="center_baseline", fontsize=10 * _POINT, color=ink)


_DRAW: dict[str, Callable[[Axes, Trace, str | None], None]] = {"scatter": _scatter, "bar": _bar, "heatmap": _heatmap}


def _marker(trace: Trace) -> dict[str, Any]:
    marker = trace["marker"]
    is_open = marker["symbol"].endswith("-open")
    colour = {"markerfacecolor": "none", "markeredgecolor": marker["color"]} if is_open else {"color": marker["color"]}
    edge = 1.2 if is_open or marker["symbol"] == "line-ns" else 0.0
    return {"marker": _MARKERS[marker["symbol"]], "markersize": marker["size"] * _POINT, "markeredgewidth": edge} | colour


def _plain(text: str) -> str:
    return unescape(re.sub(r"</?b>", "", text.replace("<br>", "\n")))
