"""Files that simulations keep between runs: each is a hash of its content and then the content.

The file's name is a hash of all inputs of the content, so a changed input never meets a stale figure. The file's own hash reveals
damage; its content is then made anew.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path

from .. import files
from ..errors import InputFileError

_HASH_SIZE = 32


def cache_folder() -> Path:
    """Return ``$MESHWRIGHT_CACHE``, else ``meshwright/step_times`` in the user's cache folder."""
    named = os.environ.get("MESHWRIGHT_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "meshwright" / "step_times"


def read(path: Path) -> bytes | None:
    """Return the content of a file; None where it is absent or damaged."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    body = content[_HASH_SIZE:]
    return body if content[:_HASH_SIZE] == files.digest(body).encode() else None


def write(path: Path, content: bytes) -> None:
    """Keep content; where the folder cannot be written, say so and go on: it is made again next time."""
    try:
        with files.atomic_file(path) as file:
            file.write(files.digest(content).encode() + content)
    except InputFileError as error:
        warnings.warn(f"step times are not kept between runs (set MESHWRIGHT_CACHE): {error}", RuntimeWarning, stacklevel=2)
