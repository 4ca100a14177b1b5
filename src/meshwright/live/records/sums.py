"""Checksums of the records of a ledger: a wrong byte on the disk is refused with the record's name, and never read as content.

Each record has the CRC-32 of its table and values.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...errors import InputFileError

COLUMNS: dict[str, tuple[str, ...]] = {
    "change": ("seq", "body", "at"),
    "snapshot": ("seq", "body"),
    "name": ("name",),
    "decision": ("number", "id", "key", "outcome", "body", "at"),
    "mention": ("decision", "seq", "at", "status", "detail"),
    "document": ("digest", "body"),
    "observation": ("decision", "step", "rank", "step_s"),
    "floor": ("seq", "at", "body"),
    "old_key": ("key", "decision", "request", "at"),
}
"""Stored columns of each record, in the order of its table."""

KEYS = {"mention": 2, "observation": 3}
"""Of how many columns a record's key is, where it is of more than one."""

REMEDY = "`meshwright state repair` keeps what is whole"


def sum_of(table: str, *values: Any) -> int:
    """Return the checksum of a record."""
    return zlib.crc32(repr((table, *values)).encode(errors="surrogatepass"))


def insert(table: str, verb: str = "INSERT") -> str:
    """Return the statement that writes a record, from the values that `with_sum` makes."""
    return f"{verb} INTO {table} ({', '.join(COLUMNS[table])}, sum) VALUES ({'?, ' * len(COLUMNS[table])}?)"


def with_sum(table: str, *values: Any) -> tuple[Any, ...]:
    """Return the values of a record and its checksum."""
    return *values, sum_of(table, *values)


def is_whole(table: str, row: tuple[Any, ...]) -> bool:
    """Return whether a record is as it was written."""
    return bool(sum_of(table, *row[:-1]) == row[-1])


def record(table: str, row: tuple[Any, ...]) -> str:
    """Return a record by its name, for people."""
    words = map(str, (table, *([] if table in ("name", "floor") else row[: KEYS.get(table, 1)])))
    return " ".join(words).encode(errors="replace").decode()


def whole_rows(
    database: sqlite3.Connection, path: Path, table: str, rest: str = "", values: tuple[Any, ...] = ()
) -> Iterator[tuple[Any, ...]]:
    """Yield the records of a table in the order of `COLUMNS`.

    Args:
        database, path: of the ledger.
        table: of them.
        rest: of the statement.
        values: of its places.

    Raises:
        InputFileError: one is not as it was written.
    """
    for row in database.execute(f"SELECT {', '.join(COLUMNS[table])}, sum FROM {table} {rest}", values):  # noqa: S608
        if not is_whole(table, row):
            raise damaged(path, record(table, row))
        yield row[:-1]


def damaged(path: Path, what: str, why: str = "is not as it was written") -> InputFileError:
    """Return the refusal of a ledger that is not whole."""
    return InputFileError(f"the ledger is damaged: this record {why}; {REMEDY}", file=path, field=what)
