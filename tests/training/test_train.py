"""Runs: the same numbers again, and after being killed; what a resumed run refuses; what TensorBoard shows."""

import json
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch

from meshwright import cli, settings
from meshwright.envs.ground import Ground
from meshwright.errors import CheckpointError
from meshwright.models.policy_files import stage
from meshwright.models.saved import SavedNetwork
from meshwright.models.tensor_file import load_tensors, save_tensors
from meshwright.training import checkpoint
from meshwright.training.hooks import tensorboard
from meshwright.training.settings import TrainSettings
from meshwright.training.train import train
from meshwright.training.validation import blocking_rate

from .runs import (
    InterruptionError,
    begun_earlier,
    copied_at_each_update,
    curve,
    equal,
    go_on,
    interrupted_at,
    same_run,
    scalars,
)


@pytest.fixture(scope="module")
def watched(chosen, scenario, tmp_path_factory):
    """The tiny run, never interrupted, what a progress display was given, and a copy of the folder at each update."""
    parent, shown = tmp_path_factory.mktemp("whole"), []
    progress = copied_at_each_update(parent / "run", parent / "copies", shown.append)
    train(chosen, parent / "run", scenario=scenario, command=["test"], progress=progress)
    return parent / "run", shown, parent / "copies"


@pytest.fixture(scope="module")
def whole(watched):
    return watched[0]


@pytest.fixture
def killed_at(watched, tmp_path):
    """Makes the folder of a tiny run that was killed after so many decisions."""
    return lambda steps: shutil.copytree(watched[2] / str(steps), tmp_path / "run")


@pytest.fixture
def interrupted(killed_at):
    """The tiny run, interrupted after 256 decisions, at whose checkpoint there were 192."""
    return killed_at(256)


# --- what a run leaves ---


def test_a_run_leaves_what_the_run_folder_promises(whole):
    assert {path.name for path in whole.iterdir()} == {
        "config.yaml",
        "command.txt",
        "versions.json",
        "checkpoint.pt",
        "policy.pt",
        "learning_curve.json",
        "tensorboard",
    }


def test_the_curve_has_a_row_per_look(whole):
    rows = json.loads((whole / "learning_curve.json").read_text())
    # At the start, every 128 decisions, at the end.
    assert [row["steps"] for row in rows] == [0, 128, 256, 384, 512, 640, 768]
    assert {row["phase"] for row in rows} == {"ppo"}
    assert rows[0]["training_blocking_rate"] is None
    # Four environments: 30 decisions each end the first episodes at 120.
    assert all(0 <= row["training_blocking_rate"] <= 1 for row in rows[1:])
    assert all(0 <= row["validation_blocking_rate"] <= 1 for row in rows)
    assert [row["elapsed_s"] for row in rows] == sorted(row["elapsed_s"] for row in rows)


def test_the_kept_policy_is_the_best_one_and_reaches_its_figure(whole, scenario, chosen):
    from meshwright.envs.static_features import static_features

    saved = SavedNetwork.load(whole / "policy.pt")
    best = min(curve(whole), key=lambda row: row["validation_blocking_rate"])
    assert saved.trained == {
        "config": "tiny",
        "benchmark": chosen.benchmark,
        "seed": 3,
        "phase": "ppo",
        "steps": best["steps"],
        "validation_blocking_rate": best["validation_blocking_rate"],
        "stages": [stage("ppo", best["steps"], "decisions", best["validation_blocking_rate"])] if best["steps"] else [],
        "rules": ["first-fit", "best-fit"],
        "shape_slots": 0,
        "arrivals_per_slot": 1.0,
        "slot_growth": 1.0,
        "load_windows": [],
        "deadline_windows": [],
        "work_windows": [],
        "ground": [Ground.of("tiny", scenario).model_dump(mode="json")],
    }
    network = saved.network(static_features(scenario))
    assert blocking_rate(network, scenario, 2) == best["validation_blocking_rate"]


def test_tensorboard_shows_each_figure_once_per_step(whole):
    found = scalars(whole)
    rows = curve(whole)
    assert [step for step, _ in found["blocking_rate/validation"]] == [row["steps"] for row in rows]
    assert [value for _, value in found["blocking_rate/validation"]] == [
        np.float32(row["validation_blocking_rate"]) for row in rows
    ]
    # An update every 64 decisions: PPO's figures of each.
    updates = list(range(64, 769, 64))
    for tag in ("train/loss", "train/entropy_loss", "train/approx_kl"):
        assert [step for step, _ in found[tag]] == updates
    # Episodes have ended from 120 decisions on.
    assert [step for step, _ in found["rollout/ep_rew_mean"]] == updates[1:]


def test_progress_is_told_from_beginning_to_end(watched):
    _, shown, _ = watched
    assert [now.steps for now in shown] == list(range(0, 769, 64))
    assert {now.total_steps for now in shown} == {768}
    assert shown[-1].best == min(now.best for now in shown)


# --- the same numbers ---


def test_another_seed_gives_another_run(interrupted, chosen, scenario, tmp_path):
    with pytest.raises(InterruptionError):
        train(chosen.model_copy(update={"seed": 4}), tmp_path / "other", scenario=scenario, progress=interrupted_at(192))
    ours, theirs = (load_tensors(folder / "checkpoint.pt") for folder in (tmp_path / "other", interrupted))
    assert not equal(ours["policy"], theirs["policy"])
    assert not equal(ours["episodes"], theirs["episodes"])


# 64: before the first checkpoint. 192: at one that is no look. 384: at one that is. 448: later. 768: at the very end.
@pytest.mark.parametrize("steps", [pytest.param(n, marks=pytest.mark.slow) for n in (0, 64, 192, 384, 448, 768)])
def test_a_run_goes_on_wherever_it_was_killed(whole, chosen, scenario, killed_at, steps):
    folder = killed_at(steps)
    assert (folder / "checkpoint.pt").exists() == (steps >= 192)
    go_on(chosen, folder, scenario)
    same_run(folder, whole)


def test_a_run_goes_on_from_its_start_and_after_another_interruption(whole, chosen, scenario, killed_at):
    """Killed before its first checkpoint, it plays everything again, whatever was drawn before."""
    folder = killed_at(64)
    assert not (folder / "checkpoint.pt").exists()
    torch.rand(3)
    np.random.default_rng().random()
    with pytest.raises(InterruptionError):
        go_on(chosen, folder, scenario, progress=interrupted_at(576))
    begun_earlier(folder)
    assert cli.run_command_line(["train", "--resume", str(folder)]) == 0
    same_run(folder, whole)


def test_resuming_a_run_that_has_ended_changes_no_figure(whole, chosen, scenario, tmp_path):
    folder = shutil.copytree(whole, tmp_path / "run")
    go_on(chosen, folder, scenario)
    same_run(folder, whole)


# Killed in PPO, beyond its first checkpoint, or in the pretraining.
IN_PRETRAINING = (
    "pretraining={kind: values, steps: 512, rollout_steps: 16, minibatch: 32, epochs: 1}",
    "network.after=[8, 4]",
    "changes=[scenario.shape_slots=4]",
)
KILLED = """
import os, signal, sys
from pathlib import Path
from meshwright.training.settings import load_train_settings
from meshwright.training.train import train

def kill(now):
    if now.steps >= 256:
        os.kill(os.getpid(), signal.SIGKILL)

train(load_train_settings(sys.argv[1], sys.argv[3:]), Path(sys.argv[2]), progress=kill)
"""


@pytest.mark.slow
@pytest.mark.parametrize("changes", [(), IN_PRETRAINING], ids=["in PPO", "in the pretraining"])
def test_a_process_killed_without_warning_goes_on_to_the_same_numbers(config, tmp_path, whole, changes):
    killed, straight = tmp_path / "killed", whole
    process = subprocess.run([sys.executable, "-c", KILLED, str(config), str(killed), *changes], check=False)
    assert process.returncode == -signal.SIGKILL
    reached = load_tensors(killed / "checkpoint.pt")
    assert (reached["pretraining"] is not None) == bool(changes)
    assert changes or reached["num_timesteps"] == 192
    assert cli.run_command_line(["train", "--resume", str(killed)]) == 0
    if changes:
        straight = tmp_path / "straight"
        train(settings.load(TrainSettings, config, changes=changes), straight)
    same_run(killed, straight)


def test_what_a_resumed_run_shows_is_read_after_what_it_goes_on_from(tmp_path, monkeypatch):
    clock = [1_800_000_000.0]
    monkeypatch.setattr(tensorboard.time, "time", lambda: clock[0])
    monkeypatch.setattr(tensorboard.time, "sleep", lambda seconds: clock.append(clock.pop() + seconds))
    # As a run would have left it that was begun in this very second by a process with a greater number.
    former = tmp_path / "events.out.tfevents.1800000000.zzz.99999999.0"
    former.touch()
    tensorboard.TensorBoardWriter(tmp_path, 1).close()
    assert clock[0] == pytest.approx(1_800_000_001, abs=0.1)
    assert sorted(path.name for path in tmp_path.iterdir())[0] == former.name
    assert len([*tmp_path.iterdir()]) == 2


# --- what a resumed run refuses ---


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_a_truncated_checkpoint_is_told_and_nothing_changes(chosen, scenario, interrupted, content_of, capsys, share):
    folder = interrupted
    checkpoint = folder / "checkpoint.pt"
    content = checkpoint.read_bytes()
    checkpoint.write_bytes(content[: int(share * len(content))])
    before = content_of(folder)
    with pytest.raises(CheckpointError, match=r"checkpoint\.pt: is truncated or not a file of tensors"):
        train(chosen, folder, scenario=scenario, resume=True)
    assert cli.run_command_line(["train", "--resume", str(folder)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if "error" in line] == [
        f"meshwright: error: {checkpoint}: is truncated or not a file of tensors"
    ]
    assert content_of(folder) == before


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"format_version": 3}, "is no checkpoint of version 9"),
        ({"key": "0" * 32}, "belongs to another config, workload or cluster"),
        (None, "is no checkpoint of version 9"),
    ],
)
def test_a_checkpoint_of_another_kind_is_told(chosen, scenario, interrupted, content_of, change, told):
    folder = interrupted
    data = load_tensors(folder / "checkpoint.pt")
    if change is None:
        del data["recent_episodes"]
    data = {key: value for key, value in (data | (change or {})).items() if key != checkpoint.DIGEST}
    save_tensors(folder / "checkpoint.pt", data | {checkpoint.DIGEST: checkpoint.digest_of(data)})
    before = content_of(folder)
    with pytest.raises(CheckpointError, match=told):
        train(chosen, folder, scenario=scenario, resume=True)
    assert content_of(folder) == before


def test_a_checkpoint_that_is_not_as_it_was_written_is_told(chosen, scenario, interrupted, content_of):
    """One number of the state of episodes, one weight, one generator, what decides where PPO goes on."""
    folder = interrupted
    written = checkpoint.load(folder / "checkpoint.pt")
    digest = checkpoint.digest_of(written)
    name, episodes = next((name, array) for name, array in written["episodes"].items() if array.numel())
    weight = next(iter(written["policy"]))
    other = {"policy": written["policy"] | {weight: written["policy"][weight] + 1e-3}}
    for change in (
        other,
        {"episodes": written["episodes"] | {name: ~episodes if episodes.dtype == torch.bool else episodes + 1}},
        {"torch_generator": written["torch_generator"].flip(0)},
        {"num_timesteps": 0},
    ):
        save_tensors(folder / "checkpoint.pt", written | change | {checkpoint.DIGEST: digest})
        before = content_of(folder)
        with pytest.raises(CheckpointError, match="is damaged: it is not as it was written"):
            train(chosen, folder, scenario=scenario, resume=True)
        assert content_of(folder) == before


@pytest.mark.parametrize("change", [{"seed": 9}, {"total_steps": 1000}, {"num_threads": 2}, {"name": "other"}])
def test_another_config_is_refused_by_its_first_field(chosen, scenario, interrupted, content_of, change):
    folder = interrupted
    before = content_of(folder)
    (field,) = change
    with pytest.raises(CheckpointError, match=f"{field}: differs from the config that the run was begun with"):
        train(chosen.model_copy(update=change), folder, scenario=scenario, resume=True)
    assert content_of(folder) == before


@pytest.mark.parametrize("change", ["reward.slack=0.25", "scenario.num_jobs=29", "scenario.max_degree=2"])
def test_a_benchmark_that_has_changed_meanwhile_is_refused(chosen, config, interrupted, change):
    folder = interrupted
    key, _, value = change.partition("=")
    benchmark = config.with_name("tiny.yaml")
    old = benchmark.read_text()
    name, shown_value = key.split(".")[1], {"slack": "0.5", "num_jobs": "30", "max_degree": "4"}[key.split(".")[1]]
    try:
        benchmark.write_text(old.replace(f"{name}: {shown_value}", f"{name}: {value}"))
        assert benchmark.read_text() != old
        with pytest.raises(CheckpointError, match="belongs to another config, workload or cluster"):
            train(chosen, folder, resume=True)
    finally:
        benchmark.write_text(old)


def test_a_new_run_refuses_a_folder_that_holds_one(whole, chosen, scenario, content_of):
    before = content_of(whole)
    with pytest.raises(CheckpointError, match="exists already"):
        train(chosen, whole, scenario=scenario)
    assert content_of(whole) == before


def test_overwriting_begins_anew(chosen, scenario, interrupted):
    assert (interrupted / "checkpoint.pt").exists()
    with pytest.raises(InterruptionError):
        train(chosen, interrupted, scenario=scenario, overwrite=True, progress=interrupted_at(0))
    # nothing is left from which numbers could be taken
    assert {path.name for path in interrupted.iterdir()} == {
        "config.yaml",
        "command.txt",
        "versions.json",
        "learning_curve.json",
        "tensorboard",
    }
    assert [row["steps"] for row in curve(interrupted)] == [0]


def test_resuming_needs_a_run_folder(chosen, scenario, tmp_path):
    with pytest.raises(CheckpointError, match="is no run folder"):
        train(chosen, tmp_path / "absent", scenario=scenario, resume=True)
    assert list(tmp_path.iterdir()) == []
