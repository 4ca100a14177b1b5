"""Chakra traces: laws of what each rank does, read back by the writer's schema and by a decoder written by hand."""

import json
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import ExportError
from meshwright.export.chakra.schema import KINDS, NodeType, RankTrace, TraceNode, encode
from meshwright.export.chakra.traces import render, step_of, trace_name, traces_of
from meshwright.export.options import ExportOptions
from meshwright.jobs.graph import JobGraph
from meshwright.jobs.zoo.catalogue import zoo_graph
from meshwright.plans import sip_ml_splits
from meshwright.simulation.step.execution import TaskKind

from ...draws import draws
from .plans import graph_of, plan_of, plans
from .readers import attributes_of, decoded, framed, packed, replay

# An op on one rank feeds one on two ranks: half of its activation goes to rank 1 and half of the gradient back.
PAIR = graph_of([(0, 1)], [1000, 10], [0, 500])


def test_two_ops_on_two_ranks_worked_by_hand():
    first, second = (trace.nodes for trace in traces_of(plan_of(PAIR, [1, 2]))[0])
    assert [(node.name, node.type, node.data_deps, node.ctrl_deps) for node in first] == [
        ("op0 forward", NodeType.COMP, (), ()),
        ("op0 activation 0 to 1", NodeType.COMM_SEND, (0,), ()),
        ("op1 forward", NodeType.COMP, (0,), ()),
        ("op1 backward", NodeType.COMP, (2,), ()),
        ("op0 gradient 1 to 0", NodeType.COMM_RECV, (), (1,)),
        ("op1 all-reduce", NodeType.COMM_COLL, (3,), (4,)),
        ("op0 backward", NodeType.COMP, (3, 4), ()),
    ]
    assert [(node.name, node.type, node.data_deps, node.ctrl_deps) for node in second] == [
        ("op0 activation 0 to 1", NodeType.COMM_RECV, (), ()),
        ("op1 forward", NodeType.COMP, (0,), ()),
        ("op1 backward", NodeType.COMP, (1,), ()),
        ("op0 gradient 1 to 0", NodeType.COMM_SEND, (2,), (0,)),
        ("op1 all-reduce", NodeType.COMM_COLL, (2,), (3,)),
    ]
    # op0 takes 1 ms, then half of its 1000 bytes goes to rank 1
    sent = first[1].attributes
    assert (sent["comm_src"], sent["comm_dst"], sent["comm_size"], sent["start_s"]) == (0, 1, 500, 1e-3)
    # op1 is halved: 0.5 ms forward after 1 ms of op0, 1 ms backward
    assert [(node.start_micros, node.duration_micros) for node in first[2:4]] == [(1000, 500), (1500, 1000)]
    assert first[5].attributes["comm_size"] == second[4].attributes["comm_size"] == 500


@draws(10)
@given(plans())
def test_every_receive_has_its_send_with_the_same_tag_and_size(plan):
    ends = defaultdict(list)
    for rank, trace in enumerate(traces_of(plan)[0]):
        for node in trace.nodes:
            if node.type in (NodeType.COMM_SEND, NodeType.COMM_RECV):
                values = node.attributes
                assert rank == values["comm_src" if node.type == NodeType.COMM_SEND else "comm_dst"]
                assert values["comm_src"] != values["comm_dst"]
                assert node.name.endswith(f" {values['comm_src']} to {values['comm_dst']}")
                key = values["comm_src"], values["comm_dst"], values["comm_tag"]
                ends[key].append((node.type, values["comm_size"], node.name))
    for pair in ends.values():
        assert sorted(kind for kind, _, _ in pair) == [NodeType.COMM_SEND, NodeType.COMM_RECV]
        assert pair[0][1:] == pair[1][1:]
    assert len({tag for _, _, tag in ends}) == len(ends)


@draws(10)
@given(plans())
def test_a_collective_stands_once_in_the_trace_of_each_member_in_one_order(plan):
    traces, groups = traces_of(plan)
    met = defaultdict(dict)
    for rank, trace in enumerate(traces):
        for node in trace.nodes:
            if node.type == NodeType.COMM_COLL:
                assert rank in groups[node.attributes["pg_name"]]
                met[node.attributes["pg_name"]].setdefault(rank, []).append((node.name, node.attributes["comm_size"]))
    for name, by_rank in met.items():
        assert sorted(by_rank) == sorted(groups[name])
        orders = list(by_rank.values())
        assert all(order == orders[0] for order in orders)
        assert max(Counter(orders[0]).values()) == 1
    assert len(set(groups.values())) == len(groups)
    timeline, _ = step_of(plan)
    assert sum(len(next(iter(by_rank.values()))) for by_rank in met.values()) == (timeline.execution.kind == 2).sum()


@draws(10)
@given(plans())
def test_dependencies_lead_back_to_nodes_of_the_same_trace(plan):
    for trace in traces_of(plan)[0]:
        assert [node.id for node in trace.nodes] == list(range(len(trace.nodes)))
        for node in trace.nodes:
            # to earlier ones only: no circle
            assert all(0 <= before < node.id for before in (*node.data_deps, *node.ctrl_deps))
            for before in node.data_deps:
                other = trace.nodes[before].attributes
                assert (
                    other["start_s"] + other["duration_s"] <= node.attributes["start_s"] + node.attributes["duration_s"] + 1e-12
                )


@draws(10)
@given(plans())
def test_times_are_those_of_the_timeline(plan):
    timeline, _ = step_of(plan)
    traces, _ = traces_of(plan)
    computed = [sum(n.attributes["duration_s"] for n in trace.nodes if n.type == NodeType.COMP) for trace in traces]
    assert computed == pytest.approx(timeline.compute_busy_s.tolist(), abs=1e-12)
    ends = [n.attributes["start_s"] + n.attributes["duration_s"] for trace in traces for n in trace.nodes]
    assert max(ends) == pytest.approx(timeline.step_s)
    assert traces[0].metadata["simulated_step_s"] == timeline.step_s
    execution = timeline.execution
    moved = sum(n.attributes["comm_size"] for trace in traces for n in trace.nodes if n.type == NodeType.COMM_SEND)
    assert moved == np.ceil(execution.payload_bytes[execution.kind == TaskKind.TRANSFER]).sum()
    for node in (node for trace in traces for node in trace.nodes):
        assert abs(node.duration_micros - node.attributes["duration_s"] * 1e6) <= 1
        assert abs(node.start_micros - node.attributes["start_s"] * 1e6) <= 0.5 + 1e-6


@draws(10)
@given(plans())
def test_a_reader_that_takes_nodes_as_astra_sim_does_reaches_the_end(plan):
    traces, groups = traces_of(plan)
    assert replay([trace.nodes for trace in traces], groups) == [len(trace.nodes) for trace in traces]


def test_the_replay_sees_a_deadlock():
    """The negative control: two ranks that meet two collectives in opposite orders."""
    graph = graph_of([(0, 1)], [10, 10], [100, 200])
    traces, groups = traces_of(plan_of(graph, [2, 2]))
    second = list(traces[1].nodes)
    meet = [place for place, node in enumerate(second) if node.type == NodeType.COMM_COLL]
    a, b = (second[place] for place in meet)
    second[meet[0]] = replace(a, name=b.name, attributes=b.attributes)
    second[meet[1]] = replace(b, name=a.name, attributes=a.attributes)
    with pytest.raises(AssertionError, match="another collective"):
        replay([traces[0].nodes, second], groups)


@draws(8)
@given(plans())
def test_traces_are_read_back_as_they_were(plan):
    files = render(plan, ExportOptions())
    traces, groups = traces_of(plan)
    assert json.loads(files["comm_groups.json"]) == {name: list(members) for name, members in groups.items()}
    for rank, trace in enumerate(traces):
        head, *frames = framed(files[trace_name(rank)])
        fields = decoded(head)
        assert fields[1] == [b"0.0.4"]
        assert attributes_of(fields[2])["rank"] == rank
        assert attributes_of(fields[2])["host"] == plan.ranks[rank].host
        assert len(frames) == len(trace.nodes)
        for frame, node in zip(frames, trace.nodes, strict=True):
            fields = decoded(frame)
            assert set(fields) <= {1, 2, 3, 4, 5, 6, 7, 10}
            # proto3 leaves zeros out
            assert fields.get(1, [0]) == [node.id]
            assert fields[2] == [node.name.encode()]
            assert fields[3] == [int(node.type)]
            assert packed(fields.get(4, [b""])) == list(node.ctrl_deps)
            assert packed(fields.get(5, [b""])) == list(node.data_deps)
            assert fields.get(6, [0]) == [node.start_micros]
            assert fields.get(7, [0]) == [node.duration_micros]
            assert attributes_of(fields[10]) == dict(node.attributes)


def test_attributes_stand_in_the_fields_in_which_chakras_feeder_looks():
    # field numbers of AttributeProto: int32 7, int64 9, uint64 13, bool 27, string 29
    wanted = {"is_cpu_op": 27, "num_ops": 9, "tensor_size": 13, "comm_type": 9, "comm_size": 9, "comm_src": 7, "comm_dst": 7}
    wanted |= {"comm_tag": 7, "pg_name": 29}
    assert set(wanted) == set(KINDS)
    seen = {}
    for content in list(render(plan_of(PAIR, [1, 2]), ExportOptions()).values())[:2]:
        for frame in framed(content)[1:]:
            for attribute in decoded(frame)[10]:
                fields = decoded(attribute)
                [number] = set(fields) - {1}
                seen[fields[1][0].decode()] = number
    assert {name: seen[name] for name in wanted} == wanted


def test_metadata_heads_every_trace_with_what_is_not_guaranteed():
    plan = plan_of(PAIR, [1, 2])
    for rank in range(2):
        metadata = attributes_of(decoded(framed(render(plan, ExportOptions())[trace_name(rank)])[0])[2])
        assert metadata["not_guaranteed"][0].startswith("Placement:")
        assert (metadata["rank"], metadata["host"], metadata["local_rank"]) == (rank, plan.ranks[rank].host, 6 + rank)
        assert json.loads(metadata["comm_groups"]) == {"1": [0, 1]}


def test_a_real_job_is_written_with_its_work():
    graph = zoo_graph("resnet18")
    splits = sip_ml_splits(graph, 8, 2e-5)
    plan = plan_of(graph, splits.splits)
    traces, groups = traces_of(plan)
    assert len(groups) > 1
    # the whole forward and backward pass, cut and rounded up
    work = sum(node.attributes["num_ops"] for trace in traces for node in trace.nodes if node.type == NodeType.COMP)
    total = graph.forward_flops.sum() + graph.backward_flops.sum()
    assert total <= work <= total + sum(len(trace.nodes) for trace in traces)
    assert replay([trace.nodes for trace in traces], groups) == [len(trace.nodes) for trace in traces]


def test_a_dependency_without_bytes_is_a_message_of_size_zero():
    # op1 is whole and its output empty; op0's backward on rank 1 waits for it
    plan = plan_of(graph_of([(0, 1)], [0, 0], [0, 0]), [1, 2])
    traces, groups = traces_of(plan)
    signals = [node for trace in traces for node in trace.nodes if node.type != NodeType.COMP]
    assert {node.attributes["comm_size"] for node in signals} == {0}
    assert len(signals) == 4
    assert {node.duration_micros for node in signals} == {0}
    assert groups == {}


def test_plans_without_a_job_a_cluster_or_a_partition_are_refused(make_plan):
    plan = plan_of(PAIR, [1, 2])
    with pytest.raises(ExportError, match=r"job.graph: the plan embeds no job graph"):
        step_of(make_plan(["a"]))
    with pytest.raises(ExportError, match="cluster: the plan embeds no cluster"):
        step_of(plan.model_copy(update={"cluster": None}))
    with pytest.raises(ExportError, match="partition: has neither op splits nor a layout"):
        step_of(plan.model_copy(update={"partition": None}))


def test_what_the_format_cannot_hold_is_refused():
    graph = graph_of([(0, 1)], [9.5e18, 10], [0, 0])  # more than 63 bits tell
    plan = plan_of(PAIR, [1, 2])
    huge = plan.model_copy(update={"job": plan.job.model_copy(update={"graph": graph.to_data()})})
    with pytest.raises(ExportError, match=r"op0: is too large for the trace format"):
        traces_of(huge)


def test_a_job_that_cannot_be_timed_on_the_devices_is_refused():
    plan = plan_of(PAIR, [1, 2])
    data = PAIR.to_data() | {"reference_device": "v100"}
    with pytest.raises(ExportError, match="was timed on v100"):
        step_of(plan.model_copy(update={"job": plan.job.model_copy(update={"graph": data})}))


@given(st.text(max_size=30).filter(lambda text: not any("\ud800" <= letter <= "\udfff" for letter in text)))
def test_any_name_of_an_op_is_read_back(text):
    data = PAIR.to_data() | {"op_names": [text, text + "x"]}
    plan = plan_of(JobGraph.from_data(data), [1, 2])
    frames = [frame for rank in range(2) for frame in framed(render(plan, ExportOptions())[trace_name(rank)])[1:]]
    assert f"{text}x all-reduce".encode() in [decoded(frame)[2][0] for frame in frames]


def test_every_kind_of_value_stands_in_its_field_worked_by_hand():
    values = {"a": True, "b": 300, "c": 0.5, "d": "e", "is_cpu_op": False, "num_ops": 0, "pg_name": "", "f": ("g", "")}
    node = TraceNode(0, "", NodeType.COMP, 0, 0, (), (), values)
    # a node without number, name, times and dependencies holds its type alone; attributes: 10, name: 1, then the value's field
    wanted = b"\x18\x04" + b"".join(
        b"\x52" + bytes([len(one)]) + one
        for one in (
            b"\x0a\x01a\xd8\x01\x01",  # bool, 27
            b"\x0a\x01b\x48\xac\x02",  # int64, 9
            b"\x0a\x01c\x19\x00\x00\x00\x00\x00\x00\xe0\x3f",  # double, 3
            b"\x0a\x01d\xea\x01\x01e",  # string, 29
            b"\x0a\x09is_cpu_op\xd8\x01\x00",
            b"\x0a\x07num_ops\x48\x00",
            b"\x0a\x07pg_name\xea\x01\x00",
            b"\x0a\x01f\xf2\x01\x05\x0a\x01g\x0a\x00",  # list of strings, 30
        )
    )
    assert framed(encode(RankTrace({}, (node,)))) == [b"\x0a\x050.0.4", wanted]
