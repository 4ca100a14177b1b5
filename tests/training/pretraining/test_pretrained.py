"""Whole runs with a pretraining and mixed benchmarks: what they leave, the same numbers after being killed."""

import json
import shutil

import numpy as np
import pytest
import torch

from meshwright import cli, settings
from meshwright.errors import ConfigError
from meshwright.models.saved import SavedNetwork
from meshwright.training import averaging, callbacks
from meshwright.training.pretraining import temporal_difference
from meshwright.training.settings import TrainSettings
from meshwright.training.train import train

from ..runs import (
    VALUES,
    InterruptionError,
    at_the_beginning_of_ppo,
    copied_at_each_update,
    curve,
    go_on,
    interrupted_at,
    same_run,
    scalars,
    shown,
)


@pytest.fixture(scope="module", autouse=True)
def _short_preparation():
    """What decisions pay is learned from fewer of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(temporal_difference, "PREPARING_STEPS", 48)
        yield


@pytest.fixture(scope="module")
def full(config):
    """The tiny run with all that may come before and beside its benchmark."""
    busy = config.with_name("busy.yaml")
    changes = [
        VALUES,
        "network.after=[8, 4]",
        "changes=[scenario.shape_slots=4]",
        f"mixed=[{busy}]",
        "staggered=true",
        "ppo.averaging=0.25",
    ]
    return settings.load(TrainSettings, config, changes=changes)


@pytest.fixture(scope="module")
def watched(full, tmp_path_factory):
    """Never interrupted: the folder, what a progress display was given, and a copy of the folder at each update."""
    parent, shown = tmp_path_factory.mktemp("whole"), []
    folder, copies = parent / "run", parent / "copies"
    train(full, folder, progress=copied_at_each_update(folder, copies, shown.append))
    return folder, shown, copies


@pytest.fixture(scope="module")
def whole(watched):
    return watched[0]


# --- what a run leaves ---


def test_the_curve_tells_which_looks_were_before_ppo(whole):
    rows = [(row["phase"], row["steps"]) for row in curve(whole)]
    # An update every 64 decisions; looks after the first one and every 128 decisions, at the end, and as without it.
    assert rows[:5] == [("pretraining", steps) for steps in (64, 192, 320, 448, 512)]
    assert rows[5:] == [("ppo", 512 + steps) for steps in (0, 128, 256, 384, 512, 640, 768)]


def test_the_network_before_ppo_is_kept_and_so_is_the_best_of_all(whole):
    before, best = (SavedNetwork.load(whole / name) for name in ("pretrained.pt", "policy.pt"))
    rows = curve(whole)

    def first_best(rows):
        row = min(rows, key=lambda row: row["validation_blocking_rate"])
        return row["phase"], row["steps"], row["validation_blocking_rate"]

    def told(saved):
        return tuple(saved.trained[key] for key in ("phase", "steps", "validation_blocking_rate"))

    assert told(before) == first_best(rows[:5])
    assert told(best) == first_best(rows)
    assert (best.trained["rules"], best.trained["shape_slots"]) == (["first-fit", "best-fit"], 4)


def test_the_learning_rate_falls_to_the_end(whole):
    # From 1e-3 to 1e-4 over 768 decisions, told after each update of 64.
    wanted = [(64 * i, 1e-3 - 9e-4 * i / 12) for i in range(1, 13)]
    found = scalars(whole)["train/learning_rate"]
    assert [step for step, _ in found] == [step for step, _ in wanted]
    assert [rate for _, rate in found] == pytest.approx([rate for _, rate in wanted])


def test_an_update_beyond_the_end_does_not_turn_the_learning_rate_negative(chosen, scenario, tmp_path):
    train(chosen.model_copy(update={"total_steps": 72}), tmp_path / "run", scenario=scenario)
    # 128 decisions are played for 72: 1e-3 - 9e-4 x 64 / 72 = 2e-4, then 1e-4.
    assert [rate for _, rate in scalars(tmp_path / "run")["train/learning_rate"]] == pytest.approx([2e-4, 1e-4])


def test_tensorboard_shows_the_pretraining_as_a_run_of_its_own(whole):
    found, rows = scalars(whole, "pretraining"), curve(whole)[:5]
    assert found["blocking_rate/validation"] == [(row["steps"], np.float32(row["validation_blocking_rate"])) for row in rows]
    assert [step for step, _ in found["worth/loss"]] == list(range(64, 513, 64))
    assert all(loss > 0 for _, loss in found["worth/loss"])
    assert [step for step, _ in scalars(whole)["blocking_rate/validation"]] == list(range(0, 769, 128))


def test_progress_counts_the_decisions_of_both_parts(watched):
    shown = watched[1]
    steps = [now.steps for now in shown]
    assert steps == sorted(steps)
    assert (set(steps), steps[-1]) == (set(range(64, 1281, 64)), 1280)
    assert {now.total_steps for now in shown} == {1280}


# --- from the pretraining to PPO ---


def test_ppo_begins_with_the_best_network_and_the_centre_that_its_worth_is_told_by(full, tmp_path, monkeypatch):
    # The second of five looks is the best; the centre goes on moving for one more of them.
    rates = iter([0.5, 0.1, 0.3, 0.3, 0.3])
    monkeypatch.setattr(callbacks, "blocking_rate", lambda *_: next(rates))
    chosen = full.model_copy(update={"changes": (*full.changes, "reward.slack=0.0", "reward.accepted=3.0")})
    model = at_the_beginning_of_ppo(monkeypatch, chosen, tmp_path / "run")
    saved = SavedNetwork.load(tmp_path / "run" / "pretrained.pt")
    assert (saved.trained["steps"], saved.trained["validation_blocking_rate"]) == (192, 0.1)
    network, env = model.policy.network, model.get_env()
    for name, weight in network.state_dict().items():
        if name not in ("log_sharpness", "value_scale"):
            assert torch.equal(weight, saved.weights[name]), name
    assert network.log_sharpness.exp().item() == pytest.approx(1 / chosen.pretraining.temperature)
    assert network.value_scale.item() == pytest.approx(env.reward_scale) == chosen.pretraining.reward_scale
    candidate_value = network.candidate_value_of(
        network.laid_out({key: torch.as_tensor(value) for key, value in env.reset().items()})
    )
    pays = env.immediate_rewards()[candidate_value.sample, candidate_value.candidate]
    np.testing.assert_allclose(candidate_value.immediate_reward.detach().numpy(), pays, atol=1e-4)


def test_the_weights_that_are_looked_at_are_a_running_average_of_those_that_learn(chosen, scenario, tmp_path, monkeypatch):
    newest, kept = [], []

    class Watched(callbacks.WeightAverage):
        def _on_rollout_start(self):
            newest.append(averaging.network_of(self.model).graph_encoder.read.weight.detach().clone())
            super()._on_rollout_start()
            with torch.no_grad():
                assert torch.equal(self.network.graph_embeddings(), self.network._encode())
            kept.append(self.network.graph_encoder.read.weight.detach().clone())

    monkeypatch.setattr(callbacks, "WeightAverage", Watched)
    ppo = chosen.ppo.model_copy(update={"averaging": 0.25})
    wanted = chosen.model_copy(update={"ppo": ppo, "validate_every_steps": 64, "total_steps": 256})
    run = train(wanted, tmp_path / "run", scenario=scenario)
    expected = newest[0]
    for learned, average in zip(newest, kept, strict=True):
        expected = expected + 0.25 * (learned - expected)
        torch.testing.assert_close(average, expected)
    assert not torch.equal(newest[-1], kept[-1])
    best = SavedNetwork.load(run.policy)
    assert best.trained["steps"] == 64 * [torch.equal(best.weights["graph_encoder.read.weight"], one) for one in kept].index(True)


# --- the same numbers ---


# 64, 128: in the pretraining, before its first checkpoint. 192: at that. 256, 448: later. 512: at its end. 576: in PPO. 704: at
# a checkpoint. 832: after it. 896: at another checkpoint. 1152: long after.
MANY = [pytest.param(steps, marks=pytest.mark.slow) for steps in (64, 128, 192, 256, 448, 512, 576, 704, 896, 1152)]


@pytest.mark.parametrize("steps", [832, *MANY])
def test_a_run_goes_on_wherever_it_was_killed(whole, watched, full, tmp_path, steps):
    folder = shutil.copytree(watched[2] / str(steps), tmp_path / "run")
    assert (folder / "checkpoint.pt").exists() == (steps >= 192)
    torch.rand(3)
    go_on(full, folder, None)
    same_run(folder, whole)


# 384: to the next look of the pretraining; 1280: to the end.
@pytest.mark.parametrize(
    ("steps", "end"), [(128, 384), *(pytest.param(steps, 1280, marks=pytest.mark.slow) for steps in (128, 448, 512, 832))]
)
def test_a_run_with_a_checkpoint_at_every_update_goes_on_wherever_it_was_interrupted(whole, full, tmp_path, steps, end):
    folder, often = tmp_path / "run", full.model_copy(update={"checkpoint_every_steps": 64})
    with pytest.raises(InterruptionError):
        train(often, folder, progress=interrupted_at(steps))
    if end == 1280:
        go_on(often, folder, None)
        assert (curve(folder), shown(folder)) == (curve(whole), shown(whole))
        return
    with pytest.raises(InterruptionError):
        go_on(often, folder, None, progress=interrupted_at(end))
    looks, losses = curve(folder), scalars(folder, "pretraining")["worth/loss"]
    assert (looks[-1]["steps"], losses[-1][0]) == (320, end)
    assert looks == curve(whole)[: len(looks)]
    assert losses == scalars(whole, "pretraining")["worth/loss"][: len(losses)]


# --- the command line ---


def test_the_command_trains_with_the_changes_that_the_config_makes_to_its_benchmarks(config, tmp_path, capsys):
    told = ["changes=[scenario.shape_slots=4]", "network.after=[8, 4]", VALUES, "pretraining.steps=64", "total_steps=64"]
    arguments = [part for change in told for part in ("--set", change)]
    out, page = tmp_path / "run", tmp_path / "told.json"
    assert cli.run_command_line(["train", str(config), "--out", str(out), "--json", str(page), *arguments]) == 0
    assert SavedNetwork.load(out / "policy.pt").trained["shape_slots"] == 4
    assert [row["phase"] for row in json.loads(page.read_text())["learning_curve"]] == ["pretraining", "ppo", "ppo"]
    shown = capsys.readouterr().out
    assert "of the network at" in shown
    assert "untrained" not in shown


def test_a_wrong_benchmark_is_refused_before_anything_is_played(full, tmp_path):
    with pytest.raises(ConfigError, match="no such benchmark and no such file"):
        train(full.model_copy(update={"mixed": ("absent",)}), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []
