"""Arrays as compiled code reads them: rows of unequal length, one behind the other in one array, and tuples of new arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any, TypeVar, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

Kind = TypeVar("Kind", bound=np.generic)
TupleOfArrays = TypeVar("TupleOfArrays", bound=tuple[Any, ...])


def row_starts(lengths: Sequence[int] | NDArray[Any]) -> NDArray[np.int64]:
    """Return where each row begins and, last, where the last one ends, ``(n + 1,)``."""
    first = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=first[1:])
    return first


def starts_behind(starts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return where each row of several tables begins, each as `row_starts` says, that are put one behind the other."""
    return row_starts(np.concatenate([np.diff(start) for start in starts]))


def joined_rows(rows: Sequence[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where each row begins, as `row_starts` says, and all that they hold."""
    first = row_starts([len(row) for row in rows])
    return first, np.fromiter(chain.from_iterable(rows), np.int64, int(first[-1]))


def rows_by_owner(owner: NDArray[np.int64], item: NDArray[np.int64], count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return a row for each of so many owners, of its items in order: those of ``i`` are ``item[first[i]:first[i + 1]]``."""
    first = row_starts(np.bincount(owner, minlength=count))
    return first, np.ascontiguousarray(item[np.argsort(owner, kind="stable")], np.int64)


def arrays_of(
    kind: type[TupleOfArrays], shapes: Mapping[str, int | Sequence[int]], values: Mapping[str, Any] | None = None, **given: Any
) -> TupleOfArrays:
    """Return a tuple of new arrays.

    Args:
        kind: a NamedTuple; each array has the type that its field is declared with.
        shapes: of the new arrays, by the names of fields, blanks between those of one shape.
        values: what some of them are full of, by names in the same way; the others are full of zeros.
        given: the other fields.
    """
    types = _types_of(kind)
    new = {name: np.zeros(shape, types[name]) for names, shape in shapes.items() for name in names.split()}
    for names, value in (values or {}).items():
        for name in names.split():
            new[name].fill(value)
    return kind(**new, **given)


@cache
def _types_of(kind: type[tuple[Any, ...]]) -> dict[str, Any]:
    """Return the type of the numbers of each field that is an array."""
    arrays = {name: get_args(hint) for name, hint in get_type_hints(kind).items()}
    return {name: get_args(parts[1])[0] for name, parts in arrays.items() if len(parts) == 2}


def frozen(array: NDArray[Kind]) -> NDArray[Kind]:
    """Return the array itself, which is read-only from now on."""
    array.flags.writeable = False
    return array
