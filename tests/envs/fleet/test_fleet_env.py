"""The environment as its users meet it: Gymnasium's contract, determinism, masks, many episodes as one, errors."""

import numpy as np
import pytest

from meshwright.envs.fleet.batch import FleetBatch
from meshwright.envs.fleet.benchmark import load_fleet_benchmark
from meshwright.envs.fleet.env import FleetEnv, FleetVectorEnv
from meshwright.envs.fleet.features import trunk_members
from meshwright.envs.fleet.reward import usual_step_s
from meshwright.errors import ConfigError, PolicyError
from meshwright.jobs.load import load_graph
from meshwright.planners.fleet.rules import fleet_rule
from meshwright.planners.menu.job_types import job_type
from meshwright.planners.menu.settings import JobTypeSettings
from meshwright.training.fleet.imitation import choose_all

from ...fleet_samples import DEADLINES, ELASTIC, FAILURES

ID = "meshwright/JobPartitioning-v1"


@pytest.fixture
def env(small_fleet):
    return FleetEnv(fleet=small_fleet, render_mode="ansi")


def play(env, seed):
    """All that an episode shows, by random possible actions."""
    rng = np.random.default_rng(seed)
    observation, info = env.reset(seed=seed)
    seen, over = [(observation, 0.0, False, info)], False
    while not over:
        action = int(rng.choice(np.flatnonzero(observation["action_mask"])))
        observation, reward, over, truncated, info = env.step(action)
        assert not truncated
        seen.append((observation, reward, over, info))
    return seen


def test_every_job_is_accounted_for_at_the_end_and_rewards_sum_to_the_objective(env, small_fleet):
    seen = play(env, 1)
    counts = seen[-1][3]["episode_counts"]
    assert counts["completed"] == sum(counts.values()) == 12  # 16 less warm-up and cool-down; nobody is turned away
    record = env.record()
    usual_s = record.num_steps * usual_step_s(small_fleet)[record.job_type]  # the same whatever is decided
    paid_s = (record.finish_s - record.arrival_s - usual_s).sum()
    assert sum(reward for _, reward, _, _ in seen) == pytest.approx(-paid_s / small_fleet.mean_duration_s, rel=1e-4)


def test_rewards_of_deadlines_sum_to_jobs_in_time_less_all_others(small_file):
    fleet = load_fleet_benchmark(str(small_file), changes=DEADLINES).build()
    env = FleetEnv(fleet=fleet)
    for seed in range(3):
        rewards = [reward for _, reward, _, _ in play(env, seed)]
        record = env.record()
        in_time = (record.finish_s <= record.deadline_s).sum()  # nan for those that never ran
        assert sum(rewards) == pytest.approx(2.0 * in_time - len(record.deadline_s), abs=1e-4)


def test_with_hosts_that_fail_rewards_still_sum_to_each_objective_and_jobs_stop(small_file):
    every = [[], DEADLINES, ["fleet.objective=mean_wait_s"], ["fleet.objective=device_hours"], ["fleet.objective=makespan_s"]]
    for seed, changes in enumerate(every):
        fleet = load_fleet_benchmark(str(small_file), changes=[*FAILURES, *ELASTIC, *changes]).build()
        env = FleetEnv(fleet=fleet)
        paid = sum(reward for _, reward, _, _ in play(env, seed))
        record, duration_s = env.record(), fleet.mean_duration_s
        assert record.num_failures.sum() > 0
        assert (record.num_failures <= record.num_restarts).all()
        usual_s = record.num_steps * usual_step_s(fleet)[record.job_type]
        assert record.is_completed.all() or changes == DEADLINES
        expected = {
            "mean_completion_s": -(record.finish_s - record.arrival_s - usual_s).sum() / duration_s,
            "blocking_rate": 2.0 * (record.finish_s <= record.deadline_s).sum() - len(record.deadline_s),
            "mean_wait_s": -(record.start_s - record.arrival_s).sum() / duration_s,
            "device_hours": -record.held_device_s.sum() / duration_s / fleet.cluster.num_devices,
            "makespan_s": -record.end_s / duration_s,
        }
        assert paid == pytest.approx(expected[fleet.settings.objective], rel=1e-4, abs=1e-4), fleet.settings.objective


@pytest.mark.parametrize("changes", [[], ["fleet.placements=[construct]"]])
def test_a_host_that_is_out_shows_no_free_device_and_no_holder_and_is_never_offered(small_file, changes):
    env = FleetEnv(fleet=load_fleet_benchmark(str(small_file), changes=[*FAILURES, *changes]).build(), render_mode="ansi")
    rng, times_out = np.random.default_rng(0), 0
    observation, _ = env.reset(seed=1)
    over = False
    while not over:
        out = np.flatnonzero(env._batch.state.is_out[0])
        times_out += len(out)
        assert (observation["hosts"][out, :2] == 0).all()
        assert (observation["host_of"][:, out] == 0).all()
        assert sum(line.count("#") for line in env.render().splitlines()[1:3]) == 2 * len(out)
        if env._batch.state.building[0] >= 0:
            assert not observation["action_mask"][out].any()
        observation, _, over, _, _ = env.step(int(rng.choice(np.flatnonzero(observation["action_mask"]))))
        assert env.observation_space.contains(observation)
    assert times_out > 0


@pytest.mark.parametrize("rule", ["sjf", "edf:fixed-4+backfill", "least-device-seconds@spread", "least-interference+backfill"])
def test_a_rule_that_picks_hosts_one_by_one_starts_the_same_jobs_on_the_same_hosts(small_file, rule):
    started = []
    for placements in ("[packed, spread]", "[construct]"):
        fleet = load_fleet_benchmark(str(small_file), changes=[*DEADLINES, f"fleet.placements={placements}"]).build()
        batch = FleetBatch(fleet, 1, observes=False)
        batch.reset(0, np.random.default_rng(5))
        owners = []
        while not batch.state.is_over[0]:
            action = np.zeros(1, np.int64)
            choose_all(fleet.problem, batch.state, fleet_rule(rule, fleet.problem), action, 0, 1)
            batch.step(action)
            if batch.state.building[0] < 0:
                owners.append(batch.state.owner[0].tolist())
        started.append((owners, batch.state.start_s[0].tolist(), batch.state.entry[0].tolist()))
    np.testing.assert_equal(*started)


def test_a_trunk_tells_the_means_of_the_hosts_below_it(small_fleet):
    members = trunk_members(small_fleet.problem.network)
    for seen, *_ in play(FleetEnv(fleet=small_fleet), 7):
        means = members @ seen["hosts"][:, :2] / members.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(seen["trunks"][:, :2], means, rtol=1e-6)
        np.testing.assert_allclose(seen["trunks"][:, 5], members.mean(axis=1), rtol=1e-6)


def test_no_number_of_an_action_is_refused_and_so_is_a_step_after_the_end(env):
    with pytest.raises(PolicyError, match="over or has not begun"):
        env.step(0)
    env.reset(seed=0)
    with pytest.raises(PolicyError, match=f"actions are 0 to {env.action_space.n - 1}"):
        env.step(env.action_space.n)
    with pytest.raises(ConfigError, match="unknown reset option"):
        env.reset(options={"speed": 2})


def test_the_job_graphs_are_those_that_observations_number(small_fleet):
    env = FleetEnv(fleet=small_fleet)
    graphs = env.graphs()
    assert [graph.name for graph in graphs] == ["alexnet", "resnet18"]
    assert [graph.samples_per_step for graph in graphs] == [64, 64]
    seen = set()
    for observation, *_ in play(env, 3):
        waiting, running = observation["offers"].any(axis=1), observation["running"].any(axis=1)
        seen |= {*observation["offer_type"][waiting].tolist(), *observation["running_type"][running].tolist()}
    assert seen == set(range(len(graphs)))
    for key in ("offer_type", "running_type"):
        assert set(env.observation_space[key].high.tolist()) == {len(graphs) - 1}
    assert FleetVectorEnv(2, fleet=small_fleet).graphs() is graphs


def test_a_transformers_job_graph_is_a_step_of_its_whole_batch():
    named = JobTypeSettings(name="mine", job="zoo:gpt2-small", global_batch=3, sequence_length=128)
    graph = job_type(named).job_graph()
    alone = load_graph("zoo:gpt2-small", batch_size=3, sequence_length=128)
    assert graph.digest == alone.digest
    assert graph.samples_per_step == 3


def test_the_menu_tells_what_each_number_of_an_action_means(env, small_fleet):
    lines = env.unwrapped.menu()
    assert [line["devices"] for line in lines] == small_fleet.problem.menu.degree.tolist()
    assert {line["job_type"] for line in lines} == {"small", "large"}
    assert lines[0]["layout_name"] == "one device"
    first, choices = lines[0], len(small_fleet.problem.rule)
    env.reset(seed=1)
    job = int(env._batch.state.offered[0, 0])
    action = 1 + (0 * small_fleet.problem.entries_per_job + first["entry"]) * choices
    env.step(action)
    choice = env.record().entry[job]
    assert small_fleet.problem.menu.degree[choice] == 1


def test_the_text_shows_every_device_and_names_the_jobs(env):
    env.reset(seed=1)
    text = env.render()
    assert "8 of 8 devices free, 0 jobs run, 1 wait" in text
    env.step(int(np.flatnonzero(env.action_masks())[-1]))
    grid = env.render().splitlines()[1:3]
    assert sum(line.count(".") for line in grid) == env._batch.state.free[0].sum()
