"""Rows of unequal length, one behind the other in one array, as compiled code reads them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray


def row_starts(lengths: Sequence[int] | NDArray[Any]) -> NDArray[np.int64]:
    """Where each row begins and, last, where the last one ends, ``(n + 1,)``."""
    first = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=first[1:])
    return first


def starts_behind(starts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Where each row of several tables begins, each as `row_starts` says, that are put one behind the other."""
    return row_starts(np.concatenate([np.diff(start) for start in starts]))


def joined_rows(rows: Sequence[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where each row begins, as `row_starts` says, and all that they hold."""
    first = row_starts([len(row) for row in rows])
    return first, np.fromiter(chain.from_iterable(rows), np.int64, int(first[-1]))


def rows_by_owner(owner: NDArray[np.int64], item: NDArray[np.int64], count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A row for each of so many owners, of its items in their order: those of ``i`` are ``item[first[i]:first[i + 1]]``."""
    first = row_starts(np.bincount(owner, minlength=count))
    return first, np.ascontiguousarray(item[np.argsort(owner, kind="stable")], np.int64)
