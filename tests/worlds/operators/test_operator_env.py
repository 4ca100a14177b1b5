"""`OperatorPlacement-v0`: checks of Gymnasium and SB3, masks, seeds, single against many, and what is refused."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

import gymnasium
import numpy as np
import pytest

from meshwright.envs.world_env import WorldEnv, WorldVectorEnv
from meshwright.errors import ConfigError, MeshwrightError, PolicyError
from meshwright.planners.operators.place import place
from meshwright.planners.operators.request import PlacementRequest
from meshwright.simulation.operators.generators import DeviceDraw, GraphDraw
from meshwright.simulation.operators.placement import OperatorObjective
from meshwright.simulation.operators.schedules import upward_order
from meshwright.worlds.operators.benchmark import PlacementBenchmark, PlacementSettings, load_placement_benchmark
from meshwright.worlds.operators.world import OperatorWorld, load_operator_world

from .played import episodes_on

ID = "meshwright/OperatorPlacement-v0"
SMALL = PlacementSettings(instances=GraphDraw(num_ops=(8, 12)), devices=DeviceDraw(num_devices=(2, 3)))


def small(objective: OperatorObjective = "latency", **changes: object) -> OperatorWorld:
    placement = SMALL.model_copy(update={"objective": objective, **changes})
    return OperatorWorld(objective, PlacementBenchmark(name="small", placement=placement))


@pytest.mark.parametrize("kind", ["layered", "series-parallel", "transformer", "chain", "any", "mixed"])
def test_every_drawn_graph_is_within_the_sizes(kind: str) -> None:
    world = small(instances=GraphDraw(kind=kind, num_ops=(8, 12, 60), width=4, parents=(2, 6)))
    for seed in range(20):
        own = world.sizes_of(world.instance("test", seed))
        assert own.nodes["op"] <= world.sizes.nodes["op"]
        assert all(own.edges[triple] <= most for triple, most in world.sizes.edges.items())


def test_it_is_registered() -> None:
    observation, info = gymnasium.make(ID).reset(seed=3)
    assert observation["features"].shape == (8, 17)
    assert info["bound_s"] > 0
    assert isinstance(gymnasium.make_vec(ID, num_envs=2), WorldVectorEnv)


def test_an_episode_sums_to_its_value_and_stays_in_its_space() -> None:
    env = WorldEnv(small(), render_mode="ansi")
    rng = np.random.default_rng(0)
    for seed in range(5):
        observation, info = env.reset(seed=seed)
        total, over = 0.0, False
        while not over:
            assert env.observation_space.contains(observation)
            allowed = np.flatnonzero(observation["action_mask"])
            ops = [op for op in upward_order(env.instance) if observation["member"][op] < 0]
            assert observation["nodes"][allowed].tolist() == [[ops[0], device] for device in allowed]
            observation, reward, over, cut, info = env.step(int(rng.choice(allowed)))
            assert info["was_possible"]
            assert not cut
            total += float(reward)
        assert -total * info["bound_s"] == pytest.approx(info["value_s"])
        assert env.outcome().value_s == pytest.approx(info["value_s"])
        assert observation["member"][: env.instance.num_ops].tolist() == env.outcome().device_of.tolist()
        assert "device0: " in (env.render() or "")
        with pytest.raises(PolicyError, match="over"):
            env.step(0)


def test_solvers_that_are_compared_are_shown_with_every_instance() -> None:
    env = WorldEnv(small(), compare=["heft", "exhaustive"])
    _, info = env.reset(seed=0)
    heft_s = place(env.instance, "heft", PlacementRequest("latency")).value_s
    assert info["compared_s"] == {"heft": heft_s, "exhaustive": info["compared_s"]["exhaustive"]}
    assert info["bound_s"] <= info["compared_s"]["exhaustive"] <= heft_s
    assert env.step(0)[-1]["compared_s"] == info["compared_s"]
    for name, said in (("hefty", "no rule of this world"), ("ideals", "does not plan for latency")):
        with pytest.raises(PolicyError, match=said):
            WorldEnv(small(), compare=[name])


@pytest.mark.slow
def test_the_same_seed_is_the_same_record_in_another_process() -> None:
    here = record(3)
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        assert pool.submit(record, 3).result() == here


def record(seed: int) -> list[tuple[float, float, int]]:
    """Rewards, values and number of possible devices of an episode of the first that is possible."""
    env, result = WorldEnv(small()), []
    observation, _ = env.reset(seed=seed)
    over = False
    while not over:
        action = int(np.flatnonzero(observation["action_mask"])[0])
        observation, reward, over, _, info = env.step(action)
        result.append((float(reward), info["value_s"], int(observation["action_mask"].sum())))
    return result


def test_the_same_seed_places_the_same_instance_and_splits_differ() -> None:
    env, test = WorldEnv(small()), WorldEnv(small(), split="test")
    names = [(env.reset(seed=7)[1]["instance"], env.instance.digest) for _ in range(2)]
    assert names[0] == names[1]
    test.reset(seed=7)
    assert test.instance.digest != names[0][1]


def test_tensors_that_no_op_reads_change_nothing() -> None:
    instance = SMALL.instance("test", 0)
    more = replace(
        instance,
        tensor_bytes=np.concatenate([np.ones(len(instance.edges)), instance.tensor_bytes]),
        edge_tensor=instance.edge_tensor + len(instance.edges),
    )
    plain, other = (episodes_on(each, "throughput") for each in (instance, more))
    while plain.is_live[0]:
        action = np.array([np.flatnonzero(plain.decisions.mask[0])[-1]])
        assert plain.step(action) == other.step(action)
        assert (plain.decisions.features == other.decisions.features).all()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ("placement.instances.num_ops=[1]", "from 2 to 2000"),
        ("placement.devices.num_devices=[65]", "up to 64"),
        ("placement.devices.communication_to_computation=[5, 1]", "the smaller first"),
        ("placement.objective=speed", "latency"),
        ("placement.instances.parents=[3, 1]", "the smaller first"),
        ("placement.instances.kind=laered", "layered"),
        ("placement.form=max-load", "form"),
    ],
)
def test_a_benchmark_that_cannot_be_is_refused_in_one_line(changes: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as error:
        load_operator_world("preset:latency-tight", changes=[changes])
    assert "\n" not in str(error.value)


def test_other_kinds_of_benchmark_are_refused() -> None:
    with pytest.raises(ConfigError, match="no benchmark of operator placement"):
        load_placement_benchmark("preset:llm-256")
    with pytest.raises(ConfigError, match="unknown split"):
        WorldEnv(small(), split="tset")
    with pytest.raises(MeshwrightError, match="has begun"):
        WorldEnv(small()).action_masks()


def test_known_jobs_are_placed_on_drawn_devices() -> None:
    benchmark = load_placement_benchmark(
        "preset:latency-tight", changes=["placement.instances={kind: jobs, jobs: ['zoo:resnet50']}"]
    )
    instance = benchmark.placement.instance("test", 0)
    assert instance.num_ops == benchmark.placement.most()[0]
    assert instance.op_names[0] != "op0"
