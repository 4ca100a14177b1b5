"""Vector environments: bit for bit what Gymnasium's own vectorisation of single environments shows, in each mode."""

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from meshwright.envs.benchmark import load_benchmark
from meshwright.envs.job_partitioning import JobPartitioningEnv
from meshwright.envs.job_partitioning_vector import JobPartitioningVectorEnv
from meshwright.errors import ConfigError, PolicyError

from .side_by_side import assert_same_shown, play_both

ID = "meshwright/JobPartitioning-v0"


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_it_shows_what_gymnasium_shows_of_single_environments(small_benchmark, small, mode):
    def one():
        return JobPartitioningEnv(small_benchmark, scenario=small)

    ours = gymnasium.make_vec(ID, num_envs=4, benchmark=small_benchmark, scenario=small, autoreset_mode=mode)
    theirs = SyncVectorEnv([one] * 4, autoreset_mode=mode)
    assert play_both(ours, theirs, num_steps=95) >= 4
    assert ours.metadata["autoreset_mode"] is mode


@pytest.mark.parametrize("change", ["queue_capacity=3", "failures.mean_time_between_failures_h=200.0"])
def test_with_a_queue_and_with_failures_too(small_benchmark, change):
    benchmark = load_benchmark("preset:toy", changes=[f"scenario.{change}"])
    scenario = benchmark.build()
    theirs = SyncVectorEnv([lambda: JobPartitioningEnv(benchmark, scenario=scenario)] * 3)
    assert play_both(JobPartitioningVectorEnv(3, benchmark, scenario=scenario), theirs, num_steps=130) >= 3


def test_the_seeds_of_environments_are_their_own(small_benchmark, small):
    vector = JobPartitioningVectorEnv(3, small_benchmark, scenario=small)
    seen, _ = vector.reset(seed=[5, None, 9])
    for e, seed in ((0, 5), (2, 9)):
        alone, _ = JobPartitioningEnv(small_benchmark, scenario=small).reset(seed=seed)
        assert seen["job"][e].tobytes() == alone["job"].tobytes()
    numbered, _ = vector.reset(seed=5)
    assert numbered["job"][0].tobytes() == seen["job"][0].tobytes()
    assert numbered["job"][1].tobytes() != seen["job"][1].tobytes()


def test_only_what_a_mask_names_begins_anew(toy_benchmark, toy):
    vector = JobPartitioningVectorEnv(3, toy_benchmark, scenario=toy, autoreset_mode="Disabled")
    vector.reset(seed=0)
    before, *_ = vector.step(np.zeros(3, np.int64))
    after, infos = vector.reset(seed=[None, 8, None], options={"reset_mask": np.array([False, True, False])})
    assert infos == {}
    for e in (0, 2):
        assert before["job"][e].tobytes() == after["job"][e].tobytes()
    assert after["job"][1].tobytes() == JobPartitioningEnv(toy_benchmark, scenario=toy).reset(seed=8)[0]["job"].tobytes()


def test_what_it_cannot_take_is_told(toy_benchmark, toy):
    def made(num_envs=2, **options):
        return JobPartitioningVectorEnv(num_envs, toy_benchmark, scenario=toy, **options)

    with pytest.raises(ConfigError, match="at least 1"):
        made(0)
    with pytest.raises(ConfigError, match="did you mean 'SameStep'"):
        made(autoreset_mode="samestep")
    with pytest.raises(ConfigError, match="did you mean 'ansi'"):
        made(render_mode="ansii")
    vector = made(autoreset_mode="Disabled")
    with pytest.raises(PolicyError, match="reset it first"):
        vector.step(np.zeros(2, np.int64))
    with pytest.raises(ConfigError, match="one for each of 2 environments"):
        vector.reset(seed=[1])
    with pytest.raises(ConfigError, match=r"unknown reset option.*reset_mask"):
        vector.reset(options={"reset": 1})
    for mask in (np.zeros(2, np.bool_), np.ones(3, np.bool_), np.ones(2)):
        with pytest.raises(ConfigError, match=r"options\.reset_mask"):
            vector.reset(options={"reset_mask": mask})
    vector.reset(seed=0)
    for actions in (np.zeros(3, np.int64), np.zeros(2), np.array([0, 4]), np.array([-1, 0])):
        with pytest.raises(PolicyError):
            vector.step(actions)
    over = np.zeros(2, np.bool_)
    while not over.any():
        *_, over, _ = vector.step(np.zeros(2, np.int64))
    with pytest.raises(PolicyError, match="reset it first"):
        vector.step(np.zeros(2, np.int64))


def test_frames_are_those_of_each_environment(toy_benchmark, toy):
    vector = JobPartitioningVectorEnv(2, toy_benchmark, scenario=toy, render_mode="ansi")
    vector.reset(seed=3)
    alone = JobPartitioningEnv(toy_benchmark, scenario=toy, render_mode="ansi")
    alone.reset(seed=4)
    assert vector.render()[1] == alone.render()
    assert JobPartitioningVectorEnv(1, toy_benchmark, scenario=toy).render() is None


def test_two_spellings_of_a_shown_episode_that_differ_are_told_apart():
    one = {"a": np.zeros(2), "_a": np.ones(2, np.bool_)}
    with pytest.raises(AssertionError):
        assert_same_shown(one, {"a": np.array([0.0, 1e-9]), "_a": np.ones(2, np.bool_)})
    with pytest.raises(AssertionError):
        assert_same_shown(one, {"a": np.zeros(2, np.float32), "_a": np.ones(2, np.bool_)})
