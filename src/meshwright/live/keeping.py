"""Where a state is stored: a ledger in SQLite (``.db``), or a plain JSON file.

A change is a function from state to state. It is carried out whole or not at all, one at a time, on the current state. So two
processes cannot give one device to two jobs.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .. import files
from ..errors import InputFileError
from .changes import Change, changed
from .ledger import Ledger
from .state import ClusterState, load_state

LEDGER_ENDINGS = (".db", ".sqlite", ".sqlite3")


class KeptState:
    """A state that outlives the process.

    A plain file is replaced as a whole; changes lock the file ``NAME.lock`` in the same folder.

    Attributes:
        path: of its file.
        is_ledger: whether that is a ledger, by its ending.

    Raises:
        InputFileError: neither ``.db`` nor ``.json``.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.is_ledger = self.path.suffix in LEDGER_ENDINGS
        if not self.is_ledger and self.path.suffix not in (".json", ".yaml", ".yml"):
            problem = "a state is a .json file, or a ledger, which ends in .db and outlives a crash"
            raise InputFileError(problem, field="--state", value=str(path))

    def read(self) -> ClusterState:
        """Return the state now; an empty one where nothing was kept yet.

        Raises:
            InputFileError: the file is unreadable or of another kind.
            ConfigError: an unknown key or impossible value in it.
        """
        if not self.path.exists():
            return ClusterState()
        if not self.is_ledger:
            return load_state(self.path)
        with Ledger(self.path, is_read=True) as ledger:
            return ledger.last()[1]

    def apply(self, made: Callable[[ClusterState], Change]) -> tuple[ClusterState, ClusterState]:
        """Change the state.

        Args:
            made: what is to change, from the state as it is; what it raises changes nothing.

        Returns:
            The state before and after.

        Raises:
            InputFileError: the file cannot be read or written; then it is as it was.
            MeshwrightError: as ``made``, or the change contradicts the state.
        """
        if self.is_ledger:
            with Ledger(self.path) as ledger:
                return ledger.append(made)
        with _locked(self.path):
            before = self.read()
            after = changed(before, made(before))
            files.write_json(self.path, after.model_dump(mode="json", exclude_none=True))
        return before, after

    def changes(self) -> list[dict[str, Any]]:
        """Return every change that a ledger kept, the first one first."""
        with Ledger(self.path, is_read=True) as ledger:
            return ledger.changes()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file that is replaced as a whole, by whatever name or link it is called."""
    if path.suffix != ".json":
        raise InputFileError("only a .json file or a ledger (.db) is changed", file=path)
    real = Path(os.path.realpath(path))
    lock_file = real.with_name(f"{real.name}.lock")
    try:
        lock = os.open(lock_file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise InputFileError(f"cannot be locked: {error.strerror}", file=lock_file) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
