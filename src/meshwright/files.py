"""Reading and writing files: typed errors on the way in, nothing half-written on the way out."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from .errors import InputFileError, MeshwrightError, nearest


def read_text(path: str | Path) -> str:
    """The text of a UTF-8 file, without a byte-order mark.

    Raises:
        InputFileError: the file is missing, a folder, unreadable or not UTF-8.
    """
    path = Path(path)
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        # Only a near spelling helps here; a listing of the whole folder does not.
        near = nearest(path.name, _names_in(path.parent))
        if near is None:
            raise InputFileError("no such file", file=path) from None
        raise InputFileError("no such file", file=path, value=path.name, choices=[near]) from None
    except UnicodeDecodeError as error:
        raise InputFileError("not a UTF-8 text file", file=path, value=f"byte {error.start}") from None
    except OSError as error:
        raise InputFileError(f"cannot be read ({error.strerror})", file=path) from None
    except ValueError:  # a null character in the name
        raise InputFileError("not a file name", value=str(path)) from None


def read_json(path: str | Path) -> Any:
    """The content of a JSON file.

    Raises:
        InputFileError: as `read_text`, or the text is not JSON (with the line), names a key twice or holds NaN or
            infinity, for which JSON has no spelling.
    """
    text = read_text(path)
    try:
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique_keys)
    except json.JSONDecodeError as error:
        raise InputFileError(f"not valid JSON: {error.msg}", file=path, line=error.lineno) from None
    except ValueError as error:
        raise InputFileError(f"not valid JSON: {error}", file=path) from None
    except RecursionError:
        raise InputFileError("not valid JSON: nested too deeply", file=path) from None


@contextmanager
def atomic_file(path: str | Path) -> Iterator[IO[bytes]]:
    """A binary file that appears under ``path`` only when the block ends without an error.

    Written beside its destination, flushed to disk, then renamed. A link is followed; what is neither a file nor absent
    (``/dev/null``, a pipe) is written as it is and never replaced.

    Raises:
        InputFileError: ``path`` is a folder, or cannot be written.
    """
    path = _possible(path)
    if os.path.isdir(path):  # the functions of os.path, unlike Path's, say no where a name is too long
        raise InputFileError("cannot be written, it is a folder", file=path)
    if os.path.exists(path) and not os.path.isfile(path):
        with _telling(path), path.open("wb") as device:
            yield device
        return
    if os.path.islink(path):
        path = Path(os.path.realpath(path))
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
    """Write text as UTF-8, whole or not at all.

    Raises:
        InputFileError: as `atomic_file`, or the text holds what UTF-8 cannot spell (half of a surrogate pair).
    """
    try:
        content = text.encode("utf-8")
    except UnicodeEncodeError as error:
        value = text[error.start : error.end]
        raise InputFileError("cannot be written, a name in it is not Unicode", file=path, value=value) from None
    with atomic_file(path) as file:
        file.write(content)


def write_json(path: str | Path, value: Any) -> None:
    """Write JSON with sorted keys and two-space indents, whole or not at all; NaN is refused."""
    write_text(path, json_text(value) + "\n")


def json_text(value: Any) -> str:
    """The one spelling of JSON in this project: sorted keys, two-space indents, no NaN."""
    return json.dumps(value, indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False)


@contextmanager
def atomic_folder(path: str | Path, *, check: Callable[[], None] | None = None, marker: str | None = None) -> Iterator[Path]:
    """A folder that appears under ``path`` only when the block ends without an error.

    An existing folder of that name is replaced as a whole, so no file of an older version stays in it. Only an empty
    folder or one that holds ``marker`` is replaced: a user who names a folder of other things keeps them.

    Args:
        path: the folder to make.
        check: called when the block has ended, before the folder appears; what it raises keeps the folder away.
        marker: name of a file that every folder of this kind holds.

    Raises:
        InputFileError: the folder cannot be made, ``path`` is a file, or it is a folder of other things.
    """
    import shutil

    path = _possible(path)
    if os.path.exists(path) and not os.path.isdir(path):
        raise InputFileError("is a file, a folder is wanted", file=path)
    if _names_in(path) and not (marker is not None and (path / marker).is_file()):
        wanted = "" if marker is None else f" and no {marker}"
        raise InputFileError(f"the folder holds other files{wanted}, so it is not replaced", file=path)
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
        with _telling(path):
            _swap(temporary, path)
    finally:
        if temporary.exists():
            shutil.rmtree(temporary)


def _possible(path: str | Path) -> Path:
    """The path, where a file can have that name at all."""
    if not str(path) or "\0" in str(path):
        raise InputFileError("not a file name", value=str(path))
    return Path(path)


@contextmanager
def _telling(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputFileError(f"cannot be written ({error.strerror or error})", file=path) from None


def _swap(new: Path, path: Path) -> None:
    """Put the folder ``new`` in the place of ``path``; where that fails, the old folder is back in its place."""
    import shutil

    if not path.exists():
        new.rename(path)
        return
    aside = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name[:40]}."))
    try:
        path.rename(aside / "old")
        try:
            new.rename(path)
        except OSError:
            (aside / "old").rename(path)
            raise
    finally:
        shutil.rmtree(aside)


def digest(*parts: object) -> str:
    """A stable hexadecimal digest of numbers, texts, arrays (anything with ``tobytes``) and nested sequences of them."""
    state = hashlib.sha256()
    for part in parts:
        _feed(state, part)
    return state.hexdigest()[:32]


def _feed(state: Any, part: object) -> None:
    if hasattr(part, "tobytes") and hasattr(part, "dtype"):
        if part.dtype.hasobject:  # its bytes are addresses, another number in each process
            raise MeshwrightError("cannot digest an array of Python objects")
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
        state.update(b"mapping;")
        _feed(state, sorted(part.items()))
    elif part is None or isinstance(part, bool | int | float | str):
        text = repr(part).encode()
        state.update(b"%s:%d;" % (type(part).__name__.encode(), len(text)))
        state.update(text)
    else:
        raise MeshwrightError(f"cannot digest a {type(part).__name__}")


def _names_in(folder: Path) -> list[str]:
    """What stands in a folder; nothing where it is absent or may not be listed."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} stands twice")
    return found


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
