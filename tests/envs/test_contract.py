"""The contract of every environment: checks of Gymnasium and SB3, seeds, masks, refusals, batches equal to single episodes."""

import copy
import json
import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from stable_baselines3.common.env_checker import check_env as check_env_as_sb3

from meshwright.envs.fleet.benchmark import load_fleet_benchmark
from meshwright.envs.registration import IDS
from meshwright.errors import ConfigError, PolicyError
from meshwright.simulation.operators.generators import DeviceDraw, GraphDraw
from meshwright.simulation.tasklets.generators import NetworkDraw
from meshwright.worlds.elastic.world import ElasticWorld
from meshwright.worlds.operators.benchmark import PlacementBenchmark, PlacementSettings
from meshwright.worlds.operators.world import OperatorWorld
from meshwright.worlds.tasklets.world import TaskletBenchmark, TaskletWorld

from ..elastic_samples import small_benchmark as elastic_benchmark
from ..elastic_samples import workload
from ..fleet_samples import coded

V0, V1, PLACEMENT, ELASTIC, WORLD = IDS
# Submission, application (0 quick, 1 slow), ranks, batch; nobody comes for 20 minutes in between.
JOBS = [(0, 1, 4, 64), (0, 0, 1, 64), (60, 1, 6, 64), (95, 0, 1, 64), (1500, 1, 1, 64)]
TASKLETS = TaskletWorld(TaskletBenchmark(name="small", tasklets=NetworkDraw(num_devices=(8, 12), num_stages=(2, 4))))
NAMED = ["fleet.observes_links=true", f"fleet.menu.entries={json.dumps([coded(1.25)])}"]


def placing(objective, **changes):
    drawn = PlacementSettings(instances=GraphDraw(num_ops=(8, 12)), devices=DeviceDraw(num_devices=(2, 3)), objective=objective)
    return OperatorWorld(objective, PlacementBenchmark(name="small", placement=drawn.model_copy(update=changes)))


def kind_of_graph(kind):
    return placing("latency", instances=GraphDraw(kind=kind, num_ops=(8, 12), width=2))


def elastic(get, **options):
    folder = get("tmp_path_factory").mktemp("elastic") / "data"
    benchmark = elastic_benchmark(folder)
    return {"benchmark": ElasticWorld(with_keys(benchmark, **options)), "instance": workload(JOBS)}


def with_keys(benchmark, **keys):
    return benchmark.model_copy(update={"elastic": benchmark.elastic.model_copy(update=keys)})


CASES = {
    "jobs": (V0, lambda get: {"benchmark": get("small_benchmark"), "scenario": get("small")}),
    "jobs without deadlines": (V0, lambda get: {"benchmark": get("toy_benchmark"), "scenario": get("toy")}),
    "jobs that wait and stop": (V0, lambda get: {"benchmark": get("eventful"), "scenario": get("eventful_scenario")}),
    "fleet": (V1, lambda get: {"fleet": get("small_fleet")}),
    "fleet with links and names": (
        V1,
        lambda get: {"fleet": load_fleet_benchmark(str(get("small_file")), changes=NAMED).build()},
    ),
    "ops by latency": (PLACEMENT, lambda get: {"benchmark": placing("latency"), "num_instances": 3}),
    "ops by throughput": (PLACEMENT, lambda get: {"benchmark": placing("throughput")}),
    "ops of transformers": (PLACEMENT, lambda get: {"benchmark": kind_of_graph("transformer"), "compare": ["heft"]}),
    "ops in series and parallel": (WORLD, lambda get: {"benchmark": kind_of_graph("series-parallel")}),
    "tasklets": (WORLD, lambda get: {"benchmark": TASKLETS, "num_instances": 3}),
    "tasklets without end": (PLACEMENT, lambda get: {"benchmark": TASKLETS}),
    "elastic, measured": (ELASTIC, elastic),
    "elastic, as seen": (ELASTIC, lambda get: elastic(get, knows="profiles")),
}


@pytest.fixture(scope="module", params=CASES)
def case(request):
    """An id and the arguments of its environments."""
    name, options = CASES[request.param]
    return name, options(request.getfixturevalue)


def made(case, **options):
    return gymnasium.make(case[0], disable_env_checker=True, **case[1], **options).unwrapped


def play(env, seed, most=2_000):
    """All that an episode of random possible actions shows."""
    rng, seen = np.random.default_rng(seed), [list(env.reset(seed=seed))]
    for _ in range(most):
        assert env.observation_space.contains(seen[-1][0])
        mask = env.action_masks()
        assert (mask == (seen[-1][0]["action_mask"] > 0)).all()
        seen.append(list(env.step(int(rng.choice(np.flatnonzero(mask))))))
        if seen[-1][2] or seen[-1][3]:
            return seen
    raise AssertionError("the episode does not end")


# The checker advises against boxes of several axes: such of three might be images, others need a policy that reads them.
@pytest.mark.filterwarnings("ignore:.*(image|unconventional shape):UserWarning:stable_baselines3")
def test_gymnasium_and_stable_baselines3_find_nothing_to_complain_of(case):
    check_env(made(case, render_mode="ansi"))
    check_env_as_sb3(made(case), warn=True)


def test_the_same_seed_shows_the_same_episode(case):
    env = made(case)
    first = play(env, 3)
    assert_same_shown(first, play(env, 3))
    assert_same_shown(first, play(made(case), 3))
    if "instance" not in case[1]:
        with pytest.raises(AssertionError):
            assert_same_shown(first, play(env, 4))
    again = env.reset(seed=5), env.reset()
    assert_same_shown([list(env.reset(seed=5)), list(env.reset())], [list(each) for each in again])


@pytest.mark.every(2)
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))], ids=["deepcopy", "pickle"])
def test_a_copy_continues_alike_and_apart(case, copied):
    env = made(case)
    env.reset(seed=2)
    for _ in range(4):
        env.step(int(np.flatnonzero(env.action_masks())[-1]))
    twin, rng = copied(env), np.random.default_rng(0)
    actions = [int(rng.integers(env.action_space.n)) for _ in range(6)]
    ours, theirs = ([list(each.step(action)) for action in actions] for each in (env, twin))
    assert_same_shown(ours, theirs)
    assert_same_shown(list(twin.reset()), list(env.reset()))


def test_what_is_no_step_is_refused(case):
    env = made(case)
    for call in (lambda: env.step(0), env.action_masks):
        with pytest.raises(PolicyError, match=r"has (not )?begun; reset the environment first"):
            call()
    with pytest.raises(ConfigError, match=r"unknown reset option.*jobs"):
        env.reset(options={"jobs": 3})
    assert env.reset(options={})[0].keys() == env.observation_space.spaces.keys()
    for action in (1.5, "first", None, [1, 2], np.array([0.0])):
        with pytest.raises(PolicyError, match="an action is"):
            env.step(action)
    play(env, 0)
    with pytest.raises(PolicyError, match="reset the environment first"):
        env.step(0)


def test_arguments_that_there_are_not_are_refused(case):
    with pytest.raises(ConfigError, match=r"render_mode: unknown render mode \(got 'ansii'\); did you mean 'ansi'"):
        type(made(case))(**case[1], render_mode="ansii")
    for options, message in (({"autoreset_mode": "samestep"}, "'SameStep'"), ({"render_mode": "ansii"}, "'ansi'")):
        with pytest.raises(ConfigError, match=message):
            gymnasium.make_vec(case[0], num_envs=2, **options, **case[1])
    with pytest.raises(ConfigError, match="num_envs: must be at least 1"):
        gymnasium.make_vec(case[0], num_envs=0, **case[1])


def test_an_impossible_action_counts_as_the_first_possible_one_but_for_v0_where_it_rejects(case):
    env, other = made(case), made(case)
    for each in (env, other):
        each.reset(seed=2)
    for _ in range(200):
        mask = env.action_masks()
        first = int(mask.argmax())
        if not mask.all():
            break
        for each in (env, other):
            each.step(first)
    else:
        pytest.skip("every action was possible")
    ours, theirs = list(env.step(int((~mask).argmax()))), list(other.step(first))
    if case[0] != V0:
        assert (ours[4].pop("was_possible"), theirs[4].pop("was_possible")) == (False, True)
    assert_same_shown(ours, theirs)


@pytest.mark.every(3)
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_many_show_what_gymnasium_shows_of_single_ones(case, mode):
    ours = gymnasium.make_vec(case[0], num_envs=3, autoreset_mode=mode, render_mode="ansi", **case[1])
    theirs = SyncVectorEnv([lambda: made(case, render_mode="ansi")] * 3, autoreset_mode=mode)
    assert ours.metadata["autoreset_mode"] is mode
    assert ours.single_observation_space == theirs.single_observation_space
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    rng, ended = np.random.default_rng(3), 0
    seen, message = ours.reset(seed=3)
    assert_same_shown([seen, message], list(theirs.reset(seed=3)))
    for _ in range(120):
        assert ours.observation_space.contains(seen)
        scores = rng.random(seen["action_mask"].shape)
        actions = (scores * seen["action_mask"] + 0.5 * scores * (rng.random(len(scores)) < 0.05)[:, None]).argmax(axis=1)
        seen, *shown = ours.step(actions)
        assert_same_shown([seen, *shown], list(theirs.step(actions)))
        over = shown[1] | shown[2]
        ended += int(over.sum())
        if over.any() and mode is AutoresetMode.DISABLED:
            seen, message = ours.reset(options={"reset_mask": over})
            assert_same_shown([seen, message], list(theirs.reset(options={"reset_mask": over})))
    assert ended >= 3
    assert ours.render() == theirs.render()


def assert_same_shown(one, other):
    """Fails unless both are equal to the last bit, types too."""
    if isinstance(one, dict):
        assert set(one) == set(other)
        for key in one:
            assert_same_shown(one[key], other[key])
    elif isinstance(one, list):
        assert len(one) == len(other)
        for mine, its in zip(one, other, strict=True):
            assert_same_shown(mine, its)
    elif isinstance(one, np.ndarray) and one.dtype == object:
        assert other.dtype == object
        assert_same_shown(list(one), list(other))
    elif isinstance(one, np.ndarray):
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    else:
        assert one == other
