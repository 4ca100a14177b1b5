"""A benchmark of the first world, written as a fleet, has the same records to the last digit."""

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from meshwright.envs.benchmark import load_benchmark
from meshwright.envs.fleet.batch import FleetBatch
from meshwright.envs.fleet.benchmark import load_fleet_benchmark
from meshwright.envs.fleet.env import FleetEnv
from meshwright.envs.fleet.settings import ElasticSettings
from meshwright.envs.job_partitioning import play_episode
from meshwright.errors import ConfigError
from meshwright.evaluation.evaluate import evaluate
from meshwright.evaluation.fleet.episodes import watch_episode
from meshwright.evaluation.fleet.policies import fleet_player
from meshwright.evaluation.worlds.evaluated_fleet import EvaluatedFleet
from meshwright.evaluation.worlds.evaluated_world import Options
from meshwright.models.fleet.network import FleetActor
from meshwright.models.settings import FleetNetworkSettings
from meshwright.planners.rules import rule_of_thumb
from meshwright.settings import build_settings
from meshwright.simulation.fleet.state import JobState

QUICKSTART = """name: quickstart-fleet
fleet:
  cluster: preset:ramp-4x4x2
  splits: {workload: preset:quickstart, max_degree: 16}
  num_jobs: 400
  num_warmup_jobs: 50
  requested: {8: 1}
  queue_capacity: 0
  visible_jobs: 1
  placements: [blocks]
  sharing: none
  objective: blocking_rate
  candidate_features: none
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("quickstart") / "fleet.yaml"
    path.write_text(QUICKSTART)
    return path


@pytest.fixture(scope="module")
def both(file):
    """The benchmark as it is, and as a fleet."""
    return load_benchmark("preset:quickstart").build(), load_fleet_benchmark(str(file)).build()


RULES = [("fastest-feasible", "fastest-feasible"), ("cheapest-feasible", "least-device-seconds"), ("ladder-8-16", "fixed-8")]
"""In the first world and in a fleet; where a job would miss its deadline on 8 devices it gets the next larger number."""


def assert_same(scenario, fleet, before, now, seed):
    """Jobs, starts, ends, devices and who is blocked, to the last digit."""
    rule = rule_of_thumb(before, degrees=scenario.space.degrees, placements=scenario.settings.placement_rules)
    expected = play_episode(rule, scenario, seed)
    watched = watch_episode(now, fleet_player(now, fleet), fleet, seed)
    record = watched.record
    for name in ("arrival_s", "num_steps", "start_s", "finish_s"):
        np.testing.assert_array_equal(getattr(record, name), getattr(expected, name), err_msg=name)
    np.testing.assert_array_equal(record.is_blocked, ~expected.is_accepted)
    assert (record.status[expected.is_accepted] == JobState.COMPLETED).all()
    devices = {stay.job: stay.devices.tolist() for stay in watched.timeline.stays}
    assert devices == {
        k: sorted(expected.devices_of(k, scenario).tolist()) for k in np.flatnonzero(expected.is_accepted).tolist()
    }
    assert 0 < len(devices) < len(expected.arrival_s)


@pytest.mark.every(3)
@pytest.mark.parametrize(("before", "now"), RULES)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_quickstart_as_a_fleet_gives_the_same_records_to_the_last_digit(both, before, now, seed):
    assert_same(*both, before, now, seed)


def test_a_deadline_that_one_device_meets_exactly_is_met_in_both(tmp_path):
    # Each job is allowed its time on one device, which is the cheapest: rounding alone decides, and both forgive it.
    drawn = {
        "graphs": ["zoo:gpt2-xl", "zoo:vgg16"],
        "steps": {"kind": "sequential_time", "low_s": 4000.0, "high_s": 36000.0},
        "arrivals": {"kind": "poisson", "mean_interarrival_s": 500.0},
        "deadline": {"kind": "uniform", "low": 1.0, "high": 1.0},
    }
    about = {"cluster": "preset:ramp-4x4x2", "num_jobs": 100, "queue_capacity": 0}
    scenario = {"workload": "jobs.yaml", "max_degree": 2, "placement_rules": ["first-fit"], **about}
    changed = yaml.safe_load(QUICKSTART)["fleet"] | about | {"splits": {"workload": "jobs.yaml", "max_degree": 2}}
    changed |= {"requested": {2: 1}, "num_warmup_jobs": 0}
    for name, data in (
        ("jobs", drawn),
        ("scenario", {"name": "tight", "scenario": scenario}),
        ("fleet", {"name": "tight", "fleet": changed}),
    ):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(data))
    before, now = (
        load_benchmark(str(tmp_path / "scenario.yaml")).build(),
        load_fleet_benchmark(str(tmp_path / "fleet.yaml")).build(),
    )
    assert_same(before, now, "cheapest-feasible", "least-device-seconds", 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["fleet.load=0.5"], "load: does not go with splits"),
        (["fleet.menu.layouts=2"], "menu: does not go with splits"),
        (["fleet.sharing=fair"], "give placements: [blocks] and sharing: none"),
        (["fleet.splits=null"], "job_types: the key is missing"),
        (["fleet.splits.max_degree=0"], "fleet.splits.max_degree: "),
        (["fleet.splits.workload=preset:quickstar"], "did you mean 'preset:quickstart'"),
        (["fleet.cluster=preset:host-8"], "hosts of one device each"),
    ],
)
def test_what_does_not_go_with_splits_is_told(file, changes, message):
    with pytest.raises(ConfigError) as error:
        load_fleet_benchmark(str(file), changes=changes).build()
    assert message in str(error.value)


def test_what_a_workload_draws_is_part_of_the_digest_and_its_path_is_not(file, both, tmp_path):
    shutil.copy(Path(__file__).resolve().parents[3] / "configs" / "workloads" / "quickstart.yaml", tmp_path)
    copied = load_fleet_benchmark(str(file), changes=[f"fleet.splits.workload={tmp_path / 'quickstart.yaml'}"])
    assert copied.build().digest == both[1].digest
    assert load_fleet_benchmark(str(file), changes=["fleet.splits.workload=preset:toy"]).build().digest != both[1].digest


def test_jobs_of_a_trace_ask_for_the_devices_that_it_says_and_name_their_lines(tmp_path):
    rows = [(n * 100, 3600, 2, (1, 3, 8, 9999)[n % 4]) for n in range(40)][::-1]
    small = [(7, 60, 1, 1)] * 3
    lines = ["timestamp,duration,num_gpus,asked", *(",".join(map(str, row)) for row in rows + small)]
    (tmp_path / "trace.csv").write_text("\n".join(lines))
    arrivals = {"kind": "trace", "file": "trace.csv", "columns": {"requested_gpus": "asked"}}
    drawn = {"graphs": ["zoo:vgg16"], "arrivals": arrivals, "deadline": {"kind": "none"}}
    (tmp_path / "jobs.yaml").write_text(yaml.safe_dump(drawn))
    fleet = yaml.safe_load(QUICKSTART)["fleet"] | {"num_jobs": 9, "num_warmup_jobs": 0}
    fleet |= {"splits": {"workload": "jobs.yaml", "max_degree": 8}, "requested": {2: 1}}
    (tmp_path / "fleet.yaml").write_text(yaml.safe_dump({"name": "traced", "fleet": fleet}))
    benchmark = load_fleet_benchmark(str(tmp_path / "fleet.yaml"), changes=["policies=[]"])
    built = benchmark.build()
    jobs = built.sample(np.random.default_rng(0))
    window = built.workload.trace.window(np.random.default_rng(0), 10)
    assert jobs.arrival_s.tolist() == built.workload.trace.times_s(window)[:9].tolist()  # as recorded
    enough = {1: 1, 3: 4, 8: 8, 9999: 8}
    assert jobs.requested.tolist() == [enough[int(gpus)] for gpus in built.workload.trace.requested_gpus[window][:9]]
    assert built.mean_interarrival_s == pytest.approx(100.0)
    assert built.mean_duration_s > 0
    found = evaluate(EvaluatedFleet(benchmark, Options(dump=tmp_path), built), ["fifo"], num_seeds=2).results
    said = "10 of 40 jobs of the trace ask for more devices than they can have here, and count as asking for the most"
    assert f"{said} (fleet.splits.max_degree is 8)." in found["remarks"]
    assert "3 rows of the trace ask for less than 2 GPUs (min_gpus) and are left out." in found["remarks"]
    dumped = list(csv.DictReader((tmp_path / "jobs-traced.csv").read_text().splitlines()))
    at_s = [rows[int(job["line"]) - 2][0] for job in dumped]  # line 1 is the header
    assert [float(job["arrival_s"]) for job in dumped] == [at - at_s[n // 9 * 9] for n, at in enumerate(at_s)]


def test_a_network_reads_it(file):
    """Blocks are the one rule without a place among the rules that networks know."""
    fleet = load_fleet_benchmark(str(file)).build()
    actor = FleetActor(FleetNetworkSettings(width=8), fleet)
    assert actor.menu.choice.shape == (1, 5)
    assert actor.menu.choice[:, :4].sum() == 0
    batch = FleetBatch(fleet, 1)
    batch.reset(0, np.random.default_rng(0))
    seen = {name: torch.as_tensor(values) for name, values in batch.observations._asdict().items()}
    scores, value = actor(seen)
    assert torch.isfinite(value).all()
    assert torch.isfinite(scores[seen["action_mask"] > 0]).all()


ELASTIC = "fleet.elastic={at_events: true, restart_s: 30.0, storage_gbytes_per_s: 5.0}"


def test_jobs_of_the_first_world_may_be_given_other_blocks_at_arrivals_and_ends(file, both):
    fleet = load_fleet_benchmark(str(file), changes=[ELASTIC, "fleet.queue_capacity=400", "fleet.visible_jobs=8"]).build()
    env = FleetEnv(fleet=fleet)
    observation, _ = env.reset(seed=3)
    rng, over, moves = np.random.default_rng(1), False, 0
    first_running = 1 + fleet.problem.visible_waiting * fleet.problem.entries_per_job
    for _ in range(400):
        actions = np.flatnonzero(observation["action_mask"])
        moved = actions[(actions >= first_running) & (actions < fleet.problem.first_pause)]
        moves += len(moved) > 0
        action = rng.choice(moved if len(moved) and rng.random() < 0.2 else actions[actions < first_running])
        observation, _, over, _, _ = env.step(int(action))
        if over:
            break
    record = env.record()
    assert moves > 50
    assert record.num_restarts.sum() > 20
    assert both[1].settings.elastic is None


def test_rounds_come_every_so_often_or_with_events():
    with pytest.raises(ConfigError, match="every_s: the key is missing"):
        build_settings(ElasticSettings, {"restart_s": 1.0, "storage_gbytes_per_s": 1.0})
    every = build_settings(ElasticSettings, {"every_s": 60.0, "restart_s": 1.0, "storage_gbytes_per_s": 1.0})
    assert "at_events" not in every.model_dump()
