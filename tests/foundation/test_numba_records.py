"""Tuples handed to compiled functions by address: the same fields as in Python, and nothing of them counted or copied."""

import copy
import pickle
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest
from numba import TypingError, njit

from meshwright.compiled import config
from meshwright.numba_records import by_reference

compiled_only = pytest.mark.skipif(bool(config.DISABLE_JIT), reason="compilation is switched off")


class Inner(NamedTuple):
    factor: float
    is_on: bool
    table: Any


@by_reference
class Outer(NamedTuple):
    """An example."""

    count: int
    values: Any
    inner: Inner
    last: Any


@njit
def added(given, i):
    inner = given.inner
    total = given.count + given.values[i] + given.last[i, -1]
    if inner.is_on:
        total += inner.factor * inner.table[1, i]
    return total


@njit
def write(given, i):
    given.values[i] = -1.0
    given.inner.table[0] = 7.0


@njit
def missing(given):
    return given.absent


def example():
    # The table is every second column of a larger one: its rows are 12 numbers apart, its columns 2.
    table = np.arange(24.0).reshape(2, 12)[:, ::2]
    return Outer(3, np.array([1.0, 2.0]), Inner(0.5, True, table), np.array([[10, 20], [30, 40]]))


def test_fields_worked_by_hand():
    # 3 + 2 + 40 + 0.5 * 14
    assert added(example(), 1) == 52.0
    off = example()._replace(inner=example().inner._replace(is_on=False))
    assert added(off, 0) == 3 + 1 + 20


def test_what_compiled_functions_write_stands_in_the_arrays():
    given = example()
    write(given, 1)
    assert given.values.tolist() == [1.0, -1.0]
    assert given.inner.table.tolist() == [[7.0] * 6, [12.0, 14.0, 16.0, 18.0, 20.0, 22.0]]


def test_a_replaced_field_is_the_one_that_is_read():
    given = example()
    assert added(given, 0) == 3 + 1 + 20 + 6
    assert added(given._replace(count=5, values=np.array([9.0])), 0) == 5 + 9 + 20 + 6
    assert added(given, 0) == 3 + 1 + 20 + 6


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda values: pickle.loads(pickle.dumps(values))])
def test_copies_are_read_where_they_lie(again):
    given = example()
    added(given, 0)
    other = again(given)
    assert type(other) is Outer
    write(other, 0)
    assert added(other, 0) == 3 - 1 + 20 + 6
    assert (other.values is given.values) == (given.values[0] == -1.0)


@compiled_only
def test_calls_count_no_references():
    given = example()
    before = [sys.getrefcount(field) for field in (given.values, given.last, given.inner.table)]
    for _ in range(10):
        added(given, 0)
    assert [sys.getrefcount(field) for field in (given.values, given.last, given.inner.table)] == before


def test_a_marked_class_keeps_its_name_fields_and_docstring():
    assert (Outer.__name__, Outer.__doc__, Outer._fields) == ("Outer", "An example.", ("count", "values", "inner", "last"))
    assert Outer.__module__ == __name__


@compiled_only
def test_a_field_that_is_neither_array_nor_number_is_refused():
    with pytest.raises(TypeError, match=r"Outer\.last is no array, number or tuple of such: 'text'"):
        added(example()._replace(last="text"), 0)


@compiled_only
def test_an_absent_field_is_refused():
    with pytest.raises(TypingError, match="absent"):
        missing(example())
