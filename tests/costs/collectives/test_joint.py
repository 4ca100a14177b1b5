"""NVLink and cards at the same time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.clusters.cluster import Cluster, load_cluster
from meshwright.costs import collectives
from meshwright.costs.network import RankNetwork
from meshwright.costs.phases import alone_s, fullest_s

from ...draws import draws

STAGED = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]


def seconds(name, network, payload, operation="all_reduce"):
    return collectives.algorithm_named(name).time_s(network, np.arange(len(network.devices)), payload, operation)


def test_one_host_uses_its_cards_as_well_worked_by_hand(dgx):
    # 8 ranks: a ring over the switch at 300 GB/s and 0.6 us, one over the cards at 25 GB/s and 2.7 us, both ending together:
    # 14 x 0.6 us + 1.75 (1 - x) S / 300 GB/s = 14 x 2.7 us + 1.75 x S / 25 GB/s
    size = 1e9
    a, b, c, d = 14 * 0.6e-6, 1.75 / 300e9, 14 * 2.7e-6, 1.75 / 25e9
    x = (a - c + b * size) / ((b + d) * size)
    result = seconds("joint", RankNetwork(dgx, np.arange(8)), size)
    assert result == pytest.approx(c + d * x * size, rel=1e-9)
    assert result == pytest.approx(a + b * (1 - x) * size, rel=1e-9)


@pytest.mark.parametrize(("devices", "on_one_card"), [([0, 1], 2), ([1, 0], 2), ([0, 2], 1), ([0, 2, 3], 2), ([1, 2, 4, 7], 1)])
@pytest.mark.parametrize(("operation", "passes"), [("all_reduce", 2), ("all_gather", 1), ("all_to_all", 1)])
def test_ranks_of_one_card_share_it_worked_by_hand(devices, on_one_card, operation, passes):
    # as above, with cards of 12.5 GB/s for two devices each
    size, n = 1e9, len(devices)
    steps = passes * (n - 1)
    a, b = steps * 0.6e-6, steps / n / 300e9
    c, d = steps * 2.7e-6, steps / n * on_one_card / 12.5e9
    x = (a - c + b * size) / ((b + d) * size)
    network = RankNetwork(load_cluster("preset:clos-64-4to1"), np.array(devices))
    assert seconds("joint", network, size, operation) == pytest.approx(c + d * x * size, rel=1e-9)
    # what the switch is left with is what is told of its links
    (phase,) = collectives.algorithm_named("joint").phases(network, np.arange(n), size, operation)
    sent = sum(flow.payload_bytes for flow in phase.flows)
    assert sent == pytest.approx(steps * (1 - x) * size, rel=1e-9)


def test_few_bytes_stay_on_the_switch_and_none_are_less_than_none(dgx):
    # 1 kB over the switch takes 14 x 0.6 us and a little; a ring over the cards would begin with 14 x 2.7 us
    network = RankNetwork(dgx, np.arange(8))
    assert seconds("joint", network, 1e3) == seconds("ring", network, 1e3) == pytest.approx(14 * 0.6e-6 + 1750 / 300e9)


def test_it_is_a_ring_where_there_is_no_second_network_to_use(dgx):
    # unequal shares of two hosts, one rank on each of two hosts, and operations that are not cut
    cases = [(range(11), "all_reduce"), ([0, 8], "all_gather"), (range(8), "broadcast"), (range(16), "broadcast")]
    for devices, operation in cases:
        network, ranks = RankNetwork(dgx, np.array(devices)), np.arange(len(devices))
        assert seconds("joint", network, 1e9, operation) == seconds("ring", network, 1e9, operation)
        joint, ring = (collectives.algorithm_named(name).phases(network, ranks, 1e9, operation) for name in ("joint", "ring"))
        assert joint == ring


def test_chunks_hide_the_shorter_tier(dgx):
    # two hosts: inside 14 x (0.6 us + S / 8 / 300 GB/s), between 2 x (2.7 us + S / 16 / 25 GB/s); in 32 chunks all but one of
    # the shorter disappear
    size = 8e9
    inside, between = 14 * size / 8 / 300e9, 2 * size / 16 / 25e9
    result = seconds("joint", RankNetwork(dgx, np.arange(16)), size)
    assert max(inside, between) < result < max(inside, between) + min(inside, between) / 32 + 1e-3
    assert result < 0.6 * seconds("rail", RankNetwork(dgx, np.arange(16)), size)


@pytest.mark.parametrize(("size", "best"), [(1e4, 1), (6e6, 2), (3e7, 4), (1e8, 8), (8e9, 32)])
def test_the_best_number_of_chunks_worked_by_hand(dgx, size, best):
    # one chunk inside: 14 x (0.6 us + S / k / 8 / 300 GB/s), between: 2 x (2.7 us + S / k / 16 / 25 GB/s); k chunks take
    # both once, and the longer of the two k - 1 times more
    times = {}
    for chunks in (1, 2, 4, 8, 16, 32):
        inside = 14 * (0.6e-6 + size / chunks / 8 / 300e9)
        between = 2 * (2.7e-6 + size / chunks / 16 / 25e9)
        times[chunks] = inside + between + (chunks - 1) * max(inside, between)
    assert min(times, key=times.get) == best
    assert seconds("joint", RankNetwork(dgx, np.arange(16)), size) == pytest.approx(times[best], rel=1e-12)


@pytest.mark.parametrize("operation", STAGED)
@draws(8)
@given(payload=st.floats(1, 1e11), n=st.integers(2, 64))
def test_both_networks_are_never_slower_than_one_after_the_other(dgx, operation, payload, n):
    network = RankNetwork(dgx, np.arange(n))
    assert seconds("joint", network, payload, operation) <= seconds("rail", network, payload, operation) * (1 + 1e-12)


@pytest.mark.every(3)
@pytest.mark.parametrize("operation", STAGED)
@given(payload=st.floats(1e4, 1e11), hosts=st.integers(1, 8))
def test_its_flows_alone_take_what_it_says(dgx, operation, payload, hosts):
    network, ranks = RankNetwork(dgx, np.arange(8 * hosts)), np.arange(8 * hosts)
    model = collectives.algorithm_named("joint")
    assert alone_s(network, model.phases(network, ranks, payload, operation)) <= seconds("joint", network, payload, operation) * (
        1 + 1e-9
    )


def test_all_of_it_goes_over_the_cards_where_the_switch_is_slow_to_begin(dgx):
    # 1 kB over a switch of 100 us a hop would wait for 14 of them; over the cards it takes 14 x 2.7 us
    slow = dgx.to_data()
    slow["topology"] |= {"intra_host_latency_us": 100.0}
    network = RankNetwork(Cluster.from_data(slow), np.arange(8))
    assert seconds("joint", network, 1e3) == pytest.approx(14 * 2.7e-6 + 1750 / 25e9, rel=1e-9)
    assert not [flow for phase in collectives.algorithm_named("joint").phases(network, np.arange(8), 1e3) for flow in phase.flows]


@pytest.mark.parametrize("operation", STAGED)
def test_stages_are_one_phase_that_lasts_as_long_as_they_do_in_chunks(dgx, operation):
    network, ranks, model = RankNetwork(dgx, np.arange(16)), np.arange(16), collectives.algorithm_named("joint")
    (phase,) = model.phases(network, ranks, 1e6, operation)
    assert phase.latency_s + fullest_s(network, phase) == pytest.approx(seconds("joint", network, 1e6, operation))
    stages = collectives.algorithm_named("rail").phases(network, ranks, 1e6, operation)
    assert phase.flows == tuple(flow for stage in stages for flow in stage.flows)
    assert model.phases(network, ranks, 1e6) == model.phases(network, ranks, 1e6, "all_reduce")


def test_it_runs_where_hosts_have_cards(dgx, ramp):
    joint = collectives.algorithm_named("joint")
    assert joint.runs_on(RankNetwork(dgx, np.arange(2)))
    single = dgx.to_data()
    single["topology"] |= {"devices_per_host": 1, "nics_per_host": 1}
    for other in (ramp, load_cluster("preset:host-8"), Cluster.from_data(single)):
        assert not joint.runs_on(RankNetwork(other, np.arange(2)))
