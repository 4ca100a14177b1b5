"""The published environment and what its agent observes."""

import numpy as np
import pytest

from meshwright.simulation.pacml.switches import Defects

from ...oracles.pacml_environment import Environment
from .conftest import make_graph

OTHER = make_graph([1000.0], [3000.0], [1e9], [1e9], [], name="other")


def environment(simulator_of, branching, **switches):
    return Environment(simulator_of(branching, OTHER, defects=Defects(**switches)), "A", num_decisions=12)


def equal(one, other):
    return all(np.array_equal(getattr(one, key), getattr(other, key)) for key in ("nodes", "edges", "edge_ends", "graph"))


def test_features_by_hand(simulator_of, branching):
    playing = environment(simulator_of, branching)
    seen = playing.reset(0)
    while playing.episode.demand.graph != "other":
        seen, _, _ = playing.step(0)
    fraction = playing.episode.demand.fraction
    # Two ops of 1000 and 3000, 2e9 B each, and a join of 1e9 B; an edge between the only op and its backward op.
    assert seen.nodes.tolist() == [[1 / 3, 0, 1, 1, 0], [1, 0, 1, 0, 1]]  # the flag of the longest op is always 0
    assert seen.edges.tolist() == [[1, 1]]
    assert seen.edge_ends.tolist() == [[0, 1]]
    assert len(seen.graph) == 17 + 17
    assert seen.graph[0] == 0  # fewest ops
    assert seen.graph[5] == fraction
    assert seen.graph[8] == 1  # number of steps
    assert seen.graph[9:15].tolist() == pytest.approx([2 / 3, 2 / 3, 1, 1, 1, 1])
    assert seen.graph[15:17].tolist() == [0, 0]  # nothing runs
    assert np.flatnonzero(seen.graph[17:]).tolist() == [0, 1, 2, 4, 6, 8, 16]


def test_only_scalars_and_the_mask_change_with_the_cluster(simulator_of, branching):
    playing = environment(simulator_of, branching)
    playing.reset(0, graphs=["other"])
    playing.step(16)
    seen, _, _ = playing.step(16)
    assert seen.graph[15:17].tolist() == [1.0, 2 / 32]
    assert np.flatnonzero(seen.graph[17:]).tolist() == [0]


def test_defects_of_the_observation(simulator_of, branching):
    kept = environment(simulator_of, branching).reset(0)
    flagged = environment(simulator_of, branching, max_compute_flag_is_zero=False).reset(0)
    assert not kept.nodes[:, 1].any()
    assert flagged.nodes[:, 1].tolist() == (flagged.nodes[:, 0] == 1).astype(float).tolist()
    playing = {vanishes: environment(simulator_of, branching, dep_size_feature_vanishes=vanishes) for vanishes in (True, False)}
    sizes = {}
    for vanishes, one in playing.items():
        seen = one.reset(0)
        while one.episode.demand.graph != "toy":
            seen, _, _ = one.step(0)
        sizes[vanishes] = seen.graph[7]
    assert sizes[False] == 1
    assert sizes[True] == pytest.approx(1 / 45)  # 10 ops: 10 x 9 / 2 times the largest job's bytes


def test_only_the_first_seed_counts_unless_the_defect_is_off(simulator_of, branching):
    for ignores in (True, False):
        playing = environment(simulator_of, branching, reset_ignores_seed=ignores)
        one = playing.reset(7), list(playing.episode.demands)
        other = playing.reset(7), list(playing.episode.demands)
        assert (one[1] == other[1]) != ignores
        again = environment(simulator_of, branching, reset_ignores_seed=ignores)
        assert equal(again.reset(7), one[0])
        assert list(again.episode.demands) == one[1]


def test_an_action_that_the_mask_forbids_turns_the_job_away(simulator_of, branching):
    playing = environment(simulator_of, branching)
    playing.reset(0)
    for action in (3, 10, 99, -1):
        playing.step(action)
    assert [d.degree for d in playing.episode.decisions] == [0, 0, 0, 0]


def test_an_episode_has_one_step_for_each_decision(simulator_of, branching):
    playing = environment(simulator_of, branching)
    playing.reset(3)
    rewards, over = [], False
    while not over:
        _, reward, over = playing.step(2)
        rewards.append(reward)
    assert len(rewards) == 12
    assert set(rewards) <= {1, -1}
    assert rewards[:-1] == [1 if d.is_accepted else -1 for d in playing.episode.decisions[:-1]]
