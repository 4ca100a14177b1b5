"""The environment where jobs wait, devices fail and jobs are preempted: the same contracts, and its messages."""

import numpy as np
import pytest

from meshwright.envs.batch import EpisodeBatch
from meshwright.envs.job_partitioning import JobPartitioningEnv


@pytest.fixture(scope="module")
def make(eventful, eventful_scenario):
    return lambda **options: JobPartitioningEnv(eventful, scenario=eventful_scenario, **options)


def test_spaces_are_those_of_the_benchmark_without_a_queue(make, small_benchmark, small):
    plain = JobPartitioningEnv(small_benchmark, scenario=small)
    assert make().observation_space == plain.observation_space
    assert make().action_space == plain.action_space


def test_a_job_that_is_put_up_again_has_less_time_and_something_to_choose(make):
    env = make()
    env.reset(seed=1)
    first_seen, again = {}, 0
    for _ in range(200):
        job, result = int(env._batch.episodes.job[0]), env.decision()
        if job in first_seen:
            again += 1
            assert result.can_wait
            assert result.can_place[1:].any()
            assert result.now_s > first_seen[job].now_s
            waited_s = result.now_s - first_seen[job].now_s
            assert result.allowed_s == pytest.approx(first_seen[job].allowed_s - waited_s)
        first_seen.setdefault(job, result)
        *_, over, info = env.step(0)
        assert info["outcome"] in ("waiting", "deadline expired while waiting") or not result.can_wait
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


def test_only_some_of_the_episodes_may_be_stepped(eventful_scenario):
    batch, alone = EpisodeBatch(eventful_scenario, 3), EpisodeBatch(eventful_scenario, 1)
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
