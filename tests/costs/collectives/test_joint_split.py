"""Part of a message between hosts goes by cards that idle."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.clusters.cluster import load_cluster
from meshwright.costs import collectives
from meshwright.costs.network import RankNetwork
from meshwright.costs.phases import alone_s, fullest_s
from meshwright.costs.settings import CostSettings
from meshwright.planning.estimate import estimate

from ...draws import draws

OPERATIONS = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"]
SPLIT = collectives.algorithm_named("joint-split")
NARROW = load_cluster("preset:clos-64-4to1")


def seconds(name, network, payload, operation, ranks):
    return collectives.algorithm_named(name).time_s(network, np.arange(ranks), payload, operation)


def test_both_ways_end_together_worked_by_hand(dgx):
    # The own card: 2.7 us + x S / 25 GB/s. Seven idle ones, with a hop of 0.6 us inside on either side: 3.9 us +
    # (1 - x) S / (7 x 25 GB/s), less than the 300 GB/s by which the device reaches them. Equal at
    # x = (3.9 us - 2.7 us + S / 175 GB/s) / (S / 25 GB/s + S / 175 GB/s)
    size, pair = 1e8, RankNetwork(dgx, np.array([0, 8]))
    x = (1.2e-6 + size / 175e9) / (size / 25e9 + size / 175e9)
    assert SPLIT.split(pair, np.arange(2), "send_recv").share(size) == pytest.approx(x, rel=1e-9)
    assert seconds("joint-split", pair, size, "send_recv", 2) == pytest.approx(2.7e-6 + x * size / 25e9, rel=1e-9)
    assert seconds("joint-split", pair, size, "send_recv", 2) == pytest.approx(3.9e-6 + (1 - x) * size / 175e9, rel=1e-9)
    # a ring of four hosts: six steps, 1.5 payloads
    four = RankNetwork(dgx, np.array([0, 8, 16, 24]))
    x = (6 * 1.2e-6 + 1.5 * size / 175e9) / (1.5 * size / 25e9 + 1.5 * size / 175e9)
    assert seconds("joint-split", four, size, "all_reduce", 4) == pytest.approx(6 * 2.7e-6 + x * 1.5 * size / 25e9, rel=1e-9)


def test_links_that_both_ways_cross_carry_all_of_it_worked_by_hand():
    # Hosts 0 and 2 are below two leaves; card j takes spine j mod 2. Device 0 has card 0 (spine 0), idle are cards 1, 2, 3: one
    # third of what they carry takes spine 0 as well. Uplinks and cards carry 12.5 GB/s each: of S, spine 0 carries
    # x + (1 - x) / 3, spine 1 two thirds of 1 - x. Both are full at x = 1/4, S / 2 each: uplinks halve the time, no more.
    size, pair = 1e9, RankNetwork(NARROW, np.array([0, 16]))
    assert seconds("joint-split", pair, size, "send_recv", 2) == pytest.approx(size / 25e9, rel=1e-3)
    assert SPLIT.split(pair, np.arange(2), "send_recv").share(size) == pytest.approx(0.25, abs=1e-3)


def test_few_bytes_stay_on_the_own_card(dgx):
    # 1 kB takes 2.7 us + 40 ns; the detour begins with 3.9 us
    pair = RankNetwork(dgx, np.array([0, 8]))
    assert seconds("joint-split", pair, 1e3, "send_recv", 2) == pytest.approx(2.7e-6 + 1e3 / 25e9, rel=1e-9)
    assert SPLIT.transfer(pair, 0, 1, 1e3)[0].flows == ((0, 1, 1e3),)


@draws(30)
@given(
    operation=st.sampled_from(OPERATIONS),
    payload=st.floats(1, 1e11),
    devices=st.lists(st.integers(0, 63), min_size=2, max_size=12, unique=True),
    is_narrow=st.booleans(),
)
def test_it_is_never_slower_than_either_way_alone(dgx, operation, payload, devices, is_narrow):
    network, ranks = RankNetwork(NARROW if is_narrow else dgx, np.array(devices)), np.arange(len(devices))
    result = seconds("joint-split", network, payload, operation, len(devices))
    assert result <= seconds("joint", network, payload, operation, len(devices)) * (1 + 1e-9)
    split = SPLIT.split(network, ranks, operation)
    if split is not None:
        best = split.seconds(payload, split.share(payload))
        assert best <= min(split.seconds(payload, x) for x in (*np.linspace(0, 1, 21).tolist(),)) * (1 + 1e-9)
    phases = SPLIT.phases(network, ranks, payload, operation)
    assert alone_s(network, phases) <= max(result, seconds("joint", network, payload, operation, len(devices))) * (1 + 1e-9)


def test_it_is_the_joint_collective_where_no_card_idles(dgx):
    # a host alone, two whole hosts, and eight groups side by side that use all cards
    whole = RankNetwork(dgx, np.arange(16)), np.arange(16)
    columns = np.arange(16).reshape(2, 8).T
    beside = RankNetwork(dgx, np.arange(16), tuple(columns[1:])), columns[0]
    for network, ranks in ((RankNetwork(dgx, np.arange(8)), np.arange(8)), whole, beside):
        for operation in OPERATIONS:
            result, joint = (collectives.algorithm_named(name) for name in ("joint-split", "joint"))
            assert result.time_s(network, ranks, 1e9, operation) == joint.time_s(network, ranks, 1e9, operation)
            assert result.phases(network, ranks, 1e9, operation) == joint.phases(network, ranks, 1e9, operation)


def test_several_ranks_of_a_host_split_what_leaves_it_worked_by_hand(dgx):
    # Two ranks on each of two hosts: between them each sends S / 2 once on its card of 25 GB/s, while six cards idle. In
    # all, eight cards carry S: no less than S / 200 GB/s. The last of 32 chunks inside is all that is not hidden.
    size = 1e9
    result = seconds("joint-split", RankNetwork(dgx, np.array([0, 1, 8, 9])), size, "all_reduce", 4)
    assert size / 200e9 < result < 1.4 * size / 200e9
    assert result < 0.4 * seconds("joint", RankNetwork(dgx, np.array([0, 1, 8, 9])), size, "all_reduce", 4)


@pytest.mark.parametrize("size", [1e4, 1e7, 1e9])
@pytest.mark.parametrize(
    ("operation", "steps_inside", "inside", "steps", "part"),
    [
        ("all_reduce", 2, 1.0, 2, 0.5),
        ("all_gather", 1, 0.5, 1, 0.25),
        ("reduce_scatter", 1, 0.5, 1, 0.25),
        ("all_to_all", 1, 0.5, 1, 0.5),
    ],
)
def test_chunks_of_both_ways_worked_by_hand(dgx, operation, steps_inside, inside, steps, part, size):
    # As above: of S each card of the two sends a part, 2.7 us a step; of what goes by the six idle ones they carry a third of it
    # each, 3.9 us a step, and each rank sends and gets it inside at 300 GB/s. Inside, steps of 0.6 us among two.
    times = []
    for chunks in (1, 2, 4, 8, 16, 32):
        chunk = size / chunks
        own, idle = part * chunk / 25e9, part * chunk / 3 / 25e9
        x = min(1.0, (steps * 1.2e-6 + idle) / (own + idle))
        between_s = steps * 2.7e-6 + x * own
        inside_s = steps_inside * 0.6e-6 + inside * chunk / 300e9 + (1 - x) * part * chunk / 300e9
        times.append(inside_s + between_s + (chunks - 1) * max(inside_s, between_s))
    network = RankNetwork(dgx, np.array([0, 1, 8, 9]))
    joint_s = seconds("joint", network, size, operation, 4)
    assert seconds("joint-split", network, size, operation, 4) == pytest.approx(min(*times, joint_s), rel=1e-9)
    assert SPLIT.phases(network, np.arange(4), size, operation) == collectives.algorithm_named("joint").phases(
        network, np.arange(4), size, operation
    )


def test_the_own_card_carries_its_share_and_what_takes_longer_passes_as_latency(dgx):
    pair, size = RankNetwork(dgx, np.array([0, 8])), 1e8
    x = (1.2e-6 + size / 175e9) / (size / 25e9 + size / 175e9)
    for (phase,) in (SPLIT.transfer(pair, 0, 1, size), SPLIT.phases(pair, np.arange(2), size, "send_recv")):
        assert phase.flows[0] == (0, 1, pytest.approx(x * size))
        assert phase.latency_s + fullest_s(pair, phase) == pytest.approx(2.7e-6 + x * size / 25e9)
    assert SPLIT.transfer(pair, 0, 0, size) == SPLIT.transfer(pair, 0, 1, 0.0) == ()
    assert SPLIT.phases(pair, np.arange(2), size) == SPLIT.phases(pair, np.arange(2), size, "all_reduce")


def test_what_is_not_split_is_priced_as_the_joint_collective(dgx, ramp):
    # a broadcast goes down a chain, and hosts of one device have no other cards
    for cluster, devices, operation in ((dgx, [0, 8], "broadcast"), (ramp, [0, 1], "all_reduce"), (ramp, [0, 1], "broadcast")):
        network = RankNetwork(cluster, np.array(devices))
        assert SPLIT.split(network, np.arange(2), operation) is None
        result, joint = (seconds(name, network, 1e9, operation, 2) for name in ("joint-split", "joint"))
        assert result == joint


def test_hosts_with_fewer_idle_cards_pair_as_many_as_both_have_worked_by_hand(dgx):
    # From host 0 to host 1, while host 1 sends to host 2 by another card: 7, 6 and 7 cards idle. Cards 1 to 6 of the one meet
    # cards 2 to 7 of the other, 25 GB/s each, across a spine of 0.15 us up and down.
    network = RankNetwork(dgx, np.array([0, 8, 9, 17]), (np.array([2, 3]),))
    split, size = SPLIT.split(network, np.array([0, 1]), "send_recv"), 1e9
    x = (1.5e-6 + size / 150e9) / (size / 25e9 + size / 150e9)
    assert split.share(size) == pytest.approx(x)
    assert split.seconds(size, x) == pytest.approx(2.7e-6 + x * size / 25e9)


@pytest.mark.every(2)
@pytest.mark.parametrize("contention", ["independent", "serialised", "fair"])
def test_both_paths_agree_on_stages_between_hosts(contention):
    layout = "pp=16,micro_batch=32,global_batch=128"
    costs = [CostSettings(collectives=name, contention=contention) for name in ("joint", "joint-split")]
    alone, split = (estimate("zoo:bert-large", "preset:dgx-a100-8x8", layout, costs=cost) for cost in costs)
    assert split.step.step_s < alone.step.step_s
    assert split.simulated_s(split.costs) == pytest.approx(split.step.step_s, rel=0.03)
    gain_s = alone.step.step_s - split.step.step_s
    assert alone.simulated_s(alone.costs) - split.simulated_s(split.costs) == pytest.approx(gain_s, rel=0.03)
