"""Policies side by side: bars with intervals, reasons for blocking, histograms of what they chose.

``rows`` are those of the results (see `evaluation.evaluate`): one per policy. Shares are drawn in percent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..metrics import Metric
from .figure import Figure, Panel, Trace, axis, bars, figure, marks, named_rows, shown, whiskers, wrapped
from .style import EXPIRED, INK, LEARNED, MUTED, PALEST, RUNNING, ink_on, kind_of, reasons

Row = Mapping[str, Any]

_BAR = 0.66


def by_blocking_rate(rows: Sequence[Row]) -> list[Row]:
    """Return the rows from the least to the greatest blocking rate; those without a figure come last."""
    return sorted(rows, key=lambda row: (row["blocking_rate"]["mean"] if row["blocking_rate"] else math.inf, str(row["policy"])))


def bars_figure(rows: Sequence[Row], metric: Metric, label: str) -> Figure:
    """Return a bar with its 95 % interval for each policy, in the order given, in the colour of its kind.

    Args:
        rows: of an evaluation.
        metric: how long they are.
        label: what the figure shows.
    """
    start, places = metric.origin, range(len(rows))
    means, lows, highs = ([metric.value(row, end) for row in rows] for end in ("mean", "low", "high"))
    texts = [_figures(*each, metric.digits) for each in zip(means, lows, highs, strict=True)]
    traces = []
    for kind in dict.fromkeys(map(kind_of, rows)):
        known = {number: mean for number, mean in enumerate(means) if kind_of(rows[number]) == kind and mean is not None}
        look = {"base": [start] * len(known), "width": [_BAR] * len(known), "marker": {"pattern": {"shape": kind.hatch}}}
        said = {"hovertext": [f"<b>{shown(rows[number]['policy'])}</b><br>{texts[number]}" for number in known]}
        traces.append(bars(kind.word, kind.colour, list(known), [mean - start for mean in known.values()], **look, **said))
    spans = [(None if low is None else max(start, low), high) for low, high in zip(lows, highs, strict=True)]
    traces.append(whiskers("x", places, spans, INK))
    ends = [max([start, *(end for end in each if end is not None)]) for each in zip(means, highs, strict=True)]
    traces.append(_written(ends, texts))
    longest = max(ends, default=start) - start or 1.0
    y, height = named_rows([row["policy"] for row in rows])
    return figure(label, [Panel(traces, axis(metric.axis, span=(start, start + 1.5 * longest)), y, height=height)])


def reasons_figure(rows: Sequence[Row]) -> Figure:
    """Return the blocking rate of each policy, stacked by the reason for which jobs were turned away."""
    rows = [row for row in by_blocking_rate(rows) if row["outcomes"]]
    drawn = reasons(any(EXPIRED.word in row["outcomes"] for row in rows))
    drawn += (RUNNING,) * any(RUNNING.word in row["outcomes"] for row in rows)
    ends, traces = [0.0] * len(rows), []
    for reason in drawn:
        shares = [100.0 * float(row["outcomes"].get(reason.word) or 0.0) for row in rows]
        said = [f"<b>{shown(row['policy'])}</b><br>{reason.word}: {x:.1f} %" for row, x in zip(rows, shares, strict=True)]
        text = {
            "text": [f"{share:.1f}" if share >= 0.05 else "" for share in shares],
            "textposition": "inside",
            "textangle": 0,
            "insidetextanchor": "middle",
        }
        look = {"base": list(ends), "width": [_BAR] * len(rows), "insidetextfont": {"color": ink_on(reason.colour)}}
        of = bars(reason.word, reason.colour, range(len(rows)), shares, hovertext=said, **look, **text)
        traces.append(of)
        ends = [end + share for end, share in zip(ends, shares, strict=True)]
    traces.append(_written(ends, [f"{end:.1f}" for end in ends]))
    y, height = named_rows([row["policy"] for row in rows])
    x = axis("jobs turned away (% of jobs after warm-up)", span=(0.0, 1.1 * max([1.0, *ends])))
    label = f"Reasons for which {len(rows)} policies turned jobs away"
    return figure(label, [Panel(traces, x, y, height=height)], uniformtext={"minsize": 9, "mode": "hide"})


def shares_figure(rows: Sequence[Row], key: str, what: str) -> Figure:
    """Return a row per policy, a column per degree, shape or rule: the share of accepted jobs, as a shade and a number.

    Args:
        rows: of policies; those without shares are left out.
        key: of a row: shares by name.
        what: the names are.
    """
    rows = [row for row in by_blocking_rate(rows) if row[key]]
    used = list(dict.fromkeys(name for row in sorted(rows, key=lambda row: -len(row[key])) for name, x in row[key].items() if x))
    if all(name.isdigit() for name in used):
        used.sort(key=int)
    shares = [[100.0 * (row[key].get(name) or 0.0) or None for name in used] for row in rows]
    texts = [["" if x is None else f"{x:.0f}" if x >= 1 else "<1" for x in row] for row in shares]
    said = [
        [
            f"<b>{shown(row['policy'])}</b><br>{shown(name)}: {x or 0.0:.1f} % of accepted jobs"
            for name, x in zip(used, of, strict=True)
        ]
        for row, of in zip(rows, shares, strict=True)
    ]
    y, height = named_rows([row["policy"] for row in rows])
    x = axis(
        f"{what}; numbers: % of accepted jobs",
        showgrid=False,
        automargin=True,
        tickvals=list(range(len(used))),
        ticktext=[wrapped(one, 14) for one in used],
    )
    return figure(
        f"{what} of the jobs that {len(rows)} policies accepted", [Panel([heatmap(shares, texts, said)], x, y, height=height)]
    )


def heatmap(shares: Sequence[Sequence[float | None]], texts: Sequence[Sequence[str]] = (), said: Any = ()) -> Trace:
    """Return the cells from pale to blue for 0 to 100 with their texts, and what each says under a pointer."""
    cells = {"z": shares, "x": list(range(len(shares[0]) if shares else 0)), "y": list(range(len(shares)))}
    look = {"colorscale": [[0, PALEST], [1, LEARNED]], "zmin": 0, "zmax": 100, "xgap": 2, "ygap": 2, "showscale": False}
    words = {"text": texts, "texttemplate": "%{text}", "hovertext": said} if texts else {}
    return {"type": "heatmap", "name": "", "showlegend": False} | cells | look | words


def _written(ends: Sequence[float], texts: Sequence[str]) -> Trace:
    look = {
        "mode": "text",
        "text": [f"\u2002{text}" for text in texts],
        "textposition": "middle right",
        "textfont": {"color": MUTED},
    }
    return marks("", ends, range(len(ends)), INK, hoverinfo="skip", showlegend=False, cliponaxis=False, **look)


def _figures(mean: float | None, low: float | None, high: float | None, digits: int) -> str:
    if mean is None:
        return "none"
    return f"{mean:.{digits}f} " + ("one episode" if low is None else f"[{low:.{digits}f}, {high:.{digits}f}]")
