"""Temporary files and folders, each next to what it becomes; none is left behind, however a process ends.

They are called ``.NAME.RANDOM.meshwright-tmp`` and locked while they are written; the system releases a lock when its process
ends. The next writer into the same folder removes those that nobody holds. It leaves files that another process still writes,
have another name or belong to another user. On a file system without locks nothing is removed. While there is something to
remove, SIGTERM and SIGHUP are caught where they would end the process at once, and end it after the removal.

A temporary folder holds ``lock`` (the name of its destination) and ``new`` (what is written). While it replaces a former
folder, it also holds that as ``old``, which returns if the process is killed before ``new`` is in place.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
import signal
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import IO

LOCK, NEW, OLD = "lock", "new", "old"
_SUFFIX = ".meshwright-tmp"
_OURS = re.compile(rf"\..*\.[0-9a-f]{{8}}{re.escape(_SUFFIX)}", re.DOTALL)
_ENDINGS = (signal.SIGTERM, signal.SIGHUP)

_held: dict[Callable[[], None], int] = {}
"""The function that removes each of the present temporaries, with the process that made it: a fork must leave them alone."""


@contextmanager
def new_file_near(path: Path) -> Iterator[IO[bytes]]:
    """Open a new file next to ``path``; remove it at the end where it was not renamed.

    Raises:
        OSError: it cannot be made.
    """
    while True:
        temporary = _free_name(path)
        with temporary.open("x+b") as file, removed_at_end(partial(_remove, temporary)):
            if _takes_lock(file) and _is_open_at(file, temporary):
                yield file
                return


@contextmanager
def new_folder_near(path: Path) -> Iterator[Path]:
    """Make a folder next to ``path`` with an empty folder `NEW` in it; remove it at the end with its content.

    What lies in it as `OLD` goes to ``path`` in place of being removed, where nothing is there.

    Raises:
        OSError: it cannot be made.
    """
    while True:
        temporary = _free_name(path)
        with removed_at_end(partial(_remove, temporary)):
            temporary.mkdir(mode=0o700)
            try:
                lock = (temporary / LOCK).open("x+b")
            except FileNotFoundError:  # another process took the empty folder for a stale one
                continue
            with lock:
                if _takes_lock(lock) and _is_open_at(lock, temporary / LOCK):
                    lock.write(os.fsencode(path.name))
                    lock.flush()
                    (temporary / NEW).mkdir()
                    yield temporary
                    return


def remove_stale(folder: Path) -> None:
    """Remove the temporaries in a folder whose process has ended; what cannot be removed stays."""
    try:
        results = [folder / name for name in os.listdir(folder) if name.endswith(_SUFFIX) and _OURS.fullmatch(name)]
    except OSError:
        return
    for path in results:
        with suppress(OSError, ValueError):
            _remove_where_stale(path)


@contextmanager
def removed_at_end(remove: Callable[[], None]) -> Iterator[None]:
    """Remove something at the end of the block, also where SIGTERM or SIGHUP ends the process in it; it may fail."""
    _held[remove] = os.getpid()
    _set_endings(signal.SIG_DFL, _remove_and_end)
    try:
        yield
    finally:
        _remove_held(remove)
        del _held[remove]
        if not _held:
            _set_endings(_remove_and_end, signal.SIG_DFL)


def _remove_where_stale(path: Path) -> None:
    info = path.lstat()
    is_folder = stat.S_ISDIR(info.st_mode)
    if info.st_uid != os.geteuid() or not (is_folder or stat.S_ISREG(info.st_mode)):
        return
    locked = path / LOCK if is_folder else path
    if is_folder and not os.path.lexists(locked):
        path.rmdir()  # refused by the system where it holds anything, which then is not ours
        return
    with os.fdopen(os.open(locked, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC), "r+b") as lock:
        if _takes_lock(lock, otherwise=False) and _is_open_at(lock, locked):
            _remove(path)


def _free_name(path: Path) -> Path:
    """Return a name that nobody uses; 40 letters of the destination's do not make it too long."""
    while True:
        name = path.with_name(f".{path.name[:40]}.{secrets.token_hex(4)}{_SUFFIX}")
        if not os.path.lexists(name):
            return name


def _takes_lock(file: IO[bytes], *, otherwise: bool = True) -> bool:
    """Return whether the file is locked now by this process; ``otherwise`` where the file system has no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return otherwise and error.errno != errno.EWOULDBLOCK
    return True


def _is_open_at(file: IO[bytes], path: Path) -> bool:
    """Return whether an open file still lies where it was: another process may have removed or renamed it before the lock."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.lstat())
    except FileNotFoundError:
        return False


def _remove_held(remove: Callable[[], None]) -> None:
    if _held[remove] == os.getpid():
        with suppress(OSError, ValueError):
            remove()


def _remove(path: Path) -> None:
    """Remove a temporary file or folder of this process or of none."""
    if not path.is_dir():
        path.unlink(missing_ok=True)
        return
    lock, old = path / LOCK, path / OLD
    if os.path.lexists(old):
        destination = path.with_name(os.fsdecode(lock.read_bytes()))
        if not os.path.lexists(destination):
            old.rename(destination)
    for name in (NEW, OLD):
        if os.path.lexists(path / name):
            shutil.rmtree(path / name)
    lock.unlink(missing_ok=True)  # last: without it the rest would not be known for ours
    path.rmdir()


def _set_endings(before: object, after: object) -> None:
    """Replace how the signals that end a process are handled, where they are handled as ``before``."""
    if threading.current_thread() is not threading.main_thread():  # only the main one may say what a signal does
        return
    for number in _ENDINGS:
        if signal.getsignal(number) == before:
            signal.signal(number, after)  # type: ignore[arg-type]


def _remove_and_end(number: int, frame: FrameType | None) -> None:
    for remove in list(_held):
        _remove_held(remove)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
