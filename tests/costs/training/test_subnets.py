"""Independent subnetworks: bytes of an actual dealing."""

import numpy as np
import pytest

from meshwright.costs.training.local_update import one_batch_s, streaming_s
from meshwright.costs.training.subnets import round_bytes


@pytest.mark.parametrize("widths", [(64, 64, 35), (64, 64, 64, 35)])
@pytest.mark.parametrize("workers", [2, 4, 8])
def test_bytes_of_a_round_are_those_of_dealt_tensors(widths, workers):
    rng, dealt = np.random.default_rng(0), 0
    owners = [rng.permutation(np.arange(width) % workers) for width in widths]
    owners[0], owners[-1] = None, None
    for worker in range(workers):
        for layer in range(len(widths) - 1):
            rows, columns = (
                np.arange(width) if owner is None else np.flatnonzero(owner == worker)
                for width, owner in zip(widths[layer : layer + 2], owners[layer : layer + 2], strict=True)
            )
            dealt += np.zeros((widths[layer], widths[layer + 1]), np.float32)[np.ix_(rows, columns)].nbytes
    assert round_bytes(widths, workers) == 2 * dealt


def _distance(scales, centres, workers=4, rounds=4000):
    """How far from the optimum dealt coordinate-wise descent on the mean of quadratics ends."""
    rng = np.random.default_rng(0)
    optimum = (scales * centres).sum(axis=0) / scales.sum(axis=0)
    x = np.zeros(scales.shape[1])
    distances = []
    for _ in range(rounds):
        owner = rng.permutation(np.arange(len(x)) % workers)
        mine = scales[owner, np.arange(len(x))], centres[owner, np.arange(len(x))]
        x = x - 0.1 * mine[0] * (x - mine[1])
        distances.append(np.abs(x - optimum).max())
    return np.mean(distances[-200:])


def test_homogeneous_quadratics_contract_and_heterogeneous_ones_stop_short():
    rng = np.random.default_rng(2)
    same, centre = np.ones((4, 8)), np.tile(rng.normal(size=8), (4, 1))
    assert _distance(same, centre) < 1e-9
    assert _distance(rng.uniform(0.5, 2, size=(4, 8)), rng.normal(size=(4, 8))) > 1e-2


def test_local_updates_of_a_chain_take_the_time_of_backpropagation():
    # p blocks of f = 1, b = 2, u = 0.5: with t = b - u and D = p the chain of input gradients, and one update behind it.
    p, f, b, u = 4, 1.0, 2.0, 0.5
    assert one_batch_s([f] * p, [b - u] * p, [u] * p, p) == pytest.approx(p * f + p * (b - u) + u)
    assert streaming_s([f] * p, [0.0] * p, [b] * p) == f + b
