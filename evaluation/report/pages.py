"""Pages of one file from templates: everything is escaped, nothing is loaded, and no script runs but our own.

The script of the charts lies in the page, and the page's Content-Security-Policy names its digest: a script that came in by a
name would be refused by the browser even if it were not escaped. The charts are drawn by 24 kB of our own; the smallest build of
Plotly that has bars and points brings 1 MB into every page.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files as resources
from typing import Any, Literal, NamedTuple

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

STYLE = "page.css"
SCRIPTS = ("chart.js", "gantt.js", "scatter.js")
"""In the order in which they run."""


class Cell(NamedTuple):
    """A cell of a table.

    Attributes:
        text: what it says.
        note: smaller, below.
    """

    text: str
    note: str = ""


class Row(NamedTuple):
    """A row of a table.

    Attributes:
        cells: as many as the table has columns.
        is_learned: whether it is a learned policy's, which is shaded.
    """

    cells: Sequence[Cell]
    is_learned: bool = False


@dataclass(frozen=True)
class PageTable:
    """A table of a page.

    Attributes:
        head: its headings.
        rows: its rows.
        kind: ``wide`` takes the whole width, ``texts`` aligns all cells to the left.
    """

    head: Sequence[Cell]
    rows: Sequence[Row]
    kind: Literal["numbers", "wide", "texts"] = "numbers"


@dataclass(frozen=True)
class Drawn:
    """A figure of a page.

    Attributes:
        svgs: a drawing, or several side by side.
        caption: what it shows.
        chart: the same or more as a chart that answers to a pointer, in place of the drawing where scripts run.
        is_panel: whether a single drawing is drawn for a narrow column, as those side by side are.
    """

    svgs: Sequence[str]
    caption: str
    chart: Mapping[str, Any] | None = None
    is_panel: bool = False


def cells(texts: Iterable[str]) -> list[Cell]:
    """Cells without notes."""
    return [Cell(text) for text in texts]


def figure_cells(texts: Sequence[str]) -> list[Cell]:
    """Cells in which a mean with its interval, as ``4.6 [3.9, 5.3] better``, is on two lines."""
    parted = [re.fullmatch(r"(\S+) (\[.*)", text) for text in texts]
    return [Cell(text) if found is None else Cell(found[1], found[2]) for text, found in zip(texts, parted, strict=True)]


def page(template: str, *, title: str, drawn: Sequence[Drawn] = (), **values: Any) -> str:
    """Make a page from a template.

    Args:
        template: name of its template.
        title: of the window.
        drawn: its figures.
        values: of the template.
    """
    script = Markup(_script())  # noqa: S704 - our own files
    digest = b64encode(sha256(script.encode()).digest()).decode()
    return (
        _environment()
        .get_template(template)
        .render(
            title=title,
            drawn=drawn,
            has_charts=any(one.chart is not None for one in drawn),
            script=script,
            script_hash=f"sha256-{digest}",
            style=Markup(_loaded(STYLE)),  # noqa: S704 - our own file
            **values,
        )
    )


def _script() -> str:
    return "\n".join(map(_loaded, SCRIPTS))


@cache
def _loaded(name: str) -> str:
    return resources(f"{__package__}.templates").joinpath(name).read_text(encoding="utf-8")


def _drawing(svg: str) -> Markup:
    """One of our drawings, whose texts are escaped already; namespaces are the page's own, so that it names none."""
    head, rest = svg[: svg.index(">")], svg[svg.index(">") :]
    return Markup(re.sub(r' xmlns(:xlink)?="[^"]*"', "", head) + rest)  # noqa: S704 - see above


def _shown(value: Any) -> Any:
    """What a page shows for a value: what cannot be printed becomes a question mark."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return "".join(letter if letter.isprintable() or letter in "\n\t\u00a0" else "?" for letter in value)


def templates(package: str, shown: Callable[[Any], Any], **options: Any) -> Environment:
    """The templates in the folder of a package; of every value a page shows what ``shown`` makes of it."""
    folder = resources(f"{package}.templates")
    texts = {one.name: one.read_text(encoding="utf-8") for one in folder.iterdir() if one.name.endswith(".html")}
    return Environment(
        loader=DictLoader(texts),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=shown,
        **options,
    )


@cache
def _environment() -> Environment:
    made = templates(__package__, _shown, keep_trailing_newline=True)
    made.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    made.filters["drawing"] = _drawing
    return made
