"""A benchmark without a config is trained by the preset of its kind, in time, and gives way to a rule that is not worse."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from meshwright import plan
from meshwright.cli import run_command_line
from meshwright.cli.commands.training.own_benchmark import config_of, is_benchmark
from meshwright.evaluation.evaluate import evaluate
from meshwright.evaluation.worlds.evaluated_world import Options
from meshwright.evaluation.worlds.registry import load_worlds
from meshwright.models.policy_files import decided, how_file_was_made, keep_verdict, shipped_folder
from meshwright.planning.menu_plan import plan_from_menu
from meshwright.planning.place import place
from meshwright.training.hooks.callback import RunEnd, RunStart, UpdateRecord, ValidationRecord
from meshwright.training.hooks.stopping import StopInTime

ROOT = Path(__file__).resolve().parents[4]
BENCHMARKS = ROOT / "configs" / "benchmarks"
QUICK = ["--set", "num_validation_seeds=2", "--set", "search.generations=1", "--set", "search.population=4"]


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


def test_configs_and_presets_of_both_kinds_are_told_apart(tmp_path):
    assert is_benchmark("preset:rail-256")
    assert not is_benchmark("preset:llm-256")  # names a config and a benchmark; `train` takes the config
    assert is_benchmark(str(fleet(tmp_path)))
    assert not is_benchmark(str(ROOT / "configs" / "train" / "toy.yaml"))


@pytest.mark.parametrize(
    ("preset", "changes", "minutes", "expected"),
    [
        ("toy", {}, 10, {"method": None, "benchmark": "mine"}),
        ("tasklets-64", {"num_devices": [96], "num_stages": [8]}, 3, {"ppo.rollout_steps": 153, "imitation.instances": 32}),
        ("tasklets-64", {}, 300, {"ppo.rollout_steps": 102, "imitation.instances": 320, "imitation.steps": 450}),
    ],
)
def test_the_preset_of_the_kind_is_sized_by_instances_and_minutes(tmp_path, preset, changes, minutes, expected):
    """96 devices are 96 decisions, and a rollout has 8/5 of them; 3 of 30 minutes imitate a tenth of 320 instances."""
    found = config_of(str(written(tmp_path, preset, **changes)), minutes).model_dump()
    for key, value in expected.items():
        got = found
        for part in key.split("."):
            got = got.get(part)
        assert str(value) in str(got) if key == "benchmark" else got == value


def test_a_fleet_is_trained_and_a_policy_that_is_not_better_gives_way_to_the_rule(tmp_path, capsys):
    benchmark, run = fleet(tmp_path), tmp_path / "run"
    assert run_command_line(["train", str(benchmark), "--minutes", "0.1", "--out", str(run), *QUICK]) == 0
    shown = capsys.readouterr().out
    line = json.loads((run / "line_to_beat.json").read_text())
    assert f"line to beat: blocking rate {line['value']:.4g} by {line['rule']}" in shown
    assert line["verdict"]["sentence"] in shown
    assert how_file_was_made(run).endswith(line["verdict"]["sentence"])
    rule = "edf:fixed-4+backfill"
    keep_verdict(run / "policy.pt", {"rule": rule, "is_better": False, "sentence": f"not better than {rule} by far"})
    (world,) = load_worlds(str(benchmark), (), Options())
    found = evaluate(world, [str(run), rule], num_seeds=2)
    given, of_rule = (next(row for row in found.results["rows"] if row["policy"] == name) for name in ("run", rule))
    assert given["per_case"] == of_rule["per_case"]
    assert given["kind"] == "baseline"
    assert f"run: {rule} decides: the policy is not better than {rule} by far." in found.results["remarks"]
    itself = evaluate(world, [f"network:{run}", rule], num_seeds=2)
    assert itself.specs["run"] == str(run)
    assert next(row for row in itself.results["rows"] if row["policy"] == "run")["kind"] == "learned"
    planned = plan_from_menu("zoo:alexnet", "preset:uneven-64", run, num_steps=100)
    by_rule = plan_from_menu("zoo:alexnet", "preset:uneven-64", f"menu:{rule}", num_steps=100, batch=64)
    assert planned.plan.layout() == by_rule.plan.layout()
    assert planned.remarks[-1] == f"{rule} decides: the policy is not better than {rule} by far"


def test_a_plan_op_by_op_takes_the_rule_and_only_paths_are_changed(tmp_path):
    file = tmp_path / "policy.pt"
    file.write_bytes((shipped_folder() / "quickstart.pt").read_bytes())
    assert decided(str(file)) == (str(file), ())
    keep_verdict(file, {"rule": "min", "is_better": False, "sentence": "not better than min by 0"})
    assert decided(str(tmp_path))[0] == decided(str(file))[0] == "min"
    assert decided("shipped:quickstart") == ("shipped:quickstart", ())
    assert decided(f"without-graph({file})") == (f"without-graph({file})", ())
    planned, by_rule = (plan("zoo:squeezenet", "preset:toy", policy_spec=spec) for spec in (str(file), "min"))
    assert planned.plan.ranks == by_rule.plan.ranks
    assert "min decides: the policy is not better than min by 0" in planned.remarks


def test_placements_and_arrangements_take_the_rule_too(tmp_path, capsys):
    ops, tasklets = (tmp_path / f"{name}.pt" for name in ("ops", "tasklets"))
    ops.write_bytes((shipped_folder() / "operators-latency.operators.pt").read_bytes())
    tasklets.write_bytes((shipped_folder() / "tasklets.tasklets.pt").read_bytes())
    for file, rule in ((ops, "heft"), (tasklets, "structured")):
        keep_verdict(file, {"rule": rule, "is_better": False, "sentence": f"not better than {rule} by 0"})
    placed, by_rule = (place("zoo:squeezenet", "preset:toy", by=by) for by in (str(ops), "heft"))
    assert np.array_equal(placed.placement.device_of, by_rule.placement.device_of)
    assert "heft decides: the policy is not better than heft by 0" in placed.plan.why
    (tmp_path / "four.json").write_text(json.dumps({"delay_ms": [[1] * 4] * 4, "bandwidth_gbps": [[1] * 4] * 4}))
    sizes = ["--stages", "2", "--dp-bytes", "1e6", "--pp-bytes", "1e6"]
    arguments = ["arrange", str(tmp_path / "four.json"), *sizes, "--budget-s", "0.05"]
    assert run_command_line([*arguments, "--solver", str(tasklets)]) == 0
    assert "structured decides: the policy is not better than structured by 0" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["preset:rail-256", "--minutes", "0"], "--minutes: must be a number above 0"),
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
    """How many validations are made before `StopInTime` ends a run of these values."""
    callback = StopInTime(1e6)
    callback.on_start(RunStart("run", "fleet", ROOT, {}, "value", is_less_better, "decisions", 100, 0, 0, is_resumed=False))
    for number, value in enumerate(values):
        record = ValidationRecord(number, stage, number, 100, "decisions", "value", value, 0.0, is_best=False, elapsed_s=0.0)
        if callback.on_validation(record) is False:
            return number + 1
    return None


def test_a_run_is_level_where_the_last_third_of_its_validations_is_not_better():
    falling = [float(10 - number) for number in range(30)]
    assert values_until_a_stop(falling) is None
    assert values_until_a_stop([-value for value in falling], is_less_better=False) is None
    # The eighth is the least: of eleven the last three, the ninth to the eleventh, are none better.
    assert values_until_a_stop([*falling[:8], *[5.0] * 10]) == 11
    assert values_until_a_stop([5.0] * 20) == 9
    assert values_until_a_stop([5.0] * 20, stage="imitation") is None


def test_a_run_stops_when_its_minutes_are_over(tmp_path, capsys):
    callback = StopInTime(1e-9)
    callback.on_start(RunStart("run", "fleet", tmp_path, {}, "value", True, "decisions", 100, 0, 0, is_resumed=False))
    sum(range(100_000))
    assert callback.on_update(UpdateRecord("ppo", 1, 100)) is False
    callback.on_end(RunEnd("stopped", 1, None))
    assert re.search(r"stopped after 1e-09 CPU minutes", capsys.readouterr().out)
