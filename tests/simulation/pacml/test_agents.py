"""The published agents, as the statistics of ``validate pacml`` play them."""

import numpy as np
import pytest

from meshwright.errors import PolicyError
from meshwright.evaluation.validation.pacml.episodes import play, published_scenario
from meshwright.evaluation.validation.pacml.replay import AGENTS, agent
from meshwright.simulation.pacml.demands import Demand

from .conftest import make_graph

HUGE = make_graph([1000.0], [3000.0], [1e9], [1e9], [], name="huge")


@pytest.fixture
def degree_of(simulator_of):
    """The decision of an agent after the given degrees, where the last job allows a fraction of the sequential time."""
    scenario = published_scenario(simulator_of(HUGE), [HUGE], 3)

    def chosen(name, before, fraction, draws=1):
        policy, result = agent(name, scenario), []
        policy.reset(0)
        expected = iter([*before, None])

        def choose(waiting):
            degree = next(expected, 0)
            if degree is None:
                result.extend(int(waiting.degree[policy.choose(waiting, {})]) for _ in range(draws))
            return int(np.flatnonzero(waiting.degree == (degree or 0))[0])

        play(scenario, [Demand("huge", 1.0)] * len(before) + [Demand("huge", fraction)] * (4 - len(before)), choose)
        return result

    return chosen


@pytest.mark.parametrize(
    ("name", "degree"),
    [
        ("no_parallelism", 1),
        ("min_parallelism", 2),
        ("max_parallelism", 16),
        ("sip_ml", 16),
        ("acceptable_jct", 4),  # the least valid degree of at least ceil(1 / 0.3) = 4
        ("oracle_min", 4),
        ("best_feasible", 16),
        ("fixed8", 8),
        ("ladder2_4_8", 4),
        ("ladder8_4_2_1", 8),
    ],
)
def test_choices_by_hand(degree_of, name, degree):
    assert degree_of(name, [16], 0.3) == [degree]


def test_a_deadline_beyond_every_degree_takes_the_largest(degree_of):
    assert degree_of("acceptable_jct", [16], 0.07) == degree_of("oracle_min", [16], 0.07) == [16]  # ceil(1 / 0.07) = 15


def test_nothing_valid_turns_the_job_away(degree_of):
    for name in (*AGENTS, "min_parallelism", "fixed1"):
        assert degree_of(name, [16, 16], 1.0) == [0]


def test_random_draws_every_valid_degree_alike(degree_of):
    drawn = degree_of("random", [16], 1.0, 6000)
    assert sorted(set(drawn)) == [1, 2, 4, 6, 8, 16]
    assert all(850 < drawn.count(degree) < 1150 for degree in set(drawn))  # 1,000 of 6,000; the standard deviation is 29


@pytest.mark.parametrize("name", ["sipml", "fixed", "fixed2_4", "fixed0", "fixed10", "ladder32", "ladder"])
def test_unknown_agents_and_degrees_without_blocks_are_refused(degree_of, name):
    with pytest.raises(PolicyError):
        degree_of(name, [], 1.0)
