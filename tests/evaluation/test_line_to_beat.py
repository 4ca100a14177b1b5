"""The line to beat of a training run: the best rule on its validation episodes, and the verdict on what it kept."""

import io
import json
import re
from pathlib import Path

import pytest

from meshwright import settings
from meshwright.cli import run_command_line
from meshwright.evaluation.line_to_beat import LineToBeat, ValidationEpisodes, _raced
from meshwright.models.policy_files import decided, how_file_was_made
from meshwright.training.fleet.settings import FleetTrainSettings
from meshwright.training.graph.settings import GraphTrainSettings
from meshwright.training.hooks.callback import TrainingCallback
from meshwright.training.linear.settings import LinearSettings
from meshwright.training.methods import train
from meshwright.training.settings import load_train_settings

from ..fleet_samples import write_small_fleet

ROOT = Path(__file__).resolve().parents[2]
PLACING = {
    "updates": 2,
    "validate_every_updates": 2,
    "network": {"hidden": 8, "heads": 2, "rounds": 1},
    "ppo": {"num_envs": 16, "group": 4, "rollout_steps": 16, "minibatch": 64},
}
RUNS = {
    "linear": (
        LinearSettings,
        {"benchmark": "preset:toy", "generations": 1, "population": 10, "num_episodes": 1, "num_validation_seeds": 5},
    ),
    "fleet": (
        FleetTrainSettings,
        {
            "changes": ["policies=[]", "fleet.num_jobs=20", "fleet.num_warmup_jobs=0", "fleet.num_cooldown_jobs=0"],
            "num_validation_seeds": 5,
            "total_steps": 0,
            "imitation": None,
            "network": {"width": 8},
        },
    ),
    "operators": (
        GraphTrainSettings,
        {
            **PLACING,
            "benchmark": "preset:latency-tight",
            "method": "graph",
            "changes": ["placement.instances.num_ops=[8]", "placement.devices.num_devices=[3]", "num_validation_seeds=8"],
        },
    ),
    "graph": (
        GraphTrainSettings,
        {
            **PLACING,
            "benchmark": "preset:tasklets-64",
            "changes": ["tasklets.num_devices=[8]", "tasklets.num_stages=[2]", "num_validation_seeds=6"],
        },
    ),
}


def config(method, folder):
    if method == "ppo":
        return load_train_settings(
            ROOT / "configs" / "train" / "toy.yaml", ["total_steps=512", "num_validation_seeds=5", "log=[]"]
        )
    kind, choice = RUNS[method]
    small = {"benchmark": str(write_small_fleet(folder))} if method == "fleet" else {}
    return settings.build_settings(kind, {"method": method, "name": "tiny", **choice, **small})


@pytest.mark.parametrize("method", ["ppo", *RUNS])
def test_a_run_is_held_against_the_best_rule_on_its_own_validation_episodes(method, tmp_path):
    out = io.StringIO()
    beaten = LineToBeat(out)
    choice = config(method, tmp_path)
    run = train(choice, tmp_path / "run", callbacks=[beaten])
    data = json.loads((run.path / "line_to_beat.json").read_text())
    assert data["value"] == min(data["rules"].values()) == beaten.value
    assert f"by {data['rule']}" in out.getvalue()
    rows, verdict = json.loads(run.learning_curve.read_text()), data["verdict"]
    key = "validation_blocking_rate" if method in ("ppo", "linear") else "validation"
    values = beaten._validation.play(str(run.path), range(len(beaten.values)))
    best = min(row[key] for row in rows)
    if method in ("graph", "operators"):  # greedy groupings are valued in their best order, placements against HEFT's
        assert sum(values) / len(values) <= best + 1e-6
    else:
        assert sum(values) / len(values) == pytest.approx(best, rel=1e-6)
    difference = verdict["difference"]
    assert difference["mean"] == pytest.approx(verdict["policy_value"] - verdict["rule_value"])
    assert verdict["is_better"] == (difference["high"] < 0)
    spelled = data["rule"].removesuffix(" of one round")
    ends = "" if verdict["is_better"] else f"; {spelled} plays in its place"
    assert out.getvalue().endswith(f"{verdict['sentence']}{ends}\n")
    assert verdict["sentence"].startswith("better than" if verdict["is_better"] else "not better than")
    assert how_file_was_made(run.path).endswith(verdict["sentence"])
    stored = []

    class Looks(TrainingCallback):
        def on_start(self, start):
            stored.append(json.loads((start.folder / "line_to_beat.json").read_text()))

    train(choice, run.path, resume=True, callbacks=[LineToBeat(io.StringIO()), Looks()])  # nothing is left to train
    assert stored == [data] == [json.loads((run.path / "line_to_beat.json").read_text())]
    assert decided(str(run.policy), len)[0] == (str(run.policy) if verdict["is_better"] else spelled)


def test_the_best_rule_of_the_first_episodes_and_of_all_is_found_where_more_is_better():
    values = {"low": [1.0] * 6, "even": [2.0] * 6, "late": [1.9, 1.9, 1.9, 1.9, 9.0, 9.0]}
    result = ValidationEpisodes(list(values), 6, lambda rule, numbers: [values[rule][n] for n in numbers], is_less_better=False)
    rule, of_rule, means = _raced(result)
    assert (rule, of_rule) == ("late", values["late"])
    assert means["even"] == 2.0


@pytest.mark.parametrize("method", ["linear", "operators", pytest.param("graph", marks=pytest.mark.slow)])
def test_the_command_shows_the_line_to_beat_after_each_validation_in_lines_and_bars(method, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "300")
    (tmp_path / "run.yaml").write_text(json.dumps({"method": method, "name": "tiny", **RUNS[method][1]}))
    assert run_command_line(["train", str(tmp_path / "run.yaml"), "--out", str(tmp_path / "run")]) == 0
    line, shown = json.loads((tmp_path / "run" / "line_to_beat.json").read_text()), "".join(capsys.readouterr())
    curve = json.loads((tmp_path / "run" / "learning_curve.json").read_text())
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)  # a bar takes the lines, too, as on a terminal
    assert shown.count(f"  (to beat: {line['rule']} {line['value']:.4g})") == len(curve)
    assert f", to beat: {line['rule']} " in shown
