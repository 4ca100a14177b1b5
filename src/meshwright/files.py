"""Reading and writing files: typed errors on the way in, nothing half-written on the way out."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from .errors import InputFileError, MeshwrightError


def read_text(path: str | Path) -> str:
    """The text of a UTF-8 file.

    Raises:
        InputFileError: the file is missing, a folder, unreadable or not UTF-8.
    """
    path = Path(path)
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        siblings = [str(path.parent / p.name) for p in path.parent.iterdir()] if path.parent.is_dir() else []
        error = InputFileError("no such file", value=str(path), choices=siblings)
        # Only a near spelling helps here; a listing of the whole folder does not.
        raise (error if "did you mean" in str(error) else InputFileError("no such file", file=path)) from None
    except UnicodeDecodeError as error:
        raise InputFileError("not a UTF-8 text file", file=path, value=f"byte {error.start}") from None
    except OSError as error:
        raise InputFileError(f"cannot be read ({error.strerror})", file=path) from None


def read_json(path: str | Path) -> Any:
    """The content of a JSON file.

    Raises:
        InputFileError: as `read_text`, or the text is not JSON (with the line).
    """
    try:
        return json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise InputFileError(f"not valid JSON: {error.msg}", file=path, line=error.lineno) from None


@contextmanager
def atomic_file(path: str | Path) -> Iterator[BinaryIO]:
    """A binary file that appears under ``path`` only when the block ends without an error.

    Written beside its destination, flushed to disk, then renamed.

    Raises:
        InputFileError: the folder cannot be made or written.
    """
    path = Path(path)
    handle = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name[:40]}.", delete=False)  # noqa: SIM115
        os.chmod(handle.name, 0o666 & ~_umask())
        with handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(handle.name, path)
    except OSError as error:
        raise InputFileError(f"cannot be written ({error.strerror or error})", file=path) from None
    finally:
        if handle is not None and os.path.exists(handle.name):
            os.unlink(handle.name)


def write_text(path: str | Path, text: str) -> None:
    """Write text as UTF-8, whole or not at all."""
    with atomic_file(path) as file:
        file.write(text.encode("utf-8"))


def write_json(path: str | Path, value: Any) -> None:
    """Write JSON with sorted keys and two-space indents, whole or not at all; NaN is refused."""
    write_text(path, json_text(value) + "\n")


def json_text(value: Any) -> str:
    """The one spelling of JSON in this project: sorted keys, two-space indents, no NaN."""
    return json.dumps(value, indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False)


@contextmanager
def atomic_folder(path: str | Path, *, check: Callable[[], None] | None = None) -> Iterator[Path]:
    """A folder that appears under ``path`` only when the block ends without an error.

    An existing folder of that name is replaced as a whole, so no file of an older version stays in it.

    Raises:
        InputFileError: the folder cannot be made, or ``path`` is a file.
    """
    import shutil

    path = Path(path)
    if path.exists() and not path.is_dir():
        raise InputFileError("is a file, a folder is wanted", file=path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name[:40]}."))
        os.chmod(temporary, 0o777 & ~_umask())
    except OSError as error:
        raise InputFileError(f"cannot be written ({error.strerror})", file=path) from None
    try:
        yield temporary
        if check is not None:
            check()
        old = None
        if path.exists():
            old = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name[:40]}."))
            os.replace(path, old / "old")
        os.replace(temporary, path)
        if old is not None:
            shutil.rmtree(old)
    finally:
        if temporary.exists():
            shutil.rmtree(temporary)


def digest(*parts: object) -> str:
    """A stable hexadecimal digest of numbers, texts, arrays (anything with ``tobytes``) and nested sequences of them."""
    state = hashlib.sha256()
    for part in parts:
        _feed(state, part)
    return state.hexdigest()[:32]


def _feed(state: Any, part: object) -> None:
    if hasattr(part, "tobytes") and hasattr(part, "dtype"):
        state.update(f"array:{part.dtype}:{getattr(part, 'shape', ())};".encode())
        state.update(part.tobytes())
    elif isinstance(part, bytes):
        state.update(b"bytes:%d;" % len(part))
        state.update(part)
    elif isinstance(part, list | tuple):
        state.update(b"sequence:%d;" % len(part))
        for item in part:
            _feed(state, item)
    elif isinstance(part, dict):
        _feed(state, sorted(part.items()))
    elif part is None or isinstance(part, bool | int | float | str):
        text = repr(part).encode()
        state.update(b"%s:%d;" % (type(part).__name__.encode(), len(text)))
        state.update(text)
    else:
        raise MeshwrightError(f"cannot digest a {type(part).__name__}")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
