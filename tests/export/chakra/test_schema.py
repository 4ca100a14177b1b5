"""The file format of traces: bytes by hand, reading back, and what is no trace."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.export.chakra.schema import KINDS, Collective, NodeType, RankTrace, TraceNode, decode, encode

from ...draws import draws

HEAD = b"\x07\x0a\x050.0.4"
"""The message before the nodes, without metadata, behind its length."""


def test_a_whole_trace_worked_by_hand():
    sent = TraceNode(300, "ab", NodeType.COMM_SEND, 5, 200, (1, 128), (2,), {"comm_src": 1})
    content = encode(RankTrace({"rank": 3}, (sent,)))
    # version: field 1; attributes of the trace: 2; of a node: 10, whose name is 1 and whose int32 7
    head = b"\x0a\x050.0.4" + b"\x12\x08" + b"\x0a\x04rank\x48\x03"
    node = b"\x08\xac\x02" + b"\x12\x02ab" + b"\x18\x05" + b"\x22\x03\x01\x80\x01" + b"\x2a\x01\x02"
    node += b"\x30\x05" + b"\x38\xc8\x01" + b"\x52\x0c" + b"\x0a\x08comm_src\x38\x01"
    assert content == bytes([len(head)]) + head + bytes([len(node)]) + node
    assert decode(content) == RankTrace({"rank": 3}, (sent,), "0.0.4")


def test_every_kind_of_value_stands_in_its_field_worked_by_hand():
    values = {
        "a": True,
        "b": 300,
        "c": 0.5,
        "d": "e",
        **dict.fromkeys(KINDS, 1),
        "is_cpu_op": False,
        "pg_name": "",
        "f": ("g", ""),
    }
    node = TraceNode(0, "", NodeType.COMP, 0, 0, (), (), values)
    # a node without number, name, times and dependencies holds its type alone; attributes: 10, name: 1, then the value's field
    expected = b"\x18\x04" + b"".join(
        b"\x52" + bytes([len(one)]) + one
        for one in (
            b"\x0a\x01a\xd8\x01\x01",  # bool, 27
            b"\x0a\x01b\x48\xac\x02",  # int64, 9
            b"\x0a\x01c\x19\x00\x00\x00\x00\x00\x00\xe0\x3f",  # double, 3
            b"\x0a\x01d\xea\x01\x01e",  # string, 29
            b"\x0a\x09is_cpu_op\xd8\x01\x00",
            b"\x0a\x07num_ops\x48\x01",
            b"\x0a\x0btensor_size\x68\x01",  # uint64, 13
            b"\x0a\x09comm_type\x48\x01",
            b"\x0a\x09comm_size\x48\x01",
            b"\x0a\x08comm_src\x38\x01",  # int32, 7
            b"\x0a\x08comm_dst\x38\x01",
            b"\x0a\x08comm_tag\x38\x01",
            b"\x0a\x07pg_name\xea\x01\x00",
            b"\x0a\x01f\xf2\x01\x05\x0a\x01g\x0a\x00",  # list of strings, 30
        )
    )
    size = len(expected)
    assert encode(RankTrace({}, (node,))) == HEAD + bytes([size & 0x7F | 0x80, size >> 7]) + expected


def test_what_is_not_known_here_is_passed_over():
    # a type of node, an attribute's value in field 8, and field 15
    (node,) = decode(HEAD + b"\x0c" + b"\x18\x02" + b"\x52\x05\x0a\x01a\x40\x01" + b"\x7a\x01x").nodes
    assert node == TraceNode(0, "", NodeType.METADATA, 0, 0, attributes={"a": ""})
    assert decode(b"\x00") == RankTrace({}, (), "")


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
    result = decode(encode(trace))
    assert result == trace
    for ours, theirs in zip((result, *result.nodes), (trace, *trace.nodes), strict=True):
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


def test_numbers_that_a_field_cannot_hold_are_never_written():
    for name, most in (("comm_tag", 2**31 - 1), ("comm_size", 2**63 - 1), ("else", 2**63 - 1)):
        trace = RankTrace({name: most}, ())
        assert decode(encode(trace)) == trace
        with pytest.raises(ValueError, match="out of range"):
            encode(RankTrace({name: most + 1}, ()))
