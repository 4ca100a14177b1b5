"""A forward pass during a backward pass: worked by hand, and compared with each pass alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.costs.block_times.chunk_times import paired_blocks
from meshwright.costs.training_step.kernels import kernel_model
from meshwright.costs.training_step.passes import pass_time
from meshwright.costs.work.model_chunks import ChunkWork
from meshwright.costs.work.operations import Message, Sweep, side_by_side
from meshwright.devices import device_type

from ...draws import draws

MODEL = kernel_model(device_type("a100"))


def kernel(seconds):
    """A kernel of this duration, set by the bytes of its sweep."""
    one = MODEL.kernel_s(Sweep("", 1e9), 2)
    other = MODEL.kernel_s(Sweep("", 2e9), 2)
    return Sweep("", 1e9 * (seconds - 2 * one + other) / (other - one))


def sent(seconds, beside=0, axis="ep"):
    return Message("", "all_to_all", axis, seconds, beside)


def seconds(items, slowdown=1.0):
    return pass_time(items, MODEL, lambda message: message.payload_bytes, 2, slowdown).device_s


def test_a_layer_of_experts_beside_another_worked_by_hand():
    # forward: attention 3, dispatch 2, experts 4, combine 2, rest 1; backward: rest 1, combine 2, experts 6, dispatch 2,
    # attention 5
    ahead = (kernel(3), sent(2), kernel(4), sent(2), kernel(1))
    back = (kernel(1), sent(2), kernel(6), sent(2), kernel(5))
    assert seconds(ahead) == pytest.approx(12)
    assert seconds(back) == pytest.approx(16)
    # 1, then 3 hide 2, 6 hide 2, 4 hide 2, 5 hide 2, 1: nothing is left of 8 seconds of messages
    assert seconds(side_by_side(ahead, back)) == pytest.approx(20)
    # with slower links each hides behind what it is beside: 1 + (3 | 4) + (6 | 4) + (4 | 4) + (5 | 4) + 1 = 21
    slow = [tuple(sent(4) if isinstance(item, Message) else item for item in one) for one in (ahead, back)]
    assert seconds(side_by_side(*slow)) == pytest.approx(21)


def test_messages_of_other_axes_and_what_is_hidden_already_stay_as_they_are():
    ahead = (kernel(1), sent(2, axis="tp"), kernel(1))
    back = (sent(1, beside=1, axis="tp"), kernel(2), kernel(1))
    made = side_by_side(ahead, back)
    assert sorted(map(repr, made)) == sorted(map(repr, (*ahead, *back)))
    assert seconds(made) == pytest.approx(seconds(ahead) + seconds(back))
    assert side_by_side((), back) == back
    assert side_by_side(ahead, ()) == ahead


PASSES = st.lists(st.tuples(st.booleans(), st.floats(0.1, 5.0)), max_size=6)


@draws(60)
@given(PASSES, PASSES, st.sampled_from([1.0, 1.1, 1.5]))
def test_a_pair_takes_no_longer_than_both_and_no_less_than_either_or_its_kernels(ahead, back, slowdown):
    made = [tuple(sent(s) if is_message else kernel(s) for is_message, s in one) for one in (ahead, back)]
    pair_s = seconds(side_by_side(*made), slowdown)
    alone = [seconds(one, slowdown) for one in made]
    hidden_s = sum(s for one in (ahead, back) for is_message, s in one if is_message)
    assert pair_s <= sum(alone) + (slowdown - 1) * hidden_s + 1e-9
    for is_sent in (False, True):
        assert pair_s >= sum(s for one in (ahead, back) for is_message, s in one if is_message == is_sent) - 1e-9
    assert pair_s >= max(alone) - 1e-9


def test_layers_are_paired_in_the_order_of_their_passes():
    # three layers forward, the first of another kind, beside two backward, of which the last one comes first
    ahead = ChunkWork(0, 0, 3, True, False, (("layer", 1), ("layer kind 1", 2)))
    back = ChunkWork(0, 1, 2, False, True, (("layer kind 1", 1), ("layer", 1)))
    assert dict(paired_blocks(ahead, back)) == {
        ("layer", "layer"): 1,
        ("layer kind 1", "layer kind 1"): 1,
        ("layer kind 1", ""): 1,
        ("embedding", ""): 1,
        ("", "head"): 1,
    }
