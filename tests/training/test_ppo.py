"""Runs on `JobPartitioning-v0`: what is kept, what TensorBoard shows, and how PPO begins after values and a linear scorer."""

import json

import numpy as np
import pytest
import torch

from meshwright import cli, settings
from meshwright.envs.benchmark import load_benchmark
from meshwright.envs.static_features import static_features
from meshwright.envs.training_conditions import TrainingConditions
from meshwright.errors import ConfigError
from meshwright.models.policy_files import stage
from meshwright.models.saved import SavedNetwork
from meshwright.training import train as ppo
from meshwright.training.hooks import writers
from meshwright.training.linear.search import CorrectedTrial, ScorerTrial, scorer_search
from meshwright.training.methods import train
from meshwright.training.settings import TrainSettings
from meshwright.training.train import blocking_rate

from .runs import VALUES, WITH_PRIOR, KilledError, Recorder, curve, scalars

pytestmark = pytest.mark.usefixtures("short_preparation")


@pytest.fixture(scope="module")
def whole(chosen, scenario, tmp_path_factory):
    return train(chosen, tmp_path_factory.mktemp("whole") / "run", scenario=scenario).path


@pytest.fixture(scope="module")
def with_prior(config):
    """The config of a tiny run whose network has a linear scorer added to its values."""
    return settings.load(TrainSettings, config, changes=[*WITH_PRIOR, "total_steps=192"])


@pytest.fixture(scope="module")
def prepared(with_prior, tmp_path_factory):
    """A run with all that may come before PPO, and what its callbacks were given."""
    recorder = Recorder()
    return train(with_prior, tmp_path_factory.mktemp("prior") / "run", callbacks=[recorder]).path, recorder


def at_the_beginning_of_ppo(monkeypatch, chosen, folder):
    """The model as PPO takes it over."""
    models = []

    def stop(model, *_):
        models.append(model)
        raise KilledError

    monkeypatch.setattr(ppo, "learn_by_ppo", stop)
    with pytest.raises(KilledError):
        train(chosen, folder)
    return models[0]


# --- PPO alone ---


def test_the_kept_policy_is_the_best_one_and_reaches_its_figure(whole, scenario, chosen):
    rows, saved = curve(whole), SavedNetwork.load(whole / "policy.pt")
    # At the start, every 128 decisions, at the end; four environments: 30 decisions each end the first episodes at 120.
    assert [(row["phase"], row["steps"]) for row in rows] == [("ppo", steps) for steps in range(0, 769, 128)]
    assert rows[0]["training_blocking_rate"] is None
    assert all(0 <= row["training_blocking_rate"] <= 1 for row in rows[1:])
    best = min(rows, key=lambda row: row["validation_blocking_rate"])
    rate, steps = best["validation_blocking_rate"], best["steps"]
    assert saved.trained == {
        "config": "tiny",
        "benchmark": chosen.benchmark,
        "seed": 3,
        "phase": "ppo",
        "steps": steps,
        "validation_blocking_rate": rate,
        "stages": [stage("ppo", steps, "decisions", rate)] if steps else [],
        "rules": ["first-fit", "best-fit"],
        "shape_slots": 0,
        "arrivals_per_slot": 1.0,
        "slot_growth": 1.0,
        "load_windows": [],
        "deadline_windows": [],
        "work_windows": [],
        "ground": [TrainingConditions.from_scenario("tiny", scenario).model_dump(mode="json")],
    }
    assert blocking_rate(saved.network(static_features(scenario)), scenario, 2) == rate


def test_tensorboard_shows_each_figure_once_per_step(whole):
    result, rows = scalars(whole), curve(whole)
    rates = [(row["steps"], np.float32(row["validation_blocking_rate"])) for row in rows]
    assert result["blocking_rate/validation"] == rates
    # An update every 64 decisions: PPO's figures of each; episodes have ended from 120 decisions on.
    updates = list(range(64, 769, 64))
    for tag in ("train/loss", "train/entropy_loss", "train/approx_kl"):
        assert [step for step, _ in result[tag]] == updates
    assert [step for step, _ in result["rollout/ep_rew_mean"]] == updates[1:]
    # The learning rate falls from 1e-3 to 1e-4 over 768 decisions.
    rate = result["train/learning_rate"]
    assert [value for _, value in rate] == pytest.approx([1e-3 - 9e-4 * i / 12 for i in range(1, 13)])


def test_an_update_beyond_the_end_does_not_turn_the_learning_rate_negative(chosen, scenario, tmp_path):
    train(chosen.model_copy(update={"total_steps": 72}), tmp_path / "run", scenario=scenario)
    # 128 decisions are played for 72: 1e-3 - 9e-4 x 64 / 72 = 2e-4, then 1e-4.
    assert [rate for _, rate in scalars(tmp_path / "run")["train/learning_rate"]] == pytest.approx([2e-4, 1e-4])


def test_what_a_resumed_run_shows_is_read_after_what_it_continues(tmp_path, monkeypatch):
    clock = [1_800_000_000.0]
    monkeypatch.setattr(writers.time, "time", lambda: clock[0])
    monkeypatch.setattr(writers.time, "sleep", lambda seconds: clock.append(clock.pop() + seconds))
    # As a run would have left it that was begun in this very second by a process with a greater number.
    former = tmp_path / "events.out.tfevents.1800000000.zzz.99999999.0"
    former.touch()
    writers.TensorBoardWriter(tmp_path, 1).close()
    assert clock[0] == pytest.approx(1_800_000_001, abs=0.1)
    assert sorted(path.name for path in tmp_path.iterdir())[0] == former.name
    assert len([*tmp_path.iterdir()]) == 2


def test_the_weights_that_are_validated_are_a_running_average_of_those_that_learn(chosen, scenario, tmp_path, monkeypatch):
    newest, stored, average_in = [], [], ppo.average_in

    def watched(average, network, share):
        average_in(average, network, share)
        newest.append(network.graph_encoder.read.weight.detach().clone())
        stored.append(average.graph_encoder.read.weight.detach().clone())
        with torch.no_grad():
            assert torch.equal(average.graph_embeddings(), average._encode())

    monkeypatch.setattr(ppo, "average_in", watched)
    averaged = chosen.ppo.model_copy(update={"averaging": 0.25})
    expected = chosen.model_copy(update={"ppo": averaged, "validate_every_steps": 64, "total_steps": 256})
    best = SavedNetwork.load(train(expected, tmp_path / "run", scenario=scenario).policy)
    for number in range(1, 4):
        torch.testing.assert_close(stored[number], stored[number - 1] + 0.25 * (newest[number] - stored[number - 1]))
    assert not torch.equal(newest[-1], stored[-1])
    at = best.trained["steps"] // 64
    assert at == 0 or torch.equal(best.weights["graph_encoder.read.weight"], stored[at - 1])


def test_a_run_of_a_benchmark_that_has_changed_meanwhile_is_another(chosen, config, tmp_path):
    key, benchmark = ppo.PPOLearner(chosen).key, config.with_name("tiny.yaml")
    for change in (("slack: 0.5", "slack: 0.25"), ("num_jobs: 30", "num_jobs: 29"), ("max_degree: 4", "max_degree: 2")):
        other = tmp_path / "tiny.yaml"
        (tmp_path / "workload.yaml").write_text(config.with_name("workload.yaml").read_text())
        other.write_text(benchmark.read_text().replace(*change))
        assert other.read_text() != benchmark.read_text()
        moved = chosen.model_copy(update={"benchmark": str(other)})
        other_key = ppo.PPOLearner(moved).key
        other.write_text(benchmark.read_text())
        assert ppo.PPOLearner(moved).key != other_key
    assert ppo.PPOLearner(chosen.model_copy(update={"name": "other", "num_threads": 2})).key == key


# --- values and a linear scorer before PPO ---


def test_stages_before_ppo_are_validated_kept_and_shown(prepared):
    folder, recorder = prepared
    rows = [(row["phase"], row["steps"]) for row in curve(folder)]
    # Updates of 64 decisions; validations after the first, every 128 decisions, at the end of each stage.
    assert rows[:4] == [("pretraining", 64), ("pretraining", 192), ("pretraining", 256), ("tuned", 256)]
    assert rows[4:] == [("ppo", 256 + steps) for steps in (0, 128, 192)]

    def first_best(rows):
        row = min(rows, key=lambda row: row["validation_blocking_rate"])
        return row["phase"], row["steps"], row["validation_blocking_rate"]

    for name, known in (("pretrained.pt", curve(folder)[:3]), ("policy.pt", curve(folder))):
        trained = SavedNetwork.load(folder / name).trained
        assert tuple(trained[key] for key in ("phase", "steps", "validation_blocking_rate")) == first_best(known)
    before = SavedNetwork.load(folder / "pretrained.pt")
    assert (float(before.weights["prior_sharpness"]), float(before.weights["log_sharpness"])) == (0.0, 0.0)
    assert not before.prior.weights.any()
    tuned = json.loads((folder / "tuning_curve.json").read_text())
    assert [row["generation"] for row in tuned] == [0, 2]
    assert [(each.stage, each.share) for each in recorder.of("Stage")] == [("search", share) for share in (0.0, 0.5, 1.0)]
    assert recorder.of("Stage")[-1].best == min(row["validation_blocking_rate"] for row in tuned)
    shown = scalars(folder, "pretraining")
    rates = [(row["steps"], np.float32(row["validation_blocking_rate"])) for row in curve(folder)[:3]]
    assert shown["blocking_rate/validation"][:3] == rates
    assert [step for step, _ in shown["worth/loss"]] == list(range(64, 257, 64))
    # 256 decisions before it, and a generation of four scorers with an episode of 30 decisions each.
    assert [step for step, _ in shown["tuned_blocking_rate/validation"]] == [256, 256 + 2 * 4 * 30]


@pytest.mark.parametrize(("tuned", "heard"), [(0.2, 1.0), (0.5, 0.0)])
def test_ppo_begins_with_the_best_of_all_validations(with_prior, tmp_path, monkeypatch, tuned, heard):
    # Of three validations of values alone the second is the best, and the centre moves on; one more has the scorer added.
    rates = iter([0.5, 0.4, 0.45, tuned])
    monkeypatch.setattr(ppo, "blocking_rate", lambda *_: next(rates))
    changes = (*with_prior.changes, "reward.slack=0.0", "reward.accepted=3.0")
    choice = with_prior.model_copy(update={"changes": changes})
    model = at_the_beginning_of_ppo(monkeypatch, choice, tmp_path / "run")
    network, env, pretraining = model.policy.network, model.get_env(), choice.pretraining
    saved = SavedNetwork.load(tmp_path / "run" / "pretrained.pt")
    assert (saved.trained["steps"], saved.trained["validation_blocking_rate"]) == (192, 0.4)
    for name, weight in network.state_dict().items():
        if name not in ("log_sharpness", "value_scale", "prior_sharpness"):
            assert torch.equal(weight, saved.weights[name]), name
    assert network.prior_sharpness.item() == pytest.approx(heard / pretraining.temperature)
    assert network.log_sharpness.exp().item() == pytest.approx(1 / pretraining.temperature)
    assert network.value_scale.item() == pytest.approx(env.reward_scale) == pretraining.reward_scale
    seen = network.laid_out({key: torch.as_tensor(value) for key, value in env.reset().items()})
    value = network.candidate_value_of(seen)
    pays = env.immediate_rewards()[value.sample, value.candidate]
    np.testing.assert_allclose(value.immediate_reward.detach().numpy(), pays, atol=1e-4)
    # The scorer is tuned as what is added to the values that PPO begins with.
    benchmark = load_benchmark(choice.benchmark, changes=list(choice.changes))
    scenario = benchmark.build()
    plays = CorrectedTrial(saved.network(static_features(scenario)), scenario, benchmark.reward)
    search = scorer_search(ScorerTrial(plays, pretraining.linear, choice.seed), start={})
    search.run(lambda: None)
    assert env.venv.prior.weights.tolist() == search.best.tolist()


def test_the_command_trains_with_the_changes_that_the_config_makes_to_its_benchmarks(config, tmp_path, capsys):
    messages = ["changes=[scenario.shape_slots=4]", "network.after=[8, 4]", VALUES, "pretraining.steps=64", "total_steps=64"]
    arguments = [part for change in messages for part in ("--set", change)]
    out, page = tmp_path / "run", tmp_path / "told.json"
    assert cli.run_command_line(["train", str(config), "--out", str(out), "--json", str(page), *arguments]) == 0
    assert SavedNetwork.load(out / "policy.pt").trained["shape_slots"] == 4
    assert [row["phase"] for row in json.loads(page.read_text())["learning_curve"]] == ["pretraining", "ppo", "ppo"]
    shown = capsys.readouterr().out
    assert "of the network at" in shown
    assert "untrained" not in shown


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["network.prior=false"], "network.prior, a linear scorer within the network, and pretraining.linear, its tuning, need"),
        (
            ["network.without=[time-to-free, look-ahead, graph]"],
            "network.prior reads what network.without takes away: look-ahead, time-to-free",
        ),
        (["mixed=[preset:toy]"], "tunes a linear scorer for one benchmark: mixed must be empty"),
        (["pretraining.linear={population: 4, strategy: cross-entropy}"], "must be less than population"),
    ],
)
def test_a_linear_scorer_that_does_not_fit_is_refused(config, changes, message):
    with pytest.raises(ConfigError) as caught:
        settings.load(TrainSettings, config, changes=[*WITH_PRIOR, *changes])
    assert message in str(caught.value)
    settings.load(TrainSettings, config, changes=[*WITH_PRIOR, "pretraining.linear={population: 4}"])  # cma-es needs no elite
