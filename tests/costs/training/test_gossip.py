"""Rounds of gossip: weights, exact means and published steps."""

import numpy as np
import pytest

from meshwright.costs.training.gossip import mixing, rounds
from meshwright.costs.training.gossip_fabrics import FABRICS, fabric_steps


@pytest.mark.parametrize("topology", ["ring", "one-peer-exp", "aer", "complete"])
@pytest.mark.parametrize(("n", "per_host"), [(2, 1), (8, 4), (16, 4), (16, 8), (8, 8)])
def test_mixing_is_doubly_stochastic(topology, n, per_host):
    for one in rounds(topology, n, per_host):
        weights = mixing(one, n)
        assert np.allclose(weights.sum(axis=0), 1)
        assert np.allclose(weights.sum(axis=1), 1)


@pytest.mark.parametrize(("n", "per_host"), [(8, 2), (16, 4), (32, 4)])
def test_hosts_in_turn_give_everybody_the_exact_mean(n, per_host):
    values = np.random.default_rng(0).normal(size=n)
    product = np.eye(n)
    for one in rounds("aer", n, per_host):
        product = mixing(one, n) @ product
    assert np.allclose(product @ values, values.mean(), atol=1e-12)


def test_complete_averaging_has_the_mean_of_synchronous_descent():
    # A quadratic of each worker; averaging parameters after local steps from a common point is a step on the mean gradient.
    rng = np.random.default_rng(1)
    curvature, centre = rng.uniform(0.5, 2, size=8), rng.normal(size=8)
    common, own = 0.3, np.full(8, 0.3)
    for _ in range(20):
        common -= 0.1 * (curvature * (common - centre)).mean()
        (one,) = rounds("complete", 8, 4)
        own = mixing(one, 8) @ (own - 0.1 * curvature * (own - centre))
        assert np.allclose(own, common, atol=1e-12)


def test_more_ranks_never_lengthen_a_local_step_and_gossip_beats_all_reduce():
    for name, fabric in FABRICS.items():
        for ranks in (2 * fabric.per_host, 4 * fabric.per_host, 8 * fabric.per_host):
            steps = fabric_steps(name, ranks)
            assert steps.aer_s <= steps.all_reduce_s
