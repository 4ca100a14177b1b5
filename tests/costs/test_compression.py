"""Coded gradients: bytes on the wire, and what coding takes."""

import pytest

from meshwright.costs.collectives.prices import wire_factor
from meshwright.costs.compression import Matrix, coded, coded_tail_s
from meshwright.costs.work.operations import Message
from meshwright.devices import device_type
from meshwright.plans.compression import LowRank, Quantise, RandomK, Sign, TopK

S = 1e9
MESSAGE = Message("gradients", "all_reduce", "dp_cp", S)
A100 = device_type("a100")


def _wire(code, n, **keys):
    return sum(
        wire_factor(message.operation, n) * message.payload_bytes for message in coded(code, MESSAGE, n, A100, **keys).messages
    )


@pytest.mark.parametrize("n", [2, 8, 32])
def test_bytes_on_the_wire_are_those_of_the_table(n):
    ring = 2 * (n - 1) / n * S
    assert _wire(Quantise(bits=8, group=256), n) == pytest.approx((8 / 32 + 1 / 512) * ring)
    assert _wire(Sign(), n) == pytest.approx(ring / 32)
    assert _wire(TopK(fraction=0.01), n) == pytest.approx((n - 1) * 2 * 0.01 * S)
    assert _wire(RandomK(fraction=0.1), n) == pytest.approx(0.1 * ring)
    matrices = (Matrix(1024, 4096, 10),)
    vectors = S - 4 * 10 * 1024 * 4096
    assert _wire(LowRank(rank=4), n, matrices=matrices) == pytest.approx(2 * (n - 1) / n * (4 * 4 * 10 * (1024 + 4096) + vectors))


def test_nothing_is_saved_by_codes_that_keep_everything():
    assert _wire(Quantise(bits=32, group=None, summable=True), 8) == pytest.approx(2 * 7 / 8 * S, rel=1e-9)
    assert _wire(Quantise(bits=32, group=None), 8) == pytest.approx(2 * 7 / 8 * S, rel=1e-9)
    assert _wire(RandomK(fraction=1.0), 8) == pytest.approx(2 * 7 / 8 * S, rel=1e-9)
    square = (Matrix(1000, 1000, S / 4e6),)
    assert _wire(LowRank(rank=500), 8, matrices=square) == pytest.approx(2 * 7 / 8 * S, rel=1e-9)
    assert _wire(TopK(fraction=1.0), 8) == pytest.approx(7 * 2 * S)


def test_error_feedback_holds_the_gradients_once_more():
    assert coded(TopK(fraction=0.1), MESSAGE, 8, A100).extra_bytes == S
    assert coded(RandomK(fraction=0.1), MESSAGE, 8, A100).extra_bytes == 0
    assert coded(Sign(), MESSAGE, 8, A100, number_bytes=2).extra_bytes == 2 * S


def test_a_tail_worked_by_hand():
    # Two blocks of 1 s and half of the gradients each; 2 s of messages, 0.4 s of coding each way.
    # Passes end at 2.4; the line is busy from 1.2 to 2.2 and from 2.4 to 3.4; the last decoding ends at 3.6, 1.6 late.
    assert coded_tail_s([(1.0, 0.5), (1.0, 0.5)], 2.0, 0.4, 0.4) == pytest.approx(1.6)
