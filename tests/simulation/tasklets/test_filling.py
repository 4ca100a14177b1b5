"""Filling stages in compiled code: bit for bit plain Python, values of groupings, and the bound and the draws of networks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from meshwright.planners.arrangement.arrange import best_of_all
from meshwright.planners.arrangement.chain_search import chain_value_s
from meshwright.simulation.tasklets.filling import (
    begin_filling,
    fill_network,
    is_filled,
    join,
    lower_bound_s,
    new_filling,
    room_for_networks,
    units_s,
)
from meshwright.simulation.tasklets.generators import NetworkDraw, draw_network

from ...draws import draws
from .plain_filling import PlainFilling
from .test_tasklets import drawn, two_sites


def stack_networks(instances):
    stacked = room_for_networks(len(instances), max(each.num_devices for each in instances))
    for at, each in enumerate(instances):
        fill_network(stacked, at, each)
    return stacked


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 4))
@draws(40)
def test_compiled_filling_is_that_of_plain_python_bit_for_bit(seed, num_stages, num_replicas):
    instance, other = drawn(seed, num_stages, num_replicas), drawn(seed + 1, 2, 5)
    stacked = stack_networks([other, instance])
    state, plain = new_filling(stacked, 2), PlainFilling(instance, units_s(instance))
    begin_filling(stacked, state, 1, 1)
    n, total = instance.num_devices, 0.0
    order = np.random.default_rng(seed).permutation(n)
    for device in order.tolist():
        assert not is_filled(stacked, state, 1)
        assert state.can_join[1].tolist() == [each < n and each not in plain.joined for each in range(10 if n < 10 else n)]
        assert np.array_equal(state.candidates[1, :n], plain.candidates())
        assert np.array_equal(state.progress[1], plain.progress())
        growth = join(stacked, state, 1, device)
        plain.join(device)
        assert state.value_s[1] == plain.value_s
        assert growth >= 0
        total += growth
    assert is_filled(stacked, state, 1)
    assert (state.candidates >= 0).all()
    assert (state.candidates <= 1).all()
    stages = order.reshape(num_stages, num_replicas)
    expected = chain_value_s(instance.reduce_s, instance.hand_over_s, stages)
    assert state.value_s[1] == pytest.approx(expected, rel=1e-12)
    assert total * stacked.scale_s[1] == pytest.approx(expected, rel=1e-9)


def test_two_sites_filled_one_after_the_other_worked_by_hand():
    # Devices 0 and 1 exchange 2 (0.01 + 0.05) = 0.12 s; the hand-over to 2 and 3 takes 0.1 + 1.0 s, paid twice.
    stacked = stack_networks([two_sites()])
    state = new_filling(stacked, 1)
    begin_filling(stacked, state, 0, 0)
    values = []
    for device in (0, 1, 2, 3):
        join(stacked, state, 0, device)
        values.append(state.value_s[0])
    assert values == pytest.approx([0.0, 0.12, 0.12, 0.12 + 2.2])


@given(st.integers(0, 10**6), st.sampled_from([(1, 4), (2, 2), (3, 2), (2, 3), (4, 2), (4, 1)]))
@draws(30)
def test_no_grouping_is_below_the_bound(seed, shape):
    instance = drawn(seed, *shape)
    assert best_of_all(instance).value_s >= lower_bound_s(instance) * (1 - 1e-12)


def test_the_bound_of_two_sites_worked_by_hand():
    # The nearest other is 0.12 s away for each; the least hand-over of each is 0.01 + 0.1 s, paid twice.
    assert lower_bound_s(two_sites()) == pytest.approx(0.12 + 2 * 0.11)


def test_kinds_take_turns_and_sizes_are_drawn_beside_the_links():
    drawing = NetworkDraw(num_devices=(8, 16), num_stages=(2, 4))
    networks = [drawing.draw(seed) for seed in range(30)]
    assert [each.name for each in networks[:3]] == ["uneven-0", "spot-1", "uneven-2"]
    assert {(each.num_devices, each.num_stages) for each in networks} == {(8, 2), (8, 4), (16, 2), (16, 4)}
    again = drawing.draw(7)
    assert np.array_equal(again.latency_s, networks[7].latency_s)
    whole = NetworkDraw().draw(5)
    assert np.array_equal(whole.bandwidth_bytes_per_s, draw_network(5, "spot").bandwidth_bytes_per_s)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_devices": (64,), "num_stages": (8, 9)}, "9 stages do not divide 64 devices"),
        ({"kinds": ("spot", "spot")}, "each kind once"),
        ({"kinds": ()}, "at least 1"),
        ({"kinds": ("even",)}, "uneven"),
    ],
)
def test_draws_that_are_impossible_are_refused(changes, message):
    with pytest.raises(ValidationError, match=message):
        NetworkDraw.model_validate(changes)
