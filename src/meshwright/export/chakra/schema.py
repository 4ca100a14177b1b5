"""The file format of MLCommons Chakra execution traces: messages by field number, and the framing of a file.

A trace is one protobuf message after another, each behind its length as a varint. First comes ``GlobalMetadata``, then a
``Node`` for each action of the rank. The fields in use are declared here, in a pool of descriptors of their own. Generated code
would clash with another copy of the schema in the same process.

Source:
    MLCommons Chakra, ``schema/protobuf/et_def.proto`` as of schema version 0.0.4.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from typing import Any

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

_VALUES = (
    ("double", 3, "double"),
    ("int32", 7, "int32"),
    ("int64", 9, "int64"),
    ("uint64", 13, "uint64"),
    ("bool", 27, "bool"),
    ("string", 29, "string"),
    ("strings", 30, "StringList"),
)
_MESSAGES = {
    "StringList": (("values", 1, "string*"),),
    "AttributeProto": (("name", 1, "string"), *_VALUES),
    "GlobalMetadata": (("version", 1, "string"), ("attr", 2, "AttributeProto*")),
    "Node": (
        ("id", 1, "uint64"),
        ("name", 2, "string"),
        ("type", 3, "int32"),
        ("ctrl_deps", 4, "uint64*"),
        ("data_deps", 5, "uint64*"),
        ("start_time_micros", 6, "uint64"),
        ("duration_micros", 7, "uint64"),
        ("attr", 10, "AttributeProto*"),
    ),
}
"""Name, number and type of the fields of each message; a star marks those that repeat. An attribute has one of `_VALUES`."""


class NodeType(IntEnum):
    """Kind of a node."""

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
    """Return the bytes of a trace's file."""
    from google.protobuf import proto

    (head_class, node_class), out = _classes(), io.BytesIO()
    proto.serialize_length_prefixed(head_class(version=trace.version, attr=_attributes(trace.metadata)), out)
    for node in trace.nodes:
        made = node_class(
            id=node.id,
            name=node.name,
            type=node.type,
            ctrl_deps=node.ctrl_deps,
            data_deps=node.data_deps,
            start_time_micros=node.start_micros,
            duration_micros=node.duration_micros,
            attr=_attributes(node.attributes),
        )
        proto.serialize_length_prefixed(made, out)
    return out.getvalue()


def decode(content: bytes) -> RankTrace:
    """Return the trace of a file; fields that are not known here are passed over.

    Raises:
        ValueError: the bytes are no such trace.
    """
    from google.protobuf import proto
    from google.protobuf.message import DecodeError

    (head_class, node_class), source = _classes(), io.BytesIO(content)
    try:
        head = proto.parse_length_prefixed(head_class, source)
        nodes = tuple(iter(lambda: proto.parse_length_prefixed(node_class, source), None))
    except (DecodeError, EOFError, OverflowError, ValueError):  # a length may be of more bytes than any file has
        raise ValueError("a message in it is damaged or cut short") from None
    if head is None:
        raise ValueError("is empty")
    return RankTrace(_values(head.attr), tuple(map(_read_node, nodes)), head.version)


@cache
def _classes() -> tuple[Any, Any]:
    """Return the classes of a trace's head and of its nodes."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    of_field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package="chakra", syntax="proto3")
    for message_name, fields in _MESSAGES.items():
        message = file.message_type.add(name=message_name)
        for name, number, kind in fields:
            made = message.field.add(name=name, number=number)
            made.label = of_field.LABEL_REPEATED if kind.endswith("*") else of_field.LABEL_OPTIONAL
            if kind.rstrip("*") in _MESSAGES:
                made.type, made.type_name = of_field.TYPE_MESSAGE, f".chakra.{kind.rstrip('*')}"
            else:
                made.type = of_field.Type.Value(f"TYPE_{kind.rstrip('*').upper()}")
            if (name, number, kind) in _VALUES:
                made.oneof_index = 0
    file.message_type[list(_MESSAGES).index("AttributeProto")].oneof_decl.add(name="value")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    head, node = (pool.FindMessageTypeByName(f"chakra.{name}") for name in ("GlobalMetadata", "Node"))
    return message_factory.GetMessageClass(head), message_factory.GetMessageClass(node)


def _attributes(values: Mapping[str, Value]) -> list[dict[str, Any]]:
    """Return the attributes as the fields of their messages."""
    kinds = ((name, KINDS.get(name) or _OF_TYPE[type(value)], value) for name, value in values.items())
    return [{"name": name, kind: {"values": value} if kind == "strings" else value} for name, kind, value in kinds]


def _values(attributes: Iterable[Any]) -> dict[str, Value]:
    """Return the values by name; an empty text where the value's kind is not known here."""
    values: dict[str, Value] = {}
    for attribute in attributes:
        kind = attribute.WhichOneof("value")
        value: Any = "" if kind is None else getattr(attribute, kind)
        values[attribute.name] = tuple(value.values) if kind == "strings" else value
    return values


def _read_node(node: Any) -> TraceNode:
    return TraceNode(
        id=node.id,
        name=node.name,
        type=NodeType(node.type) if node.type in list(NodeType) else NodeType.METADATA,
        start_micros=node.start_time_micros,
        duration_micros=node.duration_micros,
        ctrl_deps=tuple(node.ctrl_deps),
        data_deps=tuple(node.data_deps),
        attributes=_values(node.attr),
    )
