"""The published agents."""

import numpy as np
import pytest

from meshwright.errors import PolicyError
from meshwright.simulation.pacml.episode import Demand, Episode
from meshwright.simulation.pacml.heuristics import AGENTS, agent

from .conftest import make_graph

HUGE = make_graph([1000.0], [3000.0], [1e9], [1e9], [], name="huge")


@pytest.fixture
def played(simulator_of):
    """One job of 16 servers runs; the next one allows 0.3 of the sequential time."""
    found = Episode(simulator_of(HUGE), [Demand("huge", 1.0), Demand("huge", 0.3), Demand("huge", 0.07)], 3)
    found.decide(16)
    return found


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
        ("fixed10", 0),  # never valid
        ("ladder2_4_8", 4),
        ("ladder8_4_2_1", 8),
    ],
)
def test_choices_by_hand(played, name, degree):
    assert agent(name)(played, np.random.default_rng(0)) == degree


def test_a_deadline_beyond_every_degree_takes_the_largest(played):
    played.decide(0)
    assert agent("acceptable_jct")(played, np.random.default_rng(0)) == 16  # ceil(1 / 0.07) = 15
    assert agent("oracle_min")(played, np.random.default_rng(0)) == 16


def test_nothing_valid_turns_the_job_away(played):
    played.decide(16)
    for name in (*AGENTS, "fixed1"):
        assert agent(name)(played, np.random.default_rng(0)) == 0


def test_random_draws_every_valid_degree_alike(played):
    rng = np.random.default_rng(0)
    drawn = [agent("random")(played, rng) for _ in range(6000)]
    valid = [1, 2, 4, 6, 8, 16]
    assert sorted(set(drawn)) == valid
    for degree in valid:  # 1,000 of 6,000; the standard deviation is 29
        assert 850 < drawn.count(degree) < 1150


@pytest.mark.parametrize("name", ["sipml", "fixed", "fixed2_4", "fixed0", "ladder32", "ladder"])
def test_unknown_agents_are_refused(name):
    with pytest.raises(PolicyError):
        agent(name)
