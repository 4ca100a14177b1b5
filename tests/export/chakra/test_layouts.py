"""Layouts as Chakra traces: the same laws, and what only layouts have."""

import json
from collections import Counter, defaultdict

import numpy as np
import pytest

from meshwright.errors import ExportError
from meshwright.export.chakra.schema import Collective, NodeType
from meshwright.export.chakra.traces import step_of, traces_of
from meshwright.jobs.job import Job
from meshwright.jobs.load import load_graph, load_shape
from meshwright.jobs.zoo.catalogue import zoo_graph
from meshwright.plans import Layout, layout_plan, load_plan, op_split_plan, place, uniform_splits
from meshwright.plans.training import DiLoCo, Gossip, LocalSgd, PostLocalSgd
from meshwright.simulation.step.execution import TaskKind

from .plans import CLUSTER
from .readers import replay


def layout_plan_of(name, devices=None, **changed):
    graph = zoo_graph(name, batch_size=8)
    layout = Layout(**({"micro_batch": 1, "global_batch": 2 * changed.get("dp", 1)} | changed))
    devices = np.arange(layout.world) if devices is None else devices
    return layout_plan(Job(graph, 1), CLUSTER, layout, place(CLUSTER, devices))


def test_plain_data_parallelism_is_lowered_as_op_splits():
    graph = zoo_graph("gpt2-small")
    layout = Layout(dp=4, micro_batch=graph.samples_per_step // 4, global_batch=graph.samples_per_step)
    job, devices = Job(graph, 1), place(CLUSTER, np.arange(4))
    both = (layout_plan(job, CLUSTER, layout, devices), op_split_plan(job, CLUSTER, uniform_splits(graph, 4), devices))
    ours, theirs = ([trace.nodes for trace in traces_of(plan)[0]] for plan in both)
    assert ours == theirs


LAYOUTS = {
    "stages of any job": ("resnet18", {"pp": 2, "dp": 2, "overlap_dp": True}),
    "interleaved": ("resnet18", {"pp": 2, "virtual_stages": 2, "schedule": "interleaved", "zero": 1, "dp": 2}),
    "tensors": ("gpt2-small", {"tp": 2, "pp": 2, "sequence_parallel": True, "overlap_pp": True}),
    "tied ends": ("gpt2-small", {"pp": 2, "tp": 2, "schedule": "zb-h1", "overlap_dp": True, "dp": 2}),
    "ring": ("gpt2-small", {"cp": 4, "recompute": "full"}),
    "unequal meshes": ("bert-base", {"tp": 2, "pp": 2, "stage_meshes": "2x1/1x1"}),
    "heads": ("gpt2-small", {"cp": 2, "context_parallel": "ulysses", "zero": 3}),
}


@pytest.mark.every(3)
@pytest.mark.parametrize(("name", "changed"), LAYOUTS.values(), ids=list(LAYOUTS))
def test_the_laws_hold_of_layouts(name, changed):
    plan = layout_plan_of(name, **changed)
    traces, groups = traces_of(plan)
    assert len(traces) == plan.num_ranks
    timeline, work = step_of(plan)
    execution, messages = timeline.execution, timeline.execution.messages
    ends, met, signals = defaultdict(list), Counter(), set()
    for rank, trace in enumerate(traces):
        computed = sum(node.attributes["duration_s"] for node in trace.nodes if node.type == NodeType.COMP)
        assert computed == pytest.approx(timeline.compute_busy_s[rank], rel=1e-9)
        for node in trace.nodes:
            values = node.attributes
            if node.type in (NodeType.COMM_SEND, NodeType.COMM_RECV):
                assert rank == values["comm_src" if node.type == NodeType.COMM_SEND else "comm_dst"]
                key = values["comm_src"], values["comm_dst"], values["comm_tag"]
                ends[key].append((node.type, values["comm_size"]))
                signals |= {key} if " signal " in node.name else set()
            elif node.type == NodeType.COMM_COLL:
                met[rank, values["pg_name"]] += 1
                assert rank in groups[values["pg_name"]]
    for key, pair in ends.items():
        assert sorted(kind for kind, _ in pair) == [NodeType.COMM_SEND, NodeType.COMM_RECV]
        assert pair[0][1] == pair[1][1]
        assert (pair[0][1] > 0) == (key not in signals)
    assert not signals or "stage_meshes" in changed  # slices that are sent one after the other by ranks that send no such slice
    for pg_name, members in groups.items():
        assert len({met[rank, pg_name] for rank in members}) == 1
    is_collective = execution.kind == TaskKind.COLLECTIVE
    rings = [task for task in np.flatnonzero(is_collective).tolist() if work.operations[execution.op[task]] == "send_recv"]
    assert bool(rings) == (changed.get("cp", 1) > 1 and "context_parallel" not in changed)
    assert sum(met[members[0], pg_name] for pg_name, members in groups.items()) == is_collective.sum() - len(rings)
    turns = sum(len(messages.ranks(task)) for task in rings)
    assert len(ends) - len(signals) == turns + (execution.kind == TaskKind.TRANSFER).sum()
    assert replay([trace.nodes for trace in traces], groups) == [len(trace.nodes) for trace in traces]


def trained_traces(training, **changed):
    plan = layout_plan_of("resnet18", **({"dp": 4} | changed)).model_copy(update={"training": training})
    return traces_of(plan)


def sent_bytes(traces, kinds):
    return [sum(node.attributes["comm_size"] for node in trace.nodes if node.type in kinds) for trace in traces]


def test_traces_hold_the_steps_from_one_average_to_the_next():
    kinds = (NodeType.COMM_COLL,)
    whole, _ = traces_of(layout_plan_of("resnet18", dp=4))
    (every,) = set(sent_bytes(whole, kinds))
    for training, share in (
        (LocalSgd(every=3), 1),
        (PostLocalSgd(every=3, warmup_steps=5, num_steps=9), 1),
        (DiLoCo(every=3), 1),
        (DiLoCo(every=3, quantise_bits=8), 1 / 4),
    ):
        traces, groups = trained_traces(training)
        assert sent_bytes(traces, kinds) == [pytest.approx(share * every, rel=1e-6)] * 4
        computed = ([node for node in one[0].nodes if node.type == NodeType.COMP] for one in (traces, whole))
        seconds = [sum(node.attributes["duration_s"] for node in nodes) for nodes in computed]
        assert seconds[0] == pytest.approx(3 * seconds[1], rel=1e-9)
        assert replay([trace.nodes for trace in traces], groups) == [len(trace.nodes) for trace in traces]


@pytest.mark.parametrize(("topology", "rounds"), [("ring", 2), ("one-peer-exp", 2), ("complete", 1)])
def test_traces_hold_a_cycle_of_rounds_of_gossip(topology, rounds):
    traces, groups = trained_traces(Gossip(topology=topology))
    size = zoo_graph("resnet18", batch_size=8).parameter_bytes.sum()
    for trace in traces:
        assert sum(node.type == NodeType.COMP for node in trace.nodes) == rounds
    kinds = (NodeType.COMM_COLL,) if topology == "complete" else (NodeType.COMM_SEND,)
    assert sent_bytes(traces, kinds) == [pytest.approx(rounds * size, rel=1e-6)] * 4
    assert replay([trace.nodes for trace in traces], groups) == [len(trace.nodes) for trace in traces]


CUTS = [
    {"tp": 2, "sequence_parallel": True, "pp": 2},
    {"cp": 2, "dp": 2},
    {"ep": 2, "dp": 2},
    {"zero": 2, "dp": 4},
    {"zero": 3, "dp": 4},
    {"recompute": "selective", "pp": 2, "dp": 2},
    {"schedule": "zb-h1", "pp": 2, "dp": 2},
    {"schedule": "dualpipe", "pp": 2, "overlap_pp": True, "global_batch": 4},
    {"schedule": "dualpipev", "pp": 2, "dp": 2, "ep": 2, "virtual_stages": 2, "overlap_pp": True, "global_batch": 8},
]


@pytest.mark.every(3)
@pytest.mark.parametrize("changed", CUTS, ids=[" ".join(f"{key}={value}" for key, value in cut.items()) for cut in CUTS])
def test_layouts_of_a_model_configuration_are_traced_where_the_plan_says_its_shape(changed, tmp_path):
    data = {"model_type": "mixtral", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "vocab_size": 1000}
    data |= {"num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2}
    (tmp_path / "config.json").write_text(json.dumps(data | {"max_position_embeddings": 512}))
    shape, batch = load_shape(str(tmp_path / "config.json"))
    graph = load_graph(str(tmp_path / "config.json"), batch_size=batch, sequence_length=128)
    layout = Layout(**({"micro_batch": 1, "global_batch": batch} | changed))
    devices = place(CLUSTER, np.arange(layout.world))
    plan = layout_plan(Job(graph, 1), CLUSTER, layout, devices, shape=shape, sequence_length=128)
    plan.save(tmp_path / "plan.json")
    traces, groups = traces_of(load_plan(tmp_path / "plan.json"))
    assert len(traces) == layout.world
    assert replay([trace.nodes for trace in traces], groups) == [len(trace.nodes) for trace in traces]
    with pytest.raises(ExportError, match=r"needs job\.transformer"):
        traces_of(layout_plan(Job(graph, 1), CLUSTER, layout, devices))


def test_collectives_of_layouts_tell_their_kind():
    traces, _ = traces_of(layout_plan_of("gpt2-small", tp=2, sequence_parallel=True, dp=2, zero=1))
    kinds = {node.attributes["comm_type"] for node in traces[0].nodes if node.type == NodeType.COMM_COLL}
    assert kinds == {Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.ALL_REDUCE}
    # Named as the layout names its messages, not after the one kind that ops split over ranks have.
    others = [node for node in traces[0].nodes if node.attributes.get("comm_type") in kinds - {Collective.ALL_REDUCE}]
    assert not [node.name for node in others if node.name.endswith(" all-reduce")]
    (gather,) = [node for node in traces[0].nodes if node.name.startswith("parameters all-gather")]
    # two bytes for each of the parameters of a rank: half of the products, all of norms and positions
    assert gather.attributes["comm_size"] == pytest.approx(124e6, rel=0.05)


def test_a_sender_that_waits_for_its_transfer_waits_for_its_own_node():
    first = traces_of(layout_plan_of("resnet18", pp=2))[0][0].nodes
    sent = [node for node in first if node.type == NodeType.COMM_SEND]
    assert sent
    assert not any("signal" in node.name for node in first)
    for node in sent[:-1]:
        assert any(node.id in other.data_deps for other in first if other.type == NodeType.COMP)


def test_ranks_that_are_numbered_otherwise_keep_their_numbers():
    graph, layout = zoo_graph("gpt2-small", batch_size=8), Layout(tp=2, pp=2, micro_batch=1, global_batch=2)
    plans = [
        layout_plan(Job(graph, 1), CLUSTER, layout, place(CLUSTER, np.array(devices)), order=order)
        for order, devices in (("tp-cp-dp-pp", [0, 1, 2, 3]), ("pp-tp-cp-dp", [0, 2, 1, 3]))
    ]
    ours, theirs = (traces_of(plan)[0] for plan in plans)
    # rank 1 of the second plan is the second stage's first rank, which is rank 2 of the first plan
    for rank, other in enumerate((0, 2, 1, 3)):
        shared = [(n.type, n.start_micros, n.duration_micros) for n in ours[other].nodes]
        assert [(n.type, n.start_micros, n.duration_micros) for n in theirs[rank].nodes] == shared


def test_layouts_that_need_a_shape_are_refused_for_other_jobs():
    for changed in ({"tp": 2}, {"cp": 2}, {"zero": 2, "dp": 2}, {"recompute": "selective"}, {"pp": 2, "schedule": "zb-h1"}):
        with pytest.raises(ExportError, match=r"job: .*needs job.transformer or a transformer of the zoo.*resnet18"):
            traces_of(layout_plan_of("resnet18", **changed))
    plan = layout_plan_of("gpt2-small", tp=2)
    data = plan.job.graph | {"parameter_bytes": [2 * size for size in plan.job.graph["parameter_bytes"]]}
    with pytest.raises(ExportError, match="this graph is not that of the zoo"):
        traces_of(plan.model_copy(update={"job": plan.job.model_copy(update={"graph": data})}))
    with pytest.raises(ExportError, match="micro_batch: does not divide the 8 samples"):
        traces_of(layout_plan_of("resnet18", pp=2, micro_batch=3, global_batch=6))
