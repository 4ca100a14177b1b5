"""Several benchmarks side by side: the same as each by itself, and what cannot be mixed."""

import dataclasses
import re

import numpy as np
import pytest

from meshwright.envs.batch import EpisodeBatch
from meshwright.errors import ConfigError
from meshwright.training.methods import train
from meshwright.training.train import blocking_rate, played_in, training_conditions_of
from meshwright.training.vec_env import FIRST_TRAINING_SEED, JobPartitioningVecEnv
from meshwright.training.vec_env_wrappers import CentredReward
from tests.training.runs import First


@pytest.fixture
def make(scenario, tiny, busy_scenario, busy):
    def made(num_envs=4, **options):
        return CentredReward(JobPartitioningVecEnv((scenario, busy_scenario), num_envs, (tiny.reward, busy.reward), 5, **options))

    return made


def choices(observations, rng):
    return np.array([rng.choice(np.flatnonzero(mask)) for mask in observations["action_mask"]])


def test_each_benchmark_is_stepped_as_if_it_were_alone(make, scenario, busy_scenario, tiny, busy):
    env, rng = make(), np.random.default_rng(0)
    env.reward_centre, env.reward_scale = np.array([0.25, -0.125]), 0.5
    centres = np.float32([0.25, 0.25, -0.125, -0.125])
    observations = env.reset()
    played = ((scenario, tiny.reward), (scenario, tiny.reward), (busy_scenario, busy.reward), (busy_scenario, busy.reward))
    singles = [EpisodeBatch(one, 1, reward) for one, reward in played]
    round_ = [0] * 4

    def begin(e):
        sequence = np.random.SeedSequence([FIRST_TRAINING_SEED + 5, e, round_[e]])
        singles[e].reset(0, np.random.default_rng(sequence))
        round_[e] += 1

    for e in range(4):
        begin(e)
    for _ in range(65):  # two episodes of 30 and a little more
        for key, value in observations.items():
            assert value.tobytes() == np.concatenate([single.observations.current()[key] for single in singles]).tobytes()
        assert np.array_equal(
            env.immediate_rewards(), np.concatenate([single.immediate_rewards() for single in singles]) - centres[:, None]
        )
        masks = np.concatenate([single.observations.action_mask for single in singles]) > 0
        assert np.array_equal(np.stack(env.env_method("action_masks")), masks)
        actions = choices(observations, rng)
        observations, rewards, dones, infos = env.step(actions)
        for e, single in enumerate(singles):
            reward, is_over = single.step(actions[e : e + 1])
            assert (rewards[e], dones[e]) == (np.float32(0.5) * (reward[0] - centres[e]), is_over[0])
            if is_over[0]:
                counted = single.record(0).blocking_rate(played[e][0].settings.counted)
                assert infos[e]["blocking_rate"] == counted
                begin(e)
    assert round_ == [3] * 4


def test_a_state_of_several_benchmarks_is_continued_exactly(make):
    env, other, rng = make(), make(), np.random.default_rng(1)
    env.reward_centre, env.reward_scale = np.array([0.125, 0.25]), 0.5
    observations = env.reset()
    for _ in range(23):
        observations = env.step(choices(observations, rng))[0]
    restored = other.restore(env.state())
    assert (other.reward_centre.tolist(), other.reward_scale) == ([0.125, 0.25], 0.5)
    for _ in range(40):
        assert all(observations[key].tobytes() == restored[key].tobytes() for key in observations)
        actions = choices(observations, rng)
        (observations, ours, *_), (restored, theirs, *_) = env.step(actions), other.step(actions)
        assert ours.tolist() == theirs.tolist()


def test_staggered_episodes_begin_at_different_places(make, scenario, tiny):
    env = make(num_envs=6, staggered=True)
    env.reset()
    # Of 30 jobs each: 0, 5, 10 of the first benchmark and 15, 20, 25 of the second have been decided.
    assert [batch.episodes.job.tolist() for batch in env.episodes.batches] == [[0, 5, 10], [15, 20, 25]]
    first = env.state()
    env.step(np.zeros(6, np.int64))
    env.reset()
    assert all(np.array_equal(array, first[name], equal_nan=array.dtype.kind == "f") for name, array in env.state().items())
    plain = make(num_envs=6)
    plain.reset()
    assert all((batch.episodes.job == 0).all() for batch in plain.episodes.batches)
    # The episodes after the first ones begin at their beginning.
    for _ in range(5):
        *_, dones, _ = env.step(np.zeros(6, np.int64))
    assert dones.tolist() == [False] * 5 + [True]
    assert env.episodes.batches[1].episodes.job[2] == 0


def test_staggered_episodes_of_different_length_are_cut_by_their_own(scenario, tiny):
    short = dataclasses.replace(scenario, settings=scenario.settings.model_copy(update={"num_jobs": 10, "num_warmup_jobs": 0}))
    env = JobPartitioningVecEnv((scenario, short), 4, tiny.reward, 5, staggered=True)
    env.reset()
    # 0 and 1 quarter of 30 jobs, 2 and 3 quarters of 10
    assert [batch.episodes.job.tolist() for batch in env.batches] == [[0, 7], [5, 7]]


def test_validation_counts_benchmarks_alike(scenario, busy_scenario):
    alone = [blocking_rate(First(), one, 2) for one in (scenario, busy_scenario)]
    assert alone[0] < alone[1]
    assert blocking_rate(First(), (scenario, busy_scenario), 2) == pytest.approx(sum(alone) / 2)


# --- what cannot be mixed ---

ALIKE = "benchmarks of one run must have the same cluster, degrees, rules, slots, windows and job graphs"


def test_environments_that_cannot_be_shared_out_are_told(scenario, busy_scenario, tiny):
    with pytest.raises(ConfigError, match=re.escape("num_envs: must be a multiple of the 2 benchmarks (got 5)")):
        JobPartitioningVecEnv((scenario, busy_scenario), 5, tiny.reward, 0)


@pytest.fixture
def beside(config, tmp_path):
    """The path of a benchmark that differs from the tiny one in some text."""

    def written(old, new, workload=("", "")):
        for name in ("tiny.yaml", "workload.yaml"):
            text = config.with_name(name).read_text()
            (tmp_path / name).write_text(text)
        benchmark, jobs = tmp_path / "tiny.yaml", tmp_path / "workload.yaml"
        assert old in benchmark.read_text()
        assert workload[0] in jobs.read_text()
        benchmark.write_text(benchmark.read_text().replace(old, new).replace("name: tiny", "name: other"))
        if workload[0]:
            jobs.write_text(jobs.read_text().replace(*workload))
        return str(benchmark)

    return written


@pytest.mark.parametrize(
    "difference",
    [
        ("cluster: preset:host-8", "cluster: preset:toy"),
        ("max_degree: 4", "max_degree: 2"),
        ("max_degree: 4", "max_degree: 4, placement_rules: [first-fit, aligned]"),
        ("max_degree: 4", "max_degree: 4, shape_slots: 3"),
        # As many graphs, and as many candidates: nothing but the graphs themselves tells them apart.
        ("num_jobs: 30", "num_jobs: 30", ("[zoo:squeezenet, zoo:alexnet]", "[zoo:squeezenet, zoo:resnet18]")),
    ],
    ids=["cluster", "degrees", "rules", "slots", "graphs"],
)
def test_a_benchmark_that_one_network_cannot_serve_is_told_before_anything_is_written(
    chosen, scenario, beside, tmp_path, difference
):
    with pytest.raises(ConfigError, match=f"benchmark: {ALIKE}") as caught:
        train(chosen.model_copy(update={"mixed": (beside(*difference),)}), tmp_path / "run", scenario=scenario)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_layers_that_read_what_is_not_observed_are_told_before_anything_is_written(chosen, scenario, tmp_path):
    network = chosen.network.model_copy(update={"after": (8, 4)})
    with pytest.raises(ConfigError, match=re.escape("network.after: needs observations of when blocks become free")):
        train(chosen.model_copy(update={"network": network}), tmp_path / "run", scenario=scenario)
    assert not (tmp_path / "run").exists()


# --- the benchmarks of a run ---


def test_the_benchmarks_of_a_run_are_built_once_each(chosen, scenario, beside):
    hard = beside("num_jobs: 30", "num_jobs: 40")
    update = {"mixed": (hard, chosen.benchmark, hard), "changes": ("scenario.num_warmup_jobs=2",)}
    played = played_in(chosen.model_copy(update=update))
    assert [benchmark.name for benchmark in played.benchmarks] == ["tiny", "other"] * 2
    assert [one.settings.num_jobs for one in played.scenarios] == [30, 40] * 2
    # The policy's ground is each benchmark, once; changes go to every one.
    assert [one["benchmark"] for one in training_conditions_of(played)] == ["tiny", "other"]
    assert {one.settings.num_warmup_jobs for one in played.scenarios} == {2}
    assert played.scenarios[:2] == played.scenarios[2:]
