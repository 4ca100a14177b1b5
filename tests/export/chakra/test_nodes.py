"""Whole nodes of traces worked by hand: every attribute, and the head of a trace."""

import json
from dataclasses import replace

import numpy as np
import pytest

from meshwright.clusters.cluster import load_cluster
from meshwright.costs.settings import CostSettings
from meshwright.errors import ExportError
from meshwright.export.chakra.schema import Collective, NodeType, decode
from meshwright.export.chakra.traces import render, traces_of
from meshwright.export.options import ExportOptions
from meshwright.jobs.job import Job
from meshwright.jobs.masked import Core
from meshwright.jobs.zoo.catalogue import zoo_graph
from meshwright.plans import Layout, layout_plan, place
from meshwright.plans.compression import Quantise
from meshwright.plans.document import Figure
from meshwright.plans.training import DiLoCo, Gossip, Masked

from .plans import CLUSTER, graph_of, plan_of

# An op on one rank feeds one on two ranks: half of its activation goes to rank 1 and half of the gradient back.
PAIR = replace(graph_of([(0, 1)], [1000, 10], [0, 500]), forward_flops=np.array([8.0, 3.0]), backward_flops=np.array([16.0, 5.0]))


def of_nodes(trace):
    """Names, and attributes other than times."""
    return [
        (node.name, {key: value for key, value in node.attributes.items() if key not in ("start_s", "duration_s")})
        for node in trace.nodes
    ]


def computes(flops, moved):
    return {"is_cpu_op": False, "num_ops": flops, "tensor_size": moved}


def sends(source, target, tag, size):
    return {"is_cpu_op": False, "comm_src": source, "comm_dst": target, "comm_tag": tag, "comm_size": size}


def test_what_two_ops_on_two_ranks_do_worked_by_hand():
    first, second = traces_of(plan_of(PAIR, [1, 2]))[0]
    # op0 writes 1000 bytes. A half of op1 reads and writes half of 1000 + 10 + 500 bytes and the other half of its weights too;
    # backward moves twice as much. Tags of transfers are the numbers of their tasks.
    whole, half = computes(8, 1000), computes(2, 1005)
    summed = {"is_cpu_op": False, "comm_type": 0, "comm_size": 500, "pg_name": "1"}
    on_both = [
        ("op0 activation 0 to 1", sends(0, 1, 6, 500)),
        ("op1 forward", half),
        ("op1 backward", computes(3, 2010)),
        ("op0 gradient 1 to 0", sends(1, 0, 7, 500)),
        ("op1 all-reduce", summed),
    ]
    assert of_nodes(first) == [("op0 forward", whole), *on_both, ("op0 backward", computes(16, 2000))]
    assert of_nodes(second) == on_both


def test_what_moves_nothing_is_a_signal_at_the_end_of_its_task_worked_by_hand():
    first, second = traces_of(plan_of(graph_of([(0, 1)], [0, 0], [0, 0]), [1, 2]))[0]
    none = computes(0, 0)
    rows = [
        [
            (node.type, node.start_micros, node.duration_micros, node.data_deps, node.ctrl_deps, *row)
            for node, row in zip(trace.nodes, of_nodes(trace), strict=True)
        ]
        for trace in (first, second)
    ]
    comp, send, receive = NodeType.COMP, NodeType.COMM_SEND, NodeType.COMM_RECV
    assert rows[0] == [
        (comp, 0, 1000, (), (), "op0 forward", none),
        (send, 1000, 0, (0,), (), "op0 signal 0 to 1", sends(0, 1, 6, 0)),
        (comp, 1000, 500, (0,), (), "op1 forward", none),
        (comp, 1500, 1000, (2,), (), "op1 backward", none),
        (receive, 2500, 0, (), (), "op1 signal 1 to 0", sends(1, 0, 7, 0)),
        (comp, 2500, 2000, (3, 4), (), "op0 backward", none),
    ]
    assert rows[1] == [
        (receive, 1000, 0, (), (), "op0 signal 0 to 1", sends(0, 1, 6, 0)),
        (comp, 1000, 500, (0,), (), "op1 forward", none),
        (comp, 1500, 1000, (1,), (), "op1 backward", none),
        (send, 2500, 0, (2,), (), "op1 signal 1 to 0", sends(1, 0, 7, 0)),
    ]


def trained(training, job="resnet18", **changed):
    """A network of 8 samples on four replicas of 2, and its graph."""
    graph = zoo_graph(job, batch_size=8)
    layout = Layout(**({"dp": 4, "micro_batch": 1, "global_batch": 8} | changed))
    plan = layout_plan(Job(graph, 1), CLUSTER, layout, place(CLUSTER, np.arange(layout.world)))
    return plan.model_copy(update={"training": training}), graph


@pytest.mark.parametrize(("batch", "share"), [(8, 1 / 4), (16, 1 / 2)])
def test_rounds_of_gossip_are_counted_from_one_and_hold_the_whole_parameters(batch, share):
    plan, graph = trained(Gossip(topology="ring"), global_batch=batch)
    traces, groups = traces_of(plan)
    # 2 of 8 samples each, and of the bytes three times those of the forward pass
    flops = share * (graph.forward_flops.sum() + graph.backward_flops.sum())
    step = ("step forward", computes(int(flops), int(3 * share * graph.moved_bytes.sum())))
    size = int(graph.parameter_bytes.sum())
    assert of_nodes(traces[1]) == [
        ("average of round 1 0 to 1", sends(0, 1, 12, size)),
        ("average of round 1 1 to 0", sends(1, 0, 13, size)),
        step,
        ("average of round 2 1 to 2", sends(1, 2, 16, size)),
        ("average of round 2 2 to 1", sends(2, 1, 17, size)),
        step,
    ]
    assert groups == {}
    traces, groups = traces_of(trained(Gossip(topology="complete"), global_batch=batch)[0])
    summed = {"is_cpu_op": False, "comm_type": 0, "comm_size": size, "pg_name": "1"}
    assert of_nodes(traces[3]) == [("average of round 1", summed), step]
    assert groups == {"1": (0, 1, 2, 3)}


@pytest.mark.parametrize(
    ("keys", "changed", "field", "value"),
    [
        ({"kind": DiLoCo, "every": 8, "overlap": True, "fragments": 2}, {}, "training.overlap", True),
        ({"kind": DiLoCo, "every": 8, "fragments": 2}, {}, "training.fragments", 2),
        ({"kind": DiLoCo, "every": 65}, {}, "training.every", 65),
        ({"kind": Gossip, "topology": "ring"}, {"dp": 2, "pp": 2}, "layout.pp", 2),
        ({"kind": Gossip, "topology": "ring", "job": "gpt2-small"}, {"dp": 2, "tp": 4}, "layout.tp", 4),
    ],
)
def test_strategies_that_a_trace_does_not_hold_are_refused_by_key(keys, changed, field, value):
    rest = {key: one for key, one in keys.items() if key not in ("kind", "job")}
    with pytest.raises(ExportError) as error:
        traces_of(trained(keys["kind"](**rest), keys.get("job", "resnet18"), **changed)[0])
    assert (error.value.field, error.value.value) == (field, value)


def test_what_is_no_layout_or_has_devices_of_two_types_is_refused_by_key():
    for changed in ({"training": Gossip(topology="ring")}, {"compression": Quantise(bits=8)}):
        with pytest.raises(ExportError) as error:
            traces_of(plan_of(PAIR, [1, 2]).model_copy(update=changed))
        assert error.value.field == "partition"
    graph, mixed = zoo_graph("resnet18", batch_size=8), load_cluster("preset:mixed-256")
    (first, *_), (last, *_) = ((mixed.device_type == kind).nonzero()[0].tolist() for kind in (0, 1))
    layout = Layout(dp=1, pp=2, micro_batch=1, global_batch=2)
    with pytest.raises(ExportError, match=r"the ranks have (h100, a100|a100, h100)") as error:
        traces_of(layout_plan(Job(graph, 1), mixed, layout, place(mixed, np.array([first, last]))))
    assert error.value.field == "cluster"


def test_sharded_replicas_send_coded_what_is_coded_and_the_rest_whole():
    plan, _ = trained(None, "gpt2-small", dp=2, zero=3, global_batch=4)

    def sent(code):
        """Bytes that rank 0 gathers, reduces and exchanges."""
        nodes = traces_of(plan.model_copy(update={"compression": code}))[0][0].nodes
        kinds = (Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.ALL_TO_ALL)
        return [sum(node.attributes["comm_size"] for node in nodes if node.attributes.get("comm_type") == kind) for kind in kinds]

    gathered, reduced, exchanged = sent(None)
    assert exchanged == 0
    # A parameter of two bytes takes one, and a 256th part of a scale of two bytes.
    assert sent(Quantise(bits=8, what="parameters")) == [pytest.approx((1 + 2 / 256) / 2 * gathered), reduced, 0]
    # Coded gradients cannot be summed on the way: they are exchanged, half a byte and the scale in place of two bytes.
    assert sent(Quantise(bits=4)) == [gathered, 0, pytest.approx((0.5 + 2 / 256) / 2 * reduced)]


def test_times_are_whole_microseconds_also_of_long_steps():
    graph = replace(PAIR, forward_s=np.array([1.0, 2.0]), backward_s=np.array([3.0, 4.0]))
    first = traces_of(plan_of(graph, [1, 2]))[0][0].nodes
    times = [(node.start_micros, node.duration_micros) for node in first if node.type == NodeType.COMP]
    # the last one waits for half of a gradient, 0.6 us
    assert times == [(0, 1_000_000), (1_000_000, 1_000_000), (2_000_000, 2_000_000), (4_000_001, 3_000_000)]


def test_a_masked_job_has_traces_of_a_step_of_its_core_and_of_the_whole():
    plan, graph = trained(Masked(core=Core(width=0.5), core_steps=3, full_steps=1))
    files = render(plan, ExportOptions())
    names = [*(f"trace.{rank}.et" for rank in range(4)), "comm_groups.json"]
    assert sorted(files) == sorted(f"{phase}.{name}" for phase in ("core", "full") for name in names)
    whole = render(plan.model_copy(update={"training": None}), ExportOptions())
    assert files["full.trace.2.et"] == whole["trace.2.et"]
    sent = {
        phase: sum(node.attributes.get("comm_size", 0) for node in decode(files[f"{phase}.trace.0.et"]).nodes)
        for phase in ("core", "full")
    }
    # A network of half the width keeps a quarter of the weights between its layers, half of those at its ends.
    assert 0.25 < sent["core"] / sent["full"] < 0.3
    assert sent["full"] == pytest.approx(graph.parameter_bytes.sum(), rel=1e-6)


def test_the_head_of_a_trace_tells_what_was_predicted_and_what_was_simulated():
    plan = plan_of(PAIR, [1, 2])
    figure = Figure(name="step_s", value=0.25, unit="s", provenance="estimated")
    for predicted, message in (((), {}), ((figure,), {"predicted_step_s": 0.25})):
        traces, groups = traces_of(plan.model_copy(update={"predicted": predicted}))
        head = dict(traces[1].metadata)
        assert len(head.pop("not_guaranteed")) == 7
        assert json.loads(head.pop("comm_groups")) == {"1": [0, 1]} == {name: list(ranks) for name, ranks in groups.items()}
        last = traces[0].nodes[-1]
        assert head.pop("simulated_step_s") == last.attributes["start_s"] + last.attributes["duration_s"]
        assert head == {
            **{"job": "g", "num_ranks": 2, "cost_settings": CostSettings().digest, "rank": 1, "host": "l0-h0", "local_rank": 7},
            **message,
        }


def test_sizes_are_rounded_up_and_held_up_to_two_to_the_62():
    nodes = traces_of(plan_of(graph_of([(0, 1)], [1001, 10], [0, 0]), [1, 2]))[0][0].nodes
    assert [node.attributes["comm_size"] for node in nodes if node.type == NodeType.COMM_SEND] == [501]
    # An op alone moves its output forward, and twice as much backward.
    plan = plan_of(graph_of([], [1], [0]), [1])

    def of_size(size):
        graph = graph_of([], [size], [0]).to_data()
        return traces_of(plan.model_copy(update={"job": plan.job.model_copy(update={"graph": graph})}))[0][0].nodes

    assert [node.attributes["tensor_size"] for node in of_size(2.0**61)] == [2**61, 2**62]
    with pytest.raises(ExportError) as error:
        of_size(np.nextafter(2.0**61, np.inf))
    assert (error.value.field, error.value.value) == ("op0", np.nextafter(2.0**62, np.inf))
