"""Output of all commands: tables for people, JSON for programs, progress on a terminal."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .. import files, inputs
from ..compiling import Watcher, watched
from ..errors import InputFileError, MeshwrightError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID


MOST_LETTERS = 160
"""Of a note in a table."""


def console(json_file: str | None = None) -> Console:
    """Return the console of tables: standard output, or standard error when JSON goes to standard output."""
    from rich.console import Console

    to_stderr = json_file == "-"
    stream = sys.stderr if to_stderr else sys.stdout
    return Console(stderr=to_stderr, markup=False, highlight=False, emoji=False, width=None if stream.isatty() else 120)


def write_json(json_file: str | None, data: Any) -> None:
    """Write data to a file, to standard output (``-``), or nowhere."""
    if json_file == "-":
        text = files.json_text(data)
        try:
            text.encode(sys.stdout.encoding or "utf-8")
        except UnicodeEncodeError:  # where standard output cannot spell a name, JSON still can
            text = json.dumps(json.loads(text), indent=2, sort_keys=True)
        sys.stdout.write(text + "\n")
        sys.stdout.flush()  # an error here comes before any table
    elif json_file is not None:
        files.write_json(json_file, data)


def say_line(json_file: str | None, text: str) -> None:
    """Write a line at once to where tables go."""
    stream = sys.stderr if json_file == "-" else sys.stdout
    stream.write(text + "\n")
    stream.flush()


def plain(text: str) -> str:
    """Return a text that another program or person gave, without what a terminal would obey."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def shortened(text: str) -> str:
    """Return a note as a table shows it: its beginning, where it is long."""
    return text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 4]} ..."


def print_written(out: Console, *paths: str | Path | None) -> None:
    """Print a line for each file or folder that was written; None and standard output (``-``) are left out."""
    for path in paths:
        if path is not None and str(path) != "-":
            out.print(f"written: {path}", soft_wrap=True)


def print_remarks(out: Console, remarks: Sequence[str]) -> None:
    """Print a line for each remark, below the table that it is about."""
    for remark in remarks:
        out.print(remark)
    if remarks:
        out.print()


def check_file(option: str, path: str | Path | None, *, is_update: bool = False) -> None:
    """Refuse a file that could not be written or would replace an input, before any work is done for it.

    Args:
        option: how the command line spells it.
        path: the file; None where the option was left out.
        is_update: whether the file that is there is read and then written anew; of all others see `inputs`.

    Raises:
        InputFileError: no name, a folder, or its folder is missing or not writable. Or the command reads the file, or another
            option names it.
    """
    if path is None or str(path) == "-":
        return
    target = _named(option, path)
    if target.is_dir():
        raise InputFileError("is a folder, a file is wanted", field=option, value=str(path))
    if target.exists() and not os.access(target, os.W_OK):
        raise InputFileError("may not be written", field=option, value=str(path))
    if not target.exists():
        _check_writable(option, target.parent, "no such folder")
    inputs.declare(option, target, is_update=is_update)


def check_files_in(folder: Path | None, names: Sequence[str]) -> None:
    """Refuse files of given names in a folder of ``--out``, as `check_file` does, and links: they lead out of it.

    Raises:
        InputFileError: a link, a folder, or a file that the command reads.
    """
    for target in () if folder is None else (folder / name for name in names):
        if target.is_symlink():
            problem = f"holds a link of the name of a result; remove it, or name what it leads to, {os.path.realpath(target)}"
            raise InputFileError(problem, field="--out", value=str(target))
        if target.is_dir():
            raise InputFileError("is a folder, a file is wanted", field="--out", value=str(target))
        inputs.declare("--out", target)


def refuse(options: Mapping[str, object], problem: str) -> None:
    """Refuse the first option that was given, with a value other than None, by `MeshwrightError`."""
    for option, value in options.items():
        if value is not None:
            raise MeshwrightError(problem, field=option)


def check_folder(option: str, path: Path | None, *, markers: Sequence[str] = (), is_replaced: bool = False) -> None:
    """Refuse a folder that could not be made, added to or replaced, before any work is done for it.

    Args:
        option: how the command line spells it.
        path: the folder; None where the option was left out.
        markers: a folder that is not empty must hold one of these patterns, which show that it is of the right kind. None: the
            caller checks that itself.
        is_replaced: whether it is replaced as a whole; nothing that the command reads may lie in it then.

    Raises:
        InputFileError: no name, a file, below a file, of another kind, or not writable. Where it is replaced: a link, or it
            holds an input of the command.
    """
    if path is None:
        return
    target = _named(option, path)
    if is_replaced:
        files.check_no_link(target, field=option)
    if target.exists() and not target.is_dir():
        raise InputFileError("is a file, a folder is wanted", field=option, value=str(path))
    if target.is_dir() and markers and any(target.iterdir()) and not any(any(target.glob(name)) for name in markers):
        problem = f"the folder holds other things and none of {', '.join(markers)}; name a new one"
        raise InputFileError(problem, field=option, value=str(path))
    nearest = next(folder for folder in (target, *target.absolute().parents) if folder.exists())
    _check_writable(option, nearest, "is no folder")
    if is_replaced:
        inputs.declare(option, target, is_folder=True)


def _named(option: str, path: str | Path) -> Path:
    if not str(path) or "\0" in str(path):
        raise InputFileError("needs a name", field=option, value=str(path))
    return Path(path)


def _check_writable(option: str, folder: Path, problem: str) -> None:
    if not folder.is_dir():
        raise InputFileError(problem, field=option, value=str(folder))
    if not os.access(folder, os.W_OK):
        raise InputFileError("the folder may not be written", field=option, value=str(folder))


def table(
    out: Console,
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numbers_from: int = 1,
    numbers_to: int | None = None,
    breaks_numbers: bool = True,
) -> None:
    """Print a table; columns from number ``numbers_from`` on, up to ``numbers_to``, are aligned to the right.

    No word is broken: where the columns do not fit even so, each row becomes lines of its own. Unless ``breaks_numbers`` numbers
    are never folded, so that the other columns, whatever their width, give way.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    numbers_end = len(columns) if numbers_to is None else numbers_to
    is_number = [numbers_from <= place < numbers_end for place in range(len(columns))]
    cells = [[column, *(row[place] for row in rows)] for place, column in enumerate(columns)]
    is_whole = [not breaks_numbers and number for number in is_number]
    widths = _widths(cells, is_whole, out.width - _AROUND * len(columns) - 1)
    if widths is None:
        _print_stacked(out, title, columns, rows)
        return
    if any(columns):
        made = Table(title=Text(title), box=box.SIMPLE_HEAD, title_justify="left")
    else:  # no line for a head that says nothing
        made = Table(title=Text(f"{title}\n"), box=box.Box(_RULE_ALONE), title_justify="left", show_header=False)
    for column, number, width in zip(columns, is_number, widths, strict=True):
        side: Literal["left", "right"] = "right" if number else "left"
        made.add_column(column, justify=side, overflow="fold", width=width)
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    if out.is_terminal:
        out.print(made)
        return
    with out.capture() as captured:
        out.print(made)
    for line in captured.get().removesuffix("\n").split("\n"):  # rich fills each line up to the width of the table
        out.out(line.rstrip(), highlight=False)


_RULE_ALONE = " ── \n" + 7 * "    \n"
"""A table without a head: a rule over its rows."""

_AROUND = 3
"""Columns of a terminal around each column of a table, a space on both sides and one between; the table has one more."""


def _widths(cells: Sequence[Sequence[str]], is_kept: Sequence[bool], room: int) -> list[int] | None:
    """Return the widths of columns, wide ones narrowed down to their longest word until they fit; None where they cannot.

    Args:
        cells: of each column, its head first.
        is_kept: whether a column is never narrowed.
        room: for all columns together.
    """
    from rich.cells import cell_len

    widths = [max(cell_len(line) for cell in column for line in cell.split("\n")) for column in cells]
    least = [
        width if kept else max((cell_len(word) for cell in column for word in cell.split()), default=0)
        for column, width, kept in zip(cells, widths, is_kept, strict=True)
    ]
    if sum(least) > room:
        return None
    while (excess := sum(widths) - room) > 0:
        widest = max((place for place in range(len(widths)) if widths[place] > least[place]), key=lambda place: widths[place])
        others = [width for place, width in enumerate(widths) if place != widest and width < widths[widest]]
        widths[widest] = max(least[widest], widths[widest] - excess, min(widths[widest] - 1, max(others, default=0)))
    return widths


def _print_stacked(out: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows one below the other, each cell after the name of its column."""
    from textwrap import TextWrapper

    wrapped = TextWrapper(out.width, break_long_words=False, break_on_hyphens=False)
    out.print(wrapped.fill(title), emoji=False, soft_wrap=True)
    wrapped.initial_indent, wrapped.subsequent_indent = "  ", "      "
    for row in rows:
        named = [(" ".join(column.split()), cell) for column, cell in zip(columns, row, strict=True) if cell]
        text = ", ".join(f"{column} {cell}" if column else cell for column, cell in named)
        out.print(wrapped.fill(text), emoji=False, soft_wrap=True)
    out.print()


@contextmanager
def progress() -> Iterator[Progress]:
    """Show progress bars on standard error, only where that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.table import Column

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", table_column=Column()),  # wraps, so that counts are never cut
    )
    terminal = Console(stderr=True)
    with Progress(*columns, console=terminal, disable=not terminal.is_terminal, transient=True) as bars:
        if not terminal.is_terminal:
            yield bars
            return
        with watched(_compiling(bars)):
            yield bars


def _compiling(bars: Progress) -> Watcher:
    """Return a bar for functions that are compiled, which appears with the first of them."""
    task: list[TaskID] = []

    def report(name: str, number: int, spent_s: float) -> None:
        if not task:
            task.append(bars.add_task("compiling, once", total=None, note=""))
        bars.update(task[0], completed=number, note="functions; later runs start at once")

    return report


def say_once_compiling() -> Watcher:
    """Show one line on standard error once compiling has taken a second, where that is a terminal and no bars are shown."""
    said = [] if sys.stderr.isatty() else [True]

    def report(name: str, number: int, spent_s: float) -> None:
        if not said and spent_s > 1.0:
            said.append(True)
            sys.stderr.write("meshwright: compiling, once, up to a minute; later runs start at once\n")
            sys.stderr.flush()

    return report


def phases(bars: Progress, check: Callable[[], None] = lambda: None) -> Callable[[str, int, int | None], None]:
    """Return a callback ``(phase, done, of)`` that keeps one bar per phase, and calls ``check`` first."""
    tasks: dict[str, TaskID] = {}

    def report(phase: str, done: int, of: int | None) -> None:
        check()
        if phase not in tasks:
            tasks[phase] = bars.add_task(phase, total=of, note="")
        bars.update(tasks[phase], completed=done, total=of)

    return report


@contextmanager
def set_up(bars: Progress) -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar for the simulation of job graphs on a cluster; yield the callback ``(graph, number, of)``."""
    task = bars.add_task("job graphs on the cluster", total=None, note="")

    def report(graph: str, number: int, of: int) -> None:
        bars.update(task, total=of, completed=number, note=graph)

    yield report
    total = bars.tasks[task].total or 1
    bars.update(task, total=total, completed=total, note="")
