"""Tuples of arrays that compiled functions pass on by address.

`njit` passes a NamedTuple by value: of each array its pointer, lengths and strides, and a reference. The reference is counted
at each call and at each access to a field. For the tuples of the dynamics, about a hundred arrays, this takes longer than the
work itself, and most of the compile time. Tuples of a class that is marked `numba_records` are passed as one pointer to a block
of words. The block is written when the tuple first meets a compiled function and lives as long as the tuple. Their fields look
the same, but nothing is counted: the caller in Python holds the arrays, so compiled functions must not return them.

A block holds 8-byte words. A number takes one; an array its size, item size, address, lengths and strides; a nested tuple its
own words.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property
from typing import Any, TypeVar

import numba.extending
import numpy as np
from numba import types
from numba.core.typing.templates import AttributeTemplate  # what the public infer_getattr takes; it has no public name
from numpy.typing import NDArray

from .compiled import config

Class = TypeVar("Class", bound=type)

# Types that a number may have.
NUMBERS = (types.int64, types.float64, types.boolean)
# Numba's means of extending it are untyped.
extending: Any = numba.extending


def by_reference(cls: Class) -> Class:
    """Mark a NamedTuple whose values compiled functions take by address; a class decorator.

    Fields are arrays, numbers and other NamedTuples.
    """
    if config.DISABLE_JIT:
        return cls
    names = {name: getattr(cls, name) for name in ("__module__", "__qualname__", "__doc__")}
    marked: Any = type(cls.__name__, (cls, _Block), names)
    extending.typeof_impl.register(marked)(lambda value, _: value._type)
    return marked  # type: ignore[no-any-return]


class _Block:
    """State of a marked tuple apart from its fields, neither copied nor pickled with them."""

    def __getstate__(self) -> None:
        return None

    @cached_property
    def _type(self) -> Address:
        return _address_of(self)

    @cached_property
    def _words(self) -> NDArray[np.int64]:
        return np.array(list(_words_of(self)), np.int64)

    @cached_property
    def _address(self) -> int:
        return self._words.ctypes.data


class Address(types.Type):
    """The type of the address of a tuple.

    Attributes:
        fields: type of each field, that of its address where it is a tuple, and the number of its first word, by name.
        num_words: words of the block.
    """

    def __init__(self, cls: type, members: dict[str, types.Type]) -> None:
        self.fields: dict[str, tuple[types.Type, int]] = {}
        self.num_words = 0
        for name, kind in members.items():
            self.fields[name] = kind, self.num_words
            self.num_words += _num_words(kind)
        digest = hashlib.sha256(repr(members).encode()).hexdigest()[:16]
        super().__init__(name=f"Address({cls.__module__}.{cls.__qualname__}, {digest})")


_ADDRESSES = dict[tuple[Any, ...], Address]()
"""By class and kinds of the fields: numba takes milliseconds to look at a hundred arrays."""


def _address_of(value: Any) -> Address:
    key = type(value), *map(_kind, value)
    if key not in _ADDRESSES:
        members = {}
        for name, field in value._asdict().items():
            members[name] = _address_of(field) if isinstance(field, tuple) else extending.typeof_impl(field, None)
            if not isinstance(members[name], (Address, types.Array)) and members[name] not in NUMBERS:
                raise TypeError(f"{type(value).__name__}.{name} is no array, number or tuple of such: {field!r}")
        _ADDRESSES[key] = Address(type(value), members)
    return _ADDRESSES[key]


def _kind(field: Any) -> Any:
    """Return the properties of a field on which its type in numba depends."""
    if isinstance(field, np.ndarray):
        flags = field.flags
        return field.dtype, field.ndim, flags.c_contiguous, flags.f_contiguous, flags.writeable, flags.aligned
    return _address_of(field) if isinstance(field, tuple) else type(field)


def _num_words(kind: types.Type) -> int:
    if isinstance(kind, Address):
        return kind.num_words
    return 3 + 2 * kind.ndim if isinstance(kind, types.Array) else 1


def _words_of(value: Any) -> Iterator[int]:
    for field in value:
        if isinstance(field, tuple):
            yield from _words_of(field)
        elif isinstance(field, np.ndarray):
            yield from (field.size, field.itemsize, field.ctypes.data, *field.shape, *field.strides)
        elif isinstance(field, float):
            yield int(np.float64(field).view(np.int64))
        else:
            yield int(field)


@extending.register_model(Address)
class _AddressModel(extending.models.OpaqueModel):  # type: ignore[misc]
    """A pointer; nothing behind it is counted."""


@extending.unbox(Address)
def _unbox(address: Address, given: Any, c: Any) -> Any:
    result = c.pyapi.object_getattr_string(given, "_address")
    value = c.pyapi.long_as_voidptr(result)
    c.pyapi.decref(result)
    return extending.NativeValue(value, is_error=c.pyapi.c_api_error())


@extending.infer_getattr
class _Fields(AttributeTemplate):
    key = Address

    def generic_resolve(self, address: Address, name: str) -> types.Type | None:  # type: ignore[override]
        return address.fields[name][0] if name in address.fields else None


@extending.lower_getattr_generic(Address)
def _get(context: Any, builder: Any, address: Address, value: Any, name: str) -> Any:
    """Return a field; of an array all but the reference that would have to be counted."""
    kind, first = address.fields[name]
    words = builder.gep(
        builder.bitcast(value, context.get_value_type(types.int64).as_pointer()), [context.get_constant(types.int32, first)]
    )
    if isinstance(kind, Address):
        return builder.bitcast(words, context.get_value_type(types.voidptr))

    def word(number: int) -> Any:
        read = builder.load(builder.gep(words, [context.get_constant(types.int32, number)]))
        read.set_metadata("invariant.load", builder.module.add_metadata([]))
        return read

    if isinstance(kind, types.Array):
        lengths = types.UniTuple(types.intp, kind.ndim)  # type: ignore[no-untyped-call]
        array = context.make_array(kind)(context, builder)
        array.nitems, array.itemsize = word(0), word(1)
        array.data = builder.inttoptr(word(2), array.data.type)
        array.shape = context.make_tuple(builder, lengths, [word(3 + i) for i in range(kind.ndim)])
        array.strides = context.make_tuple(builder, lengths, [word(3 + kind.ndim + i) for i in range(kind.ndim)])
        return array._getvalue()
    if isinstance(kind, types.Float):
        return builder.bitcast(word(0), context.get_value_type(kind))
    return builder.trunc(word(0), context.get_value_type(kind)) if kind == types.boolean else word(0)
