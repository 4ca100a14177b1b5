"""Figures as data of Plotly: one description of what is drawn, for pages (``plotly.js``) and for files (`static`).

A figure is a plain dictionary of ``data`` and ``layout`` as https://plotly.com/python/reference says, so that it is made
without importing Plotly. Every text is escaped, for Plotly reads some tags. A point without a finite value is never drawn:
the legend counts how many were left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape, unescape
from itertools import compress
from textwrap import wrap
from typing import Any, NamedTuple

from .style import INK, MUTED, RULE

Figure = dict[str, Any]
Trace = dict[str, Any]
Look = tuple[str, str]
"""Colour and dash."""

LONGEST_NAME = 64
HEIGHT = 310.0
"""Of a panel, in pixels."""

_TICKS = ((1.3, (1, 1.02, 1.05, 1.1, 1.2)), (10.0, (1, 1.1, 1.2, 1.5, 2, 3, 5, 7)), (2e3, (1, 2, 5)), (math.inf, (1,)))
"""First digits of a logarithmic axis by the most that its end is of its begin."""
_TITLE, _LEGEND_ROW, _AXIS = 26.0, 22.0, 54.0
_UNITS = ((5 * 86_400.0, 86_400.0, "d"), (5_400.0, 3_600.0, "h"), (120.0, 60.0, "min"), (2.0, 1.0, "s"), (2e-3, 1e-3, "ms"))


class Panel(NamedTuple):
    """Axes of a figure with what they show.

    Attributes:
        traces: drawn in this order.
        x, y: made by `axis`.
        title: above the axes.
        height: of the axes, in pixels.
    """

    traces: Sequence[Trace]
    x: dict[str, Any]
    y: dict[str, Any]
    title: str = ""
    height: float = HEIGHT


def printable(text: str) -> str:
    """Return text without characters that a drawing cannot hold; they become question marks."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def shortened(text: str, length: int = LONGEST_NAME) -> str:
    """Return text of at most ``length`` letters, cut in the middle."""
    half = (length - 1) // 2
    return text if len(text) <= length else f"{text[: length - 1 - half]}…{text[-half:]}"


def shown(text: object, length: int = LONGEST_NAME) -> str:
    """Return text as Plotly takes it, without tags of its own."""
    return escape(printable(shortened(str(text), length)), quote=False)


def wrapped(text: object, width: int = 24) -> str:
    """Return text in lines of at most ``width`` letters."""
    return "<br>".join(escape(line, quote=False) for line in wrap(printable(shortened(str(text))), width)) or " "


def time_unit(length_s: float) -> tuple[float, str]:
    """Return the seconds of the unit that suits a span of time, and the unit's name."""
    return next(((size, name) for least, size, name in _UNITS if length_s >= least), (1e-6, "µs"))


def time_text(seconds: float) -> str:
    """Return a time in the unit that suits it."""
    size, name = time_unit(seconds)
    return f"{seconds / size:.3g} {name}"


def rounded(value: float | None) -> float | None:
    """Return a figure to seven digits, as a page holds it; None where it is none."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.7g}")


def axis(title: str, *, is_log: bool = False, span: tuple[float, float] | None = None, **options: Any) -> dict[str, Any]:
    """Return an axis.

    Args:
        title: what it shows, with its unit.
        is_log: whether it is logarithmic.
        span: its ends; by default around what is drawn.
        options: further keys of Plotly's axis.
    """
    made: dict[str, Any] = {"title": {"text": shown(title, 120), "font": {"size": 12}}, "zeroline": False, "ticklabelstandoff": 4}
    made |= {"gridcolor": RULE, "type": "log" if is_log else "linear"}
    if span is not None:
        made["range"] = [math.log10(end) for end in span] if is_log else list(span)
    return made | options


def named_rows(names: Sequence[object]) -> tuple[dict[str, Any], float]:
    """Return an axis of rows from above with a name each, and the height that they need."""
    texts = [wrapped(name) for name in names]
    row = 14.0 + 14.0 * max((text.count("<br>") + 1 for text in texts), default=1)
    n = max(1, len(texts))
    ticks: dict[str, Any] = {"tickvals": list(range(len(texts))), "ticktext": texts, "showgrid": False}
    return axis("", span=(n - 0.5, -0.5), **ticks), row * n


def line(name: object, x: Iterable[float | None], y: Iterable[float | None], look: Look, **options: Any) -> Trace:
    """Return a line; ``options`` are further keys of Plotly's scatter trace, which `marks` and bands build on too."""
    colour, dash = look
    made: Trace = {"type": "scatter", "mode": "lines", "line": {"color": colour, "dash": dash, "width": 2}}
    made["line"] |= options.pop("line", {})
    return _checked(made | {"name": shown(name), "x": x, "y": y} | options)


def marks(name: object, x: Iterable[float | None], y: Iterable[float | None], colour: str, **options: Any) -> Trace:
    """Return the points."""
    marker = {"color": colour, "size": 9, "symbol": "circle"} | options.pop("marker", {})
    return _checked({"type": "scatter", "mode": "markers", "marker": marker, "name": shown(name), "x": x, "y": y} | options)


def band(x: Sequence[float], low: Sequence[float], high: Sequence[float], colour: str) -> Trace:
    """Return a pale band between two curves."""
    ends = [*x, *reversed(x)], [*low, *reversed(high)]
    look: dict[str, Any] = {"fill": "toself", "fillcolor": colour, "opacity": 0.15, "hoverinfo": "skip", "showlegend": False}
    return line("", *ends, (colour, "solid"), line={"width": 0}, **look)


def whiskers(key: str, at: Sequence[float], ends: Sequence[tuple[float | None, float | None]], colour: str) -> Trace:
    """Return the intervals along the axis ``key``, at places of the other one; those without ends are left out."""
    known = [(place, low, high) for place, (low, high) in zip(at, ends, strict=True) if low is not None and high is not None]
    middle = [(low + high) / 2 for _, low, high in known]
    half = {"type": "data", "array": [(high - low) / 2 for _, low, high in known], "color": colour, "thickness": 1.2, "width": 4}
    x, y = (middle, [place for place, _, _ in known])[:: 1 if key == "x" else -1]
    return marks("", x, y, colour, marker={"size": 1}, hoverinfo="skip", showlegend=False, **{f"error_{key}": half})


def lines(ends: Iterable[Sequence[float]], colour: str, **options: Any) -> Trace:
    """Return straight lines (x, y, to x, to y) of one colour without names."""
    places = [place for x, y, to_x, to_y in ends for place in ((x, y), (to_x, to_y), (None, None))]
    made = line("", [], [], (colour, "solid"), **({"hoverinfo": "skip", "showlegend": False} | options))
    return made | {"x": [rounded(x) for x, _ in places], "y": [rounded(y) for _, y in places]}


def bars(name: object, colour: str, rows: Sequence[float], lengths: Sequence[float | None], **options: Any) -> Trace:
    """Return horizontal bars on rows; ``base`` and ``width`` are where they begin and how high they are."""
    marker = {"color": colour, "line": {"width": 0}} | options.pop("marker", {})
    made: Trace = {"type": "bar", "orientation": "h", "name": shown(name), "marker": marker, "x": lengths, "y": rows}
    return _checked(made | options)


def figure(label: str, panels: Sequence[Panel], *, shares_x: bool = False, **layout: Any) -> Figure:
    """Return the panels below each other.

    Args:
        label: what the figure shows, for readers who do not see it.
        panels: at least one.
        shares_x: whether all have one x axis, which moves together and is named below the last.
        layout: further keys of Plotly's layout.
    """
    gap = (_TITLE if any(panel.title for panel in panels) else 8.0) + (24.0 if shares_x else _AXIS)
    inner = sum(one.height for one in panels) + gap * (len(panels) - 1)
    data: list[Trace] = []
    made: dict[str, Any] = {"annotations": []}
    named: set[str] = set()
    top = inner
    for number, one in enumerate(map(_with_ticks, panels)):
        end = "" if number == 0 else str(number + 1)
        high, low = top / inner, (top - one.height) / inner
        x, y = one.x | {"anchor": f"y{end}"}, one.y | {"anchor": f"x{end}", "domain": [max(0.0, low), high]}
        if shares_x:
            x |= {"matches": "x"} if number else {}
            x |= {} if number == len(panels) - 1 else {"title": {"text": ""}}
        made |= {f"xaxis{end}": x, f"yaxis{end}": y}
        place = {"x": 0, "y": high, "xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom"}
        made["annotations"].append({"text": f"<b>{shown(one.title, 120)}</b>" if one.title else "", "showarrow": False} | place)
        for trace in one.traces:
            is_new = trace.get("showlegend", True) and trace["name"] not in named
            named |= {trace["name"]} if is_new else set()
            axes = {"xaxis": f"x{end}", "yaxis": f"y{end}", "legendgroup": trace["name"], "showlegend": is_new}
            hover = {} if trace.get("hoverinfo") == "skip" else {"hovertemplate": _hover(one, trace)}
            data.append(hover | trace | axes)
        top -= one.height + gap
    above = (_TITLE if panels[0].title else 0.0) + 4.0
    legend = {"orientation": "h", "x": 0, "xanchor": "left", "y": 1 + above / inner, "yanchor": "bottom", "traceorder": "normal"}
    return {
        "data": data,
        "layout": {
            "meta": {"label": printable(label), "inner": inner},
            "height": inner + above + _LEGEND_ROW + _AXIS,
            "margin": _margin(panels, above + _LEGEND_ROW),
            "legend": legend,
            "barmode": "overlay",
            "hovermode": "closest",
            "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": MUTED, "activecolor": INK},
            "font": {"color": INK, "size": 12},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
        }
        | made
        | layout,
    }


def _margin(panels: Sequence[Panel], top: float) -> dict[str, float]:
    """Return the room for ticks and titles. Plotly's own margins would draw every figure several times."""
    labels = [line for panel in panels for text in panel.y.get("ticktext", ["10,000"]) for line in unescape(text).split("<br>")]
    left = 6.8 * max(map(len, labels)) + 10.0 + 18.0 * any(panel.y["title"]["text"] for panel in panels)
    lines_below = max(text.count("<br>") + 1 for text in panels[-1].x.get("ticktext") or [""])
    return {"l": left, "r": 16.0, "t": top, "b": 14.0 * lines_below + 32.0}


def _with_ticks(panel: Panel) -> Panel:
    """Set logarithmic axes with ticks at round numbers, as many as have room."""
    for key in ("x", "y"):
        of: dict[str, Any] = getattr(panel, key)
        if of["type"] != "log" or "tickvals" in of:
            continue
        values = [10**end for end in of.get("range", ())] or [
            one for trace in panel.traces for one in trace[key] if one and one > 0
        ]
        low, high = min(values, default=1.0), max(values, default=1.0)
        firsts = next(firsts for most, firsts in _TICKS if high <= most * low)
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        ticks = [first * 10.0**power for power in powers for first in firsts]
        ticks = [tick for tick in ticks if 0.9 * low <= tick <= 1.1 * high]
        written: dict[str, Any] = {key: of | {"tickvals": ticks, "ticktext": [f"{tick:,.12g}" for tick in ticks]}}
        panel = panel._replace(**written)
    return panel


def _hover(panel: Panel, trace: Trace) -> str:
    """Return the text of a point, or both of its figures by the names of their axes."""
    if trace.get("hovertext"):
        return "%{hovertext}<extra></extra>"
    parts = [f"{one['title']['text']}: %{{{key}:.4~g}}" for key, one in (("x", panel.x), ("y", panel.y)) if one["title"]["text"]]
    return "<br>".join(parts) + "<extra>%{fullData.name}</extra>"


def _checked(trace: Trace) -> Trace:
    """Return the trace without points that have no figures; its name says how many they are."""
    numbers = {
        key: [rounded(one) for one in trace[key]] for key in ("x", "y", "base", "width") if isinstance(trace.get(key), Iterable)
    }
    is_known = [None not in values for values in zip(*numbers.values(), strict=True)]
    if all(is_known):
        return trace | numbers
    left_out = len(is_known) - sum(is_known)
    columns = {key: value for key, value in trace.items() if isinstance(value, list) and len(value) == len(is_known)}
    known = {key: list(compress(values, is_known)) for key, values in (columns | numbers).items()}
    return trace | known | {"name": f"{trace['name']} ({left_out} without a figure)"}
