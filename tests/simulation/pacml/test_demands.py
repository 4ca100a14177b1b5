"""The pool of jobs and the distributions of their deadlines."""

import numpy as np
import pytest

from meshwright.errors import ConfigError
from meshwright.simulation.pacml.demands import draw_demands, draw_fractions
from meshwright.simulation.pacml.semantics import Defects


@pytest.mark.parametrize(("distribution", "mean"), [("A", 0.55), ("B", 0.28), ("C", 0.49), ("D", 0.71)])
def test_means_of_the_distributions(distribution, mean):
    # "Means are about ..."; a sample's own extremes scale B, C and D, so that their means scatter a little.
    drawn = [draw_fractions(np.random.default_rng(seed), distribution, 1000, Defects()) for seed in range(10)]
    assert np.mean(drawn) == pytest.approx(mean, abs=0.02)
    for values in drawn:
        assert values.min() >= 0.1
        assert values.max() <= 1.0
        np.testing.assert_array_equal(values, np.round(values, 2))


def test_uniform_fractions_are_the_hundredths_from_a_tenth_to_one():
    drawn = draw_fractions(np.random.default_rng(0), "A", 20_000, Defects())
    assert sorted(set(drawn.tolist())) == [k / 100 for k in range(10, 101)]


def test_values_below_the_cut_off_pile_up_unless_they_are_drawn_again():
    shares = {}
    for clips in (True, False):
        drawn = draw_fractions(np.random.default_rng(0), "B", 20_000, Defects(resample_clips=clips))
        shares[clips] = (drawn == 0.1).mean()
    assert shares[True] > 2 * shares[False]


def test_a_pool_holds_each_graph_equally_often():
    demands = draw_demands(np.random.default_rng(0), ["a", "b", "c"], "A", 300, Defects())
    assert {name: sum(d.graph == name for d in demands) for name in "abc"} == {"a": 100, "b": 100, "c": 100}
    assert len(draw_demands(np.random.default_rng(0), ["a", "b", "c"], "A", 100, Defects())) == 100


def test_the_order_of_the_graphs_matters_only_with_the_defect():
    for matters in (True, False):
        one, other = (
            draw_demands(np.random.default_rng(0), names, "C", 50, Defects(pool_in_given_order=matters)) for names in ("ab", "ba")
        )
        assert (one != other) == matters


def test_impossible_wishes_are_refused():
    with pytest.raises(ConfigError, match="distribution"):
        draw_fractions(np.random.default_rng(0), "E", 10, Defects())
    for graphs, num_jobs in (([], 5), (["a"], 0)):
        with pytest.raises(ConfigError, match="at least one"):
            draw_demands(np.random.default_rng(0), graphs, "A", num_jobs, Defects())
