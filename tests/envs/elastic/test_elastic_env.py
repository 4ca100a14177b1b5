"""`ElasticJobs-v0`: Gymnasium's own checks, the same jobs as the schedulers' own play, rewards, masks, and what is refused."""

import numpy as np
import pytest

from meshwright.envs.elastic.benchmark import ElasticBenchmark, load_elastic_benchmark
from meshwright.envs.elastic.env import ElasticEnv
from meshwright.errors import ConfigError
from meshwright.planners.elastic.expected_remaining import ExpectedRemaining
from meshwright.planners.elastic.scheduler import play
from meshwright.planners.elastic.shortest_remaining import ShortestRemaining

from ...elastic_samples import simulation_of, small_benchmark, workload

ID = "meshwright/ElasticJobs-v0"
# Submission, application (0 quick, 1 slow), ranks, batch; nobody comes for 20 minutes in between.
JOBS = [(0, 1, 4, 64), (0, 0, 1, 64), (60, 1, 6, 64), (90, 1, 1, 64), (95, 0, 1, 64), (1500, 1, 4, 64), (1500, 1, 1, 64)]


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory) -> ElasticBenchmark:
    return small_benchmark(tmp_path_factory.mktemp("elastic") / "data")


def env_of(benchmark, **arguments):
    return ElasticEnv(benchmark, **({"workload": workload(JOBS)} | arguments))


def played(env, choose):
    """An episode; its rewards, and what the last step told."""
    env.reset()
    rewards, over, info = [], False, {}
    while not over:
        seen, reward, over, truncated, info = env.step(choose(env))
        assert env.observation_space.contains(seen)
        assert not truncated
        rewards.append(reward)
    return rewards, info


@pytest.mark.parametrize(("knows", "scheduler"), [("applications", ShortestRemaining), ("profiles", ExpectedRemaining)])
def test_the_numbers_of_a_scheduler_end_each_job_when_the_scheduler_does(benchmark, tmp_path, knows, scheduler):
    env, rule = env_of(benchmark, knows=knows), scheduler()
    env.reset()
    rule.begin(env.simulation)
    over, total, info = False, 0.0, {}
    while not over:
        jobs = env.simulation.jobs
        active = np.flatnonzero((jobs.submission_s[0] <= jobs.now_s[0]) & (jobs.completion_s[0] < 0))
        wanted = (rule.allocate(env.simulation)[0] >= 0).sum(axis=1)[active]
        for number in wanted.tolist():
            choice = 0 if number == 0 else 1 + env.num_ranks.tolist().index(number)
            _, reward, over, _, info = env.step(choice)
            assert info["was_possible"]
            total += reward
    spans = env.simulation.jobs.completion_s[0] - env.simulation.jobs.submission_s[0]
    (own,) = play(simulation_of(benchmark.elastic.folder / "applications"), scheduler(), [workload(JOBS)])
    assert spans.tolist() == own.tolist()
    assert info["mean_completion_s"] == own.mean()
    assert total == pytest.approx(-own.mean() / 1000.0, rel=1e-12)


def test_masks_hold_what_is_left_and_what_was_measured(benchmark):
    env = env_of(benchmark)
    rng = np.random.default_rng(0)
    given, round_s = 0, None

    def choose(env):
        nonlocal given, round_s
        now = env.simulation.jobs.now_s[0]
        given = 0 if now != round_s else given
        round_s = now
        mask = env.action_masks()
        assert mask[0]
        assert all(env.num_ranks[i - 1] <= 12 - given for i in np.flatnonzero(mask)[1:])
        choice = int(rng.choice(np.flatnonzero(mask)))
        given += 0 if choice == 0 else int(env.num_ranks[choice - 1])
        return choice

    rewards, info = played(env, choose)
    assert sum(rewards) == pytest.approx(-info["mean_completion_s"] / 1000.0, rel=1e-12)


@pytest.mark.reference
def test_a_seed_is_a_workload_that_is_none_of_the_published(benchmark, reference):
    trace = reference / "traces" / "philly.csv"
    real = load_elastic_benchmark("preset:elastic-published-1.0", changes=[f"elastic.data={reference / 'elastic'}"])
    env = ElasticEnv(real, num_jobs=5, trace=trace)
    (first, times), (again, same), (_, other) = ((env.reset(seed=s)[0], submissions(env)) for s in (3, 3, 4))
    assert all(np.array_equal(first[key], again[key]) for key in first)
    assert times == same != other
    assert env.simulation.workloads[0].name == "drawn-1004"


def submissions(env):
    return env.simulation.jobs.submission_s.tolist()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"knows": "all"}, "knows: unknown knowledge"),
        ({"split": "tests"}, "split: unknown split"),
        ({"num_jobs": 0}, "num_jobs: must be at least 1"),
        ({"render_mode": "human"}, "render_mode: unknown render mode"),
    ],
)
def test_what_it_cannot_be_is_told_in_one_line(benchmark, arguments, told):
    with pytest.raises(ConfigError, match=told) as caught:
        env_of(benchmark, **arguments)
    assert "\n" not in str(caught.value)
