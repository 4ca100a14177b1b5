"""Parts of a world in the report of its evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .pages import Drawn, PageTable


class PartTable(NamedTuple):
    """A table of a part; folded away below a title, where it has one."""

    table: PageTable
    folded: str = ""


class ChapterPart(NamedTuple):
    """A heading with a sentence and tables."""

    title: str
    note: str
    tables: Sequence[PartTable] = ()


class Chapter(NamedTuple):
    """A chapter of the page."""

    title: str
    note: str
    parts: Sequence[ChapterPart]


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
