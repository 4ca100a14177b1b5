"""Links whose directions differ: transfers between stages take the one in which they go."""

import numpy as np
import pytest

from meshwright.costs.process_groups.group_network import PlacedNetwork, group_network
from meshwright.costs.settings import CostSettings
from meshwright.costs.training_step.step_time import Pricer
from meshwright.costs.work.work import describe
from meshwright.jobs.zoo.catalogue import zoo_shape
from meshwright.planning.estimate import estimate
from meshwright.plans.partition import Layout

from ...oracles.layout_views import simulated_step_s
from ..uneven import matrix_of

COSTS = CostSettings(contention="independent", overlap_slowdown=1.0)
SHAPE = zoo_shape("bert-large")[0].model_copy(update={"num_layers": 4, "is_head_tied": False})


def line(there, back, num_devices=4):
    """Devices in a row: so many GB/s to those of larger numbers, and so many to those of smaller ones."""
    larger = np.arange(num_devices)[:, None] < np.arange(num_devices)
    return matrix_of(np.where(larger, there, back), np.zeros((num_devices, num_devices)))


def drawn(seed, num_devices=4):
    """A bandwidth of 0.1 to 100 GB/s and a latency of 1 us to 1 ms for each direction of each pair."""
    rng = np.random.default_rng(seed)
    shape = num_devices, num_devices
    return matrix_of(10 ** rng.uniform(-1, 2, shape), 10 ** rng.uniform(0, 3, shape))


def step_s(cluster, text):
    return Pricer.from_cluster(cluster, COSTS).step_s(describe(SHAPE, Layout.parse(text), 512))


def test_pairs_of_stages_are_priced_each_way_by_hand():
    # 1 GB from device 0 to 1 at 10 GB/s, and back at 2; replicas that sum gradients wait for the slower way
    wires = group_network(line(10.0, 2.0, 2), COSTS)
    assert isinstance(wires, PlacedNetwork)
    lane = wires.layout(Layout(pp=2, micro_batch=1, global_batch=2)).whole
    assert wires.group_s("send_recv", 1e9, lane.boundary[0]) == pytest.approx(0.1)
    assert wires.group_s("send_recv", 1e9, lane.backward_boundary[0]) == pytest.approx(0.5)
    replicas = wires.layout(Layout(dp=2, micro_batch=1, global_batch=2)).whole.at(0)["dp_cp"]
    assert wires.group_s("all_reduce", 1e9, replicas) == pytest.approx(2 * 0.5 * 1e9 / 2e9)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_a_pipeline_whose_transfers_wait_worked_by_hand(schedule):
    # One micro-batch goes through both stages and back: the step is all passes, one transfer there and one back.
    text = f"pp=2,micro_batch=4,global_batch=4,schedule={schedule}"
    size = 4 * 512 * SHAPE.hidden * 2
    alike_s = step_s(line(1e3, 1e3, 2), text)
    for there, back in ((1.0, 1e3), (1e3, 1.0), (2.0, 0.5)):
        wanted_s = alike_s + size * (1 / there + 1 / back - 2 / 1e3) / 1e9
        assert step_s(line(there, back, 2), text) == pytest.approx(wanted_s, rel=1e-9)


@pytest.mark.every(5)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    "text",
    [
        "pp=4,micro_batch=1,global_batch=8",
        "pp=4,micro_batch=1,global_batch=8,overlap_pp=true",
        "pp=2,dp=2,micro_batch=1,global_batch=8,schedule=zb-h1,overlap_pp=true",
        "pp=2,dp=2,micro_batch=1,global_batch=8,schedule=interleaved,virtual_stages=2",
    ],
)
def test_both_paths_agree_within_three_percent(seed, text):
    cluster, work = drawn(seed), describe(SHAPE, Layout.parse(text), 512)
    assert simulated_step_s(work, cluster, COSTS) == pytest.approx(step_s(cluster, text), rel=0.03)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("text", ["pp=4,schedule=dualpipe", "pp=2,dp=2,schedule=dualpipev"])
def test_passes_that_go_both_ways_send_each_way_what_goes_there(seed, text):
    layout = Layout.parse(f"{text},micro_batch=1,global_batch=8,overlap_pp=true")
    cluster, work = drawn(seed), describe(SHAPE, layout, 512)
    assert simulated_step_s(work, cluster, COSTS) == pytest.approx(Pricer.from_cluster(cluster, COSTS).step_s(work), rel=1e-9)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("hidden", ["false", "true"])
def test_both_paths_agree_for_graphs_of_ops(seed, hidden):
    text = f"pp=4,micro_batch=8,global_batch=64,overlap_pp={hidden}"
    result = estimate("zoo:vgg16", drawn(seed), text, costs=COSTS)
    assert result.simulated_s(COSTS) == pytest.approx(result.step.step_s, rel=0.03)


@pytest.mark.parametrize("text", ["pp=4,micro_batch=1,global_batch=8", "pp=2,dp=2,micro_batch=1,global_batch=8"])
def test_a_step_lies_between_those_of_its_slower_and_of_its_faster_ways(text):
    for seed in range(4):
        cluster = drawn(seed)
        rates, delays = cluster.topology.pair_bandwidth_bytes_per_s / 1e9, cluster.topology.pair_latency_s * 1e6
        slower = matrix_of(np.minimum(rates, rates.T), np.maximum(delays, delays.T))
        faster = matrix_of(np.maximum(rates, rates.T), np.minimum(delays, delays.T))
        assert step_s(faster, text) <= step_s(cluster, text) * (1 + 1e-9)
        assert step_s(cluster, text) <= step_s(slower, text) * (1 + 1e-9)
