"""Searches by trial on costs that are known: by hand, their laws, and that a restored one goes on to the same numbers."""

import json

import numpy as np
import pytest

from meshwright.training.linear.populations import CovarianceAdaptation, CrossEntropy


def made(kind, num_weights=6, spread=0.5):
    mean = np.zeros(num_weights)
    return CovarianceAdaptation(mean, spread, 12) if kind == "cma-es" else CrossEntropy(mean, spread, 12, 3, 0.02)


def rng_of(generation):
    return np.random.default_rng([7, generation])


def searched(population, cost, first, last, num_generations=60):
    for generation in range(first, last):
        weights = population.draw(rng_of(generation))
        assert weights.shape == (12, len(population.mean))
        population.learn(weights, np.array([cost(one) for one in weights]), 1 - (generation + 1) / num_generations)
    return population


WANTED = np.array([1.0, -2.0, 0.5, 0.0, 3.0, -1.0])


def bowl(weights):
    return float(((weights - WANTED) ** 2).sum())


def valley(weights):
    """A narrow one: its floor runs across all weights."""
    return float(100.0 * np.ptp(weights - WANTED) ** 2 + (weights - WANTED).mean() ** 2)


def test_the_mean_and_spread_of_cross_entropy_are_those_of_the_best_by_hand():
    population = CrossEntropy(np.zeros(2), 1.0, 3, 2, 0.5)
    tried = np.array([[0.0, 0.0], [2.0, 4.0], [4.0, 0.0]])
    population.learn(tried, np.array([9.0, 1.0, 2.0]), 0.5)
    # The best two: (2, 4) and (4, 0), 1 and 2 from their mean; half of the added spread is left.
    assert population.state() == {"mean": [3.0, 2.0], "spread": [1.25, 2.25]}
    drawn = population.draw(np.random.default_rng(1))
    assert drawn[0].tolist() == [3.0, 2.0]
    np.testing.assert_allclose(drawn[1:], [3, 2] + [1.25, 2.25] * np.random.default_rng(1).standard_normal((3, 2))[1:])


@pytest.mark.parametrize("kind", ["cross-entropy", "cma-es"])
def test_the_bottom_of_a_bowl_is_found(kind):
    assert bowl(searched(made(kind), bowl, 0, 200, 200).mean) < 1e-5


def test_weights_that_go_together_are_found_by_covariance_alone():
    costs = {kind: valley(searched(made(kind), valley, 0, 150, 150).mean) for kind in ("cross-entropy", "cma-es")}
    assert costs["cma-es"] < 0.01 * costs["cross-entropy"]


@pytest.mark.parametrize("kind", ["cross-entropy", "cma-es"])
@pytest.mark.parametrize("at", [0, 1, 9])
def test_a_search_goes_on_from_its_state_to_the_same_numbers(kind, at):
    whole = searched(made(kind), bowl, 0, 20)
    state = json.loads(json.dumps(searched(made(kind), bowl, 0, at).state()))
    later = made(kind)
    later.restore(state, rng_of)
    searched(later, bowl, at, 20)
    assert later.mean.tolist() == whole.mean.tolist()
    assert later.state() == whole.state()


@pytest.mark.parametrize("kind", ["cross-entropy", "cma-es"])
def test_nothing_is_drawn_from_numbers_that_others_share(kind):
    found = []
    for seed in (0, 1):
        np.random.seed(seed)  # noqa: NPY002 - pycma draws from it unless told otherwise
        before = np.random.get_state()[1].tolist()  # noqa: NPY002
        found.append(searched(made(kind), bowl, 0, 5).mean.tolist())
        assert np.random.get_state()[1].tolist() == before  # noqa: NPY002
    assert found[0] == found[1]
