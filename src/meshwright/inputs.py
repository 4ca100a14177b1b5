"""A command never overwrites what it reads: its inputs are compared with its outputs, under whatever path.

Inside `protected` every output is declared before the work begins (`declare`). Every input is noted before it is read (`note`;
the readers of `files` do so by themselves). Where both are one file, by another spelling, through a link or as hard links, the
second is refused. Files that the command wrote itself are no inputs (`wrote`). A file that it reads and then writes anew, such
as a continued run, is compared with the other outputs only (`is_update`). Outside `protected`, as for users of the Python API,
nothing is compared.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from .errors import InputFileError

Identity = tuple[int, int]
"""Device and inode."""


@dataclass(frozen=True)
class _Output:
    """A declared output.

    Attributes:
        option: that names it.
        place: its path without links.
        identity: of what lies there; None where nothing does.
        is_folder: whether it is a folder that is replaced as a whole.
        is_update: whether what is there is read and then written anew.
    """

    option: str
    place: Path
    identity: Identity | None
    is_folder: bool
    is_update: bool

    def holds(self, path: Path) -> bool:
        """Return whether writing it replaces a file, which need not be there."""
        if self.is_folder:
            return self.place in _place(path).parents
        return self.place == _place(path) or (self.identity is not None and self.identity == _identity(path))


@dataclass(frozen=True)
class _Command:
    """Inputs and outputs of the command that runs."""

    outputs: list[_Output] = field(default_factory=list)
    inputs: dict[Path, None] = field(default_factory=dict)


_command: ContextVar[_Command | None] = ContextVar("command", default=None)


@contextmanager
def protected() -> Iterator[None]:
    """Compare inputs with outputs in this block, which is one command."""
    token = _command.set(_Command())
    try:
        yield
    finally:
        _command.reset(token)


def declare(option: str, path: Path, *, is_folder: bool = False, is_update: bool = False) -> None:
    """Say that an option names a file to write, or a folder that is replaced as a whole.

    Args:
        option: how the command line spells it.
        path: the file or folder, which need not be there.
        is_folder: whether it is a folder.
        is_update: whether what is there is read and then written anew.

    Raises:
        InputFileError: it is an input, the file of another option, or in a folder that another option replaces; or such lies
            in the folder.
    """
    command = _command.get()
    if command is None or (not is_folder and os.path.exists(path) and not os.path.isfile(path)):
        return  # nothing replaces a pipe or a terminal
    made = _Output(option, _place(path), _identity(path), is_folder, is_update)
    for other in command.outputs:
        problem = None
        if is_folder and made.holds(other.place):
            problem = f"would replace the file of {other.option}"
        elif not is_folder and other.holds(path):
            problem = f"is {'in the folder' if other.is_folder else 'the file'} of {other.option} too"
        if problem is not None and other.option != option:
            raise InputFileError(problem, field=option, value=str(path))
    for read in command.inputs:
        _refuse_where_held(made, read)
    command.outputs.append(made)


def note(path: Path) -> None:
    """Say that a file is about to be read.

    Raises:
        InputFileError: it is an output, or in a folder that is replaced.
    """
    command = _command.get()
    if command is None or not os.path.isfile(path):
        return
    command.inputs[path] = None
    for output in command.outputs:
        _refuse_where_held(output, path)


def wrote(path: Path) -> None:
    """Say that a file or folder has been written: whoever reads it now reads what this command wrote."""
    command = _command.get()
    if command is not None:
        command.outputs[:] = [output for output in command.outputs if output.place != _place(path)]


def _refuse_where_held(output: _Output, path: Path) -> None:
    if output.holds(path) and not output.is_update:
        raise InputFileError("would replace what the command reads; name another place", field=output.option, value=str(path))


def _identity(path: Path) -> Identity | None:
    try:
        info = os.stat(path)
    except OSError:
        return None
    return (info.st_dev, info.st_ino) if stat.S_ISREG(info.st_mode) else None


def _place(path: Path) -> Path:
    return Path(os.path.realpath(path))
