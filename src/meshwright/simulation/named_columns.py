"""Columns of an array of features by name: one list says their names and their order, to compiled code too."""

from __future__ import annotations

from enum import IntEnum
from typing import Self


class Column(IntEnum):
    """A column of an array of features; a subclass lists all columns of one array in order.

    .. code-block:: python

        class JobColumn(Column):
            AGE = "age"
            WORK = "work left"

    ``JobColumn.AGE`` is 0 wherever a number is allowed, also in compiled code, and ``JobColumn.names()`` is
    ``("age", "work left")``. Code names each column that it writes or reads, so that columns may be added or reordered.

    Attributes:
        label: name of the column in documents and saved files.
    """

    label: str

    def __new__(cls, label: str) -> Self:
        """Return the next column; numbers are given in the order in which the class lists them."""
        number = len(cls.__members__)
        member = int.__new__(cls, number)
        member._value_ = number
        member.label = label
        return member

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the names of all columns, in order."""
        return tuple(member.label for member in cls)
