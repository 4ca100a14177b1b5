"""The file format of MLCommons Chakra execution traces: messages by field number, and the framing of a file.

A trace is one protobuf message after another, each behind its length as a varint: first `GlobalMetadata`, then a
`TraceNode` for each thing that the rank does. Fields are written by their numbers: a few lines in place of generated code,
which would clash with another copy of the schema in the same process.

Source:
    MLCommons Chakra, ``schema/protobuf/et_def.proto`` as of schema version 0.0.4; protobuf's encoding,
    https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache

VERSION = "0.0.4"
"""Version of the schema, as ASTRA-sim's own generators write it."""

Value = bool | int | float | str | tuple[str, ...]

KINDS: dict[str, str] = {
    "is_cpu_op": "bool",
    "num_ops": "int64",
    "tensor_size": "uint64",
    "comm_type": "int64",
    "comm_size": "int64",
    "comm_src": "int32",
    "comm_dst": "int32",
    "comm_tag": "int32",
    "pg_name": "string",
}
"""Kind of value that Chakra's feeder looks for in each attribute that it knows; it converts nothing."""

_OF_TYPE = {bool: "bool", int: "int64", float: "double", str: "string", tuple: "strings"}

_VARINT, _EIGHT_BYTES, _SIZED = 0, 1, 2
"""Wire types of protobuf: a number, a double, and what stands behind its size."""

_FIELDS = {
    "double": (3, _EIGHT_BYTES),
    **{kind: (number, _VARINT) for kind, number in (("int32", 7), ("int64", 9), ("uint64", 13), ("bool", 27))},
    **{kind: (number, _SIZED) for kind, number in (("string", 29), ("strings", 30))},
}
"""Number and wire type of the field of ``AttributeProto`` that holds a value of each kind."""

_BYTES = [bytes([number]) for number in range(0x80)]


class NodeType(IntEnum):
    """What a node is."""

    METADATA = 1
    COMP = 4
    COMM_SEND = 5
    COMM_RECV = 6
    COMM_COLL = 7


class Collective(IntEnum):
    """Value of ``comm_type``."""

    ALL_REDUCE = 0
    ALL_GATHER = 2
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7


@dataclass(frozen=True)
class TraceNode:
    """One thing that a rank does.

    Attributes:
        id: unique in the trace.
        name: for people.
        type: what it is.
        start_micros: start in whole microseconds.
        duration_micros: duration in whole microseconds.
        ctrl_deps: nodes that come before for want of a resource.
        data_deps: nodes whose results it needs.
        attributes: by name; see `KINDS`.
    """

    id: int
    name: str
    type: NodeType
    start_micros: int
    duration_micros: int
    ctrl_deps: tuple[int, ...] = ()
    data_deps: tuple[int, ...] = ()
    attributes: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class RankTrace:
    """The trace of one rank.

    Attributes:
        metadata: attributes of the whole trace.
        nodes: what the rank does.
        version: of the schema.
    """

    metadata: Mapping[str, Value]
    nodes: tuple[TraceNode, ...]
    version: str = VERSION


def encode(trace: RankTrace) -> bytes:
    """The bytes of a trace's file."""
    head = [_sized(1, trace.version.encode()), *(_attribute(2, *item) for item in trace.metadata.items())]
    return b"".join(_framed(parts) for parts in (head, *map(_node, trace.nodes)))


def varint(number: int) -> bytes:
    """A number in groups of seven bits, lowest first, with the high bit on all bytes but the last."""
    if number < 0x80:
        return _BYTES[number]
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def decode(content: bytes) -> RankTrace:
    """The trace of a file; fields that are not known here are passed over.

    Raises:
        ValueError: the bytes are no such trace.
    """
    at, parts = 0, []
    while at < len(content):
        size, at = _read_varint(content, at)
        if size > len(content) - at:
            raise ValueError("ends within a node")
        parts.append(content[at : at + size])
        at += size
    if not parts:
        raise ValueError("is empty")
    head = _fields(parts[0])
    version = b"".join(value for value in head.get(1, []) if isinstance(value, bytes)).decode()
    metadata = dict(_read_attribute(value) for value in head.get(2, []) if isinstance(value, bytes))
    return RankTrace(metadata, tuple(_read_node(part) for part in parts[1:]), version)


def _node(node: TraceNode) -> list[bytes]:
    """The fields of a node by their numbers; empty ones and zeros are left out."""
    parts = [_number(1, node.id), _sized(2, node.name.encode()) if node.name else b"", _number(3, int(node.type))]
    dependencies = (4, node.ctrl_deps), (5, node.data_deps)
    parts += [_sized(number, b"".join(map(varint, found))) if found else b"" for number, found in dependencies]
    parts += [_number(6, node.start_micros), _number(7, node.duration_micros)]
    return [*parts, *(_attribute(10, *item) for item in node.attributes.items())]


def _attribute(field: int, name: str, value: Value) -> bytes:
    kind = KINDS.get(name) or _OF_TYPE[type(value)]
    if isinstance(value, tuple):
        content = b"".join(_sized(1, text.encode()) for text in value)
    elif isinstance(value, str):
        content = value.encode()
    elif isinstance(value, float):
        return _sized(field, _head(name, kind) + struct.pack("<d", value))
    else:
        assert 0 <= value < 2 ** (31 if kind == "int32" else 63)
        return _sized(field, _head(name, kind) + varint(value))
    return _sized(field, _head(name, kind) + varint(len(content)) + content)


@cache
def _head(name: str, kind: str) -> bytes:
    """An attribute up to its value."""
    number, wire = _FIELDS[kind]
    return _sized(1, name.encode()) + varint(number << 3 | wire)


def _number(field: int, number: int) -> bytes:
    return _BYTES[field << 3 | _VARINT] + varint(number) if number else b""


def _sized(field: int, content: bytes) -> bytes:
    return _BYTES[field << 3 | _SIZED] + varint(len(content)) + content


def _framed(parts: Sequence[bytes]) -> bytes:
    content = b"".join(parts)
    return varint(len(content)) + content


def _read_varint(content: bytes, at: int) -> tuple[int, int]:
    """The number that begins there, and where it ends."""
    number = 0
    for shift in range(0, 70, 7):
        if at >= len(content):
            raise ValueError("ends within a number")
        number |= (content[at] & 0x7F) << shift
        at += 1
        if content[at - 1] < 0x80:
            return number, at
    raise ValueError("holds a number of more than ten bytes")


def _fields(content: bytes) -> dict[int, list[int | float | bytes]]:
    """Values of a message by the numbers of their fields."""
    found: dict[int, list[int | float | bytes]] = {}
    at = 0
    while at < len(content):
        key, at = _read_varint(content, at)
        field, wire = key >> 3, key & 7
        value: int | float | bytes
        if wire == _VARINT:
            value, at = _read_varint(content, at)
        else:
            fixed = {_EIGHT_BYTES: 8, 5: 4}.get(wire)
            if fixed is None and wire != _SIZED:
                raise ValueError(f"holds a field of the unknown kind {wire}")
            size, at = (fixed, at) if fixed is not None else _read_varint(content, at)
            if size > len(content) - at:
                raise ValueError("ends within a field")
            piece = content[at : at + size]
            value = struct.unpack("<d", piece)[0] if wire == _EIGHT_BYTES else piece
            at += size
        found.setdefault(field, []).append(value)
    return found


def _read_node(content: bytes) -> TraceNode:
    fields = _fields(content)
    kind = _first_number(fields, 3)
    name = next((value for value in fields.get(2, []) if isinstance(value, bytes)), b"")
    return TraceNode(
        id=_first_number(fields, 1),
        name=name.decode(),
        type=NodeType(kind) if kind in list(NodeType) else NodeType.METADATA,
        start_micros=_first_number(fields, 6),
        duration_micros=_first_number(fields, 7),
        ctrl_deps=_read_numbers(fields.get(4, [])),
        data_deps=_read_numbers(fields.get(5, [])),
        attributes=dict(_read_attribute(value) for value in fields.get(10, []) if isinstance(value, bytes)),
    )


def _first_number(fields: Mapping[int, Sequence[int | float | bytes]], field: int) -> int:
    return next((value for value in fields.get(field, []) if isinstance(value, int)), 0)


def _read_numbers(values: Sequence[int | float | bytes]) -> tuple[int, ...]:
    """Numbers that stand together, or each by itself."""
    found: list[int] = []
    for value in values:
        if isinstance(value, int):
            found.append(value)
        elif isinstance(value, bytes):
            at = 0
            while at < len(value):
                number, at = _read_varint(value, at)
                found.append(number)
    return tuple(found)


def _read_attribute(content: bytes) -> tuple[str, Value]:
    """Name and value; an empty text where the value's kind is not known here."""
    fields = _fields(content)
    name = next((value for value in fields.get(1, []) if isinstance(value, bytes)), b"").decode()
    for kind, (number, _) in _FIELDS.items():
        for value in fields.get(number, []):
            if kind == "strings" and isinstance(value, bytes):
                return name, tuple(one.decode() for one in _fields(value).get(1, []) if isinstance(one, bytes))
            if isinstance(value, bytes):
                return name, value.decode()
            return name, bool(value) if kind == "bool" else value
    return name, ""
