"""The table at the end of a training: what was kept, where it was reached, and what became of the policy after it."""

import json
from pathlib import Path

import pytest

from meshwright.cli import run_command_line
from meshwright.cli.commands.training.run import kept_rows
from meshwright.packaged import config_path
from meshwright.training.hooks.callback import StopInTime
from meshwright.training.methods import Method, load_config
from tests.fleet_samples import write_small_fleet

FLEET_TRAINING = """method: fleet
name: tiny
benchmark: fleet.yaml
total_steps: 64
num_validation_seeds: 1
imitation: {rule: sjf, decisions: 1000, epochs: 1, minibatch: 200}
ppo: {num_envs: 4, rollout_steps: 16, minibatch: 64, epochs: 1}
network: {width: 8, rounds: 1}
"""


def rows(*values, **told):
    curve = [{"validation": value, "steps": 100 * number} for number, value in enumerate(values)]
    return kept_rows(curve, Method("", "", "", first="first"), "completion", "policy.pt", **told)


def test_the_best_is_told_with_its_place_and_its_file_whatever_comes_last():
    assert rows(2140, 2072, 2751) == [
        ["validation completion", "2072 at 100 decisions (kept as policy.pt)"],
        ["first", "2140"],
        ["of the last validation", "2751: 33 % worse than policy.pt, which is from before"],
    ]


def test_a_last_policy_that_is_kept_has_no_row_of_its_own():
    assert rows(2140, 2072) == [["validation completion", "2072 at 100 decisions (kept as policy.pt)"], ["first", "2140"]]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((2481, 43010), "43,010: far worse than policy.pt, after which the training collapsed"),
        ((2481, 2500), "2500"),
        ((0.0, 0.1), "0.1: worse than policy.pt, which is from before"),
    ],
)
def test_words_say_how_much_was_lost(values, message):
    assert rows(*values)[-1] == ["of the last validation", message]


def test_where_more_is_better_the_most_is_kept():
    assert rows(0.5, 0.9, 0.6, is_less_better=False)[0] == ["validation completion", "0.9 at 100 decisions (kept as policy.pt)"]
    assert rows(0.5, 0.9, 0.6, is_less_better=False)[-1][1] == "0.6: 33 % worse than policy.pt, which is from before"


def test_of_equals_the_first_is_kept_as_in_the_run_folder():
    assert rows(3, 2, 2)[0] == ["validation completion", "2 at 100 decisions (kept as policy.pt)"]


def test_the_command_tells_of_a_fleet_what_is_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_small_fleet(tmp_path)
    (tmp_path / "train.yaml").write_text(FLEET_TRAINING)
    assert run_command_line(["train", "train.yaml", "--out", "run"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("(to beat: ") == shown.count("  best ") == len(json.loads(Path("run/learning_curve.json").read_text()))
    assert "(kept as policy.pt)" in shown
    assert "of the network after the imitation" in shown


def test_a_run_that_its_minutes_end_states_the_decisions_of_its_checkpoint(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(StopInTime, "on_update", lambda clock, record: record.step == 0 or clock._in_time())
    words = ["--minutes", "1e-9", "--set", "num_validation_seeds=2", "--set", "validate_every_steps=65536"]
    assert run_command_line(["train", "preset:toy", *words, "--out", str(tmp_path / "run")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"decisions learned from {load_config(config_path('preset:toy')).ppo.update_steps:,} " in shown
    assert json.loads((tmp_path / "run" / "learning_curve.json").read_text())[-1]["steps"] == 0
