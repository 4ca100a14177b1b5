"""Collectives' formulas: numbers worked by hand, and laws."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.costs.formulas import halving_doubling_all_reduce_s, ramp_step_s, ring_all_reduce_s, tree_all_reduce_s

ALL_REDUCES = [ring_all_reduce_s, tree_all_reduce_s, halving_doubling_all_reduce_s]
payloads = st.floats(0, 1e12)
ranks = st.integers(1, 4096)
bandwidths = st.floats(1e6, 1e13)
latencies = st.floats(0, 1e-3)


@pytest.mark.parametrize(
    ("time_s", "num_ranks", "expected"),
    [
        # 6 steps, each 1 us + (1 GB / 4) / (100 GB/s) = 1 us + 2.5 ms
        (ring_all_reduce_s, 4, 15.006e-3),
        # depth 3: 6 latencies of 1 us, and the payload twice: 2 x 10 ms; nine are one deeper: 8 latencies
        (tree_all_reduce_s, 8, 20.006e-3),
        (tree_all_reduce_s, 9, 20.008e-3),
        # 2 x 3 steps of 1 us; halves of 500, 250 and 125 MB there and back: 2 x 8.75 ms
        (halving_doubling_all_reduce_s, 8, 17.506e-3),
        # among four: 4 us + 2 x 7.5 ms; before and after, two ranks pass the whole buffer: 2 x (1 us + 10 ms)
        (halving_doubling_all_reduce_s, 6, 35.006e-3),
    ],
)
def test_a_gigabyte_worked_by_hand(time_s, num_ranks, expected):
    assert time_s(1e9, num_ranks, 100e9, 1e-6) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("num_ranks", "expected"), [(3, 10.25e-6), (4, 20.25e-6), (6, 40.5e-6)])
def test_a_ramp_step_worked_by_hand(num_ranks, expected):
    # 4 transceivers of 400 GB/s. For 2 peers two each: 250 ns + 8 MB / 800 GB/s; for 3 one each, one is idle; 5 take two rounds
    assert ramp_step_s(8e6, num_ranks, 4, 1600e9, 250e-9) == pytest.approx(expected, rel=1e-12)


@given(message=payloads, n=st.integers(2, 256), x=st.integers(1, 64), b=bandwidths, a=latencies)
def test_a_ramp_node_never_sends_more_than_its_bandwidth(message, n, x, b, a):
    assert ramp_step_s(message, n, x, b, a) >= (a + (n - 1) * message / b) * (1 - 1e-12)
    assert ramp_step_s(message, 1, x, b, a) == 0.0


@pytest.mark.parametrize("all_reduce_s", ALL_REDUCES)
@given(payload=payloads, more=payloads, n=ranks, b=bandwidths, factor=st.floats(1, 100), a=latencies)
def test_more_bytes_and_slower_links_take_no_less_than_the_bandwidth_bound(all_reduce_s, payload, more, n, b, factor, a):
    assert all_reduce_s(payload, 1, b, a) == all_reduce_s(0.0, n, b, a) == 0.0
    seconds = all_reduce_s(payload, n, b, a)
    assert all_reduce_s(payload, n, b * factor, a) <= seconds <= all_reduce_s(payload + more, n, b, a)
    # Patarasuk and Yuan, 2009: some rank sends and receives 2 (n - 1) / n of its buffer
    assert seconds >= 2 * (n - 1) / n * payload / b * (1 - 1e-12)


@given(payload=payloads, n=ranks, b=bandwidths)
def test_no_ring_moves_more_than_twice_its_payload(payload, n, b):
    assert ring_all_reduce_s(payload, n, b, 0.0) <= 2 * payload / b * (1 + 1e-12)


@given(payload=payloads, doublings=st.integers(1, 12), b=bandwidths)
def test_halving_doubling_of_a_power_of_two_moves_what_a_ring_moves(payload, doublings, b):
    n = 2**doublings
    assert halving_doubling_all_reduce_s(payload, n, b, 0.0) == pytest.approx(ring_all_reduce_s(payload, n, b, 0.0), rel=1e-12)
