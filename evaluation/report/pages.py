"""Pages of one file from templates: everything is escaped, nothing is loaded, and no script runs but our own.

Figures are drawn by plotly.js, which lies in the page once (4.8 MB) and loads nothing. The page's Content-Security-Policy names
the digests of its scripts: one that came in by a name would be refused by the browser even if it were not escaped. Readers whose
browser runs no scripts see the same figures drawn by matplotlib.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files as resources
from typing import Any, Literal, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ..plots.figure import Figure
from ..plots.static import data_url
from ..plots.style import DARK

STYLE = "page.css"
SCRIPT = "figures.js"


Cell = str | tuple[str, str]
"""Text of a cell of a table; with a note, which is smaller and below."""


@dataclass(frozen=True)
class PageTable:
    """A table of a page.

    Attributes:
        head: its headings.
        rows: cells of each row, as many as headings.
        kind: ``wide`` takes the whole width, ``texts`` aligns all cells to the left.
        learned: whether each row is a learned policy's, which is shaded; empty if none is.
    """

    head: Sequence[Cell]
    rows: Sequence[Sequence[Cell]]
    kind: Literal["numbers", "wide", "texts"] = "numbers"
    learned: Sequence[bool] = ()


Part = tuple[str, str, Sequence[tuple[str, PageTable]]]
"""A heading with a sentence and tables; each is folded away below a title, where it has one."""

Chapter = tuple[str, str, Sequence[Part]]
"""A chapter of a page: heading, sentence and parts."""


@dataclass(frozen=True)
class Drawn:
    """A figure of a page.

    Attributes:
        figure: made by `evaluation.plots`.
        caption: what it shows.
    """

    figure: Figure
    caption: str


def figure_cells(texts: Sequence[str]) -> list[Cell]:
    """Return the cells in which a mean with its interval, as ``4.6 [3.9, 5.3] better``, is on two lines."""
    parted = [re.fullmatch(r"(\S+) (\[.*)", text) for text in texts]
    return [text if result is None else (result[1], result[2]) for text, result in zip(texts, parted, strict=True)]


def page(template: str, *, title: str, drawn: Sequence[Drawn] = (), **values: Any) -> str:
    """Make a page from a template.

    Args:
        template: name of its template.
        title: of the window.
        drawn: its figures.
        values: of the template.
    """
    scripts = [(Markup(text), digest) for text, digest in (_plotly(), _digested(_loaded(SCRIPT)))] if drawn else []  # noqa: S704 - no data
    return (
        _environment()
        .get_template(template)
        .render(
            title=title,
            drawn=drawn,
            scripts=scripts,
            dark=DARK,
            style=Markup(_loaded(STYLE)),  # noqa: S704 - our own file
            **values,
        )
    )


@cache
def _plotly() -> tuple[str, str]:
    """Return the script of plotly.js, as the package brings it, and its digest."""
    return _digested(resources("plotly").joinpath("package_data", "plotly.min.js").read_text(encoding="utf-8"))


def _digested(script: str) -> tuple[str, str]:
    return script, f"sha256-{b64encode(sha256(script.encode()).digest()).decode()}"


@cache
def _loaded(name: str) -> str:
    return resources(f"{__package__}.templates").joinpath(name).read_text(encoding="utf-8")


def _shown(value: Any) -> Any:
    """Return a value for a page; a character that cannot be printed becomes a question mark."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return "".join(letter if letter.isprintable() or letter in "\n\t\u00a0" else "?" for letter in value)


def templates(package: str, shown: Callable[[Any], Any], **options: Any) -> Environment:
    """Return the templates in the folder of a package; of every value a page shows what ``shown`` makes of it."""
    return Environment(
        loader=PackageLoader(package),
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
    made.filters["data_url"] = lambda figure: data_url(figure)
    return made


class Sections(NamedTuple):
    """The sections of a world.

    Attributes:
        facts: continues the line of what was played.
        drawn: figures.
        blocks: chapters.
        method: points on how the numbers were made.
    """

    facts: str = ""
    drawn: Sequence[Drawn] = ()
    blocks: Sequence[Chapter] = ()
    method: Sequence[str] = ()
