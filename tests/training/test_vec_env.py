"""Many episodes as Stable-Baselines3 wants them, against one environment at a time."""

import numpy as np
import pytest
from stable_baselines3.common.vec_env import VecEnv

from meshwright.envs.job_partitioning import JobPartitioningEnv
from meshwright.errors import PolicyError
from meshwright.training.vec_env import FIRST_TRAINING_SEED, JobPartitioningVecEnv

NUM_ENVS = 3


@pytest.fixture
def make(scenario, tiny):
    return lambda seed=5: JobPartitioningVecEnv(scenario, NUM_ENVS, tiny.reward, seed)


def choices(observations, rng):
    return np.array([rng.choice(np.flatnonzero(mask)) for mask in observations["action_mask"]])


def same(ours, theirs):
    return set(ours) == set(theirs) and all(ours[key].tobytes() == theirs[key].tobytes() for key in ours)


def test_it_steps_as_single_environments_do_and_restarts_by_itself(make, scenario, tiny):
    together = make()
    alone = [JobPartitioningEnv(tiny, scenario=scenario) for _ in range(NUM_ENVS)]
    round_ = [0] * NUM_ENVS

    def begin(e):
        env = alone[e]
        env.reset()
        env._batch.reset(0, np.random.default_rng(np.random.SeedSequence([FIRST_TRAINING_SEED + 5, e, round_[e]])))
        round_[e] += 1
        return env._observation()

    observations = together.reset()
    singles = [begin(e) for e in range(NUM_ENVS)]
    returns = np.zeros(NUM_ENVS)
    rng = np.random.default_rng(0)
    for step in range(1, 71):  # two episodes of 30 and a little more
        assert same(observations, {key: np.stack([single[key] for single in singles]) for key in observations})
        actions = choices(observations, rng)
        observations, rewards, dones, infos = together.step(actions)
        for e in range(NUM_ENVS):
            singles[e], reward, terminated, truncated, _ = alone[e].step(actions[e])
            returns[e] += reward
            assert (rewards[e], dones[e]) == (np.float32(reward), truncated)
            assert not terminated
            assert truncated == (step % 30 == 0)
            if not truncated:
                assert infos[e] == {}
                continue
            assert infos[e]["TimeLimit.truncated"] is True
            assert same(infos[e]["terminal_observation"], singles[e])
            assert infos[e]["episode"]["r"] == pytest.approx(returns[e])
            assert infos[e]["episode"]["l"] == 30
            # The first 4 jobs are warm-up.
            blocked = 1 - alone[e].record().is_accepted[4:].mean()
            assert infos[e]["blocking_rate"] == pytest.approx(blocked)
            returns[e] = 0.0
            singles[e] = begin(e)
    assert round_ == [3] * NUM_ENVS


def test_a_state_is_continued_exactly_across_the_end_of_episodes(make):
    env, other = make(), make()
    observations = env.reset()
    rng = np.random.default_rng(1)
    for _ in range(23):
        observations, *_ = env.step(choices(observations, rng))
    state = env.state()
    other.restore(state)
    assert same(other.observations(), observations)
    for _ in range(50):
        actions = choices(observations, rng)
        observations, rewards, dones, infos = env.step(actions)
        theirs, their_rewards, their_dones, their_infos = other.step(actions)
        assert same(observations, theirs)
        assert rewards.tolist() == their_rewards.tolist()
        assert dones.tolist() == their_dones.tolist()
        for ours, others in zip(infos, their_infos, strict=True):
            assert ours.get("episode") == others.get("episode")
            assert ours.get("blocking_rate") == others.get("blocking_rate")


def test_a_state_is_a_copy(make):
    env = make()
    env.reset()
    state = env.state()
    kept = {key: value.copy() for key, value in state.items()}
    env.step(np.zeros(NUM_ENVS, np.int64))
    assert same(state, kept)


def test_observations_are_copies(make):
    env = make()
    first = env.reset()
    kept = {key: value.copy() for key, value in first.items()}
    env.step(np.ones(NUM_ENVS, np.int64))
    assert same(first, kept)


def test_environments_and_runs_see_different_jobs(make):
    jobs = make().reset()["job"]
    assert len({row.tobytes() for row in jobs}) == NUM_ENVS
    assert not np.array_equal(jobs, make(6).reset()["job"])
    assert np.array_equal(jobs, make().reset()["job"])


def test_a_reset_begins_again_from_the_first_episodes(make):
    env = make()
    first = env.reset()
    for _ in range(40):
        env.step(np.zeros(NUM_ENVS, np.int64))
    assert same(env.reset(), first)


def test_masks_are_offered_under_the_name_that_sb3_contrib_asks_for(make):
    env = make()
    observations = env.reset()
    assert isinstance(env, VecEnv)
    assert env.has_attr("action_masks")
    assert np.array_equal(np.stack(env.env_method("action_masks")), observations["action_mask"] > 0)
    assert len(env.env_method("action_masks", indices=[1])) == 1
    with pytest.raises(AttributeError):
        env.env_method("something_else")


def test_the_seed_of_a_run_stays(make):
    env = make()
    assert env.seed(77) == [5] * NUM_ENVS
    assert same(env.reset(), make().reset())


@pytest.mark.parametrize("actions", [[0, 0], [0, 0, 99], [0, -1, 0], [0.0, 1.0, 0.0]])
def test_actions_that_are_no_candidates_are_refused(make, actions):
    env = make()
    env.reset()
    with pytest.raises(PolicyError, match="for each of 3 episodes"):
        env.step(np.array(actions))
