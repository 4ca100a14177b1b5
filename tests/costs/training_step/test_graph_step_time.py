"""Steps and memory of any job graph: parts that add up, figures worked by hand, how sure they are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.clusters import load_cluster
from meshwright.costs.pipelines.waits import bubble_time_fraction
from meshwright.costs.process_groups.group_network import HostNetwork, group_network
from meshwright.costs.training_step.graph_step_time import (
    DIVIDED_UNCERTAINTY,
    PROFILED_UNCERTAINTY,
    ROOFLINE_UNCERTAINTY,
    GraphPricer,
)
from meshwright.costs.training_step.step_time import Pricer
from meshwright.costs.work.graph_work import describe_graph
from meshwright.costs.work.memory import FRAGMENTATION, RUNTIME_BYTES
from meshwright.devices import device_type
from meshwright.jobs import load_graph
from meshwright.jobs.load import load_shape
from meshwright.plans.partition import Layout

from ...draws import draws
from ..graphs import CHAIN, Hosts, Line, drawn_graphs, graph_of

A100 = device_type("a100")


def test_the_parts_of_a_step_worked_by_hand():
    # two stages of two ops, one micro-batch with recomputation: F 2 s, 3 s on the way, F 2 + F 2 + B 4, 3 s back, F 2 + B 4 s
    layout = Layout(pp=2, micro_batch=1, global_batch=1, recompute="full")
    priced = GraphPricer(A100, Line()).price_work(describe_graph(CHAIN, layout, A100))
    assert priced.step_s == pytest.approx(22.0)
    # of the first stage: 2 + 4 computing, 2 again, 3 s each way, and 8 s in which the other one, which is equal, computes
    assert priced.breakdown_s == pytest.approx(
        {
            "compute": 6,
            "recompute": 2,
            "pipeline transfers": 6,
            "bubble": 8,
            "imbalance": 0,
            "gradient sync": 0,
            "parameter gather": 0,
        }
    )
    assert bubble_time_fraction(priced.breakdown_s) == pytest.approx((2 - 1) / 1)
    assert priced.rate[1] == pytest.approx(1 / 22)
    assert priced.mfu is None
    assert priced.hfu is None


layouts = st.builds(
    lambda pp, dp, m, recompute, overlap, zero: Layout(
        pp=pp, dp=dp, micro_batch=1, global_batch=dp * m, recompute=recompute, overlap_dp=overlap, zero=zero if dp > 1 else 0
    ),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 4),
    st.sampled_from(["none", "full"]),
    st.booleans(),
    st.integers(0, 1),
)


@draws(20)
@given(drawn_graphs(least=3), layouts, st.sampled_from(["tp-cp-dp-pp", "pp-tp-cp-dp"]))
def test_the_parts_are_the_step(graph, layout, order):
    work = describe_graph(graph, layout, A100)
    priced = GraphPricer(A100, Hosts(), 1.126, order).price_work(work)
    assert sum(priced.breakdown_s.values()) == pytest.approx(priced.step_s, abs=1e-9)
    assert priced.step_s == GraphPricer(A100, Hosts(), 1.126, order).step_s(work)
    assert min(priced.breakdown_s.values()) >= -1e-9


def test_the_order_of_ranks_decides_what_crosses_hosts():
    # hosts of two; two stages of two replicas: dp inside a host and stages apart, or the other way round
    layout = Layout(pp=2, dp=2, micro_batch=1, global_batch=4)
    work = describe_graph(CHAIN, layout, A100)
    near, far = (GraphPricer(A100, Hosts(), 1.0, order).price_work(work).breakdown_s for order in ("tp-cp-pp-dp", "tp-cp-dp-pp"))
    assert near["pipeline transfers"] == pytest.approx(0.1 * far["pipeline transfers"])


def test_memory_worked_by_hand():
    # One of four samples; stages of two ops: a and b keep 2 + 1 bytes, c and d 0.5 + 0.25 and 6 of weights. 1F1B keeps two
    # micro-batches on the first stage, one on the second; 3 bytes go between them; d works on 8 / 4.
    graph = graph_of(
        [4] * 4, [(0, 1), (1, 2), (2, 3), (0, 3)], [8, 4, 2, 1], [0, 0, 0, 6], workspace_bytes=np.array([0, 0, 0, 8.0])
    )
    work = describe_graph(graph, Layout(pp=2, micro_batch=1, global_batch=4), A100)
    first, second = work.memory(0), work.memory(1)
    assert (first.model_state, first.activations, first.buffers) == (0.0, 6.0, 3.0)
    # weights and gradients of 6, an optimizer of 36: 8 bytes for each byte of weights
    assert (second.parameters, second.gradients, second.optimizer) == (6.0, 6.0, 36.0)
    assert (second.activations, second.buffers) == (0.75, 2.0 + 3.0)
    assert second.runtime == RUNTIME_BYTES + FRAGMENTATION * 5.75
    # recomputation keeps what comes in: nothing, and 3 bytes; and goes through a stage's own once
    again = describe_graph(graph, Layout(pp=2, micro_batch=1, global_batch=4, recompute="full"), A100)
    assert [again.memory(stage).activations for stage in (0, 1)] == [3.0, 3.0 + 0.75]
    # two replicas share the optimizer
    shared = describe_graph(graph, Layout(pp=2, dp=2, micro_batch=1, global_batch=8, zero=1), A100)
    assert shared.memory(1).optimizer == 18.0


def test_a_measured_step_is_surer_than_a_part_of_one_and_both_than_a_roofline():
    def spread(graph, micro_batch):
        return GraphPricer(A100, Line()).price_work(describe_graph(graph, Layout(micro_batch=micro_batch, global_batch=4), A100))

    assert spread(CHAIN, 4).uncertainty == PROFILED_UNCERTAINTY
    assert spread(CHAIN, 1).uncertainty == DIVIDED_UNCERTAINTY
    roofline = load_graph("zoo:alexnet", device=A100, batch_size=4)
    priced = spread(roofline, 4)
    assert priced.uncertainty == ROOFLINE_UNCERTAINTY
    # 0.714 G products a sample forward, twice as many backward but for the input gradients of the first convolution, 0.070 G
    assert priced.model_flops == pytest.approx(4 * 2 * (3 * 0.714e9 - 0.070e9), rel=0.01)
    assert priced.mfu == pytest.approx(priced.model_flops / priced.step_s / A100.peak_flops_per_s)


def test_the_roofline_is_as_far_from_calibrated_kernels_as_it_says():
    # transformers can be priced both ways; 312 TFLOP/s at 50 % against kernels of 81 % with everything around them
    ratios = []
    for name, batch in (("gpt2-small", 16), ("gpt2-xl", 4), ("llama-7b", 1), ("bert-base", 16), ("bert-large", 8)):
        graph = load_graph(f"zoo:{name}", device=A100, batch_size=batch)
        for attention in ("fused", "unfused"):
            layout = Layout(micro_batch=batch, global_batch=batch, attention=attention)
            kernels = Pricer(A100, HostNetwork(8, 300e9, 200e9)).price(load_shape(f"zoo:{name}")[0], layout)
            ratios.append(graph.step_s / kernels.breakdown_s["compute"])
    rms = float(np.sqrt(np.mean(np.log(ratios) ** 2)))
    assert rms <= ROOFLINE_UNCERTAINTY
    assert rms > 0.75 * ROOFLINE_UNCERTAINTY


def test_communications_tell_where_their_times_come_from():
    graph = load_graph("zoo:vgg16", device=A100)
    cluster = load_cluster("preset:dgx-a100-8x8")
    wires = group_network(cluster)
    inside = describe_graph(graph, Layout(dp=8, micro_batch=4, global_batch=64), A100)
    assert GraphPricer(A100, wires).provenance(inside) == {"gradient sync": "interpolated"}
    across = describe_graph(graph, Layout(dp=8, pp=2, micro_batch=4, global_batch=64, zero=1), A100)
    assert GraphPricer(A100, wires).provenance(across) == {
        "gradient sync": "interpolated",
        "parameter gather": "interpolated",
        "pipeline transfers": "estimated",
    }
