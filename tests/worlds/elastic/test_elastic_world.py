"""Elastic jobs as a world: the jobs of the schedulers' own play, rewards, masks, policies that learn, and what is refused."""

from pathlib import Path

import gymnasium
import numpy as np
import pytest

from meshwright.envs.world_env import WorldEnv
from meshwright.errors import ConfigError, PlanError, PolicyError
from meshwright.evaluation.evaluate import evaluate
from meshwright.planners.elastic.expected_remaining import ExpectedRemaining
from meshwright.planners.elastic.scheduler import play
from meshwright.planners.elastic.shortest_remaining import ShortestRemaining
from meshwright.training.methods import load_config, train
from meshwright.worlds.elastic import episodes
from meshwright.worlds.elastic.benchmark import ElasticBenchmark
from meshwright.worlds.elastic.elastic_round import MAY_HAVE
from meshwright.worlds.elastic.world import ElasticWorld

from ...elastic_samples import simulation_of, small_benchmark, workload, write_times

# Submission, application (0 quick, 1 slow), ranks, batch; nobody comes for 20 minutes in between.
JOBS = [(0, 1, 4, 64), (0, 0, 1, 64), (60, 1, 6, 64), (90, 1, 1, 64), (95, 0, 1, 64), (1500, 1, 4, 64), (1500, 1, 1, 64)]

CONFIG = """\
method: graph
name: tiny
benchmark: preset:elastic-published-1.0
network: {hidden: 8, heads: 2, rounds: 1}
imitation: {instances: 4, steps: 4, minibatch: 2, validate_every_steps: 2}
updates: 2
validate_every_updates: 1
ppo: {num_envs: 4, group: 2, rollout_steps: 16, minibatch: 32, value: 0.5}
"""


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory) -> ElasticBenchmark:
    return small_benchmark(tmp_path_factory.mktemp("elastic") / "data")


def world_of(benchmark, **changes) -> ElasticWorld:
    return ElasticWorld(benchmark.model_copy(update={"elastic": benchmark.elastic.model_copy(update=changes)}))


@pytest.mark.parametrize(("knows", "scheduler"), [("applications", ShortestRemaining), ("profiles", ExpectedRemaining)])
def test_the_numbers_of_a_scheduler_end_each_job_when_the_scheduler_does(benchmark, knows, scheduler):
    world, jobs = world_of(benchmark, knows=knows), workload(JOBS)
    env, rewards, over = WorldEnv(world, instance=jobs), [], False
    env.reset()
    for share in world.solve(jobs, 1, 0).tolist():
        assert not over
        seen, reward, over, cut, info = env.step(share)
        assert info["was_possible"]
        assert not cut
        assert env.observation_space.contains(seen)
        rewards.append(reward)
    assert over
    (own,) = play(simulation_of(benchmark.elastic.folder / "applications"), scheduler(), [jobs])
    outcome = env.outcome()
    assert outcome.completion_s.tolist() == own.tolist()
    assert outcome.value_s == info["mean_completion_s"] == own.mean()
    assert sum(rewards) == pytest.approx(-own.mean() / 1000.0, rel=1e-12)


def test_masks_hold_what_is_left_and_what_was_measured(benchmark):
    world, rng, given, now_s = world_of(benchmark), np.random.default_rng(0), 0, None
    env, ranks = WorldEnv(world, instance=workload(JOBS)), [0, *world.num_ranks.tolist()]
    seen, info = env.reset()
    over = False
    while not over:
        given, now_s = (given if info["now_s"] == now_s else 0), info["now_s"]
        mask = np.flatnonzero(env.action_masks())
        assert mask[0] == 0
        assert all(ranks[share] <= 12 - given for share in mask)
        assert seen["state"][0] == pytest.approx((12 - given) / 12)
        assert seen["counts"].tolist() == [info["active"], len(ranks)]
        share = int(rng.choice(mask))
        given += ranks[share]
        seen, _, over, _, info = env.step(share)


def test_the_graph_is_the_same_in_a_round_and_holds_the_jobs_that_are_there(benchmark):
    world = world_of(benchmark)
    batch = world.batch(1, 1, world.sizes_of(workload(JOBS)))
    batch.restart([workload(JOBS)])
    first = batch.checked_graph(0)
    assert len(first.nodes["job"]) == 3  # after a minute
    assert first.ends[MAY_HAVE][0].tolist() == sorted(first.ends[MAY_HAVE][0].tolist())
    for place in range(3):
        assert batch.graph(0) is first
        assert batch.decisions.member[0].tolist() == [0] * place + [-1] * (7 - place)
        batch.step(np.zeros(1, np.int64))
    assert batch.checked_graph(0) is not first
    assert len(batch.graph(0).nodes["job"]) == 5
    with pytest.raises(PolicyError, match="may not have so many ranks"):
        batch.step(np.array([11]))


def test_an_episode_without_end_is_cut_and_has_no_value(benchmark, monkeypatch):
    monkeypatch.setattr(episodes, "MOST_ROUNDS", 5)
    env = WorldEnv(world_of(benchmark), instance=workload(JOBS[:1]))
    env.reset()
    ends = [env.step(0)[2:4] for _ in range(5)]
    assert ends == [(False, False)] * 4 + [(False, True)]
    with pytest.raises(PlanError, match="not done after 5 rounds"):
        env.outcome()


def test_a_graph_policy_plays_and_learns_it(benchmark, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(ElasticWorld, "instance", lambda self, split, seed: workload(JOBS[: 2 + seed % 2]))
    config = tmp_path / "train.yaml"
    config.write_text(CONFIG)
    changes = [
        f"elastic.data={benchmark.elastic.data}",
        "elastic.cluster.num_nodes=3",
        "elastic.num_jobs=3",
        "num_validation_seeds=2",
    ]
    run = str(tmp_path / "run")
    train(load_config(config, [f"changes=[{', '.join(changes)}]"]), run)
    write_times(Path(benchmark.elastic.data), "pollux", [500] * 6)
    choice = world_of(benchmark, published=("pollux",)).benchmark.model_copy(update={"policies": ()})
    results = evaluate(choice, ["shortest-remaining", run, f"{run}@sample-2"]).results
    rows = {row["policy"]: row["metrics"]["mean_completion_s"]["mean"] for row in results["rows"]}
    assert 0 < rows["shortest-remaining"] <= rows["run"] < np.inf
    assert rows["run@sample-2"] <= rows["run"]


@pytest.mark.reference
def test_a_seed_is_a_workload_that_is_none_of_the_published(reference):
    changes = [
        f"elastic.data={reference / 'elastic'}",
        f"elastic.trace={reference / 'traces' / 'philly.csv'}",
        "elastic.num_jobs=5",
    ]
    env = gymnasium.make("meshwright/ElasticJobs-v0", changes=changes).unwrapped
    (first, times), (again, same), (_, other) = ((env.reset(seed=s)[0], env.instance.submission_s.tolist()) for s in (3, 3, 4))
    assert all(np.array_equal(first[key], again[key]) for key in first)
    assert times == same != other
    assert env.instance.name == "drawn-1004"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"changes": ["elastic.knows=all"]}, "elastic.knows: "),
        ({"changes": ["elastic.num_jobs=0"]}, "elastic.num_jobs: "),
        ({"split": "tests"}, "split: unknown split"),
    ],
)
def test_what_it_cannot_be_is_told_in_one_line(arguments, message):
    with pytest.raises(ConfigError, match=message) as caught:
        WorldEnv("preset:elastic-published-1.0", **arguments)
    assert "\n" not in str(caught.value)
