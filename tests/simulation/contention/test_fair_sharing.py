"""Max-min fair sharing: cases worked by hand, an exact reference, another simulator, and laws."""

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.clusters import load_cluster
from meshwright.clusters.topologies.topology import Links
from meshwright.errors import ClusterError, GraphError
from meshwright.simulation.contention import fair_sharing, fair_sharing_kernel
from meshwright.simulation.contention.flows import Flows

from ...draws import draws
from ...oracles import fair_sharing_reference


def links_of(*bandwidth, latency_s=None):
    """Links that carry so many bytes per second."""
    latency = np.zeros(len(bandwidth)) if latency_s is None else np.array(latency_s, np.float64)
    return Links(tuple(f"link{i}" for i in range(len(bandwidth))), np.array(bandwidth, np.float64), latency)


def finish_s(links, paths, payload_bytes, start_s, **options):
    return fair_sharing.simulate(links, Flows.from_paths(paths, payload_bytes, start_s), **options).finish_s.tolist()


def rates(links, paths, classes=None):
    sharing = fair_sharing.new_sharing(links, Flows.from_paths(paths, np.ones(len(paths)), np.zeros(len(paths))), classes)
    for flow in range(len(paths)):
        fair_sharing_kernel.start_flow(sharing, flow, 0.0)
    fair_sharing_kernel.fill(sharing)
    return [rate if path else np.inf for path, rate in zip(paths, sharing.new_rate.tolist(), strict=True)]


# --- worked by hand ---


@pytest.mark.parametrize(
    ("bandwidth", "paths", "payload", "start", "expected"),
    [
        # 5 B/s each; the first has sent its 10 bytes at 2 s, the other has 10 of 20 left and then 10 B/s.
        ([10], [[0], [0]], [10, 20], [0, 0], [2.0, 3.0]),
        # Alone 10 bytes until 1 s, then 5 B/s each: the second is done at 2 s, the first has 5 of 20 left for 10 B/s.
        ([10], [[0], [0]], [20, 5], [0, 1], [2.5, 2.0]),
        # A flow may slow down when another ends: a on link 0, b on links 0 and 1, c on link 1. Link 0 (2) is full at 1 each;
        # c has the other 3 of link 1 (4). a ends at 1 s, b rises to 2 and c falls to 2: b has 3 of 4 left until 2.5 s, c
        # sends 3 + 3, then 4 of 10 at 4 B/s.
        ([2, 4], [[0], [0, 1], [1]], [1, 4, 10], [0, 0, 0], [1.0, 2.5, 3.5]),
    ],
)
def test_finishes_worked_by_hand(bandwidth, paths, payload, start, expected):
    assert finish_s(links_of(*bandwidth), paths, payload, start) == expected


@pytest.mark.parametrize(
    ("bandwidth", "paths", "expected"),
    [
        # the parking lot: one flow over all three links and one on each; the first link is full at 1 each, the second at 1 + 3
        ([2, 4, 10], [[0, 1, 2], [0], [1], [2]], [1.0, 1.0, 3.0, 9.0]),
        # the triangle: the link of 3 is full at 1.5 each; what is left for the flow that avoids it is 4 - 1.5 and 5 - 1.5
        ([3, 4, 5], [[0, 1], [1, 2], [2, 0]], [1.5, 2.5, 1.5]),
    ],
)
def test_rates_worked_by_hand(bandwidth, paths, expected):
    assert rates(links_of(*bandwidth), paths) == expected


def test_latency_is_paid_after_the_last_byte_or_before_the_first_worked_by_hand():
    links = links_of(10, 10, latency_s=[1.0, 0.0])
    paths, payload, start = [[0, 1], [1]], [20, 20], [0, 0]
    # After: both have 5 B/s until 4 s; the first arrives 1 s later.
    assert finish_s(links, paths, payload, start) == [5.0, 4.0]
    # Before: the second is alone until 1 s, so it has 10 left and ends at 3 s; the first then has 10 left: 4 s.
    assert finish_s(links, paths, payload, start, latency_first=True) == [4.0, 3.0]


@pytest.mark.parametrize("latency_first", [False, True])
def test_a_flow_alone_takes_its_latencies_and_its_narrowest_link(latency_first):
    links = links_of(8, 4, latency_s=[0.25, 0.5])
    assert finish_s(links, [[0, 1]], [8], [3], latency_first=latency_first) == [3 + 0.75 + 8 / 4]


@pytest.mark.parametrize("latency_first", [False, True])
def test_no_bytes_take_only_latency_and_no_links_take_no_time(latency_first):
    links = links_of(10, latency_s=[0.5])
    # The flow of zero bytes takes no share from the one that runs beside it.
    result = finish_s(links, [[0], [], [0], []], [0, 7, 20, 0], [1, 2, 0, 3], latency_first=latency_first)
    assert result == [1.5, 2.0, 2.5, 3.0]


def test_no_flows_are_no_events():
    result = fair_sharing.simulate(links_of(1), Flows.from_paths([], [], []))
    assert (len(result.finish_s), result.num_events) == (0, 0)


# --- ties ---


def test_simultaneous_starts_and_ends_are_one_event():
    # Seven shares of a third, starts that differ by a rounding, ends that coincide with starts.
    flows = Flows.from_paths([[0]] * 7, np.full(7, 0.1), np.zeros(7))
    assert fair_sharing.simulate(links_of(0.3), flows).num_events == 2
    # 0.1 + 0.2 is not 0.3 in floating-point numbers. The first two flows end as the third and fourth begin.
    flows = Flows.from_paths([[0]] * 4, [0.15, 0.15, 0.5, 0.5], [0.0, 0.0, 0.3, 0.1 + 0.2])
    result = fair_sharing.simulate(links_of(1.0), flows)
    assert result.num_events == 3
    np.testing.assert_allclose(result.finish_s, [0.3, 0.3, 1.3, 1.3], rtol=1e-15)


def test_an_end_that_meets_a_start_leaves_no_byte_to_be_sent_slowly():
    # Flow 0 has sent its 0.7 bytes at 0.1 s, to the last bit or a rounding off, when a thousand others begin: a byte's
    # fraction left over would take a thousand times as long.
    paths = [[0]] * 1001
    payload = np.r_[0.7, np.full(1000, 1.0)]
    start = np.r_[0.0, np.full(1000, 0.1)]
    result = fair_sharing.simulate(links_of(7.0), Flows.from_paths(paths, payload, start))
    assert result.num_events == 3
    assert result.finish_s[0] == pytest.approx(0.1, rel=1e-15)
    np.testing.assert_allclose(result.finish_s[1:], 0.1 + 1000 / 7.0, rtol=1e-14)


def test_equal_stories_on_links_of_other_bandwidths_end_in_one_event_after_hundreds_of_changes():
    # On each link a long flow and, every 0.7 s, a short one that takes a share of it; bytes and bandwidths of the links
    # stand in the same proportion, so all links see the same moments, each with roundings of its own.
    factors, n = [1.0, 3.0, 11.0, 1 / 3, 1.1], 400
    paths = [[link] for link in range(len(factors)) for _ in range(n + 1)]
    payload = np.outer(factors, np.r_[0.3 * n, np.full(n, 0.1)])
    start = np.r_[0.0, 0.7 * np.arange(n)]

    def run(num_links):
        count = num_links * (n + 1)
        links = links_of(*(0.7 * factor for factor in factors[:num_links]))
        flows = Flows.from_paths(paths[:count], payload.ravel()[:count], np.tile(start, num_links))
        return fair_sharing.simulate(links, flows)

    alone, together = run(1), run(len(factors))
    # A start and an end of each short flow, and the end of the long one.
    assert alone.num_events == together.num_events == 2 * n + 1
    np.testing.assert_allclose(together.finish_s.reshape(-1, n + 1), np.tile(alone.finish_s, (len(factors), 1)), rtol=1e-13)


def test_a_late_start_of_all_costs_no_accuracy():
    flows = Flows.from_paths([[0], [0], [0]], [1e-6, 2e-6, 4e-6], [2.0**30, 2.0**30, 2.0**30 + 2.0**-20])
    early = Flows.from_paths([[0], [0], [0]], [1e-6, 2e-6, 4e-6], [0, 0, 2.0**-20])
    late, plain = fair_sharing.simulate(links_of(1.0), flows), fair_sharing.simulate(links_of(1.0), early)
    assert late.finish_s.tolist() == (2.0**30 + plain.finish_s).tolist()
    assert late.num_events == plain.num_events == 5


# --- against others ---


NUMBERS = st.one_of(st.integers(1, 12).map(float), st.floats(0.125, 16).map(lambda x: round(x, 3)))


@st.composite
def networks(draw, max_links=6, max_flows=12, with_latency=True):
    """Links and flows in which ties are common: simultaneous starts and ends, equal rates, links crossed twice."""
    bandwidth = draw(st.lists(NUMBERS, min_size=1, max_size=max_links))
    n = draw(st.integers(1, max_flows))
    latency = [draw(st.sampled_from([0.0, 0.1, 0.5])) if with_latency else 0.0 for _ in bandwidth]
    paths = draw(st.lists(st.lists(st.integers(0, len(bandwidth) - 1), max_size=4), min_size=n, max_size=n))
    payload = draw(st.lists(st.one_of(st.sampled_from([0.0, 1.0, 6.0]), NUMBERS), min_size=n, max_size=n))
    start = draw(st.lists(st.sampled_from([0.0, 0.1, 0.3, 1.0, 2.0]), min_size=n, max_size=n))
    return links_of(*bandwidth, latency_s=latency), Flows.from_paths(paths, payload, start)


@given(network=networks(), latency_first=st.booleans())
@draws(40)
def test_the_kernel_equals_the_exact_reference(network, latency_first):
    links, flows = network
    result = fair_sharing.simulate(links, flows, latency_first=latency_first).finish_s
    exact = fair_sharing_reference.simulate(links, flows, latency_first=latency_first)
    for i, expected in enumerate(exact):
        assert abs(Fraction(float(result[i])) - expected) <= Fraction(1, 10**12) * expected


def test_the_kernel_equals_the_exact_reference_where_many_flows_compete():
    rng = np.random.default_rng(0)
    for _ in range(3):
        links = links_of(*rng.integers(1, 9, 10))
        paths = [rng.choice(10, rng.integers(1, 5), replace=False) for _ in range(80)]
        flows = Flows.from_paths(paths, rng.integers(1, 50, 80), rng.integers(0, 40, 80))
        exact = [float(expected) for expected in fair_sharing_reference.simulate(links, flows)]
        np.testing.assert_allclose(fair_sharing.simulate(links, flows).finish_s, exact, rtol=1e-14)


# Flows on the preset clos-64-4to1 with all latencies zero: source, target, megabytes, start, finish. The finishes are
# those of SimGrid 3.32 (Debian 12), network/model:CM02 with bandwidth-factor and latency-factor 1, weight-S, TCP-gamma
# and crosstraffic 0, precision 1e-12: pure max-min sharing by an implementation of others.
SIMGRID = """
    5 51 48 0.002 0.00584                  50 55 8 0.0 2.6666666666666667e-05   20 27 96 0.004 0.01168
    10 44 7 0.0 0.00056                    28 25 103 0.006 0.006343333333333334 27 42 35 0.01 0.0128
    47 61 57 0.004 0.014706666666666666    40 41 173 0.004 0.004576666666666666 0 59 194 0.014 0.030240000000000003
    8 18 9 0.014 0.01544                   37 41 94 0.002 0.00952               30 48 51 0.01 0.023226666666666666
    23 32 19 0.008 0.013946666666666666    41 33 185 0.002 0.0216               40 38 60 0.006 0.015600000000000001
    46 18 131 0.002 0.020293333333333333   24 53 131 0.0 0.026960000000000005   43 14 182 0.006 0.027706666666666668
    48 60 175 0.006 0.023893333333333336   6 37 131 0.006 0.027446666666666664  30 56 30 0.002 0.009600000000000001
    51 44 126 0.012 0.030046666666666666   9 17 112 0.006 0.023433333333333334  25 8 186 0.002 0.03336
"""


def test_the_finishes_on_a_preset_cluster_are_those_of_simgrid():
    cluster = load_cluster("preset:clos-64-4to1")
    links = dataclasses.replace(cluster.links, latency_s=np.zeros(len(cluster.links)))
    table = np.array(SIMGRID.split(), np.float64).reshape(-1, 5)
    assert len(table) == 24
    paths = [cluster.path(int(row[0]), int(row[1])) for row in table]
    result = fair_sharing.simulate(links, Flows.from_paths(paths, table[:, 2] * 1e6, table[:, 3]))
    np.testing.assert_allclose(result.finish_s, table[:, 4], rtol=1e-14)


def test_ten_thousand_ends_on_one_link_follow_the_formula_of_processor_sharing():
    # While the k-th smallest flow is sent, n - k + 1 share the link:
    # finish_k = finish_{k-1} + (n - k + 1) (bytes_k - bytes_{k-1}) / bandwidth.
    n, rng = 10_000, np.random.default_rng(0)
    payload = np.sort(rng.integers(1, 10**12, n)).astype(float)
    result = fair_sharing.simulate(links_of(7e9), Flows.from_paths([[0]] * n, payload, np.zeros(n)))
    steps = (n - np.arange(n)) * np.diff(payload, prepend=0.0)
    sums = list(map(float, np.cumsum(steps.astype(np.int64), dtype=object)))
    assert result.num_events == 1 + len(set(payload.tolist()))
    np.testing.assert_allclose(result.finish_s, np.array(sums) / 7e9, rtol=1e-12)


def test_what_many_settled_flows_leave_is_not_lost_to_rounding():
    # All but one of 20,000 flows have a link of their own a little narrower than their share; the last one gets what is
    # left, a two-thousandth: plain summation would be off by more than 1e-12 of it.
    n = 20_000
    own = (1 - 1e-3 * np.random.default_rng(0).random(n - 1)) / n
    result = rates(links_of(1.0, *own), [[0], *([0, i + 1] for i in range(n - 1))])
    left = 1 - sum(Fraction(value) for value in own.tolist())
    assert abs(Fraction(result[0]) - left) <= Fraction(1, 10**12) * left
    assert result[1:] == own.tolist()


# --- laws ---


@given(network=networks(with_latency=False))
def test_no_link_carries_more_than_it_can_and_every_flow_has_a_bottleneck(network):
    links, flows = network
    paths = [flows.path(i) for i in range(len(flows)) if flows.path(i)]
    rate = np.array(rates(links, paths))
    used = np.zeros(len(links))
    np.add.at(used, [link for path in paths for link in path], [rate[i] for i, path in enumerate(paths) for _ in path])
    assert (used <= links.bandwidth_bytes_per_s * (1 + 1e-14)).all()
    fastest = np.array(
        [max((rate[i] for i, path in enumerate(paths) if link in path), default=0.0) for link in range(len(links))]
    )
    for i, path in enumerate(paths):
        full = [link for link in path if used[link] >= links.bandwidth_bytes_per_s[link] * (1 - 1e-14)]
        assert any(rate[i] >= fastest[link] * (1 - 1e-14) for link in full)


@given(network=networks(), seed=st.integers(0, 2**32 - 1))
def test_the_order_of_the_flows_changes_no_bit(network, seed):
    links, flows = network
    order = np.random.default_rng(seed).permutation(len(flows))
    shuffled = Flows.from_paths([flows.path(int(i)) for i in order], flows.payload_bytes[order], flows.start_s[order])
    result = fair_sharing.simulate(links, shuffled).finish_s
    assert result.tolist() == fair_sharing.simulate(links, flows).finish_s[order].tolist()


@given(network=networks(max_links=1), more=st.floats(0, 10))
def test_on_one_link_more_bandwidth_delays_no_flow(network, more):
    links, flows = network
    wider = dataclasses.replace(links, bandwidth_bytes_per_s=links.bandwidth_bytes_per_s + more)
    once = Flows.from_paths([flows.path(i)[:1] for i in range(len(flows))], flows.payload_bytes, flows.start_s)
    before, after = fair_sharing.simulate(links, once).finish_s, fair_sharing.simulate(wider, once).finish_s
    assert (after <= before * (1 + 1e-13)).all()


# --- bad input ---


NOT_FINITE = (math.nan, math.inf)


LINKS = [
    *(
        ((1, bandwidth), None, [[0]], r"link1\.bandwidth_bytes_per_s: must be finite and positive")
        for bandwidth in (0.0, -1.0, *NOT_FINITE)
    ),
    *(((1,), [latency], [[0]], r"link0\.latency_s: must be finite and not negative") for latency in (-1e-9, *NOT_FINITE)),
    *(((1, 1), None, [[0], [1, link], [0]], r"flows\.1\.path: names a link outside 0\.\.1") for link in (-1, 2)),
]


@pytest.mark.parametrize(("bandwidth", "latency_s", "paths", "message"), LINKS)
def test_an_impossible_or_absent_link_is_refused_by_name(bandwidth, latency_s, paths, message):
    with pytest.raises(ClusterError, match=message):
        finish_s(links_of(*bandwidth, latency_s=latency_s), paths, [1] * len(paths), [0] * len(paths))


@pytest.mark.parametrize(
    ("payload", "start", "message"),
    [
        *(([1, payload], [0, 0], r"flows\.1\.payload_bytes: must be finite and not negative") for payload in (-1.0, *NOT_FINITE)),
        *(([1, 1], [start, 0], r"flows\.0\.start_s: must be finite") for start in NOT_FINITE),
        ([1], [0, 0], r"unequal length .*2 paths, 1 sizes, 2 starts"),
    ],
)
def test_impossible_flows_are_refused(payload, start, message):
    with pytest.raises(GraphError, match=message):
        Flows.from_paths([[0], [0]], payload, start)


def test_times_too_large_to_be_told_are_refused_and_not_waited_for():
    with pytest.raises(GraphError, match=r"flows\.1: its times are too large"):
        finish_s(links_of(1e-300), [[], [0]], [1, 1e300], [0, 0])
    with pytest.raises(GraphError, match=r"flows\.0: its times are too large"):
        finish_s(links_of(1, latency_s=[1e300]), [[0, 0, 0]], [1], [0], latency_first=True)
