"""The file format of traces: bytes by hand, reading back, and what is no trace."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.export.chakra.schema import KINDS, Collective, NodeType, RankTrace, TraceNode, decode, encode

from ...draws import draws

HEAD = b"\x07\x0a\x050.0.4"
"""The message before the nodes, without metadata, behind its length."""


def varint(number):
    """A whole number as protobuf writes it: seven bits a byte, the lowest first, the top bit set where another follows."""
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def with_node(content):
    return HEAD + varint(len(content)) + content


def only_node(content):
    (node,) = decode(with_node(content)).nodes
    return node


def test_a_whole_trace_worked_by_hand():
    sent = TraceNode(300, "ab", NodeType.COMM_SEND, 5, 200, (1, 128), (2,), {"comm_src": 1})
    content = encode(RankTrace({"rank": 3}, (sent,)))
    # version: field 1; attributes of the trace: 2; of a node: 10, whose name is 1 and whose int32 7
    head = b"\x0a\x050.0.4" + b"\x12\x08" + b"\x0a\x04rank\x48\x03"
    node = b"\x08\xac\x02" + b"\x12\x02ab" + b"\x18\x05" + b"\x22\x03\x01\x80\x01" + b"\x2a\x01\x02"
    node += b"\x30\x05" + b"\x38\xc8\x01" + b"\x52\x0c" + b"\x0a\x08comm_src\x38\x01"
    assert content == bytes([len(head)]) + head + bytes([len(node)]) + node
    assert decode(content) == RankTrace({"rank": 3}, (sent,), "0.0.4")


def test_numbers_of_the_format():
    # et_def.proto of schema version 0.0.4
    assert {kind.name: kind.value for kind in NodeType} == {
        **{"METADATA": 1, "COMP": 4, "COMM_SEND": 5, "COMM_RECV": 6, "COMM_COLL": 7}
    }
    assert {kind.name: kind.value for kind in Collective} == {
        **{"ALL_REDUCE": 0, "ALL_GATHER": 2, "BROADCAST": 5, "ALL_TO_ALL": 6, "REDUCE_SCATTER": 7}
    }


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
attributes = st.dictionaries(
    names.filter(lambda name: name not in KINDS),
    st.booleans() | st.integers(0, 2**63 - 1) | st.floats(allow_nan=False) | names | st.lists(names, max_size=3).map(tuple),
    max_size=3,
)
numbers = st.integers(0, 2**62)
nodes = st.builds(
    TraceNode,
    numbers,
    names,
    st.sampled_from(NodeType),
    numbers,
    numbers,
    *[st.lists(numbers, max_size=3).map(tuple)] * 2,
    attributes,
)
traces = st.builds(RankTrace, attributes, st.lists(nodes, max_size=3).map(tuple), names)


@draws(50)
@given(traces)
def test_what_is_written_is_read_back(trace):
    found = decode(encode(trace))
    assert found == trace
    for ours, theirs in zip((found, *found.nodes), (trace, *trace.nodes), strict=True):
        both = [one.metadata if isinstance(one, RankTrace) else one.attributes for one in (ours, theirs)]
        assert {name: type(value) for name, value in both[0].items()} == {name: type(value) for name, value in both[1].items()}


@draws(50)
@given(traces, st.data())
def test_a_file_that_ends_early_is_refused_unless_it_ends_behind_a_node(trace, data):
    content = encode(trace)
    at = data.draw(st.integers(0, len(content) - 1))
    ends = [len(encode(RankTrace(trace.metadata, trace.nodes[:number], trace.version))) for number in range(len(trace.nodes) + 1)]
    if at in ends:
        assert decode(content[:at]).nodes == trace.nodes[: ends.index(at)]
    else:
        with pytest.raises(ValueError, match="is empty" if at == 0 else "is damaged or cut short"):
            decode(content[:at])


@pytest.mark.parametrize(
    "content",
    [
        b"\x80",  # ends within a number
        b"\x80" * 10 + b"\x01",  # a number of more than ten bytes
        HEAD + b"\x02\x08",  # ends within a node
        with_node(b"\x08"),
        with_node(b"\x12\x03ab"),  # ends within a field
        with_node(b"\x19" + bytes(7)),
        with_node(b"\x1b\x00"),  # a group that does not end
        with_node(b"\x22\x01\x80"),
    ],
)
def test_what_is_no_trace_is_refused(content):
    with pytest.raises(ValueError, match="a message in it is damaged or cut short"):
        decode(content)


@pytest.mark.parametrize(
    ("content", "changed"),
    [
        (b"", {}),
        (b"\x08" + b"\xff" * 9 + b"\x01", {"id": 2**64 - 1}),
        (b"\x08\x01\x08\x02", {"id": 2}),  # the last of two, as protobuf has it
        (b"\x18\x02", {}),  # a type that is not known here
        (b"\x18\x07", {"type": NodeType.COMM_COLL}),
        (b"\x20\x05\x22\x02\x06\x07\x28\x08", {"ctrl_deps": (5, 6, 7), "data_deps": (8,)}),  # together, and each by itself
        (b"\x22\x04\x81\x01\x82\x01", {"ctrl_deps": (129, 130)}),
        (b"\x09" + struct.pack("<d", 1.0) + b"\x0d" + bytes(4) + b"\x30\x09", {"start_micros": 9}),  # other kinds of field 1
        (b"\x7a\x01x\x38\x04", {"duration_micros": 4}),  # field 15
        (b"\x52\x00", {"attributes": {"": ""}}),
        (b"\x52\x05\x0a\x01a\x40\x01", {"attributes": {"a": ""}}),  # a value in field 8
        (b"\x52\x06\x0a\x01a\xd8\x01\x00", {"attributes": {"a": False}}),
        (b"\x50\x01\x10\x01\x31" + bytes(8), {}),  # numbers where there should be text
    ],
)
def test_what_others_write_is_read_as_far_as_it_is_known(content, changed):
    node = only_node(content)
    wanted = {"id": 0, "name": "", "type": NodeType.METADATA, "start_micros": 0, "duration_micros": 0} | changed
    assert node == TraceNode(**wanted)


def test_the_version_may_be_missing_or_stand_twice():
    assert decode(b"\x00") == RankTrace({}, (), "")
    assert decode(b"\x06\x0a\x010\x0a\x011") == RankTrace({}, (), "1")
    assert decode(b"\x02\x08\x01").version == ""  # a number where there should be text


def test_numbers_that_a_field_cannot_hold_are_never_written():
    for name, most in (("comm_tag", 2**31 - 1), ("comm_size", 2**63 - 1), ("else", 2**63 - 1)):
        trace = RankTrace({name: most}, ())
        assert decode(encode(trace)) == trace
        with pytest.raises(ValueError, match="out of range"):
            encode(RankTrace({name: most + 1}, ()))
