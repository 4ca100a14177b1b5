"""Chakra traces: laws of what each rank does, read back."""

import json
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from meshwright.errors import ExportError
from meshwright.export.chakra.schema import NodeType, decode
from meshwright.export.chakra.traces import render, step_of, trace_name, traces_of
from meshwright.export.options import ExportOptions
from meshwright.jobs.zoo.catalogue import zoo_graph
from meshwright.plans import sip_ml_splits
from meshwright.simulation.step.execution import TaskKind

from ...draws import draws
from .plans import graph_of, plan_of, plans
from .readers import replay

# An op on one rank feeds one on two ranks: half of its activation goes to rank 1 and half of the gradient back.
PAIR = graph_of([(0, 1)], [1000, 10], [0, 500])


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
def test_files_hold_the_traces_and_their_groups(plan):
    files, (traces, groups) = render(plan, ExportOptions()), traces_of(plan)
    assert json.loads(files["comm_groups.json"]) == {name: list(members) for name, members in groups.items()}
    for rank, trace in enumerate(traces):
        assert decode(files[trace_name(rank)]) == trace
        assert (trace.metadata["rank"], trace.metadata["host"]) == (rank, plan.ranks[rank].host)


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


def test_plans_without_a_job_a_cluster_or_a_partition_are_refused(make_plan):
    plan = plan_of(PAIR, [1, 2])
    with pytest.raises(ExportError, match=r"job.graph: the plan embeds no job graph"):
        step_of(make_plan(["a"]))
    with pytest.raises(ExportError, match="cluster: the plan embeds no cluster"):
        step_of(plan.model_copy(update={"cluster": None}))
    with pytest.raises(ExportError, match="partition: has neither op splits nor a layout"):
        step_of(plan.model_copy(update={"partition": None}))


def test_a_job_that_cannot_be_timed_on_the_devices_is_refused():
    plan = plan_of(PAIR, [1, 2])
    data = PAIR.to_data() | {"reference_device": "v100"}
    with pytest.raises(ExportError, match="was timed on v100"):
        step_of(plan.model_copy(update={"job": plan.job.model_copy(update={"graph": data})}))
