"""Checks what lint does not see: no file over one megabyte, and only relative links that lead to something in the tree.

Looks at the files named as arguments, or else at every file that git tracks. Prints one line per fault and exits
with 1 where there is one.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

LIMIT_BYTES = 1_000_000


def faults(path: Path, root: Path) -> list[str]:
    """Return the faults of one file of the tree under ``root``."""
    if path.is_symlink():
        target = path.readlink()
        if target.is_absolute():
            return [f"{path}: the link is absolute ({target})"]
        if not path.exists():
            return [f"{path}: the link leads nowhere ({target})"]
        if not path.resolve().is_relative_to(root.resolve()):
            return [f"{path}: the link leaves the tree ({target})"]
        return []
    if path.is_file() and path.stat().st_size > LIMIT_BYTES:
        return [f"{path}: {path.stat().st_size} bytes, over the limit of {LIMIT_BYTES}"]
    return []


def tracked() -> list[str]:
    """Return the files that git tracks, or would track, under the working folder."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    return [name for name in subprocess.check_output(words, text=True).split("\0") if name]  # noqa: S603 - fixed arguments


def main(names: list[str]) -> int:
    """Check the named files, or all tracked ones; the number of faults, at most 1."""
    results = [fault for name in names or tracked() for fault in faults(Path(name), Path.cwd())]
    sys.stderr.writelines(f"{fault}\n" for fault in results)
    return min(len(results), 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
