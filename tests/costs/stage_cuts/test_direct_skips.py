"""Laws of pipelines whose outputs go past stages that do not read them: each once out of its stage and once into each reader."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from meshwright.clusters.cluster import load_cluster
from meshwright.costs.settings import CostSettings
from meshwright.costs.stage_cuts.graph_cuts import find_cuts
from meshwright.costs.stage_cuts.unit_chain import Chain, run_bytes
from meshwright.costs.training_step.graph_step_time import GraphPricer
from meshwright.costs.work.graph_work import describe_graph
from meshwright.devices import device_type
from meshwright.errors import PlanError
from meshwright.jobs.graph import JobGraph
from meshwright.planners.layouts.request import SearchRequest
from meshwright.planning.search import search_layouts
from meshwright.plans.partition import Layout
from meshwright.simulation.layouts.running import run_layout
from meshwright.simulation.layouts.step_model import GraphStep
from meshwright.simulation.operators.placement import loads_s
from meshwright.simulation.operators.published_files import load_published

from ...draws import draws
from ..graphs import Hosts, Line, all_cuts, drawn_graphs, graph_of

A100 = device_type("a100")
DIRECT, RELAYED = CostSettings(pipeline_skips="direct"), CostSettings()

plain = st.builds(
    lambda pp, dp, m, recompute, schedule: Layout(
        pp=pp, dp=dp, micro_batch=1, global_batch=dp * m, recompute=recompute, schedule=schedule
    ),
    st.integers(2, 4),
    st.integers(1, 2),
    st.integers(1, 9),
    st.sampled_from(["none", "full"]),
    st.sampled_from(["1f1b", "gpipe"]),
)


def test_a_skip_worked_by_hand():
    # a feeds b and c, b feeds c, each a stage; outputs of 2, 3 and 5 bytes. Relayed b passes a's on; directly a sends 2, b sends
    # 3 and is given 2, c is given both.
    graph = graph_of([1.0] * 3, [[0, 1], [0, 2], [1, 2]], [2.0, 3.0, 5.0], [0.0] * 3)
    layout = Layout(pp=3, micro_batch=graph.samples_per_step or 1, global_batch=graph.samples_per_step or 1)
    relayed, direct = (describe_graph(graph, layout, A100, costs, cuts=(0, 1, 2, 3)) for costs in (RELAYED, DIRECT))
    assert relayed.boundary_bytes.tolist() == [2.0, 5.0, 0.0]
    assert [relayed.received_bytes(stage) for stage in range(3)] == [0.0, 2.0, 5.0]
    assert direct.boundary_bytes.tolist() == [2.0, 3.0, 0.0]
    assert [direct.received_bytes(stage) for stage in range(3)] == [0.0, 2.0, 5.0]
    assert [message.payload_bytes for message in direct.returned(2)] == [5.0]


@draws(20)
@given(drawn_graphs(most=9))
def test_runs_send_and_get_what_a_plain_count_says(graph):
    layout = Layout(pp=graph.num_ops, micro_batch=1, global_batch=4)
    chain = Chain.from_graph(graph, layout, A100, DIRECT)
    sent, given = chain.skips
    order, n = graph.order.tolist(), graph.num_ops
    size = graph.activation_bytes / (graph.samples_per_step or 4)
    readers = {op: {order.index(b) for a, b in graph.edges.tolist() if a == op} for op in order}
    for first in range(n):
        for last in range(first + 1, n + 1):
            out = sum(size[op] for at, op in enumerate(order) if first <= at < last and any(r >= last for r in readers[op]))
            into = sum(size[op] for at, op in enumerate(order) if at < first and any(first <= r < last for r in readers[op]))
            assert sent[first, last] == pytest.approx(out, abs=1e-9)
            assert given[first, last] == pytest.approx(into, abs=1e-9)
    assert [each.shape for each in run_bytes(graph, chain.starts, graph.activation_bytes)] == [(n + 1, n + 1)] * 2


@draws(15, suppress_health_check=[HealthCheck.too_slow])
@given(drawn_graphs(most=7), plain, st.sampled_from([Line(), Hosts()]))
def test_the_cut_is_that_of_brute_force_and_no_worse_than_relayed(graph, layout, wires):
    if graph.num_ops < layout.pp:
        return
    pricer = GraphPricer(A100, wires)
    every = {cuts: describe_graph(graph, layout, A100, DIRECT, cuts=cuts) for cuts in all_cuts(graph, layout.pp)}
    result = find_cuts(graph, layout, A100, wires, DIRECT)
    assert result.is_proven
    least = min(pricer.step_s(work) for work in every.values())
    assert pricer.step_s(every[result.places]) == pytest.approx(least, rel=1e-9)
    for cuts, work in every.items():
        relayed = describe_graph(graph, layout, A100, RELAYED, cuts=cuts)
        assert pricer.step_s(work) <= pricer.step_s(relayed) * (1 + 1e-9)
        assert work.peak_memory()[1].total <= relayed.peak_memory()[1].total * (1 + 1e-12)
    tight = sorted(work.peak_memory()[1].total for work in every.values())
    room = tight[0] * (1 + 1e-9)
    fitting = find_cuts(graph, layout, A100, wires, DIRECT, capacity_bytes=room).places
    assert fitting is not None
    assert every[fitting].peak_memory()[1].total <= room


@draws(15)
@given(drawn_graphs(most=8), plain)
def test_without_skips_it_is_the_same(graph, layout):
    """A chain: every output is read by the next op alone."""
    n = graph.num_ops
    if n < layout.pp:
        return
    chain = replace(graph, edges=np.array(list(pairwise(range(n)))).reshape(-1, 2))
    steps = [
        GraphPricer(A100, Line()).step_s(
            describe_graph(chain, layout, A100, costs, cuts=find_cuts(chain, layout, A100, Line(), costs).places)
        )
        for costs in (RELAYED, DIRECT)
    ]
    assert steps[0] == pytest.approx(steps[1], rel=1e-9)


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize("seed", range(4))
def test_the_simulated_step_is_the_analytic_one(schedule, seed):
    rng, cluster = np.random.default_rng(seed), load_cluster("preset:host-8")
    n = 9
    edges = [[a, b] for a in range(n) for b in range(a + 1, n) if b == a + 1 or rng.random() < 0.3]
    graph = graph_of(rng.uniform(0.5, 2.0, n).tolist(), edges, rng.uniform(1.0, 3.0, n) * 1e10, [0.0] * n)
    samples = graph.samples_per_step or 1
    layout = Layout(pp=3, micro_batch=samples, global_batch=5 * samples, schedule=schedule)
    costs = CostSettings(contention="independent", pipeline_skips="direct")
    work = describe_graph(graph, layout, cluster.device_types[0], costs, cuts=(0, 3, 6, 9))
    assert work.given_bytes.tolist()[1:] != work.boundary_bytes.tolist()[:-1]
    pricer = GraphPricer.from_cluster(cluster, costs)
    run = run_layout(GraphStep(work, pricer), cluster, costs=costs)
    assert run.step_s == pytest.approx(pricer.step_s(work), rel=1e-9)
    priced = pricer.price_work(work)
    assert sum(priced.breakdown_s.values()) == pytest.approx(priced.step_s)
    assert priced.breakdown_s["pipeline transfers"] > 0


@pytest.mark.parametrize(
    "keys",
    [{"schedule": "interleaved", "virtual_stages": 2}, {"overlap_pp": True, "schedule": "gpipe"}],
    ids=["chunks", "hidden"],
)
def test_stages_that_compute_while_they_send_are_refused(keys):
    graph = graph_of([1.0] * 8, [[v, v + 1] for v in range(7)], [1.0] * 8, [0.0] * 8)
    samples = graph.samples_per_step or 1
    layout = Layout(pp=2, micro_batch=samples, global_batch=4 * samples, **keys)
    with pytest.raises(PlanError, match=r"pipeline_skips: is for gpipe and 1f1b without overlap_pp, .* \(got 'direct'\)"):
        find_cuts(graph, layout, A100, Line(), DIRECT)


def test_a_search_takes_direct_skips_and_is_no_slower():
    results = [
        search_layouts(
            "zoo:gnmt", "preset:host-8", SearchRequest(devices="4", keep="pp=4,schedule=1f1b|interleaved"), costs=costs
        )
        for costs in (RELAYED, DIRECT)
    ]
    assert {one.layout.schedule for one in results[1].searched.ranking} == {"1f1b"}
    best = [min(one.step_s for one in each.searched.ranking if one.layout.schedule == "1f1b") for each in results]
    assert best[1] <= best[0] * (1 + 1e-9)


class _Costs(Line):
    """A gigabyte a second, as the published costs are read."""

    def group_s(self, operation, payload_bytes, group):
        return payload_bytes / 1e9


@pytest.mark.reference
@pytest.mark.parametrize(
    ("name", "optimum_ms", "most_relayed", "most_direct"),
    [
        # Proven optima of contiguous placements without host processors.
        ("operators_bert_l-6_inference", 33.9891, 0.11, 0.001),
        ("operators_resnet50_inference", 128.0735, 0.01, 0.01),
        ("layers_gnmt_inference", 32.9107, 0.001, 0.001),
        ("layers_resnet50_inference", 34.2229, 0.001, 0.001),
    ],
)
def test_the_cut_of_a_chain_reaches_the_published_max_load(reference, name, optimum_ms, most_relayed, most_direct):
    """Ops of a colour are one op; with 10,000 micro-batches the step is all but the largest load."""
    instance = load_published(reference / "operators" / "dnn_partitioning" / "throughput" / f"{name}.json")
    group, q = instance.group, instance.num_groups
    times_s, out = np.zeros(q), np.zeros(q)
    np.add.at(times_s, group, instance.times_s[:, 0])
    crossing = group[instance.edges[:, 0]] != group[instance.edges[:, 1]]
    leaving = np.unique(np.stack([group[instance.edges[:, 0]], instance.edge_tensor], axis=1)[crossing], axis=0)
    np.add.at(out, leaving[:, 0], instance.tensor_bytes[leaving[:, 1]])
    edges, none = np.unique(group[instance.edges[crossing]], axis=0), np.zeros(q)
    names = tuple(f"group{number}" for number in range(q))
    graph = JobGraph(name, names, ("group",) * q, times_s, none, none, none, out, none, none, edges, None, 1, "measured")
    layout = Layout(pp=int((~instance.is_host).sum()), micro_batch=1, global_batch=10_000)
    for costs, most in ((RELAYED, most_relayed), (DIRECT, most_direct)):
        work = describe_graph(graph, layout, A100, costs, cuts=find_cuts(graph, layout, A100, _Costs(), costs).places)
        stage = np.zeros(q, np.int64)
        for number, ops in enumerate(work.chunks):
            stage[ops] = number
        load_ms = 1e3 * loads_s(instance, stage[group]).max()
        assert load_ms == pytest.approx(optimum_ms, rel=most)
