"""Many episodes as Stable-Baselines3 wants them, against one environment at a time; with failures and a queue too."""

import numpy as np
import pytest

from meshwright.envs.job_partitioning import JobPartitioningEnv
from meshwright.errors import PolicyError
from meshwright.jobs.seeds import FIRST_TRAINING_SEED, validation_seeds
from meshwright.training.train import blocking_rate
from meshwright.training.vec_env import JobPartitioningVecEnv
from tests.small_benchmarks import with_events
from tests.training.runs import First

NUM_ENVS = 3


@pytest.fixture(scope="module")
def eventful(tiny):
    """The tiny benchmark with events, and its scenario."""
    benchmark = with_events(tiny)
    return benchmark, benchmark.build()


@pytest.fixture(params=["tiny", "eventful"])
def played(request, tiny, scenario, eventful):
    """A benchmark and its scenario."""
    return (tiny, scenario) if request.param == "tiny" else eventful


@pytest.fixture
def make(scenario, tiny):
    return lambda seed=5: JobPartitioningVecEnv(scenario, NUM_ENVS, tiny.reward, seed)


def choices(observations, rng, keenness=1.0):
    """Takes an offered candidate at random, or rejects the job in a share ``1 - keenness``."""
    return np.array([rng.choice(np.flatnonzero(mask)) * (rng.random() < keenness) for mask in observations["action_mask"]])


def same(ours, theirs):
    return set(ours) == set(theirs) and all(ours[key].tobytes() == theirs[key].tobytes() for key in ours)


def test_it_steps_as_single_environments_do_and_restarts_by_itself(played):
    benchmark, scenario = played
    together = JobPartitioningVecEnv(scenario, NUM_ENVS, benchmark.reward, 5)
    alone = [JobPartitioningEnv(benchmark, scenario=scenario) for _ in range(NUM_ENVS)]
    round_, lengths, returns = [0] * NUM_ENVS, np.zeros(NUM_ENVS, int), np.zeros(NUM_ENVS)
    ended, failures = [], 0
    counted = scenario.settings.counted  # of 30 jobs, without 4 of warm-up and those of cool-down

    def begin(e):
        env = alone[e]
        env.reset()
        env._batch.reset(0, np.random.default_rng(np.random.SeedSequence([FIRST_TRAINING_SEED + 5, e, round_[e]])))
        round_[e] += 1
        return env._observation()

    observations = together.reset()
    singles = [begin(e) for e in range(NUM_ENVS)]
    rng = np.random.default_rng(0)
    for _ in range(150):
        assert same(observations, {key: np.stack([single[key] for single in singles]) for key in observations})
        actions = choices(observations, rng, 0.8)
        observations, rewards, dones, infos = together.step(actions)
        for e in range(NUM_ENVS):
            singles[e], reward, terminated, truncated, info = alone[e].step(actions[e])
            assert alone[e].observation_space.contains(singles[e])
            assert (rewards[e], dones[e]) == (np.float32(reward), truncated)
            assert not terminated
            lengths[e] += 1
            returns[e] += reward
            if not truncated:
                assert infos[e] == {}
                continue
            assert infos[e]["TimeLimit.truncated"] is True
            assert same(infos[e]["terminal_observation"], singles[e])
            assert infos[e]["episode"]["l"] == lengths[e]
            assert infos[e]["episode"]["r"] == pytest.approx(returns[e])
            record = alone[e].record()
            assert infos[e]["blocking_rate"] == pytest.approx(record.blocking_rate(counted))
            assert sum(info["episode_counts"].values()) == counted.stop - counted.start
            failures += record.num_failures.sum() + record.num_preemptions.sum()
            ended.append(int(lengths[e]))
            lengths[e], returns[e] = 0, 0.0
            singles[e] = begin(e)
    has_events = scenario.settings.queue_capacity > 0
    assert len(ended) >= 2 * NUM_ENVS
    assert min(ended) >= 30
    assert (len(set(ended)) > 1, failures > 0) == (has_events, has_events)


def test_a_state_is_continued_exactly_across_the_end_of_episodes(played):
    benchmark, scenario = played
    env, other = (JobPartitioningVecEnv(scenario, NUM_ENVS, benchmark.reward, 5) for _ in range(2))
    observations = env.reset()
    rng = np.random.default_rng(1)
    for _ in range(23):
        observations, *_ = env.step(choices(observations, rng, 0.8))
    other.restore(env.state())
    assert same(other.observations(), observations)
    for _ in range(90):
        actions = choices(observations, rng, 0.8)
        observations, rewards, dones, infos = env.step(actions)
        theirs, their_rewards, their_dones, their_infos = other.step(actions)
        assert same(observations, theirs)
        assert (rewards.tolist(), dones.tolist()) == (their_rewards.tolist(), their_dones.tolist())
        for ours, others in zip(infos, their_infos, strict=True):
            assert (ours.get("episode"), ours.get("blocking_rate")) == (others.get("episode"), others.get("blocking_rate"))


def test_episodes_differ_copies_stay_and_the_seed_of_a_run_is_its_own(make):
    env = make()
    first, state = env.reset(), env.state()
    stored = [{key: value.copy() for key, value in each.items()} for each in (first, state)]
    assert len({row.tobytes() for row in first["job"]}) == NUM_ENVS
    assert not np.array_equal(first["job"], make(6).reset()["job"])
    assert env.has_attr("action_masks")
    assert np.array_equal(np.stack(env.env_method("action_masks")), first["action_mask"] > 0)
    assert len(env.env_method("action_masks", indices=[1])) == 1
    with pytest.raises(AttributeError):
        env.env_method("something_else")
    assert env.seed(77) == [5] * NUM_ENVS
    for _ in range(40):
        env.step(np.zeros(NUM_ENVS, np.int64))
    assert same(first, stored[0])
    assert same(state, stored[1])
    assert same(env.reset(), first)
    assert same(make().reset(), first)


@pytest.mark.parametrize("actions", [[0, 0], [0, 0, 99], [0, -1, 0], [0.0, 1.0, 0.0]])
def test_actions_that_are_no_candidates_are_refused(make, actions):
    env = make()
    env.reset()
    with pytest.raises(PolicyError, match="for each of 3 episodes"):
        env.step(np.array(actions))


def test_what_an_episode_pays_is_what_became_of_its_jobs(eventful):
    benchmark, scenario = eventful
    # accepted +1, blocked -1, no other term; jobs that still wait pay nothing
    plain = benchmark.model_copy(update={"reward": benchmark.reward.model_copy(update={"slack": 0.0})})
    env = JobPartitioningEnv(plain, scenario=scenario)
    expired = 0
    for seed in range(6):
        observation, _ = env.reset(seed=seed)
        rng, paid, over = np.random.default_rng(seed), 0.0, False
        while not over:
            action = int(rng.choice(np.flatnonzero(observation["action_mask"])) * (rng.random() < 0.5))
            observation, reward, _, over, info = env.step(action)
            paid += reward
            expired += info["num_expired"]
        record = env.record()
        accepted, waiting = int(record.is_accepted.sum()), int(record.is_waiting.sum())
        assert paid == accepted - (30 - accepted - waiting)
    assert expired > 0


def test_validation_plays_episodes_of_different_length_to_their_ends(eventful):
    benchmark, scenario = eventful
    rates = []
    for seed in validation_seeds(3):
        env = JobPartitioningEnv(benchmark, scenario=scenario)
        env.reset()
        env._batch.reset(0, np.random.default_rng(seed))
        over = False
        while not over:
            offered = np.flatnonzero(env.action_masks()[1:]) + 1
            *_, over, _ = env.step(int(offered[0]) if len(offered) else 0)
        rates.append(env.record().blocking_rate(slice(4, 28)))
    assert blocking_rate(First(), scenario, 3) == pytest.approx(np.mean(rates))
