"""`sb3_env`: every environment as Stable-Baselines3 steps it, on the episodes of `gymnasium.make_vec`."""

import gymnasium
import numpy as np
import pytest
from sb3_contrib import MaskablePPO
from stable_baselines3.common.vec_env import VecEnv

import meshwright
from meshwright.envs.registration import IDS
from meshwright.errors import ConfigError
from meshwright.worlds.elastic.world import ElasticWorld

from ...elastic_samples import small_benchmark, workload
from ...fleet_samples import write_small_fleet

V0, V1, PLACEMENT, ELASTIC, WORLD = IDS
NAMES = {"toy": V0, "fleet": V1, "latency-tight": PLACEMENT, "tasklets-64": WORLD, "elastic": ELASTIC}


@pytest.fixture
def made(tmp_path):
    """Return a function from a name to the environments of `sb3_env`, and to those of Gymnasium."""

    def both(name):
        request, options = f"preset:{name}", {}
        if name == "fleet":
            request = str(write_small_fleet(tmp_path))
        if name == "elastic":
            jobs = workload([(0, 1, 4, 64), (0, 0, 1, 64), (60, 1, 6, 64)])
            request, options = "ElasticJobs-v0", {"benchmark": ElasticWorld(small_benchmark(tmp_path / "data")), "instance": jobs}
        plain = gymnasium.make_vec(NAMES[name], 3, autoreset_mode="SameStep", **{"benchmark": request, **options})
        return meshwright.sb3_env(request, 3, seed=4, **options), plain

    return both


def plain_lists(seen):
    return {key: np.asarray(values).tolist() for key, values in seen.items()}


def test_every_registered_environment_is_played_here():
    assert set(NAMES.values()) == set(IDS)


@pytest.mark.parametrize("name", NAMES)
def test_each_environment_plays_the_episodes_of_make_vec_and_maskable_ppo_learns_on_it(made, name):
    env, plain = made(name)
    assert isinstance(env, VecEnv)
    seen, (expected, _) = env.reset(), plain.reset(seed=1004)
    num_ends = 0
    for _ in range(150):
        assert plain_lists(seen) == plain_lists(expected)
        mask = np.stack(env.env_method("action_masks"))
        assert (mask == plain.action_masks()).all()
        actions = mask.shape[1] - 1 - mask[:, ::-1].argmax(axis=1)
        seen, rewards, over, infos = env.step(actions)
        expected, paid, ends, cuts, message = plain.step(actions)
        assert (rewards == paid.astype(np.float32)).all()
        assert (over == (ends | cuts)).all()
        num_ends += over.sum()
        for e in np.flatnonzero(over):
            assert infos[e]["TimeLimit.truncated"] == (cuts[e] and not ends[e])
            assert infos[e]["episode"]["l"] > 0
            assert plain_lists(infos[e]["terminal_observation"]) == plain_lists(message["final_obs"][e])
    assert num_ends > 0
    MaskablePPO("MultiInputPolicy", env, n_steps=8, batch_size=24, n_epochs=1, seed=0).learn(24)


def test_an_info_of_an_episodes_end_holds_its_counts():
    env = meshwright.sb3_env("JobPartitioning-v0", 2, benchmark="preset:toy")
    env.reset()
    ended = [info for _ in range(60) for info in env.step(np.zeros(2, np.int64))[3] if info]
    assert [info["episode_counts"]["rejected by choice"] for info in ended] == [60, 60]


@pytest.mark.parametrize(
    ("name", "num_envs", "field"), [("toys", 1, "benchmark"), ("JobPartitioning-v9", 1, "benchmark"), (V0, 0, "num_envs")]
)
def test_what_there_is_not_is_refused(name, num_envs, field):
    with pytest.raises(ConfigError) as caught:
        meshwright.sb3_env(name, num_envs)
    assert caught.value.field == field
