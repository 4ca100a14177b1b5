"""The search over a job graph's layouts finds what brute force finds: every layout, every cut, every rank order."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from meshwright.clusters import load_cluster
from meshwright.costs.process_groups.group_network import group_network
from meshwright.costs.training_step.graph_step_time import GraphPricer
from meshwright.costs.work.graph_work import describe_graph
from meshwright.devices import device_type
from meshwright.errors import PlanError
from meshwright.jobs import load_graph
from meshwright.jobs.graph import JobGraph
from meshwright.planners.layouts.graph_search import GraphSearch
from meshwright.planners.layouts.request import SearchRequest
from meshwright.plans.partition import Layout

from ...draws import FACTOR, draws

A100 = device_type("a100")
CLUSTER = load_cluster("preset:clos-64-4to1")


def drawn(seed, num_ops, samples=8):
    """A graph of milliseconds and megabytes that is not a chain."""
    rng = np.random.default_rng(seed)
    pairs = [(a, b) for a in range(num_ops) for b in range(a + 1, num_ops) if b == a + 1 or rng.random() < 0.15]
    seconds = rng.choice([1e-3, 2e-3, 5e-3], num_ops)
    return JobGraph(
        name=f"drawn-{seed}",
        op_names=tuple(f"op{i}" for i in range(num_ops)),
        op_kinds=("Linear",) * num_ops,
        forward_s=seconds,
        backward_s=2 * seconds,
        forward_flops=np.zeros(num_ops),
        backward_flops=np.zeros(num_ops),
        activation_bytes=rng.choice([1e6, 20e6, 200e6], num_ops),
        parameter_bytes=rng.choice([0.0, 10e6, 400e6], num_ops),
        workspace_bytes=np.zeros(num_ops),
        edges=np.array(pairs, np.int64),
        samples_per_step=samples,
        source="measured",
    )


def search(graph, batch=8, capacity=80e9, **rest):
    return GraphSearch(graph, batch, A100, capacity, 8, group_network(CLUSTER), request=SearchRequest(**rest))


def combinations_of(n, k):
    """Every way to cut a chain."""
    return ((0, *inner, n) for inner in combinations(range(1, n), k - 1))


@draws(2, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10_000), st.integers(3, 5 if FACTOR <= 1 else 6), st.sampled_from([80e9, 6e9, 3.5e9]))
def test_the_best_layout_is_that_of_brute_force(seed, num_ops, capacity):
    graph, wires = drawn(seed, num_ops), group_network(CLUSTER)
    orders = ("tp-cp-dp-pp", "pp-tp-cp-dp")
    everything = []
    for pp in (pp for pp in (1, 2, 4) if pp <= num_ops):
        dp = 4 // pp
        for micro in (1, 2, 4, 8):
            if (8 // dp) % micro:
                continue
            for recompute in ("none", "full"):
                for zero in (0, 1) if dp > 1 else (0,):
                    plain = [("1f1b", 1), ("eager-1f1b", 1), ("gpipe", 1)]
                    pipelines = [*plain, *(("interleaved", v) for v in range(2, num_ops // pp + 1))]
                    for schedule, v in pipelines if pp > 1 else pipelines[:1]:
                        layout = Layout(
                            pp=pp,
                            dp=dp,
                            micro_batch=micro,
                            global_batch=8,
                            schedule=schedule,
                            virtual_stages=v,
                            recompute=recompute,
                            zero=zero,
                            overlap_dp=True,
                            overlap_pp=v > 1 or schedule == "eager-1f1b",
                        )
                        for order in orders:
                            works = [describe_graph(graph, layout, A100, cuts=cuts) for cuts in combinations_of(num_ops, pp * v)]
                            fits = [w for w in works if w.peak_memory()[1].total <= capacity]
                            everything += [GraphPricer(A100, wires, 1.0, order).step_s(w) for w in fits]
    one = search(graph, capacity=capacity, top=3)
    if not everything:
        with pytest.raises(PlanError, match="GB short"):
            one.run([4])
        return
    result = one.run([4])
    assert result.ranking[0].step_s == pytest.approx(min(everything), rel=1e-9)
    counts = result.counts
    assert counts.legal == counts.examined + counts.pruned + counts.infeasible
    assert counts.unproven == 0


@pytest.mark.parametrize("name", ["drawn", pytest.param("alexnet", marks=pytest.mark.slow)])
def test_what_is_pruned_is_neither_among_the_best_nor_on_the_front(name):
    graph = drawn(3, 6, samples=8) if name == "drawn" else load_graph("zoo:alexnet", device=A100, batch_size=64)
    batch = graph.samples_per_step
    some, every = search(graph, batch=batch, top=5).run([2]), search(graph, batch=batch, top=None).run([2])
    assert some.counts.pruned > 0
    assert every.counts.pruned == 0
    assert some.counts.legal == every.counts.legal
    assert some.ranking == every.ranking[:5]
    assert some.front == every.front
    assert [one[:4] for one in every.ranking] == sorted(one[:4] for one in every.ranking)


def test_every_layout_holds_its_devices_and_its_batch():
    graph = load_graph("zoo:alexnet", device=A100, batch_size=64)
    one = search(graph, batch=64)
    layouts = list(one.layouts(8))
    assert len(set(layouts)) == len(layouts)
    assert {layout.world for layout in layouts} == {8}
    assert {layout.global_batch for layout in layouts} == {64}
    assert {layout.pp for layout in layouts} == {1, 2, 4, 8}
    assert {layout.schedule for layout in layouts if layout.pp > 1} == {"1f1b", "eager-1f1b", "gpipe", "interleaved"}
    assert {layout.zero for layout in layouts if layout.dp > 1} == {0, 1}
    assert {layout.zero for layout in layouts if layout.dp == 1} == {0}
    # alexnet has 22 ops: two chunks on each of eight stages at most
    assert max(layout.virtual_stages for layout in layouts if layout.pp == 8) == graph.num_ops // 8


def test_what_is_kept_is_all_that_is_tried():
    graph = load_graph("zoo:alexnet", device=A100, batch_size=64)
    keep = "pp=2,schedule=interleaved,virtual_stages=3,recompute=full,overlap_dp=false|true"
    layouts = list(search(graph, batch=64, keep=keep).layouts(8))
    assert layouts
    for layout in layouts:
        assert (layout.pp, layout.schedule, layout.virtual_stages, layout.recompute) == (2, "interleaved", 3, "full")
    assert {layout.overlap_dp for layout in layouts} == {False, True}


def test_a_micro_batch_is_a_share_of_the_batch_that_was_profiled():
    # figures of 8 samples, steps of 24: micro-batches of 1, 2, 4 and 8 on two replicas, and not of 3, 6 or 12
    one = search(drawn(1, 5), batch=24)
    assert {layout.micro_batch for layout in one.layouts(2) if layout.dp == 2} == {1, 2, 4}
    assert {layout.micro_batch for layout in one.layouts(1)} == {1, 2, 4, 8}


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ({"keep": "tp=2|4"}, r"keep\.tp: cuts layers, which a graph of ops does not have; it is cut by dp and pp \(got '2\|4'\)"),
        ({"keep": "pp=3"}, r"no layout of drawn-1 is legal on 4 devices"),
        ({"batch": 7, "keep": "dp=4"}, r"batch: no layout of drawn-1 is legal"),
        ({"capacity": 1e8}, r"memory: no layout of drawn-1 fits 4 devices; closest is .* where a device has 0\.1 GB"),
    ],
)
def test_what_cannot_be_found_is_refused(rest, message):
    with pytest.raises(PlanError, match=message):
        search(drawn(1, 4), **rest).run([4])


def test_the_work_of_what_was_found_is_what_was_priced():
    one = search(drawn(3, 5), top=5)
    for result in one.run([4]).ranking:
        work = one.work(result.layout, result.order)
        assert GraphPricer(A100, one.wires, 1.0, result.order).step_s(work) == result.step_s
        assert work.peak_memory()[1].total == result.memory_bytes
        assert math.isfinite(result.step_s)
