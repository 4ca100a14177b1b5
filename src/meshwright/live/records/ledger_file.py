"""The file of a ledger: an SQLite database of ours, opened so that no crash loses or halves what was kept.

Writers take turns (``BEGIN IMMEDIATE``); a turn is on the disk when it ends (``synchronous = FULL``). Readers go on meanwhile
(``journal_mode = WAL``).
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from ... import inputs
from ...errors import InputFileError
from .sums import REMEDY, insert, with_sum

SCHEMA_VERSION = 4
APPLICATION_ID = 0x6D657368
"""Mark in the file's header that distinguishes a ledger from other databases: ``mesh``."""

WAIT_S = 30.0
"""Longest wait for another writer."""

MOST_CHECKED_BYTES = 32 * 2**20
"""Of a file whose pages and indices are all checked when it is opened, which takes a quarter of a second."""

_NETWORK_FILE_SYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "9p", "fuse.sshfs", "ceph", "lustre", "beegfs", "gpfs"}

COUNT_DOCUMENTS = """INSERT INTO document_use SELECT digest, count(*) FROM (
    SELECT part.value AS digest FROM decision, json_each(decision.body, '$.documents') AS part
    UNION ALL SELECT json_extract(body, '$.request.job.document') FROM decision WHERE json_type(body, '$.request.job') = 'object'
) WHERE digest IS NOT NULL GROUP BY digest"""

_SCHEMA = """
CREATE TABLE change (seq INTEGER PRIMARY KEY AUTOINCREMENT, body TEXT NOT NULL, at TEXT NOT NULL, sum INTEGER);
CREATE TABLE snapshot (seq INTEGER PRIMARY KEY, body TEXT NOT NULL, sum INTEGER);
CREATE TABLE name (name TEXT NOT NULL, sum INTEGER);
CREATE TABLE decision (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, key TEXT UNIQUE,
                       outcome TEXT NOT NULL, body TEXT NOT NULL, at TEXT NOT NULL, sum INTEGER);
CREATE INDEX preparing ON decision (number) WHERE outcome = 'preparing';
CREATE TABLE mention (decision TEXT NOT NULL, seq INTEGER NOT NULL, at TEXT NOT NULL, status TEXT NOT NULL,
                      detail TEXT NOT NULL, sum INTEGER, PRIMARY KEY (decision, seq)) WITHOUT ROWID;
CREATE INDEX mention_seq ON mention (seq);
CREATE TABLE document (digest TEXT PRIMARY KEY, body TEXT NOT NULL, sum INTEGER) WITHOUT ROWID;
CREATE TABLE document_use (digest TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE observation (decision TEXT NOT NULL, step INTEGER NOT NULL, rank INTEGER NOT NULL, step_s REAL NOT NULL,
                          sum INTEGER, PRIMARY KEY (decision, step, rank)) WITHOUT ROWID;
CREATE TABLE floor (seq INTEGER NOT NULL, at TEXT, body TEXT, sum INTEGER);
CREATE TABLE old_key (key TEXT PRIMARY KEY, decision TEXT NOT NULL, request TEXT NOT NULL, at TEXT NOT NULL,
                      sum INTEGER) WITHOUT ROWID;
CREATE INDEX old_key_at ON old_key (at)
"""
"""A ledger may give up its past, see `retention`. ``floor`` is the state after the last change that was given up, ``old_key`` has
the keys of such decisions. ``document_use`` counts the decisions that name each document. Of ``sum`` see `sums`.
"""

_NAME_BYTES = 3


def open_ledger(path: Path, *, is_read: bool = False) -> sqlite3.Connection:
    """Open a ledger; made where it is absent, unless it is to be read.

    Raises:
        InputFileError: no database, of another program or version, on a network file system, or it cannot be opened.
    """
    real = Path(os.path.realpath(path))
    if not real.parent.is_dir():
        raise InputFileError("no such folder", file=path.parent)
    for suffix in ("", "-wal", "-shm"):
        inputs.note(real.with_name(real.name + suffix))
    kind = file_system(real.parent)
    if kind in _NETWORK_FILE_SYSTEMS:
        raise InputFileError(f"lies on a network file system ({kind}), whose locks a ledger cannot trust", file=path)
    mode = "rwc"
    if is_read:
        effective = os.access in os.supports_effective_ids
        can_write = all(os.access(one, os.W_OK, effective_ids=effective) for one in (real.parent, real))
        wal = real.with_name(f"{real.name}-wal")
        has_wal = wal.exists() and wal.stat().st_size > 0
        # A process that may write clears away SQLite's extra files; one that may not cannot make them.
        mode = "rw" if can_write else "ro" if has_wal else "ro&immutable=1"
    try:
        database = sqlite3.connect(
            f"{real.as_uri()}?mode={mode}", uri=True, timeout=WAIT_S, isolation_level=None, check_same_thread=False
        )
    except sqlite3.Error as error:
        raise as_input_error(error, path) from None
    try:
        _begin(database, path, is_read=is_read)
        return database
    except BaseException as error:
        database.close()
        if isinstance(error, (sqlite3.Error, UnicodeDecodeError)):
            raise as_input_error(error, path) from None
        raise


def as_input_error(error: sqlite3.Error | UnicodeDecodeError, path: Path, remedy: str = REMEDY) -> InputFileError:
    """Return an error of SQLite in a line; a wrong byte may also make a text of the file that cannot be decoded."""
    text = str(error)
    known = {
        "file is not a database": "is no ledger; one is made by `meshwright state`",
        "database is locked": f"another process has held the ledger for {WAIT_S:.0f} s",
        "database or disk is full": "the disk is full; the ledger is as it was",
        "attempt to write a readonly database": "may not be written, nor SQLite's files next to it",
        "unable to open database file": "cannot be opened",
    }
    is_damaged = not isinstance(error, sqlite3.OperationalError) or "Could not decode" in text
    other = f"the ledger is damaged: {text}; {remedy}" if is_damaged else f"the ledger cannot be used: {text}"
    return InputFileError(known.get(text, other), file=path)


def file_system(folder: Path, mounts: str = "/proc/self/mounts") -> str | None:
    """Return the type of a folder's file system; None where it is not known."""
    try:
        text = Path(mounts).read_text()
    except OSError:
        return None
    here, result, longest = os.path.realpath(folder), None, ""
    for _, point, kind in (line.split()[:3] for line in text.splitlines() if len(line.split()) > 2):
        point = point.replace("\\040", " ").rstrip("/")
        if f"{here}/".startswith(f"{point}/") and len(point) >= len(longest):
            result, longest = kind, point
    return result


def _begin(database: sqlite3.Connection, path: Path, *, is_read: bool) -> None:
    """Check the file, and make the tables of a new one."""
    database.execute("PRAGMA busy_timeout = 30000")
    database.execute("BEGIN")  # what is checked is of one moment
    is_new = _is_new(database, path)
    if not is_new and _pragma(database, "page_count") * _pragma(database, "page_size") <= MOST_CHECKED_BYTES:
        (result,) = database.execute("PRAGMA integrity_check(1)").fetchone()
        if result != "ok":
            raise InputFileError(f"the ledger is damaged: {result}; {REMEDY}", file=path)
    database.execute("COMMIT")
    if is_read:
        database.execute("PRAGMA query_only = ON")
        if is_new:
            raise InputFileError("holds nothing yet: its first change was not kept; change it, or remove it", file=path)
        return
    if is_new:
        _write_ahead(database)
    database.execute("PRAGMA synchronous = FULL")
    if not is_new:
        return
    database.execute("BEGIN IMMEDIATE")
    if _is_new(database, path):  # another process may have made them meanwhile
        for statement in _SCHEMA.split(";"):
            database.execute(statement)
        database.execute(insert("name"), with_sum("name", secrets.token_hex(_NAME_BYTES)))
        database.execute(insert("floor"), with_sum("floor", 0, None, None))
        database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    database.execute("COMMIT")


def _write_ahead(database: sqlite3.Connection) -> None:
    """Let readers go on while a writer writes; of several that ask at once SQLite refuses all but one without waiting."""
    until_s = time.monotonic() + WAIT_S
    while True:
        try:
            database.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until_s:
                raise
            time.sleep(0.01)


def _is_new(database: sqlite3.Connection, path: Path) -> bool:
    """Return whether nothing is in the file yet. Other databases, and ledgers of another version, are refused."""
    identity, version = _pragma(database, "application_id"), _pragma(database, "user_version")
    num_tables = int(database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    if (identity, version, num_tables) == (0, 0, 0):
        return True
    if identity != APPLICATION_ID:
        raise InputFileError("is a database, but no ledger of meshwright", file=path)
    refuse_other_version(database, path)
    if version != SCHEMA_VERSION:
        problem = f"the ledger is damaged: its header names version {version}, its tables are of version {SCHEMA_VERSION}"
        raise InputFileError(problem, file=path)
    return False


def refuse_other_version(database: sqlite3.Connection, path: Path) -> None:
    """Refuse a ledger of another version, whose tables differ; where the header alone is wrong, they are this version's."""
    version = _pragma(database, "user_version")
    if version == SCHEMA_VERSION:
        return
    with closing(sqlite3.connect(":memory:")) as own:
        own.executescript(_SCHEMA)
        if _definitions(database) != _definitions(own):
            raise InputFileError(f"is a ledger of version {version}; version {SCHEMA_VERSION} is known", file=path)


def _definitions(database: sqlite3.Connection) -> set[tuple[str, str]]:
    """Return the names and statements of the tables and indices that were made."""
    return set(database.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"))


def _pragma(database: sqlite3.Connection, name: str) -> int:
    return int(database.execute(f"PRAGMA {name}").fetchone()[0])
