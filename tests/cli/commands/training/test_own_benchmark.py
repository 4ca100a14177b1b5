"""A benchmark without a config is trained by the preset of its kind, in time, and gives way to a rule that is not worse."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from meshwright import plan
from meshwright.cli import run_command_line
from meshwright.cli.commands.training import own_benchmark
from meshwright.cli.commands.training.own_benchmark import config_of, is_benchmark
from meshwright.evaluation.evaluate import evaluate
from meshwright.evaluation.worlds.evaluated_world import Options
from meshwright.evaluation.worlds.registry import load_worlds
from meshwright.models.fleet.saved import SavedFleetNetwork
from meshwright.models.policy_files import decided, how_file_was_made, keep_verdict, shipped_folder
from meshwright.planning.menu_plan import MenuPlanner
from meshwright.planning.place import place
from meshwright.training.hooks.callback import RunStart, StopInTime, ValidationRecord

ROOT = Path(__file__).resolve().parents[4]
BENCHMARKS = ROOT / "configs" / "benchmarks"


def written(folder, preset, **changes):
    """A copy of a benchmark with other keys below its kind."""
    data = yaml.safe_load((BENCHMARKS / f"{preset}.yaml").read_text())
    kind = next(key for key in data if isinstance(data[key], dict) and key != "reward")
    data[kind] |= changes
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(data | {"name": "mine", "policies": []}))
    return path


def fleet(folder):
    jobs, menu = [{"name": "small", "job": "zoo:alexnet", "global_batch": 64}], {"degrees": [1, 2, 4]}
    counted = {"num_jobs": 120, "num_warmup_jobs": 0, "num_cooldown_jobs": 0}
    counted |= {"requested": {1: 1, 2: 1, 4: 2}, "load": 4.0, "queue_capacity": 4, "visible_jobs": 4}
    return written(folder, "uneven-64", **counted, placements=["packed"], job_types=jobs, menu=menu)


def test_configs_and_presets_of_both_kinds_are_distinguished(tmp_path):
    assert is_benchmark("preset:rail-256")
    assert not is_benchmark("preset:llm-256")  # names a config and a benchmark; `train` takes the config
    assert is_benchmark(str(fleet(tmp_path)))
    assert not is_benchmark(str(ROOT / "configs" / "train" / "toy.yaml"))


@pytest.mark.parametrize(
    ("preset", "changes", "minutes", "expected"),
    [
        ("tasklets-64", {"num_devices": [96], "num_stages": [8]}, 3, {"ppo.rollout_steps": 153, "imitation.steps": 45}),
        ("tasklets-64", {}, 300, {"ppo.rollout_steps": 102, "imitation.instances": 320, "imitation.steps": 450}),
        ("tasklets-64", {}, 30, {"imitation.instances": 225, "imitation.steps": 450, "num_workers": 1}),
        ("tasklets-64", {"num_devices": [1024], "num_stages": [8]}, 3, {"ppo.minibatch": 2048, "ppo.rollout_steps": 1664}),
        ("latency-tight", {}, 3, {"start": "shipped:place", "imitation": None, "ppo.num_envs": 32}),
    ],
)
def test_the_preset_of_the_kind_is_sized_by_instances_and_minutes(tmp_path, monkeypatch, preset, changes, minutes, expected):
    """96 devices are 96 decisions, and a rollout has 8/5 of them; instances of 2 s each may take a quarter of 30 minutes."""
    monkeypatch.setattr(own_benchmark, "_seconds_of_solution", lambda world, rounds: 2.0)
    texts = [f"tasklets.{key}={value}" for key, value in changes.items()]
    by_file = config_of(str(written(tmp_path, preset, **changes)), [f"minutes={minutes}"]).model_dump()
    by_changes = config_of(f"preset:{preset}", [f"minutes={minutes}", f"changes={json.dumps(texts)}"]).model_dump()
    for key, value in ({"minutes": minutes} | expected).items():
        for got in (by_file, by_changes):
            for part in key.split("."):
                got = got.get(part)
            assert got == value, key


@pytest.mark.parametrize(("stem", "name"), [("64", "64"), ("a #b", "a-b"), ("it's: x", "it-s-x"), ("-", "benchmark")])
def test_any_path_is_a_benchmark_and_what_the_user_sets_wins(tmp_path, stem, name):
    path = written(tmp_path, "toy").rename(tmp_path / f"{stem}.yaml")
    result = config_of(str(path), ["seed=3"])
    assert (result.benchmark, result.name, result.minutes, result.seed) == (str(path), name, 10, 3)
    assert config_of(str(path), ["name=own", "minutes=2"]).name == "own"
    assert config_of("preset:latency-tight", ["network.messages=false", "minutes=3"]).imitation.steps == 125  # from nothing


def verdict(rule, benchmark="mine", is_better=False):
    return {"rule": rule, "benchmarks": [benchmark], "is_better": is_better, "sentence": f"not better than {rule} by far"}


def test_a_fleet_is_trained_and_a_policy_that_is_not_better_gives_way_to_the_rule(tmp_path, capsys):
    """A clock that is over leaves the policy of the search's start, for each seed; a resumed run has the same clock."""
    benchmark, prefix = fleet(tmp_path), tmp_path / "run"
    over = ["train", str(benchmark), "--minutes", "1e-9", "--set", "num_validation_seeds=2", "--seeds", "0,1"]
    assert run_command_line([*over, "--out", str(prefix)]) == 0
    table, run, other = " ".join(capsys.readouterr().out.split()), tmp_path / "run-seed-0", tmp_path / "run-seed-1"
    configs = [yaml.safe_load((folder / "config.yaml").read_text()) for folder in (run, other)]
    assert configs[0] | {"seed": 1} == configs[1]
    line = json.loads((run / "line_to_beat.json").read_text())
    assert table.count(f"not better than {line['rule']}") == 2
    assert SavedFleetNetwork.load(run).trained["stages"][0]["steps"] == 0
    assert run_command_line(["train", "--resume", str(run)]) == 0
    assert "its 1e-09 CPU minutes are over" in capsys.readouterr().out
    assert SavedFleetNetwork.load(run).trained["stages"][0]["steps"] == 1
    assert json.loads((run / "line_to_beat.json").read_text()) == line
    assert how_file_was_made(run).endswith(line["verdict"]["sentence"])
    rule = line["rule"]
    (world,) = load_worlds(str(benchmark), (), Options())
    result = evaluate(world, [str(run), f"network:{run}", rule], num_seeds=2)
    given, itself, of_rule = (
        next(row for row in result.results["rows"] if row["policy"] == name) for name in (run.name, f"network:{run.name}", rule)
    )
    assert given["per_case"] == of_rule["per_case"] != itself["per_case"]
    assert (given["kind"], itself["kind"]) == ("baseline", "learned")
    assert f"{run.name}: {rule} decides: on mine the policy is {line['verdict']['sentence']}." in result.results["remarks"]
    for decides, where in ((rule, "other"), ("sjf:fixed-3", "mine")):
        keep_verdict(run / "policy.pt", verdict(decides, where))
        again = evaluate(world, [str(run), rule], num_seeds=2).results
        assert next(row for row in again["rows"] if row["policy"] == run.name)["per_case"] == itself["per_case"]
        assert any("the network decides although on mine" in each for each in again["remarks"]) == (where == "mine")
    by_network = MenuPlanner.from_job("zoo:alexnet", "preset:uneven-64", f"network:{run}").plan(100)
    assert not any("decides" in remark for remark in by_network.remarks)
    for rule in ("edf:fixed-4+backfill", "fifo", "sjf:fixed-3"):
        keep_verdict(run / "policy.pt", verdict(rule))
        planned = MenuPlanner.from_job("zoo:alexnet", "preset:uneven-64", run).plan(100)
        is_alone = rule == "edf:fixed-4+backfill"  # the others ask for a user's devices, or for what the menu lacks
        beginning = f"{rule} decides: on mine" if is_alone else "the network decides although on mine"
        assert planned.remarks[-1].startswith(beginning)
        by = (
            MenuPlanner.from_job("zoo:alexnet", "preset:uneven-64", f"menu:{rule}", batch=64).plan(100)
            if is_alone
            else by_network
        )
        assert planned.plan.layout() == by.plan.layout()


def test_a_plan_op_by_op_takes_the_rule_and_only_paths_are_changed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "max").mkdir()
    file = tmp_path / "max" / "policy.pt"
    file.write_bytes((shipped_folder() / "quickstart.pt").read_bytes())
    assert decided(str(file), len) == (str(file), len(str(file)), ())
    keep_verdict(file, verdict("min", "quickstart"))
    assert decided("./max", len)[0] == decided(str(file), len)[0] == "min"
    for spec in ("shipped:quickstart", f"without-graph({file})", "x" * 5000):
        assert decided(spec, len) == (spec, len(spec), ())
    by_run, by_rule, other, by_max = (
        plan("zoo:squeezenet", "preset:toy", policy_spec=spec) for spec in (str(file), "min", f"network:{file}", "max")
    )
    assert by_run.plan.ranks == by_rule.plan.ranks
    assert "min decides: on quickstart the policy is not better than min by far" in by_run.remarks
    assert not any("decides" in remark for remark in (*other.remarks, *by_max.remarks))  # a folder has the name of a rule
    keep_verdict(file, verdict("fixed-64@best-fit", "quickstart"))
    lacking = plan("zoo:squeezenet", "preset:toy", policy_spec=str(file))
    assert lacking.plan.ranks == other.plan.ranks
    assert any(remark.startswith("the network decides although on quickstart") for remark in lacking.remarks)


def test_placements_and_arrangements_take_the_rule_too(tmp_path, capsys):
    ops, tasklets = (tmp_path / f"{name}.pt" for name in ("ops", "tasklets"))
    ops.write_bytes((shipped_folder() / "operators-latency.operators.pt").read_bytes())
    tasklets.write_bytes((shipped_folder() / "tasklets.tasklets.pt").read_bytes())
    (world,) = load_worlds("preset:latency-tight", (), Options())
    for rule in world.validation_rules():
        keep_verdict(ops, verdict(rule))
        placed = place("zoo:squeezenet", "preset:toy", by=str(ops))
        by_rule = world.world.solver(rule)(placed.instance, 0)
        assert np.array_equal(placed.placement.device_of, by_rule.device_of)
        assert f"{rule} decides: on mine the policy is not better than {rule} by far" in placed.plan.why
    assert "decides" not in place("zoo:squeezenet", "preset:toy", by=f"network:{ops}").plan.why
    keep_verdict(tasklets, verdict("structured"))
    (tmp_path / "four.json").write_text(json.dumps({"delay_ms": [[1] * 4] * 4, "bandwidth_gbps": [[1] * 4] * 4}))
    sizes = ["--set", "num_stages=2", "--set", "gradient_bytes=1e6", "--set", "activation_bytes=1e6"]
    arguments = ["plan", "--stages", str(tmp_path / "four.json"), *sizes, "--budget-s", "0.05"]
    for spec, decides in ((str(tasklets), True), (f"network:{tasklets}", False)):
        assert run_command_line([*arguments, "--policy", spec]) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert ("structured decides: on mine the policy is not better than structured by far" in shown) == decides


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["preset:rail-256", "--minutes", "0"], "--minutes: must be above 0, up to 1,000,000"),
        (["preset:rail-256", "--minutes", "1e7"], "--minutes: must be above 0, up to 1,000,000"),
        (["preset:rail-256", "--set", "minutes=soon"], "minutes: must be a number"),
        (["preset:rail-257"], "no such training config"),
        (["mine.yaml", "--set", "serch.spread=1"], "serch"),
        (["preset:rail-256", "--resume", "run"], "leave out the benchmark"),
    ],
)
def test_bad_input_is_refused_in_one_line(tmp_path, monkeypatch, capsys, arguments, problem):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "toy")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("name: run\n")
    assert run_command_line(["train", *arguments]) == 2
    error = capsys.readouterr().err
    assert problem in error
    assert error.count("\n") == 1


def values_until_a_stop(values, stage="ppo", is_less_better=True):
    """How many validations are made before the minutes of a config end a run of these values."""
    clock = StopInTime(1e6)
    clock.on_start(RunStart("run", "ppo", Path(), {}, "value", is_less_better, "decisions", 100, 0, 0, False))
    for number, value in enumerate(values):
        if clock.on_validation(ValidationRecord(number, stage, number, 100, "steps", "value", value, value, True, 0.0)) is False:
            return number + 1
    return None


def test_a_run_ends_where_the_last_third_of_its_validations_is_not_better():
    falling = [float(10 - number) for number in range(30)]
    assert values_until_a_stop(falling) is None
    assert values_until_a_stop([-value for value in falling], is_less_better=False) is None
    # The eighth is the least: of eleven the last three, the ninth to the eleventh, are none better.
    assert values_until_a_stop([*falling[:8], *[5.0] * 10]) == 11
    assert values_until_a_stop([5.0] * 20) == 9
    assert values_until_a_stop([5.0] * 20, stage="imitation") is None


SMALL = {
    "ppo": ("toy", {}, ["num_validation_seeds=2"]),
    "graph": ("tasklets-64", {"num_devices": [8], "num_stages": [2]}, ["network.hidden=8", "network.heads=2"]),
    "linear": ("linear", {}, ["benchmark=preset:toy", "population=10", "num_episodes=1", "num_validation_seeds=2"]),
}


@pytest.mark.parametrize(("preset", "changes", "keys"), SMALL.values(), ids=SMALL)
def test_a_run_of_each_method_whose_clock_is_over_keeps_a_policy_and_says_why_it_ended(preset, changes, keys, tmp_path, capsys):
    benchmark = f"preset:{preset}" if preset == "linear" else str(written(tmp_path, preset, **changes))
    run, settings = tmp_path / "run", [word for key in keys for word in ("--set", key)]
    assert run_command_line(["train", benchmark, "--minutes", "1e-9", "--out", str(run), *settings]) == 0
    assert "stopped its 1e-09 CPU minutes are over" in " ".join(capsys.readouterr().out.split())
    line = json.loads((run / "line_to_beat.json").read_text())
    assert how_file_was_made(run).endswith(line["verdict"]["sentence"])


def test_a_benchmark_whose_candidates_hold_several_blocks_is_trained_without_a_search():
    assert config_of("preset:pacml-compat-A", []).search is None
    assert config_of("preset:quickstart", []).search is not None
