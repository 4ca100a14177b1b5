"""Episodes with a queue, failures and preemption: many side by side equal one at a time, and a state is continued exactly."""

import numpy as np
import pytest

from meshwright import settings
from meshwright.envs.benchmark import BenchmarkSettings
from meshwright.envs.job_partitioning import JobPartitioningEnv
from meshwright.models.settings import NetworkSettings
from meshwright.training.validation import FIRST_VALIDATION_SEED, blocking_rate
from meshwright.training.vec_env import FIRST_TRAINING_SEED, JobPartitioningVecEnv

NUM_ENVS = 3
CHANGES = {
    "queue_capacity": 3,
    "num_cooldown_jobs": 2,
    "failures": {"mean_time_between_failures_h": 4.0, "repair_s": 300.0, "checkpoint_every_s": 400.0, "restart_s": 60.0},
    "preemption": {"rate_per_job_h": 0.2, "pause_s": 120.0},
}


@pytest.fixture(scope="module")
def eventful(tiny):
    """The tiny benchmark with all of it."""
    data = tiny.model_dump()
    return settings.build_settings(BenchmarkSettings, {**data, "scenario": {**data["scenario"], **CHANGES}})


@pytest.fixture(scope="module")
def scenario(eventful):
    return eventful.build()


@pytest.fixture
def make(scenario, eventful):
    return lambda seed=5: JobPartitioningVecEnv(scenario, NUM_ENVS, eventful.reward, seed)


def choices(observations, rng):
    """Takes an offered candidate at random, the rejection rather often."""
    return np.array([rng.choice(np.flatnonzero(mask)) * (rng.random() < 0.8) for mask in observations["action_mask"]])


def same(ours, theirs):
    return set(ours) == set(theirs) and all(ours[key].tobytes() == theirs[key].tobytes() for key in ours)


def test_it_steps_as_single_environments_do_and_episodes_differ_in_length(make, scenario, eventful):
    together = make()
    alone = [JobPartitioningEnv(eventful, scenario=scenario) for _ in range(NUM_ENVS)]
    round_, lengths, returns = [0] * NUM_ENVS, np.zeros(NUM_ENVS, int), np.zeros(NUM_ENVS)
    ended, failures = [], 0

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
        actions = choices(observations, rng)
        observations, rewards, dones, infos = together.step(actions)
        for e in range(NUM_ENVS):
            singles[e], reward, _, truncated, info = alone[e].step(actions[e])
            assert alone[e].observation_space.contains(singles[e])
            assert (rewards[e], dones[e]) == (np.float32(reward), truncated)
            lengths[e] += 1
            returns[e] += reward
            if not truncated:
                continue
            assert same(infos[e]["terminal_observation"], singles[e])
            assert infos[e]["episode"]["l"] == lengths[e]
            assert infos[e]["episode"]["r"] == pytest.approx(returns[e])
            # 30 jobs, 4 of warm-up and 2 of cool-down
            record = alone[e].record()
            counted = slice(4, 28)
            assert infos[e]["blocking_rate"] == pytest.approx(record.blocking_rate(counted))
            assert sum(info["episode_counts"].values()) == 24
            failures += record.num_failures.sum() + record.num_preemptions.sum()
            ended.append(int(lengths[e]))
            lengths[e], returns[e] = 0, 0.0
            singles[e] = begin(e)
    assert len(set(ended)) > 1
    assert min(ended) >= 30
    assert failures > 0


def test_a_state_is_continued_exactly_across_the_end_of_episodes(make):
    env, other = make(), make()
    observations = env.reset()
    rng = np.random.default_rng(1)
    for _ in range(23):
        observations, *_ = env.step(choices(observations, rng))
    other.restore(env.state())
    assert same(other.observations(), observations)
    for _ in range(90):
        actions = choices(observations, rng)
        observations, rewards, dones, infos = env.step(actions)
        theirs, their_rewards, their_dones, their_infos = other.step(actions)
        assert same(observations, theirs)
        assert (rewards.tolist(), dones.tolist()) == (their_rewards.tolist(), their_dones.tolist())
        assert [info.get("episode") for info in infos] == [info.get("episode") for info in their_infos]


def test_what_an_episode_pays_is_what_became_of_its_jobs(scenario, eventful):
    # accepted +1, blocked -1, no other term; jobs that still wait pay nothing
    plain = eventful.model_copy(update={"reward": eventful.reward.model_copy(update={"slack": 0.0})})
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


def test_validation_plays_episodes_of_different_length_to_their_ends(scenario, eventful):
    import torch

    class First(torch.nn.Module):
        """Scores the first candidate that is offered beside the rejection highest."""

        def __init__(self):
            super().__init__()
            self.settings = NetworkSettings()
            self.unused = torch.nn.Parameter(torch.zeros(1))

        def forward(self, observation):
            mask = observation["action_mask"].float()
            return mask * torch.arange(mask.shape[1], 0, -1) * (torch.arange(mask.shape[1]) > 0), None

    rates = []
    for seed in range(FIRST_VALIDATION_SEED, FIRST_VALIDATION_SEED + 3):
        env = JobPartitioningEnv(eventful, scenario=scenario)
        env._batch.reset(0, np.random.default_rng(seed))
        over = False
        while not over:
            offered = np.flatnonzero(env.action_masks()[1:]) + 1
            *_, over, _ = env.step(int(offered[0]) if len(offered) else 0)
        rates.append(env.record().blocking_rate(slice(4, 28)))
    assert blocking_rate(First(), scenario, 3) == pytest.approx(np.mean(rates))
