"""The environment as its users meet it: Gymnasium's and SB3's contracts, determinism, masks, errors."""

import hashlib
import json
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from stable_baselines3 import A2C

from meshwright.envs.job_partitioning import JobPartitioningEnv
from meshwright.errors import PolicyError

from ..draws import draws

ID = "meshwright/JobPartitioning-v0"


@pytest.fixture(scope="session")
def make(small_benchmark, small, toy_benchmark, toy):
    built = {"small": (small_benchmark, small), "toy": (toy_benchmark, toy)}

    def env(name="small", **options):
        benchmark, scenario = built[name]
        return JobPartitioningEnv(benchmark, scenario=scenario, **options)

    return env


def play(env, seed, first_actions=()):
    """All that an episode shows: each observation, reward and info; after the given actions random offered ones."""
    rng = np.random.default_rng(seed)
    observation, info = env.reset(seed=seed)
    seen, actions, over = [(observation, 0.0, info)], list(first_actions), False
    while not over:
        action = actions.pop(0) if actions else int(rng.choice(np.flatnonzero(observation["action_mask"])))
        observation, reward, terminated, over, info = env.step(action)
        assert not terminated
        seen.append((observation, reward, info))
    return seen


def python(code, **options):
    return subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False, **options)


# --- contracts; warnings are errors in these tests ---


def test_an_algorithm_of_stable_baselines3_learns_on_it(make):
    model = A2C("MultiInputPolicy", make("toy"), n_steps=8, device="cpu", seed=0)
    before = model.policy.action_net.weight.detach().clone()
    model.learn(64)
    assert model.num_timesteps == 64
    assert not torch.equal(before, model.policy.action_net.weight)


def test_a_plain_loop_sees_as_many_decisions_as_there_are_jobs(make):
    env = make()
    env.reset(seed=3)
    rewards, over = [], False
    while not over:
        _, reward, terminated, over, info = env.step(0)
        rewards.append(reward)
        assert not terminated
    assert rewards == [-0.5] * 40
    # after 5 of warm-up
    assert sum(info["episode_counts"].values()) == 35
    assert info["episode_counts"]["accepted"] == 0


ORDERS = [
    ("import gymnasium, meshwright", ID),
    ("import meshwright, gymnasium", ID),
    ("import meshwright.errors; from gymnasium.wrappers import FlattenObservation; import gymnasium", ID),
    ("import meshwright.envs.registration; import gymnasium", ID),
    ("import gymnasium", f"meshwright:{ID}"),  # is imported when it is made
]
IN_EACH_ORDER = f"""
import os, sys
import cloudpickle, numpy  # what neither of them is
for imports, name in {ORDERS}:
    child = os.fork()
    if not child:
        exec(imports)
        if ":" in name:
            env = gymnasium.make(name, benchmark="preset:toy").unwrapped
            gymnasium.make_vec({ID!r}, num_envs=2, benchmark="preset:toy")
        entry = type(env).__name__ if ":" in name else gymnasium.spec(name).entry_point.partition(":")[2]
        print(entry, type(gymnasium.__loader__).__name__, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_gymnasium_knows_it_whichever_is_imported_first_and_does_not_call_it_out_of_date():
    """Each order in a process of its own, forked from one that has loaded neither; a stale version would print a warning."""
    result = python(IN_EACH_ORDER)
    assert (result.stdout.splitlines(), result.stderr) == (["JobPartitioningEnv SourceFileLoader"] * len(ORDERS), "")


def test_the_job_graphs_are_those_that_observations_number(make):
    env = make()
    graphs = env.graphs()
    assert [graph.name for graph in graphs] == ["squeezenet", "alexnet"]
    seen = {int(observation["graph_id"]) for observation, _, _ in play(env, 0)}
    assert seen == set(range(len(graphs))) == set(range(int(env.observation_space["graph_id"].n)))
    assert gymnasium.make(ID, scenario=env.scenario).get_wrapper_attr("graphs")() is graphs


def test_the_default_benchmark_is_the_quickstart():
    env = gymnasium.make(ID).unwrapped
    assert env.scenario.settings.cluster == "preset:ramp-4x4x2"


# --- determinism ---


def test_another_process_makes_it_by_module_and_id_shows_the_same_episode_and_needs_neither_torch_nor_matplotlib(make):
    # The script plays the toy by the same rule as `play`. The first name says what Gymnasium is to import.
    code = (
        "import hashlib, json, sys\n"
        "import gymnasium\n"
        "import numpy as np\n"
        f"by_module = gymnasium.make('meshwright.envs:{ID}', benchmark='preset:toy', render_mode='rgb_array')\n"
        f"wrapped = gymnasium.make('{ID}', benchmark='preset:toy')\n"
        "wrapped.reset(seed=0)\n"
        "by_id = [wrapped.step(0)[2:4] for _ in range(60)]\n"
        "env = by_module.unwrapped\n"
        "rng = np.random.default_rng(4)\n"
        "observation, _ = env.reset(seed=4)\n"
        "seen, over = [], False\n"
        "while not over:\n"
        "    action = int(rng.choice(np.flatnonzero(observation['action_mask'])))\n"
        "    observation, reward, _, over, info = env.step(action)\n"
        "    content = b''.join(observation[k].tobytes() for k in sorted(observation))\n"
        "    seen.append([reward, info['outcome'], hashlib.sha256(content).hexdigest()])\n"
        "env.render()\n"
        "print(json.dumps([seen, by_id, sorted({'torch', 'matplotlib', 'stable_baselines3'} & set(sys.modules))]))\n"
    )
    result = python(code)
    there, ends, loaded = json.loads(result.stdout or "[0, 0, 1]")
    here = [
        [reward, info["outcome"], hashlib.sha256(b"".join(seen[key].tobytes() for key in sorted(seen))).hexdigest()]
        for seen, reward, info in play(make("toy"), 4)[1:]
    ]
    assert there == here, result.stderr
    assert (len(here), loaded) == (60, [])
    assert ends == [[False, False]] * 59 + [[False, True]]


# --- masks and spaces, whatever is chosen ---


@draws(7)
@given(seed=st.integers(0, 10_000), actions=st.lists(st.integers(0, 12), max_size=40))
@pytest.mark.parametrize("name", ["small", "toy"])
def test_an_offered_candidate_places_and_any_other_rejects(make, name, seed, actions):
    env = make(name)
    observation, _ = env.reset(seed=seed)
    for action in actions:
        action %= int(env.action_space.n)
        offered = bool(observation["action_mask"][action])
        assert offered == env.action_masks()[action]
        assert observation["action_mask"][0] == 1
        observation, reward, _, _, info = env.step(action)
        assert info["accepted"] == (offered and action > 0)
        assert (info["outcome"] == "accepted") == info["accepted"]
        assert (reward > 0) == info["accepted"]
        assert env.observation_space.contains(observation)
    record = env.record()
    assert record.is_accepted.sum() == (record.candidate > 0).sum()


def test_a_rejection_says_what_stood_in_the_way(make):
    env = make("toy")
    env.reset(seed=0)
    *_, info = env.step(0)
    assert info["outcome"] == "rejected by choice"
    # Four devices for a job of more than one inter-arrival time: the next job finds none free.
    while not env.action_masks()[3] or env.decision().completion_s[3] < 1100:
        env.step(0)
    env.step(3)
    assert env.action_masks().tolist() == [True, False, False, False]
    *_, info = env.step(0)
    assert info == {"outcome": "no free device", "accepted": False}


# --- what is refused ---


@pytest.mark.parametrize("action", [-1, 25, 1.0, 1.5, True, None, "1", [1, 2], np.array([0.0])])
def test_an_action_that_is_no_candidate_is_refused_and_changes_nothing(make, action):
    env = make()
    env.reset(seed=0)
    before = env.record()
    with pytest.raises(PolicyError, match=r"an action is a candidate 0\.\.20"):
        env.step(action)
    assert env.record().outcome.tolist() == before.outcome.tolist()
    env.step(np.int64(0))
