"""Rounds of gossip: weights, exact means and published steps."""

import numpy as np
import pytest

from meshwright.costs.settings import CostSettings
from meshwright.costs.training.gossip import mean_step_s, rounds
from meshwright.costs.training.gossip_fabrics import FABRICS, fabric_steps
from meshwright.planning.estimate import estimate
from meshwright.simulation.training.rounds import gossip_rounds_s
from meshwright.simulation.training.strategy_step import simulated_training_s

from ...samples.sample_clusters import cluster_of, matrix


def mixing(one, num_replicas):
    """Weights with which each replica averages, ``(n, n)``; every row and every column sums to 1."""
    weights = np.zeros((num_replicas, num_replicas))
    if one.is_exchange and len(one.groups) == num_replicas:
        weights[np.arange(num_replicas), np.arange(num_replicas)] += 0.5
        weights[one.groups[:, 1], one.groups[:, 0]] += 0.5
        return weights
    for group in one.groups:
        weights[np.ix_(group, group)] = 1.0 / len(group)
    return weights


def uneven(fast=100.0, slow=1.0):
    """Four hosts of one device; fast links join 0 to 1 and 2 to 3."""
    rates = np.full((4, 4), slow)
    for one, other in ((0, 1), (2, 3)):
        rates[one, other] = rates[other, one] = fast
    np.fill_diagonal(rates, 0.0)
    return cluster_of(matrix(rates))


COSTS = CostSettings(contention="independent", overlap_slowdown=1.0)


@pytest.mark.parametrize("topology", ["ring", "one-peer-exp", "aer", "complete"])
def test_on_uneven_networks_both_paths_price_each_pair_where_it_stands(topology):
    result = estimate(
        "zoo:vgg16", uneven(), "dp=4,micro_batch=2,global_batch=8", costs=COSTS, training=f"kind=gossip,topology={topology}"
    )
    (price,) = result.trained
    replicas = result.maker.replicas(result.work)
    local_s, size = replicas.local_s, replicas.gradient_bytes
    # neighbours in turn: 0-1 and 2-3 over fast links, then 1-2 and 3-0 over slow ones; hosts that differ in bit 0, then in bit 1
    if topology == "ring":
        assert price.step_s == pytest.approx((max(local_s, size / 100e9) + max(local_s, size / 1e9)) / 2, rel=1e-9)
    assert simulated_training_s(result.maker, result.work, price.training, costs=COSTS) == pytest.approx(price.step_s, rel=0.03)


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


def test_the_larger_counts_that_were_published_are_within_a_quarter_and_topologies_in_order():
    # A40 at 32 ranks, on which nothing is fitted: 110.8 and 67.9 ms
    steps = fabric_steps("a40", 32)
    assert steps.exponential_s == pytest.approx(110.8e-3, rel=0.25)
    assert steps.aer_s == pytest.approx(67.9e-3, rel=0.25)
    assert steps.aer_s < steps.exponential_s < steps.all_reduce_s


@pytest.mark.parametrize("topology", ["complete", "ring", "one-peer-exp", "aer"])
@pytest.mark.parametrize(("sigma", "most"), [(0.1, (0.04, 0.07, 0.01)), (0.3, (0.04, 0.20, 0.01))])
def test_steps_with_stragglers_are_those_of_steps_played_one_by_one(topology, sigma, most):
    times_s = np.exp(np.random.default_rng(0).normal(-(sigma**2) / 2, sigma, size=(200, 16)))
    for round_s, error in zip((0.01, 1.0, 2.0), most, strict=True):
        rounds_s = [round_s for _ in rounds(topology, 16, 4)]
        played_s = gossip_rounds_s(times_s, rounds(topology, 16, 4), rounds_s)
        assert mean_step_s(1.0, sigma, rounds_s) == pytest.approx(played_s, rel=error)
        assert round_s != 1.0 or mean_step_s(1.0, sigma, rounds_s) < played_s  # a group waits for more than two
