"""Reading and writing files: typed errors on the way in, nothing half-written and nothing misplaced on the way out."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import math
import os
import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal

from . import inputs, temporaries
from .errors import InputFileError, MeshwrightError, nearest
from .quantities import MOST_DIGITS

_GZIP = b"\x1f\x8b"
"""How a file begins that is packed by gzip."""

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_HASHED_NAME = re.compile(r".*-[0-9a-f]{32}", re.DOTALL)
_ESCAPED = re.compile(r"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(u[dD][89a-fA-F]..)|.)", re.DOTALL)
"""Escapes in JSON; the group is half of a surrogate pair without the other half."""
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")


def read_bytes(path: str | Path, *, is_input: bool = True) -> bytes:
    """Return the content of a file.

    Args:
        path: the file.
        is_input: whether the command that runs may not write over it (see `inputs`).

    Raises:
        InputFileError: the file is missing, a folder, unreadable, or an output of the command.
    """
    path = Path(path)
    try:
        if is_input:
            inputs.note(path)
        return path.read_bytes()
    except FileNotFoundError:
        # Only a near spelling helps here; a listing of the whole folder does not.
        near = nearest(path.name, _names_in(path.parent))
        if near is None:
            raise InputFileError("no such file", file=path) from None
        raise InputFileError("no such file", file=path, value=path.name, choices=[near]) from None
    except IsADirectoryError:
        held = [name for name in sorted(_names_in(path)) if not name.startswith(".")]
        message = f"it holds {', '.join(held[:5])}{', ...' if len(held) > 5 else ''}" if held else "it is empty"
        raise InputFileError(f"is a folder, a file is wanted; {message}", file=path) from None
    except OSError as error:
        raise InputFileError(f"cannot be read ({error.strerror})", file=path) from None
    except ValueError:  # a null character in the name
        raise InputFileError("not a file name", value=str(path)) from None


def check_path(path: Path) -> None:
    """Refuse what the system takes for no path at all, such as a name of 300 letters; that nothing is there is no error.

    Raises:
        InputFileError: so it is.
    """
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return
    except OSError as error:
        raise InputFileError(f"cannot be read ({error.strerror})", file=path) from None


def read_text(path: str | Path, *, is_input: bool = True) -> str:
    """Return the text of a UTF-8 file, which may be packed by gzip, without a byte-order mark; every line ends in one line feed.

    Raises:
        InputFileError: as `read_bytes`, not UTF-8, or damaged where it is packed.
    """
    content = read_bytes(path, is_input=is_input)
    try:
        content = gzip.decompress(content) if content.startswith(_GZIP) else content
    except (OSError, EOFError, zlib.error):
        raise InputFileError("is packed by gzip, and damaged", file=path) from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputFileError("not a UTF-8 text file", file=path, value=f"byte {error.start}") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def first_line(path: Path) -> str:
    """Return the first line of a text file, packed or not, without reading more; empty where reading it whole will say why."""
    try:
        with path.open("rb") as file:
            is_packed = file.read(len(_GZIP)) == _GZIP
        with gzip.open(path) if is_packed else path.open("rb") as file:
            return "".join(file.read(65_536).decode("utf-8-sig", "replace").strip().splitlines()[:1])
    except (OSError, EOFError, ValueError, zlib.error):
        return ""


def read_json(path: str | Path, *, is_input: bool = True) -> Any:
    """Return the content of a JSON file.

    Raises:
        InputFileError: as `read_text`, or the text is not JSON (with the line), names a key twice, spells half of a
            surrogate pair, or holds what is no number: NaN, infinity, or more than a float does.
    """
    return parse_json(read_text(path, is_input=is_input), file=path)


def parse_json(text: str, *, file: str | Path | None = None) -> Any:
    """Parse a JSON text; ``file`` names its source in errors.

    Raises:
        InputFileError: as `read_json` of a text that is not JSON.
    """
    try:
        data = json.loads(
            text,
            parse_constant=_refuse_constant,
            parse_float=_real,
            parse_int=_whole,
            object_pairs_hook=_unique_keys,
        )
    except json.JSONDecodeError as error:
        raise InputFileError(f"not valid JSON: {error.msg}", file=file, line=error.lineno) from None
    except ValueError as error:
        raise InputFileError(f"not valid JSON: {error}", file=file) from None
    except RecursionError:
        raise InputFileError("not valid JSON: nested too deeply", file=file) from None
    half = next((escape for escape in _ESCAPED.finditer(text) if escape[1]), None)
    if half is not None:
        line = text.count("\n", 0, half.start()) + 1
        raise InputFileError("not valid JSON: half of a surrogate pair is no letter", file=file, line=line, value=half[0])
    return data


def read_csv(
    path: str | Path, text: str | None = None, *, skips_blanks: bool = False, delimiter: str = ","
) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a CSV file, each with the line on which it begins; empty lines are passed over.

    Args:
        path: the file.
        text: its content, where it has been read.
        skips_blanks: whether blanks behind a comma are no part of the field.
        delimiter: between fields; where it is no comma, quotation marks are letters.

    Raises:
        InputFileError: as `read_text`, or with the line: an unclosed quotation mark, one that ends before its field, or a field
            of more than 131,072 letters.
    """
    content = io.StringIO(read_text(path) if text is None else text, newline="")
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if delimiter == "," else csv.QUOTE_NONE
    rows = csv.reader(content, strict=True, skipinitialspace=skips_blanks, delimiter=delimiter, quoting=quoting)
    while True:
        line = rows.line_num + 1
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            message = str(error).replace("unexpected end of data", "a quotation mark is not closed")
            raise InputFileError(f"not valid CSV: {message}", file=path, line=line) from None
        if row:
            yield line, row


@contextmanager
def atomic_file(path: str | Path) -> Iterator[IO[bytes]]:
    """Open a binary file that appears under ``path`` only when the block ends without an error.

    It is written in the folder of its destination, flushed to disk, then renamed. A link is followed; a device or pipe
    (``/dev/null``) is written directly and never replaced.

    Raises:
        InputFileError: ``path`` is a folder, or cannot be written.
    """
    path = _possible(path)
    if os.path.isdir(path):  # the functions of os.path, unlike Path's, say no where a name is too long
        raise InputFileError("cannot be written, it is a folder", file=path)
    if os.path.exists(path) and not os.path.isfile(path):
        with _reporting_errors(path), path.open("wb") as device:
            yield device
        return
    if os.path.islink(path):
        path = Path(os.path.realpath(path))
    with _reporting_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporaries.remove_stale(path.parent)
        with temporaries.new_file_near(path) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(file.name, path)
    inputs.wrote(path)


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
    """Return the one spelling of JSON in this project: sorted keys, two-space indents, no NaN."""
    return json.dumps(value, indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False)


def csv_text(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return the one spelling of CSV in this project; None is an empty cell.

    A text that begins with ``=``, ``+``, ``-``, ``@``, a tab or the end of a line would run as a formula in a spreadsheet. It
    gets an apostrophe in front, which marks it as a text. Numbers stay as they are.
    """
    return "".join(",".join(map(_csv_cell, row)) + "\n" for row in (head, *rows))


def _csv_cell(value: object) -> str:
    """Return one cell; `csv.writer` leaves a carriage return bare, which begins a new row for many readers."""
    if not isinstance(value, str):
        return "" if value is None else str(value)
    text = f"'{value}" if value.startswith(_FORMULA_STARTS) else value
    return '"' + text.replace('"', '""') + '"' if any(letter in text for letter in ',"\r\n') else text


@contextmanager
def atomic_folder(path: str | Path, *, marker: str | None = None) -> Iterator[Path]:
    """Open a folder that appears under ``path`` only when the block ends without an error.

    An existing folder of that name is replaced as a whole, so no file of an older version stays in it. Only an empty
    folder or one that holds ``marker`` is replaced: a user who names a folder of other things keeps them. A link is
    refused: to replace it would leave what it leads to as it is, to follow it would replace what the user did not name.

    Args:
        path: the folder to make.
        marker: name of a file that every folder of this kind holds.

    Raises:
        InputFileError: the folder cannot be made, ``path`` is a file or a link, or it is a folder of other things.
    """
    path = _possible(path)
    check_no_link(path)
    temporaries.remove_stale(path.parent)
    if os.path.exists(path) and not os.path.isdir(path):
        raise InputFileError("is a file, a folder is wanted", file=path)
    if _names_in(path) and not (marker is not None and (path / marker).is_file()):
        expected = "" if marker is None else f" and no {marker}"
        raise InputFileError(f"the folder holds other files{expected}, so it is not replaced", file=path)
    with ExitStack() as stack:
        with _reporting_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = stack.enter_context(temporaries.new_folder_near(path))
        yield temporary / temporaries.NEW
        with _reporting_errors(path):
            if os.path.exists(path):
                path.rename(temporary / temporaries.OLD)
            (temporary / temporaries.NEW).rename(path)
    inputs.wrote(path)


def check_no_link(path: Path, *, field: str | None = None) -> None:
    """Refuse a link at the place of a folder that is replaced as a whole.

    Raises:
        InputFileError: it is one; the message names what it leads to.
    """
    if os.path.islink(path):
        problem = f"is a link, and links are not replaced; name what it leads to, {os.path.realpath(path)}"
        raise InputFileError(problem, field=field, value=str(path))


def file_name(name: str, *, reserved: Collection[str] = ()) -> str:
    """Return the name of the file or folder of what is called ``name``: the one way from a name to a part of a path.

    Up to 100 letters, digits, dots, hyphens and underscores after a letter or digit stay unchanged. Any other name keeps its
    readable part, and a hash of the whole name makes it unique. The result never leads into another folder, is never hidden,
    and every shell reads it as one word.

    Args:
        name: any text.
        reserved: file names that are taken.
    """
    if _PLAIN_NAME.fullmatch(name) and not _HASHED_NAME.fullmatch(name) and name not in reserved:
        return name
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("._-")[:60].rstrip("._-")
    return f"{readable or 'unnamed'}-{digest(name)}"


def below(folder: Path, name: str) -> Path:
    """Return the path that a relative name, as ``traces/rank0.et``, means below a folder.

    Raises:
        InputFileError: it would lead out of the folder, or means the folder itself.
    """
    parts = PurePosixPath(name).parts
    if not parts or ".." in parts or name.startswith("/") or "\0" in name:
        raise InputFileError("leads out of the folder", file=folder, value=name)
    return folder.joinpath(*parts)


def _possible(path: str | Path) -> Path:
    """Return the path, where a file can have that name at all."""
    if not str(path) or "\0" in str(path):
        raise InputFileError("not a file name", value=str(path))
    return Path(path)


@contextmanager
def _reporting_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputFileError(f"cannot be written ({error.strerror or error})", file=path) from None


def digest(*parts: object) -> str:
    """Return a stable hexadecimal digest of numbers, texts, arrays (anything with ``tobytes``) and nested sequences of them."""
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
        _feed(state, sorted(part.items(), key=lambda item: str(item[0])))
    elif part is None or isinstance(part, bool | int | float | str):
        text = repr(part).encode()
        state.update(b"%s:%d;" % (type(part).__name__.encode(), len(text)))
        state.update(text)
    else:
        raise MeshwrightError(f"cannot digest a {type(part).__name__}")


def _names_in(folder: Path) -> list[str]:
    """List a folder; nothing where it is absent or may not be listed."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} appears twice")
    return result


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number")


def _real(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:40]} is more than a number holds")
    return value


def _whole(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"a number of {len(text)} digits is more than a number holds")
    return int(text)
