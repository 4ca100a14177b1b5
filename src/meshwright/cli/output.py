"""What every command shows: tables for people, JSON for programs, progress where a terminal is there."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import files

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


def console(json_file: str | None = None) -> Console:
    """Where tables go: standard output, or standard error when JSON goes to standard output."""
    from rich.console import Console

    to_stderr = json_file == "-"
    stream = sys.stderr if to_stderr else sys.stdout
    return Console(stderr=to_stderr, highlight=False, width=None if stream.isatty() else 120)


def write_json(json_file: str | None, data: Any) -> None:
    """Write data to a file, to standard output (``-``), or nowhere."""
    if json_file == "-":
        sys.stdout.write(files.json_text(data) + "\n")
    elif json_file is not None:
        files.write_json(Path(json_file), data)


def table(out: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers_from: int = 1) -> None:
    """Print a table; columns from number ``numbers_from`` on are aligned to the right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(title=Text(title), box=box.SIMPLE_HEAD, title_justify="left")
    for number, column in enumerate(columns):
        made.add_column(column, justify="right" if number >= numbers_from else "left", overflow="fold")
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    out.print(made)


@contextmanager
def progress() -> Iterator[Progress]:
    """Progress bars on standard error, only where that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    terminal = Console(stderr=True)
    with Progress(*columns, console=terminal, disable=not terminal.is_terminal, transient=True) as bars:
        yield bars
