"""The environment where jobs wait, devices fail and jobs are preempted: the same contracts, and what its user is told."""

import copy
import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st

from meshwright import settings
from meshwright.envs.batch import EpisodeBatch
from meshwright.envs.benchmark import BenchmarkSettings
from meshwright.envs.job_partitioning import JobPartitioningEnv

from ..draws import draws

CHANGES = {
    "queue_capacity": 4,
    "failures": {"mean_time_between_failures_h": 6.0, "repair_s": 300.0, "checkpoint_every_s": 600.0, "restart_s": 60.0},
    "preemption": {"rate_per_job_h": 0.1, "pause_s": 120.0},
}


@pytest.fixture(scope="module")
def eventful(small_benchmark):
    data = small_benchmark.model_dump()
    return settings.build_settings(BenchmarkSettings, {**data, "scenario": {**data["scenario"], **CHANGES}})


@pytest.fixture(scope="module")
def scenario(eventful):
    return eventful.build()


@pytest.fixture(scope="module")
def make(eventful, scenario):
    return lambda **options: JobPartitioningEnv(eventful, scenario=scenario, **options)


def play(env, seed, rejects=0.3):
    """All observations, rewards and infos of an episode of random offered actions."""
    rng = np.random.default_rng(seed)
    observation, _ = env.reset(seed=seed)
    seen, over = [(observation, 0.0, {})], False
    while not over:
        action = int(rng.choice(np.flatnonzero(observation["action_mask"]))) if rng.random() > rejects else 0
        observation, reward, terminated, over, info = env.step(action)
        assert not terminated
        seen.append((observation, reward, info))
    return seen


def flat(seen):
    return [(*(o[key].tobytes() for key in sorted(o)), reward, sorted(info.items())) for o, reward, info in seen]


def test_gymnasium_finds_nothing_to_complain_of(eventful):
    check_env(gymnasium.make("meshwright/JobPartitioning-v0", benchmark=eventful, render_mode="ansi").unwrapped)


def test_spaces_are_those_of_the_benchmark_without_a_queue(make, small_benchmark, small):
    plain = JobPartitioningEnv(small_benchmark, scenario=small)
    assert make().observation_space == plain.observation_space
    assert make().action_space == plain.action_space


@draws(4)
@given(seed=st.integers(0, 10_000))
def test_every_observation_lies_in_its_space_and_the_same_seed_shows_the_same(make, seed):
    env = make()
    seen = play(env, seed)
    assert all(env.observation_space.contains(observation) for observation, _, _ in seen)
    assert flat(seen) == flat(play(make(), seed))
    assert len(seen) >= 41


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))], ids=["deepcopy", "pickle"])
def test_a_copy_goes_on_alike(make, copied):
    env = make()
    env.reset(seed=4)
    for _ in range(15):
        env.step(0)
    twin = copied(env)
    for _ in range(20):
        ours, theirs = env.step(0), twin.step(0)
        assert all(ours[0][key].tobytes() == theirs[0][key].tobytes() for key in ours[0])
        assert ours[1:] == theirs[1:]


def test_a_job_that_is_put_up_again_has_less_time_and_something_to_choose(make):
    env = make()
    env.reset(seed=1)
    first_seen, again = {}, 0
    for _ in range(200):
        job, found = int(env._batch.episodes.job[0]), env.decision()
        if job in first_seen:
            again += 1
            assert found.can_wait
            assert found.can_place[1:].any()
            assert found.now_s > first_seen[job].now_s
            waited_s = found.now_s - first_seen[job].now_s
            assert found.allowed_s == pytest.approx(first_seen[job].allowed_s - waited_s)
        first_seen.setdefault(job, found)
        *_, over, info = env.step(0)
        assert info["outcome"] in ("waiting", "deadline expired while waiting") or not found.can_wait
        if over:
            break
    assert over
    assert again > 3


def test_the_viewer_tells_how_many_wait(make):
    env = make(render_mode="ansi")
    env.reset(seed=1)
    env.step(0)
    waiting = int(env._batch.episodes.num_waiting[0])
    assert env.render().rstrip().endswith(f"; {waiting} in the queue")
    assert waiting == 1


def test_only_some_of_the_episodes_may_be_stepped(scenario):
    batch, alone = EpisodeBatch(scenario, 3), EpisodeBatch(scenario, 1)
    for e in range(3):
        batch.reset(e, np.random.default_rng(e))
    alone.reset(0, np.random.default_rng(1))
    only = np.array([False, True, False])
    before = [values.copy() for values in batch.observations]
    for _ in range(5):
        rewards, _ = batch.step(np.zeros(3, np.int64), only)
        assert rewards.tolist() == [0.0, alone.step(np.zeros(1, np.int64))[0][0], 0.0]
    for ours, first, theirs in zip(batch.observations, before, alone.observations, strict=True):
        assert np.array_equal(ours[[0, 2]], first[[0, 2]])
        assert np.array_equal(ours[1], theirs[0])
