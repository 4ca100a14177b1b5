"""The ledger: every change of a state in one SQLite file, none of which is lost or half there after a crash.

One table of changes, only ever appended to; the state is the fold over them. A snapshot is a cache of the fold: it names the
last change in it, and every state is the same without it. Writers take turns (``BEGIN IMMEDIATE``), and a change is decided
on inside that turn. The order is the number of a change, never a clock.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from .. import inputs
from ..errors import InputFileError, StateError
from .changes import CHANGE, Change, changed
from .state import ClusterState

SCHEMA_VERSION = 1
APPLICATION_ID = 0x6D657368
"""In the file's header, by which a ledger is told from other databases: ``mesh``."""

SNAPSHOT_EVERY = 256
"""Changes between two snapshots."""

WAIT_S = 30.0
"""Longest wait for another writer."""

_NETWORK_FILE_SYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "9p", "fuse.sshfs", "ceph", "lustre", "beegfs", "gpfs"}

_SCHEMA = """
CREATE TABLE change (seq INTEGER PRIMARY KEY AUTOINCREMENT, body TEXT NOT NULL, at TEXT NOT NULL);
CREATE TABLE snapshot (seq INTEGER PRIMARY KEY, body TEXT NOT NULL);
"""


class Ledger:
    """An open ledger; a context manager.

    Args:
        path: of the file; made where it is absent.
        is_read: whether nothing will be written; the file must be there then.

    Raises:
        InputFileError: no database, of another program or a later version, on a network file system, or it cannot be opened.
    """

    def __init__(self, path: Path, *, is_read: bool = False) -> None:
        self.path = path
        real = Path(os.path.realpath(path))
        if not real.parent.is_dir():
            raise InputFileError("no such folder", file=path.parent)
        for beside in ("", "-wal", "-shm"):
            inputs.note(real.with_name(real.name + beside))
        kind = file_system(real.parent)
        if kind in _NETWORK_FILE_SYSTEMS:
            raise InputFileError(f"lies on a network file system ({kind}), whose locks a ledger cannot trust", file=path)
        mode = "rwc"
        if is_read:
            effective = os.access in os.supports_effective_ids
            can_write = all(os.access(one, os.W_OK, effective_ids=effective) for one in (real.parent, real))
            wal = real.with_name(f"{real.name}-wal")
            has_wal = wal.exists() and wal.stat().st_size > 0
            # Who may write clears away what SQLite keeps beside the file; who may not cannot make it.
            mode = "rw" if can_write else "ro" if has_wal else "ro&immutable=1"
        try:
            self._db = sqlite3.connect(f"{real.as_uri()}?mode={mode}", uri=True, timeout=WAIT_S, isolation_level=None)
        except sqlite3.Error as error:
            raise self._told(error) from None
        try:
            self._begin(is_read=is_read)
        except BaseException as error:
            self._db.close()
            if isinstance(error, sqlite3.Error):
                raise self._told(error) from None
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._db.close()

    def state(self) -> ClusterState:
        """The state: the latest snapshot, and every change after it.

        Raises:
            InputFileError: the file is damaged.
        """
        try:
            return self._folded()[1]
        except sqlite3.Error as error:
            raise self._told(error) from None

    def append(self, made: Callable[[ClusterState], Change]) -> tuple[ClusterState, ClusterState]:
        """Make a change of the state as it is, and keep it; it is on the disk when this returns.

        Args:
            made: what is to change; what it raises changes nothing.

        Returns:
            The state before and after.

        Raises:
            InputFileError: the file is damaged or cannot be written.
            MeshwrightError: as ``made``, or the change contradicts the state.
        """
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                last, before = self._folded()
                change = made(before)
                after = changed(before, change)
                if after != before:
                    self._keep(last, change, after)
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise self._told(error) from None
        return before, after

    def changes(self) -> list[dict[str, Any]]:
        """Every change with its number and the time at which it was kept (UTC, for people).

        Raises:
            InputFileError: the file is damaged.
        """
        try:
            rows = self._db.execute("SELECT seq, body, at FROM change ORDER BY seq").fetchall()
        except sqlite3.Error as error:
            raise self._told(error) from None
        changes = [self._read(CHANGE.validate_json, body) for _, body, _ in rows]
        return [
            {"seq": seq, "at": at, **change.model_dump(mode="json", exclude_none=True)}
            for (seq, _, at), change in zip(rows, changes, strict=True)
        ]

    def _begin(self, *, is_read: bool) -> None:
        """Check the file, and make the tables of a new one."""
        self._db.execute("PRAGMA busy_timeout = 30000")
        self._db.execute("BEGIN")  # what is checked is of one moment
        is_new = self._check()
        self._db.execute("COMMIT")
        if is_read:
            self._db.execute("PRAGMA query_only = ON")
            if is_new:
                raise InputFileError("holds nothing yet: its first change was not kept; change it, or remove it", file=self.path)
            return
        if is_new:
            self._write_ahead()
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("BEGIN IMMEDIATE")
        if self._check():
            for statement in filter(str.strip, _SCHEMA.split(";")):
                self._db.execute(statement)
            self._db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            self._db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        self._db.execute("COMMIT")

    def _write_ahead(self) -> None:
        """Let readers go on while a writer writes; of several that ask at once SQLite refuses all but one without waiting."""
        until_s = time.monotonic() + WAIT_S
        while True:
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > until_s:
                    raise
                time.sleep(0.01)

    def _check(self) -> bool:
        """Whether nothing is in the file yet; other databases are refused."""
        identity, version = self._pragma("application_id"), self._pragma("user_version")
        num_tables = int(self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
        if (identity, version, num_tables) == (0, 0, 0):
            return True
        if identity != APPLICATION_ID:
            raise InputFileError("is a database, but no ledger of meshwright", file=self.path)
        if version != SCHEMA_VERSION:
            raise InputFileError(f"is a ledger of version {version}; version {SCHEMA_VERSION} is known", file=self.path)
        return False

    def _pragma(self, name: str) -> int:
        return int(self._db.execute(f"PRAGMA {name}").fetchone()[0])

    def _folded(self) -> tuple[int, ClusterState]:
        """Number of the last change, and the state after it."""
        row = self._db.execute("SELECT seq, body FROM snapshot ORDER BY seq DESC LIMIT 1").fetchone()
        last, state = (0, ClusterState()) if row is None else (int(row[0]), self._read(ClusterState.model_validate_json, row[1]))
        for seq, body in self._db.execute("SELECT seq, body FROM change WHERE seq > ? ORDER BY seq", (last,)):
            change = self._read(CHANGE.validate_json, body)
            try:
                state = changed(state, change)
            except StateError as error:
                raise InputFileError(f"change {seq} contradicts those before it: {error}", file=self.path) from None
            last = int(seq)
        return last, state

    def _read(self, reader: Callable[[str], Any], body: str) -> Any:
        try:
            return reader(body)
        except ValueError:
            raise InputFileError("the ledger is damaged: a change in it cannot be read", file=self.path) from None

    def _keep(self, last: int, change: Change, after: ClusterState) -> None:
        at = datetime.now(UTC).isoformat(timespec="seconds")
        seq = self._db.execute("INSERT INTO change (body, at) VALUES (?, ?)", (change.model_dump_json(), at)).lastrowid
        if seq is not None and seq // SNAPSHOT_EVERY > last // SNAPSHOT_EVERY:
            self._db.execute("DELETE FROM snapshot")
            self._db.execute("INSERT INTO snapshot (seq, body) VALUES (?, ?)", (seq, after.model_dump_json()))

    def _told(self, error: sqlite3.Error) -> InputFileError:
        """An error of SQLite in a line."""
        text = str(error)
        known = {
            "file is not a database": "is no ledger; one is made by `meshwright state`",
            "database is locked": f"another process has held the ledger for {WAIT_S:.0f} s",
            "database or disk is full": "the disk is full; the ledger is as it was",
            "attempt to write a readonly database": "may not be written, nor what SQLite keeps beside it",
            "unable to open database file": "cannot be opened",
        }
        return InputFileError(known.get(text, f"the ledger cannot be used: {text}"), file=self.path)


def file_system(folder: Path, mounts: str = "/proc/self/mounts") -> str | None:
    """The type of the file system on which a folder lies; None where it cannot be told."""
    try:
        text = Path(mounts).read_text()
    except OSError:
        return None
    here, found, longest = os.path.realpath(folder), None, -1
    for line in text.splitlines():
        parts = line.split()
        if len(parts) < 3:
            continue
        point = parts[1].replace("\\040", " ")
        if (here == point or here.startswith(point.rstrip("/") + "/")) and len(point) >= longest:
            found, longest = parts[2], len(point)
    return found
