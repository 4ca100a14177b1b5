"""Pages from templates: everything is escaped, and numbers are written as people write them."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files as resources
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from ....evaluation.plots.figure import printable
from ....evaluation.report.pages import templates
from ....quantities import things

STYLE, SCRIPT = "page.css", "page.js"
MEDIA_TYPES = {STYLE: "text/css", SCRIPT: "text/javascript"}
"""Files that pages load, by name."""

_UNITS_S = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))
_SMALL_UNITS_S = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def page(template: str, *, is_file: bool = False, **values: Any) -> str:
    """Return a page.

    Args:
        template: name of its template.
        is_file: whether it is written to a file: then it holds its style, loads nothing and links nowhere.
        values: of the template.
    """
    style = Markup(loaded(STYLE)) if is_file else None  # noqa: S704 - our own file
    return _environment().get_template(template).render(is_file=is_file, style=style, **values)


@cache
def loaded(name: str) -> str:
    """Return the content of a file of the folder of templates."""
    return resources(f"{__package__}.templates").joinpath(name).read_text(encoding="utf-8")


def duration(seconds: float | None) -> str:
    """Return a time as people say it: ``850 ms``, ``13 min 51 s``, ``2 d 4 h``; the two largest units."""
    if seconds is None or math.isinf(seconds):
        return "unknown"
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds < 10:
        size, unit = next(((size, unit) for size, unit in _SMALL_UNITS_S if seconds >= size), _SMALL_UNITS_S[-1])
        return f"{seconds / size:.3g} {unit}" if seconds else "0 s"
    left = round(seconds)
    parts: list[tuple[int, str]] = []
    for unit_s, unit in _UNITS_S:
        count, left = divmod(left, int(unit_s))
        if count or parts:
            parts.append((count, unit))
    return " ".join(f"{count} {unit}" for count, unit in parts[:2] if count)


def amount(number_bytes: float) -> str:
    """Return the bytes as people say them: ``3.66 GB``."""
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if number_bytes >= size:
            return f"{number_bytes / size:.3g} {unit}"
    return f"{number_bytes / 1e3:.3g} kB"


def instant(at: datetime | str) -> str:
    """Return an instant, in UTC."""
    known = datetime.fromisoformat(at) if isinstance(at, str) else at
    return known.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def counted(number: int, thing: str) -> str:
    """Return ``1 host``, ``2,048 hosts``."""
    return f"{number:,} {things(number, thing)}"


def figure(name: str, value: float) -> tuple[str, str]:
    """Return a figure of a plan in words, its unit taken from the end of its name: what it is, and how much."""
    for ending, said in (("_bytes", amount), ("_s", duration)):
        if name.endswith(ending) and not name.endswith("_per_s"):
            return name.removesuffix(ending).replace("_", " "), said(value)
    if name.endswith("_share"):
        return name.replace("_", " "), f"{100 * value:.0f} %"
    return name.removesuffix("_per_s").replace("_", " ") + (" a second" * name.endswith("_per_s")), f"{value:,.4g}"


def _shown(value: Any) -> Any:
    """Return the form of a value in a page, without unprintable letters; no shown text keeps line breaks."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _environment() -> Environment:
    made = templates(__package__, _shown)
    made.filters |= {"duration": duration, "amount": amount, "instant": instant, "counted": counted}
    return made
