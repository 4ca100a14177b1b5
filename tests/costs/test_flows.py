"""Transfers between two ranks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.costs import flows
from meshwright.costs.network import RankNetwork


@pytest.mark.parametrize(
    ("name", "devices", "expected"),
    [
        # device 0 to device 4 crosses two leaves: 2 + 3 + 3 + 2 us, and 5 MB at a leaf's 2 x 10 / 4 / 2 = 2.5 GB/s to a spine
        ("cut-through", (0, 4), 10e-6 + 2e-3),
        # 10 us, and 5 MB over 10, 2.5, 2.5 and 10 GB/s: 0.5 + 2 + 2 + 0.5 ms
        ("store-and-forward", (0, 4), 10e-6 + 5e-3),
        # ranks 0 and 1 share a host: 1 us + 5 MB / 100 GB/s
        ("cut-through", (3, 2, 7), 51e-6),
    ],
)
def test_a_transfer_between_the_devices_of_two_ranks_worked_by_hand(leaves, name, devices, expected):
    assert flows.MODELS[name](RankNetwork(leaves, np.array(devices)), 0, 1, 5e6) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", sorted(flows.MODELS))
def test_nothing_to_move_takes_no_time(leaves, name):
    network = RankNetwork(leaves, np.array([0, 4]))
    assert flows.MODELS[name](network, 1, 1, 5e6) == 0.0
    assert flows.MODELS[name](network, 0, 1, 0.0) == 0.0


@given(pair=st.lists(st.integers(0, 7), min_size=2, max_size=2, unique=True), payload=st.floats(1, 1e12))
def test_cut_through_is_never_slower_than_store_and_forward(leaves, pair, payload):
    network = RankNetwork(leaves, np.array(pair))
    cut, stored = (flows.MODELS[name](network, 0, 1, payload) for name in ("cut-through", "store-and-forward"))
    assert 0 < cut <= stored * (1 + 1e-12)
