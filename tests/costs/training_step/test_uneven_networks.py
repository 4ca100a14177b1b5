"""Prices on unequal hosts: every group counts, on its own devices, and the numbering of hosts does not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.costs.collectives import Fabric, Group, algorithm_named
from meshwright.costs.process_groups.group_network import FabricNetwork, PlacedNetwork, group_network, lanes_of
from meshwright.costs.process_groups.lanes import regular_lane
from meshwright.costs.settings import CostSettings
from meshwright.costs.training_step.graph_step_time import GraphPricer
from meshwright.costs.training_step.step_time import Pricer
from meshwright.costs.work.graph_work import describe_graph
from meshwright.costs.work.work import describe
from meshwright.devices import device_type
from meshwright.errors import ConfigError
from meshwright.jobs import load_graph
from meshwright.jobs.load import load_shape
from meshwright.planning.op_graph_work import cut
from meshwright.plans.partition import Layout
from meshwright.plans.rank_order import ORDERS

from ...draws import draws
from ...samples.sample_clusters import clos, cluster_of, torus, trace
from ..uneven import drawn_matrix, matrix_of, renumbered

BERT = load_shape("zoo:bert-large")[0]
SMALL = load_shape("zoo:gpt2-small")[0]
ALEXNET = load_graph("zoo:alexnet", device=device_type("a100"), batch_size=64)


def pair(fast, num_devices=4):
    """100 GB/s between two devices, 0.1 between all others, no latency."""
    bandwidth = np.full((num_devices, num_devices), 0.1)
    bandwidth[fast, fast[::-1]] = 100.0
    return matrix_of(bandwidth, np.zeros((num_devices, num_devices)), device="v100")


def step_s(cluster, layout, shape=BERT, order="tp-cp-dp-pp", devices=None):
    pricer = Pricer(cluster.device_types[0], group_network(cluster, devices=devices), 1.0, order=order)
    return pricer.step_s(describe(shape, layout, 128 if shape is SMALL else None))


@pytest.mark.parametrize("fast", [[0, 1], [2, 3]])
def test_the_slow_link_counts_whichever_pair_is_fast(fast):
    # Two stages of two replicas: one stage sums its gradients over the fast link and the other one over a slow one, the
    # payload once each way at 0.1 GB/s: 2 (n - 1) / n of 0.73 GB takes 7.3 s.
    layout = Layout(dp=2, pp=2, micro_batch=4, global_batch=32)
    sync_bytes = describe(BERT, layout).stages[1].sync[-1].payload_bytes
    assert sync_bytes / 0.1e9 == pytest.approx(7.3, rel=0.01)
    assert sync_bytes / 0.1e9 < step_s(pair(fast), layout) < sync_bytes / 0.1e9 + 0.5


@pytest.mark.every(3)
@pytest.mark.parametrize("per_host", [1, 2, 4])
@pytest.mark.parametrize("name", ["auto", "ring", "nccl", "hierarchical"])
def test_where_all_pairs_are_alike_groups_by_their_devices_cost_what_their_form_costs(name, per_host):
    inside = np.arange(8)[:, None] // per_host == np.arange(8)[None, :] // per_host
    cluster = matrix_of(np.where(inside, 50.0, 2.0), np.where(inside, 2.0, 30.0), per_host)
    costs, layout = CostSettings(collectives=name), Layout(tp=2, pp=2, dp=2, ep=2, micro_batch=1, global_batch=4, zero=3)
    assert cluster.hosts_are_equal
    assert isinstance(group_network(cluster, costs), FabricNetwork)
    fabric = Fabric.from_settings(cluster, costs)
    by_form, by_devices = FabricNetwork(fabric, per_host), PlacedNetwork(fabric)
    for order in ORDERS:
        regular = regular_lane(layout, per_host, order)
        for lane in lanes_of(by_devices, layout, order):
            for stage in range(2):
                for axis in ("tp", "ep", "shard", "dp_cp", "pp", "ends"):
                    group, placed = regular.at(stage)[axis], lane.at(stage)[axis]
                    operation = "send_recv" if axis == "pp" else "all_reduce"
                    for price in ("group_s", "flat_s"):
                        expected = getattr(by_form, price)(operation, 3e7, group)
                        assert getattr(by_devices, price)(operation, 3e7, placed) == pytest.approx(expected, rel=1e-12)


@draws(7)
@given(
    seed=st.integers(0, 10**6),
    per_host=st.sampled_from([1, 2]),
    order=st.sampled_from(ORDERS),
    degrees=st.sampled_from([(1, 4, 2), (2, 2, 2), (1, 2, 4), (4, 1, 2), (1, 8, 1)]),
)
def test_renumbering_hosts_with_the_placement_moves_no_price(seed, per_host, order, degrees):
    tp, pp, dp = degrees
    layout = Layout(tp=tp, pp=pp, dp=dp, micro_batch=1, global_batch=8, overlap_dp=bool(seed % 2), zero=seed % 4)
    cluster = drawn_matrix(seed, devices_per_host=per_host)
    other, device_of = renumbered(cluster, np.random.default_rng(seed).permutation(8 // per_host))
    assert step_s(other, layout, SMALL, order, device_of) == pytest.approx(step_s(cluster, layout, SMALL, order), rel=1e-9)


@draws(7)
@given(seed=st.integers(0, 10**6), a=st.integers(0, 7), b=st.integers(0, 7), factor=st.floats(1.0, 50.0), zero=st.integers(0, 3))
def test_a_slower_link_never_shortens_a_step(seed, a, b, factor, zero):
    cluster = drawn_matrix(seed)
    topology = cluster.topology
    bandwidth, latency = topology.pair_bandwidth_bytes_per_s / 1e9, topology.pair_latency_s * 1e6
    slower = bandwidth.copy()
    slower[a, b] /= factor
    layout = Layout(tp=2, pp=2, dp=2, micro_batch=1, global_batch=4, zero=zero, overlap_dp=bool(seed % 2))
    before_s = step_s(cluster, layout, SMALL)
    assert step_s(matrix_of(slower, latency), layout, SMALL) >= before_s * (1 - 1e-9)


@draws(7)
@given(seed=st.integers(0, 10**6), a=st.integers(0, 7), b=st.integers(0, 7), factor=st.floats(1.0, 50.0))
def test_a_slower_link_never_shortens_a_step_of_a_job_graph_that_is_cut_where_it_was(seed, a, b, factor):
    cluster = drawn_matrix(seed)
    bandwidth, latency = cluster.topology.pair_bandwidth_bytes_per_s / 1e9, cluster.topology.pair_latency_s * 1e6
    slower = bandwidth.copy()
    slower[a, b] /= factor
    # NCCL goes by thresholds, so it may send faster over a slower link (seed 256592, link 0 to 1 twice as slow: 119 and 114 ms).
    pp, costs = (2, 4, 8)[seed % 3], CostSettings(collectives=("auto", "ring")[seed % 5 % 2])
    schedule = ("1f1b", "gpipe", "interleaved")[seed % 7 % 3]
    keys = {"virtual_stages": 2 if schedule == "interleaved" else 1, "overlap_dp": seed % 2 == 0}
    layout = Layout(pp=pp, dp=8 // pp, micro_batch=4, global_batch=64, zero=seed % 2, schedule=schedule, **keys)
    work = describe_graph(ALEXNET, layout, cluster.device_types[0], costs)
    before_s, after_s = (GraphPricer.from_cluster(place, costs).step_s(work) for place in (cluster, matrix_of(slower, latency)))
    assert after_s >= before_s * (1 - 1e-9)


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "interleaved"])
def test_a_slower_link_never_shortens_a_step_of_a_job_graph_that_is_cut_anew(schedule):
    # AlexNet on four stages of two replicas; cut for the slowest group of each axis it took 0.41 s, and 0.22 s with a slower link
    keys = {"virtual_stages": 2 if schedule == "interleaved" else 1, "overlap_dp": True}
    layout = Layout(pp=4, dp=2, micro_batch=4, global_batch=64, schedule=schedule, **keys)
    for seed, link, factor in ((6523, (4, 6), 7.0), (6523, (0, 1), 7.0), (11, (2, 3), 50.0)):
        before = drawn_matrix(seed)
        bandwidth, latency = before.topology.pair_bandwidth_bytes_per_s / 1e9, before.topology.pair_latency_s * 1e6
        bandwidth[link] /= factor
        works = [(cut(ALEXNET, place, layout, CostSettings()), place) for place in (before, matrix_of(bandwidth, latency))]
        before_s, after_s = (GraphPricer.from_cluster(place, CostSettings()).step_s(work) for work, place in works)
        assert after_s >= before_s * (1 - 1e-9)


def test_a_job_graph_counts_every_replicas_transfers_and_every_stages_gradients():
    graph = load_graph("zoo:resnet50")
    layout = Layout(pp=2, dp=2, micro_batch=graph.samples_per_step // 4, global_batch=graph.samples_per_step)
    costs = CostSettings(contention="independent")
    steps = {}
    for fast in ([0, 1], [2, 3], [0, 2], [1, 3]):
        wires = group_network(pair(fast), costs)
        work = describe_graph(graph, layout, pair(fast).device_types[0], costs)
        steps[tuple(fast)] = GraphPricer(pair(fast).device_types[0], wires).step_s(work)
        priced = GraphPricer(pair(fast).device_types[0], wires).price_work(work)
        assert priced.step_s == steps[tuple(fast)]
        assert sum(priced.breakdown_s.values()) == pytest.approx(priced.step_s)
    # The sender of each transfer waits for it, over a slow link in one replica at least.
    sends_s = sum(m.payload_bytes / 0.1e9 for m in work.sent(0)) * layout.num_micro_batches
    # A fast way between the stages of one replica helps nobody: the other one crosses slow links all the same.
    assert steps[0, 2] == pytest.approx(steps[1, 3], rel=1e-12)
    assert min(steps.values()) > sends_s


def two_leaves(hosts_of_first=3):
    rows = [[f"h{n}", "D", "P", "A1" if n < hosts_of_first else "A2"] for n in range(4)]
    return cluster_of(trace(rows, (5, 1), (5, 1), devices_per_host=2, inside=(200, 1), card=(25, 1)))


def test_on_a_recorded_network_a_group_that_leaves_its_leaf_costs_more_than_one_that_stays():
    cluster, layout = two_leaves(), Layout(tp=2, dp=2, pp=2, micro_batch=1, global_batch=2)
    wires = group_network(cluster, CostSettings(collectives="ring"))
    (whole,) = {lane.at(1)["dp_cp"] for lane in lanes_of(wires, layout)}
    first = lanes_of(wires, layout)[0].at(0)["dp_cp"]
    # Hosts 0 and 1 share a leaf, 2 and 3 do not: two groups side by side on one card of 25 GB/s, or one uplink of 5 GB/s.
    assert wires.group_s("all_reduce", 1e9, first) == pytest.approx(2 * 1e9 / 25e9, rel=1e-3)
    assert wires.group_s("all_reduce", 1e9, whole) == pytest.approx(2 * 1e9 / 5e9, rel=1e-3)


def test_hosts_are_alike_only_where_a_renumbering_takes_each_to_each():
    above = {"num_spines": 2, "oversubscription": 2}
    for per_leaf, alike in ((2, True), (3, True), (4, False), (6, True), (8, True)):
        assert cluster_of(clos(6, 2, per_leaf, **above)).hosts_are_equal is alike
    assert cluster_of(torus(3, 4, link=(1, 1), devices_per_host=2)).hosts_are_equal
    assert two_leaves(4).hosts_are_equal
    assert not two_leaves(2).hosts_are_equal
    assert not drawn_matrix(0).hosts_are_equal


def test_a_form_tells_no_price_where_hosts_are_not_alike():
    with pytest.raises(ConfigError, match="hosts of matrix differ: give a group by its devices"):
        Fabric(drawn_matrix(0), algorithm_named("ring")).seconds("all_reduce", Group(2, 1))(1e6)
