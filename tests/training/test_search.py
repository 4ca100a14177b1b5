"""Searches by trial on costs that are known: by hand, their laws, and that a restored one continues to the same numbers."""

import json

import numpy as np
import pytest

from meshwright.training.search import CovarianceAdaptation, CrossEntropy, Search

WANTED = np.array([1.0, -2.0, 0.5, 0.0, 3.0, -1.0])


class Bowl:
    """Costs the squared distance from what is wanted."""

    def costs(self, weights, generation, rng):
        return np.array([self.value(each) for each in weights])

    def value(self, mean):
        return float(((mean - WANTED) ** 2).sum())


class Valley(Bowl):
    """A narrow one: its floor runs across all weights."""

    def value(self, mean):
        return float(100.0 * np.ptp(mean - WANTED) ** 2 + (mean - WANTED).mean() ** 2)


def made(kind, generations=20, trial=None, **options):
    mean = np.zeros(len(WANTED))
    population = CovarianceAdaptation(mean, 0.5, 12) if kind == "cma-es" else CrossEntropy(mean, 0.5, 12, 3, 0.02)
    return Search(population, trial or Bowl(), generations, 5, ((7,), ()), **options)


def run(found, after=lambda: None):
    found.run(after)
    return found


def test_the_mean_and_spread_of_cross_entropy_are_those_of_the_best_by_hand():
    population = CrossEntropy(np.zeros(2), 1.0, 3, 2, 0.5)
    tried = np.array([[0.0, 0.0], [2.0, 4.0], [4.0, 0.0]])
    population.learn(tried, np.array([9.0, 1.0, 2.0]), 0.5)
    # The best two: (2, 4) and (4, 0), 1 and 2 from their mean; half of the added spread is left.
    assert (population.mean.tolist(), population.spread.tolist()) == ([3.0, 2.0], [1.25, 2.25])
    drawn = population.draw(np.random.default_rng(1))
    assert drawn[0].tolist() == [3.0, 2.0]
    np.testing.assert_allclose(drawn[1:], [3, 2] + [1.25, 2.25] * np.random.default_rng(1).standard_normal((3, 2))[1:])


def test_the_bottom_of_a_bowl_is_found_and_of_a_valley_by_covariance_alone():
    result = {kind: run(made(kind, 150)) for kind in ("cross-entropy", "cma-es")}
    assert all(each.values[-1][1] < 1e-4 for each in result.values())
    assert [generation for generation, _ in result["cma-es"].values] == list(range(0, 151, 5))
    costs = {kind: run(made(kind, 150, Valley())).best_of_all[1] for kind in result}
    assert costs["cma-es"] < 0.01 * costs["cross-entropy"]


@pytest.mark.parametrize("kind", ["cross-entropy", "cma-es"])
def test_a_search_continues_from_its_state_to_the_same_numbers_and_refuses_what_is_none(kind):
    whole, states = made(kind), []
    whole.run(lambda: states.append(json.loads(json.dumps(whole.state()))))
    for state in (states[0], states[9], states[20]):
        later = made(kind)
        later.restore(state)
        assert run(later).state() == whole.state()
        assert later.mean.tolist() == whole.mean.tolist()
    for change in ({"costs": "high"}, {"costs": [[1.0]]}, {"costs": [[1e200] * 12]}, {"values": []}, {"best": [0.0]}):
        with pytest.raises((ArithmeticError, LookupError, TypeError, ValueError)):
            made(kind).restore(states[9] | change)
    with pytest.raises(ValueError):
        made(kind, generations=4).restore(states[9])


@pytest.mark.parametrize(("values", "is_less_better"), [([3.0, 1.0, 2.0], True), ([3.0, 4.0, 4.0], False)])
def test_the_first_of_the_best_means_is_kept(values, is_less_better):
    class Falls:
        def costs(self, weights, generation, rng):
            return np.arange(float(len(weights)))

        def value(self, mean):
            means.append(mean)
            return values[len(means) - 1]

    means = []
    result = run(made("cma-es", 10, Falls(), is_less_better=is_less_better))
    assert result.best.tolist() == means[1].tolist()
    assert result.best_of_all == (5, values[1])


def test_nothing_is_drawn_from_numbers_that_others_share():
    results = []
    for seed in (0, 1):
        np.random.seed(seed)  # noqa: NPY002 - pycma draws from it unless told otherwise
        before = np.random.get_state()[1].tolist()  # noqa: NPY002
        results.append(run(made("cma-es", 5)).mean.tolist())
        assert np.random.get_state()[1].tolist() == before  # noqa: NPY002
    assert results[0] == results[1]


def test_means_are_rounded_before_they_are_played():
    class Noted(Bowl):
        def value(self, mean):
            means.append(mean)
            return super().value(mean)

    means = []
    result = run(made("cma-es", 10, Noted(), digits=2))
    assert all(mean.tolist() == mean.round(2).tolist() for mean in (means[0], means[-1], result.best, result.mean))
    assert result.mean.any()
