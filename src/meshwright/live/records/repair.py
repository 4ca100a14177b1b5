"""`repair`: a damaged ledger is written anew from its intact records; the damaged file stays in the same folder.

A change that is lost is left out, and so is one that contradicts the rest without it. The fold then begins after the last of
them, at the state that is known there: that of a later snapshot where one is whole, otherwise the one without the lost changes.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ...errors import InputFileError, StateError
from ..changes import CHANGE, changed
from ..ledger import Ledger
from ..state import ClusterState
from .decision_bodies import unpacked
from .ledger_file import COUNT_DOCUMENTS, as_input_error, open_ledger, refuse_other_version
from .sums import COLUMNS, KEYS, insert, is_whole, record, with_sum

Records = dict[str, list[tuple[Any, ...]]]
Found = TypeVar("Found")


@dataclass(frozen=True)
class Repaired:
    """A repaired ledger.

    Attributes:
        counts: number of whole records by table.
        lost: names of records that are not whole; a table's name alone where its pages cannot be read to the end.
        floor: number of the last change that is kept only as the state after it.
        damaged: where the damaged file lies; None where nothing was lost and the ledger stays as it is.
    """

    counts: dict[str, int]
    lost: tuple[str, ...]
    floor: int
    damaged: Path | None


def repair(path: Path) -> Repaired:
    """Write a ledger anew from what is whole; nobody else may use it meanwhile.

    Raises:
        InputFileError: its header cannot be read, the damaged file of an earlier repair is there, or the disk fails.
    """
    path = Path(os.path.realpath(path))
    damaged, new = path.with_name(path.name + ".damaged"), path.with_name(path.name + ".repaired")
    for one in (damaged, new):
        if one.exists():
            raise InputFileError("a file of this name is in the way; move it first", file=one)
    is_open = False
    with suppress(InputFileError):
        open_ledger(path, is_read=True).close()
        is_open = True
    lost, last = list[str](), dict[str, int]()
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True)) as database:
            database.text_factory = lambda text: text.decode(errors="surrogateescape")
            database.execute("PRAGMA writable_schema = ON")  # tables whose definitions are whole are read in spite of others
            refuse_other_version(database, path)
            records = {table: _whole_records(database, table, lost) for table in COLUMNS}
            with suppress(sqlite3.OperationalError):  # its definition is lost
                last = dict(database.execute("SELECT name, seq FROM sqlite_sequence"))
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise as_input_error(error, path, "nothing can be kept of it") from None
    documents = dict(records["document"])
    for row in list(records["decision"]):
        decision = _read(lambda body: unpacked(body, documents.get), row[4])
        if decision is None or not documents.keys() >= set(decision.documents.values()):
            records["decision"].remove(row)
            lost.append(record("decision", row))
    floor = _fold(records, lost, last.get("change", 0))
    counts = {table: len(rows) for table, rows in records.items()}
    if not lost and is_open:
        return Repaired(counts, (), floor, None)
    _write(new, records, last.get("decision", 0))
    path.rename(damaged)
    new.rename(path)
    for ending in ("-wal", "-shm"):  # they are of the damaged file
        with suppress(FileNotFoundError):
            path.with_name(path.name + ending).rename(damaged.with_name(damaged.name + ending))
    return Repaired(counts, tuple(dict.fromkeys(lost)), floor, damaged)


def _whole_records(database: sqlite3.Connection, table: str, lost: list[str]) -> list[tuple[Any, ...]]:
    """Return the whole records of a table, read from both ends where a page between them cannot be read."""
    names = {name for _, name, *_ in database.execute(f"PRAGMA table_info({table})")}
    key = COLUMNS[table][: KEYS.get(table, 1)]
    if "sum" not in names:
        lost.append(table)
        return []
    results: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for direction in ("ASC", "DESC"):
        order = ", ".join(f"{one} {direction}" for one in key)
        query = f"SELECT {', '.join(COLUMNS[table])}, sum FROM {table} NOT INDEXED ORDER BY {order}"  # noqa: S608 - ours
        try:
            for row in database.execute(query):
                if is_whole(table, row):
                    results[row[: len(key)]] = row[:-1]
                else:
                    lost.append(record(table, row[:-1]))
            break
        except (sqlite3.DatabaseError, UnicodeDecodeError):
            lost.append(table)
    if table in ("floor", "name") and not results:
        lost.append(table)
    return [results[one] for one in sorted(results)]


def _fold(records: Records, lost: list[str], last: int) -> int:
    """Leave out the changes up to the last one that is lost, and make the state after it the floor; its number."""
    changes = {seq: body for seq, body, _ in records["change"]}
    snapshots = {seq: _read(ClusterState.model_validate_json, body) for seq, body in records["snapshot"]}
    row: tuple[int, str | None, str | None] = next(iter(records["floor"]), (0, None, None))
    floor, at, body = row
    known = ClusterState() if body is None else _read(ClusterState.model_validate_json, body)
    state = known or ClusterState()
    if known is None or "floor" in lost:
        lost.append("floor")
        floor = min([*changes, *snapshots], default=last + 1) - 1
    begin, is_known, whole = floor, "floor" not in lost or floor == 0, state
    for seq in range(floor + 1, max([last, *changes, *snapshots]) + 1):
        after = _changed(state, changes.get(seq))
        if after is None:
            lost.append(f"change {seq}")
            begin, is_known, whole = seq, False, state
        else:
            state = after
        snapshot = snapshots.get(seq)
        if not is_known and snapshot is not None:
            state = whole = snapshot
            begin, is_known = seq, True
    records["floor"] = [(begin, at, whole.model_dump_json() if begin else None)]
    records["change"] = [row for row in records["change"] if row[0] > begin]
    records["snapshot"] = [row for row in records["snapshot"] if row[0] > begin]
    return begin


def _changed(state: ClusterState, body: str | None) -> ClusterState | None:
    """Return the state after a change; None where it is lost, or contradicts the state."""
    change = None if body is None else _read(CHANGE.validate_json, body)
    with suppress(StateError):
        return None if change is None else changed(state, change)
    return None


def _write(path: Path, records: Records, num_decided: int) -> None:
    """Write a ledger of these records, whose next decision has the number after the last one that there was."""
    Ledger(path).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        try:
            database.execute("PRAGMA synchronous = FULL")
            database.execute("BEGIN IMMEDIATE")
            for table, rows in records.items():
                if rows:
                    database.execute(f"DELETE FROM {table}")  # noqa: S608 - a name of ours
                database.executemany(insert(table, "INSERT OR IGNORE"), [with_sum(table, *row) for row in rows])
            database.execute(COUNT_DOCUMENTS)
            database.execute("DELETE FROM sqlite_sequence WHERE name = 'decision'")
            most = max([num_decided, *(row[0] for row in records["decision"])])
            database.execute("INSERT INTO sqlite_sequence VALUES ('decision', ?)", (most,))
            database.execute("COMMIT")
        except sqlite3.Error as error:
            raise as_input_error(error, path) from None


def _read(reader: Callable[[Any], Found], body: str) -> Found | None:
    """Return a record's content; None where it cannot be read."""
    try:
        return reader(body)
    except (KeyError, TypeError, ValueError):
        return None
