"""Tasklets as an environment: Gymnasium's own checks, masks, sums, single against many, and what is refused."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from meshwright.envs.world_env import WorldEnv, WorldVectorEnv
from meshwright.errors import ConfigError, MeshwrightError, PolicyError
from meshwright.simulation.tasklets.generators import NetworkDraw
from meshwright.simulation.tasklets.placement import tasklet_value_s
from meshwright.worlds.tasklets.world import TaskletBenchmark, TaskletWorld, load_tasklet_benchmark

SMALL = TaskletWorld(TaskletBenchmark(name="small", tasklets=NetworkDraw(num_devices=(8, 12), num_stages=(2, 4))))
ID, WORLD = "meshwright/OperatorPlacement-v0", "meshwright/World-v0"


def test_the_id_dispatches_by_the_benchmark() -> None:
    env = gymnasium.make(ID, benchmark="preset:tasklets-64").unwrapped
    assert isinstance(env, WorldEnv)
    assert env.reset(seed=3)[0]["nodes/device"].shape == (64, 23)
    assert isinstance(gymnasium.make_vec(ID, num_envs=2, benchmark="tasklets-64"), WorldVectorEnv)
    assert gymnasium.make(ID).unwrapped.world.name == "latency-tight"


def test_an_episode_sums_to_the_value_of_its_stages_and_stays_in_its_space() -> None:
    env = WorldEnv(SMALL, render_mode="ansi")
    rng = np.random.default_rng(0)
    for seed in range(5):
        observation, info = env.reset(seed=seed)
        total, over = 0.0, False
        with pytest.raises(PolicyError, match="not over"):
            env.outcome()
        while not over:
            assert env.observation_space.contains(observation)
            allowed = np.flatnonzero(observation["action_mask"])
            assert (observation["nodes"][allowed, 0] == allowed).all()
            observation, reward, over, cut, info = env.step(int(rng.choice(allowed)))
            assert info["was_possible"]
            assert not cut
            total += float(reward)
        stages = env.outcome().device_of
        assert -total * info["bound_s"] == pytest.approx(info["value_s"])
        assert info["value_s"] == pytest.approx(tasklet_value_s(env.instance, stages))
        assert f"stage {env.instance.num_stages - 1}: " in (env.render() or "")
        assert (observation["member"][: env.instance.num_devices] >= 0).all()
        with pytest.raises(PolicyError, match="over"):
            env.step(0)


def test_splits_have_networks_of_their_own() -> None:
    names = []
    for split in ("test", "validation", "training"):
        env = WorldEnv(SMALL, split=split)
        names.append(env.reset(seed=7)[1]["instance"])
        assert env.reset(seed=7)[1]["instance"] == names[-1]
    assert names == ["spot-7", "spot-107", "spot-1007"]


def test_a_device_joins_once() -> None:
    batch = SMALL.batch(1, 1)
    batch.restart([SMALL.instance("test", 0)])
    batch.step(np.array([3]))
    with pytest.raises(PolicyError, match=r"actions\.0.*3"):
        batch.step(np.array([3]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "tests"}, "test"),
        ({"num_instances": 0}, "at least 1"),
        ({"render_mode": "human"}, "ansi"),
        ({"benchmark": "preset:llm-256"}, "no world that a graph policy plays"),
        ({"benchmark": "preset:tasklets-6"}, "unknown benchmark"),
    ],
)
def test_what_is_wrong_is_refused_in_one_line(options: dict[str, object], message: str) -> None:
    with pytest.raises(MeshwrightError, match=message) as error:
        WorldEnv(**options)
    assert "\n" not in str(error.value)


def test_a_benchmark_of_tasklets_is_none_of_another_kind() -> None:
    from meshwright.envs.benchmark import load_benchmark

    with pytest.raises(ConfigError, match="tasklets"):
        load_benchmark("preset:tasklets-64")
    assert load_tasklet_benchmark("tasklets-64", changes=["tasklets.num_stages=[4]"]).tasklets.num_stages == (4,)
