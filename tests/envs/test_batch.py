"""A batch of episodes: a state is taken up exactly, and rewards follow their terms."""

import dataclasses

import numpy as np
import pytest

from meshwright.envs.batch import EpisodeBatch
from meshwright.envs.reward import RewardSettings
from meshwright.errors import PolicyError
from meshwright.jobs.arrivals import Arrivals


def step_all(batch, rng):
    return batch.step(np.array([rng.choice(np.flatnonzero(mask)) for mask in batch.observations.action_mask]))


def test_a_state_is_taken_up_exactly(small):
    batch = EpisodeBatch(small, 2)
    for e in range(2):
        batch.reset(e, np.random.default_rng(e))
    rng = np.random.default_rng(0)
    for _ in range(15):
        step_all(batch, rng)
    stored = batch.state()
    other = EpisodeBatch(small, 2)
    other.restore(stored)
    for _ in range(25):
        for ours, theirs in zip(batch.observations, other.observations, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        actions = np.array([rng.choice(np.flatnonzero(mask)) for mask in batch.observations.action_mask])
        assert batch.step(actions)[0].tolist() == other.step(actions)[0].tolist()
    assert stored["job"].tolist() == [15, 15]  # copies: the steps since did not change them


def test_one_action_for_each_episode(small):
    batch = EpisodeBatch(small, 2)
    for e in range(2):
        batch.reset(e, np.random.default_rng(e))
    with pytest.raises(PolicyError, match="for each of 2 episodes"):
        batch.step(np.array([0]))
    with pytest.raises(PolicyError, match="for each of 2 episodes"):
        batch.step(np.array([0, 0, 0]))


def test_no_episode_is_stepped_while_one_has_not_begun(small):
    batch = EpisodeBatch(small, 2)
    batch.reset(0, np.random.default_rng(0))
    with pytest.raises(PolicyError, match="has not begun"):
        batch.step(np.array([0, 0]))
    assert batch.episodes.job[0] == 0


# --- rewards ---


def test_each_term_of_the_reward_by_hand(small):
    """Weights that are powers of two keep the terms apart."""
    weights = RewardSettings(accepted=1.5, blocked=-0.5, slack=0.25, device_seconds=-0.125)
    batch = EpisodeBatch(small, 1, weights)
    batch.reset(0, np.random.default_rng(1))
    rng = np.random.default_rng(1)
    rewards = np.concatenate([step_all(batch, rng)[0] for _ in range(40)])
    record = batch.record(0)
    assert record.is_accepted.any()
    assert not record.is_accepted.all()
    for k in range(40):
        expected = -0.5
        if record.is_accepted[k]:
            unused = 1 - record.completion_s[k] / record.allowed_s[k]
            # 8 devices, a job every 600 s
            device_intervals = record.degree[k] * record.completion_s[k] / (8 * 600)
            expected = 1.5 + 0.25 * unused - 0.125 * device_intervals
        assert rewards[k] == pytest.approx(expected, rel=1e-6)


def test_a_job_without_a_deadline_is_paid_no_slack(toy):
    batch = EpisodeBatch(toy, 1, RewardSettings(slack=100.0))
    batch.reset(0, np.random.default_rng(0))
    offered = int(np.flatnonzero(batch.observations.action_mask[0])[-1])
    assert batch.step(np.array([offered]))[0].tolist() == [1.0]


def test_by_default_a_job_is_worth_one_either_way():
    assert RewardSettings().weights[:4] == (1.0, -1.0, 0.0, 0.0)


def test_a_job_that_runs_beyond_the_end_is_paid_as_unfinished(small, small_benchmark):
    # Two jobs; the second ends after the arrival at 60 s that ends the episode, whatever its block, as does the first.
    scenario = dataclasses.replace(small, settings=small.settings.model_copy(update={"num_jobs": 2, "num_warmup_jobs": 0}))
    jobs = Arrivals(np.array([0.0, 50.0, 60.0]), np.zeros(3, int), np.full(3, 10**6), np.full(3, np.inf))
    for unfinished, paid in ((None, 1.0), (-0.25, -0.25)):
        batch = EpisodeBatch(scenario, 1, RewardSettings(unfinished=unfinished))
        batch.begin_with(0, jobs)
        for _ in range(2):
            assert batch.step(np.flatnonzero(batch.observations.action_mask[0])[1:2])[0].tolist() == [paid]
    in_time = Arrivals(np.array([0.0, 50.0, 1e12]), np.zeros(3, int), np.full(3, 10**6), np.full(3, np.inf))
    batch.begin_with(0, in_time)
    assert batch.step(np.flatnonzero(batch.observations.action_mask[0])[1:2])[0].tolist() == [1.0]


def test_what_is_not_observed_changes_no_decision(small):
    seen, blind = EpisodeBatch(small, 2), EpisodeBatch(small, 2, observes=False)
    for batch in (seen, blind):
        for e in range(2):
            batch.reset(e, np.random.default_rng(e))
    rng = np.random.default_rng(0)
    while not seen.is_over.all():
        actions = np.array([rng.choice(np.flatnonzero(mask)) for mask in seen.observations.action_mask])
        for ours, theirs in zip(seen.step(actions), blind.step(actions), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        assert seen.episodes.can_place.tobytes() == blind.episodes.can_place.tobytes()
    assert not blind.observations.job.any()
