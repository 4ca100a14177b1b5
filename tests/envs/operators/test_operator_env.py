"""`OperatorPlacement-v0`: Gymnasium's own checks, masks, seeds, and what is refused."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from meshwright.envs.operators.benchmark import PlacementBenchmark, PlacementSettings, load_placement_benchmark
from meshwright.envs.operators.env import OperatorPlacementEnv
from meshwright.errors import ConfigError, MeshwrightError, PolicyError
from meshwright.planners.operators.place import place
from meshwright.planners.operators.request import PlacementRequest
from meshwright.simulation.operators.generators import DeviceDraw, GraphDraw

SMALL = PlacementSettings(instances=GraphDraw(num_ops=(8, 12)), devices=DeviceDraw(num_devices=(2, 3)))


def small(objective: str = "latency", **changes: object) -> PlacementBenchmark:
    return PlacementBenchmark(name="small", placement=SMALL.model_copy(update={"objective": objective, **changes}))


@pytest.mark.parametrize("objective", ["latency", "throughput"])
@pytest.mark.parametrize("kind", ["layered", "series-parallel", "transformer", "any"])
def test_gymnasium_accepts_it(objective: str, kind: str) -> None:
    benchmark = small(objective, instances=GraphDraw(kind=kind, num_ops=(8, 12), width=2))
    check_env(gymnasium.make("meshwright/OperatorPlacement-v0", benchmark=benchmark, render_mode="ansi").unwrapped)


def test_any_kind_of_graph_is_drawn_and_fits_the_spaces() -> None:
    drawn = GraphDraw(kind="any", num_ops=(8, 12), width=2)
    placement = SMALL.model_copy(update={"instances": drawn})
    instances = [placement.instance("test", seed) for seed in range(30)]
    assert {each.name.split("-")[0] for each in instances} == {"layered", "series", "transformer"}
    assert max(each.num_ops for each in instances) <= drawn.most_ops


def test_it_is_registered() -> None:
    env = gymnasium.make("meshwright/OperatorPlacement-v0", benchmark="preset:latency-tight")
    observation, info = env.reset(seed=3)
    assert observation["candidate"].shape == (8, 17)
    assert info["bound_s"] > 0


def test_an_episode_sums_to_its_value_and_stays_in_its_space() -> None:
    env = OperatorPlacementEnv(small(), render_mode="ansi")
    rng = np.random.default_rng(0)
    for seed in range(5):
        observation, info = env.reset(seed=seed)
        total, over = 0.0, False
        while not over:
            assert env.observation_space.contains(observation)
            allowed = np.flatnonzero(observation["action_mask"])
            observation, reward, over, cut, info = env.step(int(rng.choice(allowed)))
            assert info["was_possible"]
            assert not cut
            total += float(reward)
        assert -total * info["bound_s"] == pytest.approx(info["value_s"])
        assert "device0: " in (env.render() or "")
        assert (observation["placed"][: env.instance.num_ops] > 0).all()
        with pytest.raises(PolicyError, match="over"):
            env.step(0)


def test_an_action_that_is_not_possible_counts_as_the_first_that_is() -> None:
    env = OperatorPlacementEnv(small())
    env.reset(seed=0)
    *_, info = env.step(99)
    assert info["was_possible"] is False


def test_planners_that_are_compared_are_told_with_every_instance() -> None:
    env = OperatorPlacementEnv(small(), compare=["heft", "exhaustive"])
    _, info = env.reset(seed=0)
    heft_s = place(env.instance, "heft", PlacementRequest("latency")).value_s
    assert info["compared_s"] == {"heft": heft_s, "exhaustive": info["compared_s"]["exhaustive"]}
    assert info["bound_s"] <= info["compared_s"]["exhaustive"] <= heft_s
    assert env.step(0)[-1]["compared_s"] == info["compared_s"]
    for name in ("hefty", "ideals"):
        with pytest.raises(PolicyError, match=f"no planner of this name plans for latency .got '{name}'"):
            OperatorPlacementEnv(small(), compare=[name])


def test_the_same_seed_is_the_same_record_in_another_process() -> None:
    here = record(3)
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        assert pool.submit(record, 3).result() == here


def record(seed: int) -> list[tuple[float, float, int]]:
    """Rewards, values and number of possible devices of an episode of the first that is possible."""
    env, found = OperatorPlacementEnv(small()), []
    observation, _ = env.reset(seed=seed)
    over = False
    while not over:
        action = int(np.flatnonzero(observation["action_mask"])[0])
        observation, reward, over, _, info = env.step(action)
        found.append((float(reward), info["value_s"], int(observation["action_mask"].sum())))
    return found


def test_the_same_seed_places_the_same_instance_and_splits_differ() -> None:
    env, test = OperatorPlacementEnv(small()), OperatorPlacementEnv(small(), split="test")
    names = [(env.reset(seed=7)[1]["instance"], env.instance.digest) for _ in range(2)]
    assert names[0] == names[1]
    test.reset(seed=7)
    assert test.instance.digest != names[0][1]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ("placement.instances.num_ops=[1]", "from 2 to 2000"),
        ("placement.devices.num_devices=[65]", "up to 64"),
        ("placement.devices.communication_to_computation=[5, 1]", "the smaller first"),
        ("placement.objective=speed", "latency"),
        ("placement.instances.parents=[3, 1]", "the smaller first"),
        ("placement.instances.kind=laered", "layered"),
    ],
)
def test_a_benchmark_that_cannot_be_is_refused_in_one_line(changes: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as found:
        load_placement_benchmark("preset:latency-tight", changes=[changes])
    assert "\n" not in str(found.value)


def test_other_kinds_of_benchmark_are_refused() -> None:
    with pytest.raises(ConfigError, match="no benchmark of operator placement"):
        load_placement_benchmark("preset:llm-256")
    with pytest.raises(ConfigError, match="unknown split"):
        OperatorPlacementEnv(small(), split="tset")
    with pytest.raises(MeshwrightError, match="has begun"):
        OperatorPlacementEnv(small()).action_masks()


def test_known_jobs_are_placed_on_drawn_devices() -> None:
    chosen = load_placement_benchmark(
        "preset:latency-tight", changes=["placement.instances={kind: jobs, jobs: ['zoo:resnet50']}"]
    )
    instance = chosen.placement.instance("test", 0)
    assert instance.num_ops == chosen.placement.most()[0]
    assert instance.op_names[0] != "op0"
