"""The file format of MLCommons Chakra execution traces: messages by field number, and the framing of a file.

A trace is one protobuf message after another, each behind its length as a varint: first `GlobalMetadata`, then a
`TraceNode` for each thing that the rank does. The descriptor is built here from the format's field numbers, so that no
generated code is needed; protobuf is imported when a trace is written or read.

Source:
    MLCommons Chakra, ``schema/protobuf/et_def.proto`` as of schema version 0.0.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from typing import Any

from ...errors import InputFileError

VERSION = "0.0.4"
"""Version of the schema, as ASTRA-sim's own generators write it."""

Value = bool | int | float | str | tuple[str, ...]

SCALARS = (
    *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64"),
    *("fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes"),
)
"""Kinds of value in the order in which ``AttributeProto`` numbers them: kind ``k`` is field ``3 + 2 k`` as ``K_val``, and
the next number as ``K_list``."""

KINDS: dict[str, str] = {
    "is_cpu_op": "bool_val",
    "num_ops": "int64_val",
    "tensor_size": "uint64_val",
    "comm_type": "int64_val",
    "comm_size": "int64_val",
    "comm_src": "int32_val",
    "comm_dst": "int32_val",
    "comm_tag": "int32_val",
    "pg_name": "string_val",
}
"""Field in which Chakra's feeder looks for the value of each attribute that it knows; it converts nothing."""

_OF_TYPE = {bool: "bool_val", int: "int64_val", float: "double_val", str: "string_val", tuple: "string_list"}


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
    messages = _messages()
    head = messages["GlobalMetadata"](version=trace.version, attr=_attributes(trace.metadata))
    parts = [_framed(head)]
    for node in trace.nodes:
        message = messages["Node"](
            id=node.id,
            name=node.name,
            type=int(node.type),
            ctrl_deps=node.ctrl_deps,
            data_deps=node.data_deps,
            start_time_micros=node.start_micros,
            duration_micros=node.duration_micros,
            attr=_attributes(node.attributes),
        )
        parts.append(_framed(message))
    return b"".join(parts)


def decode(content: bytes) -> RankTrace:
    """The trace that `encode` wrote.

    Raises:
        InputFileError: the file ends within a message, holds something else, or a node of an unknown type.
    """
    frames = list(_frames(content))
    if not frames:
        raise InputFileError("holds no trace")
    head = _parsed("GlobalMetadata", frames[0])
    nodes = []
    for frame in frames[1:]:
        message = _parsed("Node", frame)
        if message.type not in list(NodeType):
            raise InputFileError("is of an unknown type", field=f"node {message.id}", value=message.type)
        nodes.append(
            TraceNode(
                id=message.id,
                name=message.name,
                type=NodeType(message.type),
                start_micros=message.start_time_micros,
                duration_micros=message.duration_micros,
                ctrl_deps=tuple(message.ctrl_deps),
                data_deps=tuple(message.data_deps),
                attributes=_values(message.attr),
            )
        )
    return RankTrace(metadata=_values(head.attr), nodes=tuple(nodes), version=head.version)


def varint(number: int) -> bytes:
    """A number in groups of seven bits, lowest first, with the high bit on all bytes but the last."""
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def descriptor() -> Any:
    """The schema as a ``FileDescriptorProto``."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto  # type: ignore[import-untyped]

    file = FileDescriptorProto(name="et_def.proto", package="ChakraProtoMsg", syntax="proto3")

    def add(message: Any, name: str, number: int, kind: str, *, repeated: bool = False, oneof: int | None = None) -> None:
        label = FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL
        entry = message.field.add(name=name, number=number, label=label)
        if kind in SCALARS:
            entry.type = getattr(FieldDescriptorProto, f"TYPE_{kind.upper()}")
        else:
            entry.type = FieldDescriptorProto.TYPE_ENUM if kind == "NodeType" else FieldDescriptorProto.TYPE_MESSAGE
            entry.type_name = f".ChakraProtoMsg.{kind}"
        if oneof is not None:
            entry.oneof_index = oneof

    attribute = file.message_type.add(name="AttributeProto")
    attribute.oneof_decl.add(name="value")
    add(attribute, "name", 1, "string")
    add(attribute, "doc_string", 2, "string")
    for place, kind in enumerate(SCALARS):
        add(attribute, f"{kind}_val", 3 + 2 * place, kind, oneof=0)
        add(attribute, f"{kind}_list", 4 + 2 * place, f"{kind.capitalize()}List", oneof=0)
        add(file.message_type.add(name=f"{kind.capitalize()}List"), "values", 1, kind, repeated=True)
    metadata = file.message_type.add(name="GlobalMetadata")
    add(metadata, "version", 1, "string")
    add(metadata, "attr", 2, "AttributeProto", repeated=True)
    node = file.message_type.add(name="Node")
    for number, name, kind in (
        (1, "id", "uint64"),
        (2, "name", "string"),
        (3, "type", "NodeType"),
        (4, "ctrl_deps", "uint64"),
        (5, "data_deps", "uint64"),
        (6, "start_time_micros", "uint64"),
        (7, "duration_micros", "uint64"),
        (8, "inputs", "IOInfo"),
        (9, "outputs", "IOInfo"),
        (10, "attr", "AttributeProto"),
    ):
        add(node, name, number, kind, repeated=name in ("ctrl_deps", "data_deps", "attr"))
    tensors = file.message_type.add(name="IOInfo")
    for number, name in enumerate(("values", "shapes", "types"), start=1):
        add(tensors, name, number, "string")
    kinds = file.enum_type.add(name="NodeType")
    names = ("INVALID", "METADATA", "MEM_LOAD", "MEM_STORE", "COMP", "COMM_SEND", "COMM_RECV", "COMM_COLL")
    for number, name in enumerate(names):
        kinds.value.add(name=f"{name}_NODE", number=number)
    return file


@cache
def _messages() -> dict[str, Any]:
    """The classes of the messages, in a pool of their own: another copy of the schema may be loaded beside them."""
    from google.protobuf.descriptor_pool import DescriptorPool  # type: ignore[import-untyped]
    from google.protobuf.message_factory import GetMessageClass  # type: ignore[import-untyped]

    pool = DescriptorPool()
    file = descriptor()
    pool.AddSerializedFile(file.SerializeToString())
    names = [message.name for message in file.message_type]
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"ChakraProtoMsg.{name}")) for name in names}


def _attributes(values: Mapping[str, Value]) -> list[Any]:
    messages = _messages()
    found = []
    for name, value in values.items():
        kind = KINDS.get(name) or _OF_TYPE[type(value)]
        content = messages["StringList"](values=value) if kind == "string_list" else value
        found.append(messages["AttributeProto"](name=name, **{kind: content}))
    return found


def _values(attributes: Any) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for attribute in attributes:
        kind = attribute.WhichOneof("value")
        if kind is None:
            raise InputFileError("has no value", field=f"attribute {attribute.name}")
        value = getattr(attribute, kind)
        found[attribute.name] = tuple(value.values) if kind.endswith("_list") else value
    return found


def _framed(message: Any) -> bytes:
    content: bytes = message.SerializeToString(deterministic=True)
    return varint(len(content)) + content


def _frames(content: bytes) -> Iterator[bytes]:
    place = 0
    while place < len(content):
        size = shift = 0
        while True:
            if place >= len(content) or shift > 28:
                raise InputFileError("ends within a length, or holds something else", field=f"byte {place}")
            byte = content[place]
            place += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if place + size > len(content):
            raise InputFileError(f"ends within a message of {size} bytes", field=f"byte {place}")
        yield content[place : place + size]
        place += size


def _parsed(name: str, frame: bytes) -> Any:
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        return _messages()[name].FromString(frame)
    except DecodeError:
        raise InputFileError(f"holds no {name}", value=frame[:20]) from None
