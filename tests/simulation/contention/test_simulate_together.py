"""Whole steps whose messages share links: by hand, against the other modes, and side by side."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.clusters.cluster import Cluster, load_cluster
from meshwright.costs.settings import CostSettings
from meshwright.errors import PlanError
from meshwright.jobs import load_graph
from meshwright.plans.splitting.op_splits import OpSplits, uniform_splits
from meshwright.simulation.step.execution import TaskKind
from meshwright.simulation.step.timeline import JobStep, simulate, simulate_together

from ...clusters.alike_groups import classes
from ...draws import draws
from ...samples.sample_graphs import profile
from ..execution_samples import clos, cluster_of

FAIR, INDEPENDENT = CostSettings(contention="fair"), CostSettings(contention="independent")
RING = CostSettings(contention="fair", collectives="ring")
two_hosts = clos(
    num_hosts=2, devices_per_host=2, hosts_per_leaf=1, oversubscription=4.0, nic_latency_us=5e5, spine_latency_us=25e4
)


def reducer(gbytes, compute_s=1.0):
    """One op that computes nothing forward and ``compute_s`` on each of four ranks backward, then reduces its gradients."""
    return profile("reducer", [0.0], [4.0 * compute_s], [], parameter_bytes=[gbytes * 1e9])


@pytest.mark.parametrize(("devices", "step_s"), [([0, 1, 2, 3], 22.0), ([0, 2, 1, 3], 34.0)])
def test_a_ring_across_two_hosts_through_an_oversubscribed_spine(devices, step_s):
    # Cards carry 2 GB/s, the uplinks a quarter: 0.5 GB/s. Each hop of the ring carries 2 x 3/4 of 4 GB = 6 GB. In host
    # order one hop crosses in each direction: 12 s. With hosts alternating, two hops in each direction share the uplink:
    # 24 s. The slowest hop's latency is 2 x 0.5 + 2 x 0.25 = 1.5 s, paid six times: 9 s. Computing takes 1 s before.
    graph = reducer(4.0)
    assert simulate(graph, two_hosts, uniform_splits(graph, 4), devices, RING).step_s == pytest.approx(step_s, rel=1e-12)
    # The price of a collective knows which links its own hops share, so with nothing else under way it is the same.
    alone = RING.model_copy(update={"contention": "independent"})
    assert simulate(graph, two_hosts, uniform_splits(graph, 4), devices, alone).step_s == pytest.approx(step_s, rel=1e-12)


def test_shards_that_leave_a_host_by_one_card_share_it():
    # Hierarchical: 1 s of computing; 2 GB per hop in each host at 8 GB/s: 0.25 s; two rings of 2 x 1/2 x 2 GB = 2 GB each
    # across, 4 GB over the uplink of 0.5 GB/s: 8 s, and 2 x 1.5 s of latency; inside again 0.25 s. Each flow
    # alone would take 4 s less.
    graph = reducer(4.0)
    costs = CostSettings(contention="fair", collectives="hierarchical")
    timeline = simulate(graph, two_hosts, uniform_splits(graph, 4), range(4), costs)
    assert timeline.step_s == pytest.approx(12.5, rel=1e-12)
    assert timeline.execution.duration_s.max() == pytest.approx(7.5, rel=1e-12)


def test_two_jobs_whose_rings_share_an_uplink_slow_each_other():
    # Four hosts of one device, two leaves, cards and uplinks of 2 GB/s. Each job spans both leaves: 1 s of computing on
    # each of two ranks, then a ring of two in which each hop carries 2 x 1/2 of 4 GB: alone 2 s. Both at once share both
    # directions of the uplinks: 4 s. A job within a leaf keeps its 2 s.
    cluster = clos()
    graph = reducer(4.0, compute_s=0.5)

    def jobs(*devices):
        return [JobStep(graph, uniform_splits(graph, 2), where, costs=RING) for where in devices]

    assert [t.step_s for t in simulate_together(jobs([0, 2], [1, 3]), cluster)] == pytest.approx([5.0, 5.0], rel=1e-12)
    assert [t.step_s for t in simulate_together(jobs([0, 1], [2, 3]), cluster)] == pytest.approx([3.0, 3.0], rel=1e-12)
    # A second job that starts 2 s later begins to reduce at 3 s, when the first one is done.
    late = replace(jobs([1, 3])[0], start_s=2.0)
    assert [t.step_s for t in simulate_together([*jobs([0, 2]), late], cluster)] == pytest.approx([3.0, 3.0], rel=1e-12)
    # One that starts 1 s later reduces from 2 s on, when the first has 2 of 4 GB left: 1 GB/s each until 4 s, then the
    # second has 2 GB left for 2 GB/s: 5 s, 4 s after its start.
    late = replace(late, start_s=1.0)
    assert [t.step_s for t in simulate_together([*jobs([0, 2]), late], cluster)] == pytest.approx([4.0, 4.0], rel=1e-12)


def test_an_all_reduce_that_slows_the_backward_pass_worked_by_hand(host, two_ops):
    # As in test_lowering on two ranks: gradients of b (600 GB, 2.0000012 s) are reduced from 7 s on, beside a's backward
    # pass of 2 s. At 1.25 times the time both take 2.5 s for 2 s of work: until 9.5 s, when 1.2 us of the message are
    # left. Then a's gradients, 1.0000012 s.
    costs = CostSettings(overlap_slowdown=1.25)
    timeline = simulate(two_ops, host, uniform_splits(two_ops, 2), [0, 1], costs)
    assert timeline.step_s == pytest.approx(9.5 + 1.2e-6 + 1.0000012, rel=1e-12)
    # With messages of their own links' making (fair) the bytes come first and the latency last; a's gradients start
    # while b's latency passes.
    fair = simulate(two_ops, host, uniform_splits(two_ops, 2), [0, 1], costs.model_copy(update={"contention": "fair"}))
    assert fair.step_s == pytest.approx(9.5 + 1.0000012, rel=1e-12)


@pytest.mark.parametrize("collective", ["ring", "hierarchical"])
@pytest.mark.parametrize(("preset", "num_ranks"), [("host-8", 8), ("host-8", 3), ("dgx-a100-8x8", 8), ("ramp-4x4x2", 6)])
def test_where_no_link_is_shared_fair_and_independent_agree(preset, num_ranks, collective):
    # One all-reduce inside a host, or over channels of their own: each link serves one flow.
    cluster, graph = load_cluster(f"preset:{preset}"), reducer(4.0)
    fair_s, independent_s = (
        simulate(
            graph,
            cluster,
            uniform_splits(graph, num_ranks),
            range(num_ranks),
            CostSettings(contention=mode, collectives=collective),
        ).step_s
        for mode in ("fair", "independent")
    )
    assert fair_s == pytest.approx(independent_s, rel=1e-12)


@pytest.mark.parametrize(
    ("spec", "least", "most"), [("zoo:resnet50", 1, 1.03), ("zoo:bert-base", 1, 1.03), ("zoo:gnmt", 1.05, 1.1)]
)
def test_a_step_takes_longer_where_its_all_reduces_share_links(spec, least, most):
    # Of ResNet-50 and BERT next to no two all-reduces are under way at once: within 3 %. Those of GNMT are: 8 %.
    host, graph = load_cluster("preset:host-8"), load_graph(spec)
    fair, independent = (
        simulate(graph, host, uniform_splits(graph, 8), range(8), CostSettings(contention=mode, collectives="ring"))
        for mode in ("fair", "independent")
    )
    np.testing.assert_allclose(fair.execution.duration_s, independent.execution.duration_s, rtol=1e-12)
    assert least * independent.step_s * (1 - 1e-12) <= fair.step_s <= most * independent.step_s


@draws(5)
@given(st.sampled_from([1.0, 1.126, 1.5, 2.0]), st.sampled_from(["independent", "serialised", "fair"]))
def test_no_slowdown_lengthens_a_step_more_than_by_its_factor(factor, mode):
    graph = load_graph("zoo:squeezenet")
    cluster = load_cluster("preset:host-8")
    plain_s, slow_s = (
        simulate(graph, cluster, uniform_splits(graph, 4), range(4), CostSettings(contention=mode, overlap_slowdown=f)).step_s
        for f in (1.0, factor)
    )
    # An even split computes in one order whatever is sent, so there are no anomalies of list scheduling.
    assert plain_s * (1 - 1e-12) <= slow_s <= factor * plain_s * (1 + 1e-12)


def test_a_slow_device_and_a_slow_link_hold_up_the_collective():
    # Device 1 is a V100: all wait for its backward pass. The ring takes the pace of its slowest hop, 2 > 0 at 0.5 GB/s.
    matrix = [[1.0, 4.0, 4.0], [4.0, 1.0, 4.0], [0.5, 4.0, 1.0]]
    mixed = cluster_of(
        {"kind": "matrix", "bandwidth_gbytes_per_s": matrix, "latency_us": [[0.0] * 3] * 3}, device_overrides={"host-1": "v100"}
    )
    graph = load_graph("zoo:alexnet")
    timeline = simulate(graph, mixed, uniform_splits(graph, 3), range(3), RING)
    execution = timeline.execution
    first = int(np.flatnonzero(execution.kind == TaskKind.COLLECTIVE)[0])
    before = execution.edges[execution.edges[:, 1] == first, 0]
    assert execution.rank[before[np.argmax(timeline.finish_s[before])]] == 1
    assert timeline.start_s[first] == timeline.finish_s[before].max()
    assert execution.duration_s[first] == pytest.approx(4 / 3 * execution.payload_bytes[first] / 0.5e9, rel=1e-12)
    # 0 > 1 > 2 > 0 are three links of one flow each, so the first message takes just that.
    assert timeline.finish_s[first] - timeline.start_s[first] >= execution.duration_s[first] * (1 - 1e-12)


def test_a_plan_that_exceeds_memory_is_refused_where_that_is_asked(host):
    # 12 GB of weights are 96 GB of model state; an A100 has 85.2 GB.
    large = profile("large", [1.0], [1.0], [], parameter_bytes=[12e9])
    assert simulate(large, host, uniform_splits(large, 1), [3]).step_s == 2.0
    match = r"rank 0: needs 96\.000 GB, device host-0/3 has 85\.201 GB"
    with pytest.raises(PlanError, match=match):
        simulate(large, host, uniform_splits(large, 1), [3], within_memory=True)
    with pytest.raises(PlanError, match=match):
        simulate_together([JobStep(large, uniform_splits(large, 1), [3])], host, within_memory=True)


def test_jobs_side_by_side_on_one_device_are_refused(host, two_ops):
    steps = [JobStep(two_ops, uniform_splits(two_ops, 2), devices) for devices in ([0, 1], [1, 2])]
    with pytest.raises(PlanError, match="jobs 0 and 1 both own a device"):
        simulate_together(steps, host)
    with pytest.raises(PlanError, match=r"devices: host-8 has devices 0\.\.7 \(got 9\)"):
        simulate_together([JobStep(two_ops, uniform_splits(two_ops, 2), [0, 9])], host)


def test_jobs_that_share_nothing_run_as_alone_on_any_cluster():
    cluster: Cluster = load_cluster("preset:clos-64-4to1")
    graphs = [load_graph("zoo:resnet18"), load_graph("zoo:squeezenet")]
    # Hosts 0 and 1 are one leaf, hosts 2 and 3 the next.
    steps = [JobStep(graph, uniform_splits(graph, 16), range(16 * k, 16 * k + 16)) for k, graph in enumerate(graphs)]
    for step, timeline in zip(steps, simulate_together(steps, cluster), strict=True):
        alone = simulate(step.graph, cluster, step.splits, step.devices, FAIR)
        assert timeline.step_s == pytest.approx(alone.step_s, rel=1e-12)


CLOS = {"devices_per_host": 4, "nics_per_host": 2, "num_spines": 2, "oversubscription": 4.0, "nic_latency_us": 3.0}
TORUS = {"kind": "torus", "shape": [4, 4], "link_bandwidth_gbytes_per_s": 2.0, "link_latency_us": 1.0}


@pytest.mark.every(2)
@pytest.mark.parametrize("cluster", [clos(**CLOS), clos(**CLOS, wiring="rail"), cluster_of(TORUS)], ids=["clos", "rail", "torus"])
def test_placements_of_one_class_take_the_same_time_where_links_are_shared(cluster):
    # The class of a placement says which positions share links, so tables of step times hold in this mode too.
    rng = np.random.default_rng(0)
    groups = np.array([rng.permutation(cluster.num_devices)[:3] for _ in range(1500)])
    result = classes(cluster, groups)
    graph = profile("job", [0.1, 0.2], [0.2, 0.1], [(0, 1)], activation_bytes=[1e9, 0.0], parameter_bytes=[1e9, 2e9])
    num_compared = 0
    for number in np.unique(result)[:30]:
        alike = groups[result == number][:3]
        times = [simulate(graph, cluster, OpSplits(np.array([2, 3])), devices, FAIR).step_s for devices in alike]
        assert times == pytest.approx([times[0]] * len(times), rel=1e-9)
        num_compared += len(times) - 1
    assert num_compared > 20
