"""Records of episodes and the current decision, worked by hand on one host of eight devices."""

import numpy as np
import pytest

from meshwright.clusters.cluster import load_cluster
from meshwright.jobs.arrivals import Arrivals
from meshwright.simulation.cluster import dynamics
from meshwright.simulation.cluster.decision import decision
from meshwright.simulation.cluster.records import record
from meshwright.simulation.cluster.scenario import ScenarioSettings, assemble
from meshwright.simulation.cluster.state import Outcome

from ..samples import small_workload


@pytest.fixture(scope="module")
def scenario():
    settings = ScenarioSettings(
        cluster="preset:host-8",
        workload="made to measure",
        num_jobs=4,
        num_warmup_jobs=1,
        max_degree=4,
        placement_rules=("first-fit", "fastest"),
    )
    return assemble(settings, load_cluster(settings.cluster), small_workload())


@pytest.fixture
def episodes(scenario):
    """Four ranks twice, no device for the third job, the fourth comes when all is over, with a deadline; one more to come."""
    result = scenario.new_episodes(2)
    fractions = np.array([np.inf, np.inf, np.inf, 0.3, np.inf])
    arrivals = Arrivals(
        np.array([0.0, 1.0, 2.0, 1e9, 2e9]), np.array([0, 1, 0, 1, 0]), 1000 * np.array([10, 20, 30, 40, 50]), fractions
    )
    scenario.reset(result, 1, arrivals)
    return result


FOUR = 5  # candidates: 0 rejects; 1, 2: one rank; 3, 4: two; 5, 6: four


def play(scenario, episodes, *candidates):
    for candidate in candidates:
        dynamics.decide(scenario.problem, episodes, 1, candidate)


def test_a_record_tells_each_job(scenario, episodes):
    play(scenario, episodes, FOUR, FOUR, 0, FOUR)
    result = record(scenario, episodes, 1)
    step_s = [graph.step_s for graph in scenario.workload.graphs]
    assert result.arrival_s.tolist() == [0.0, 1.0, 2.0, 1e9]
    assert result.num_steps.tolist() == [10_000, 20_000, 30_000, 40_000]
    assert result.sequential_s.tolist() == [10_000 * step_s[0], 20_000 * step_s[1], 30_000 * step_s[0], 40_000 * step_s[1]]
    assert result.allowed_s.tolist() == [np.inf, np.inf, np.inf, 0.3 * (40_000 * step_s[1])]
    assert result.is_accepted.tolist() == [True, True, False, True]
    assert result.degree.tolist() == [4, 4, 0, 4]
    assert result.candidate.tolist() == [FOUR, FOUR, 0, FOUR]
    assert [scenario.space.block(int(b)).tolist() for b in result.block if b >= 0] == [[0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 2, 3]]
    four_s = [scenario.times.step_s[g, scenario.space.placement_class[result.block[0]]] for g in (0, 1)]
    assert result.completion_s.tolist()[:2] == [10_000 * four_s[0], 20_000 * four_s[1]]
    assert result.finish_s.tolist()[:2] == [10_000 * four_s[0], 1.0 + 20_000 * four_s[1]]
    assert np.isnan(result.finish_s[2])


def test_counts_leave_out_the_first_jobs(scenario, episodes):
    play(scenario, episodes, FOUR, FOUR, 0, 0)
    result = record(scenario, episodes, 1)
    words = ["accepted", "rejected by choice", "no free device", "no free block", "deadline out of reach"]
    assert result.counts() == dict(zip(words, [2, 1, 1, 0, 0], strict=True))
    assert result.counts(scenario.settings.counted) == dict(zip(words, [1, 1, 1, 0, 0], strict=True))


def test_a_record_of_a_running_episode_counts_what_is_undecided(scenario, episodes):
    play(scenario, episodes, FOUR)
    result = record(scenario, episodes, 1)
    assert result.outcome.tolist() == [Outcome.ACCEPTED] + [Outcome.UNDECIDED] * 3
    assert result.counts()["undecided"] == 3


def test_rows_name_what_numbers_mean(scenario, episodes):
    play(scenario, episodes, FOUR, FOUR, 0, 0)
    rows = record(scenario, episodes, 1).to_data(scenario)
    assert rows[1] == {
        "job": 1,
        "arrival_s": 1.0,
        "graph": "squeezenet",
        "num_steps": 20_000,
        "allowed_s": None,
        "outcome": "accepted",
        "degree": 4,
        "rule": "first-fit",
        "devices": [4, 5, 6, 7],
        "completion_s": float(episodes.completion_s[1, 1]),
    }
    absent = dict.fromkeys(["degree", "rule", "devices", "completion_s"])
    assert rows[2] == {
        "job": 2,
        "arrival_s": 2.0,
        "graph": "alexnet",
        "num_steps": 30_000,
        "allowed_s": None,
        "outcome": "no free device",
        **absent,
    }
    assert rows[3]["outcome"] == "rejected by choice"
    assert rows[3]["allowed_s"] == pytest.approx(0.3 * 40_000 * scenario.workload.graphs[1].step_s, rel=1e-12)


def test_a_record_is_a_copy(scenario, episodes):
    play(scenario, episodes, FOUR)
    result = record(scenario, episodes, 1)
    play(scenario, episodes, FOUR)
    assert result.outcome.tolist()[1] == Outcome.UNDECIDED


def test_a_decision_tells_the_job_at_hand(scenario, episodes):
    play(scenario, episodes, FOUR, 0, 0)
    result = decision(scenario, episodes, 1)
    step_s = scenario.workload.graphs[1].step_s
    assert (result.now_s, result.graph_id, result.num_steps) == (1e9, 1, 40_000)
    assert (result.allowed_s, result.sequential_s) == (0.3 * (40_000 * step_s), 40_000 * step_s)
    assert result.degree.tolist() == [0, 1, 1, 2, 2, 4, 4]
    assert result.rule == ("", "first-fit", "fastest", "first-fit", "fastest", "first-fit", "fastest")
    # the deadline wants at least four devices; both rules take the first four, so only the first of them is offered
    assert result.can_place.tolist() == [True, False, False, False, False, True, False]
    assert np.isinf(result.completion_s[:5]).all()
    assert result.device_seconds[5] == 4 * result.completion_s[5]
    assert np.isinf(result.device_seconds[:5]).all()
