"""Nearby batches that more devices divide, and what a search says of them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.planners.layouts.nearby_batches import CLEARLY_BETTER, NEAR, nearby_batches
from meshwright.planning.search import search_layouts


@pytest.mark.parametrize(
    ("batch", "devices", "near"),
    [(500, 64, (480, 512)), (512, 64, ()), (60, 8, (56, 64)), (1, 8, ()), (7, 64, ()), (500, 24, (480, 504)), (448, 64, ())],
)
def test_nearby_batches_worked_by_hand(batch, devices, near):
    assert nearby_batches(batch, devices) == near


@given(st.integers(1, 5000), st.integers(1, 512))
def test_a_nearby_batch_is_near_and_shares_more_with_the_devices_than_any_other_on_its_side(batch, devices):
    result = nearby_batches(batch, devices)
    for near in result:
        assert 0 < abs(near - batch) <= NEAR * batch * (1 + 1e-12)
        shared = math.gcd(near, devices)
        assert shared > math.gcd(batch, devices)
        between = range(min(near, batch) + 1, max(near, batch))
        assert all(math.gcd(other, devices) < shared for other in between)
    assert len({near > batch for near in result}) == len(result)
    if batch % devices == 0:
        assert result == ()


@pytest.mark.parametrize(("job", "rate"), [("zoo:alexnet", "samples_per_s"), ("zoo:gpt2-small", "tokens_per_s")])
def test_a_search_tells_the_nearby_batch_that_is_clearly_better(job, rate):
    keep = "cp=1,schedule=1f1b,recompute=none,zero=0"
    odd, even = (search_layouts(job, "preset:host-8", batch=batch, keep=keep, top=1) for batch in (62, 64))
    best = odd.better_batches[0]
    assert (best.global_batch, best.row.ranked.text) == (64, even.best.text)
    assert best.gain == pytest.approx(even.row(even.best).step.rate[1] / odd.row(odd.best).step.rate[1] - 1)
    assert best.gain > CLEARLY_BETTER
    (message, *_) = odd.to_data()["better_batches"]
    assert (message["global_batch"], message["gain"], message["layout"]) == (64, best.gain, best.row.ranked.text)
    assert message[rate] == best.row.step.rate[1]
    assert even.better_batches == ()
