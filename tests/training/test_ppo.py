"""Runs on `JobPartitioning-v0`: what is kept, what TensorBoard shows, and how PPO begins with searched scores."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from meshwright import settings
from meshwright.envs.static_features import static_features
from meshwright.envs.training_conditions import TrainingConditions
from meshwright.errors import PolicyError
from meshwright.models.policy_files import stage
from meshwright.models.saved import SavedNetwork
from meshwright.training import train as ppo
from meshwright.training.hooks import writers
from meshwright.training.linear.search import ScorerTrial, scorer_search
from meshwright.training.methods import train
from meshwright.training.settings import TrainSettings
from meshwright.training.train import blocking_rate

from .runs import WITH_PRIOR, KilledError, Recorder, curve, scalars


@pytest.fixture(scope="module")
def whole(chosen, scenario, tmp_path_factory):
    return train(chosen, tmp_path_factory.mktemp("whole") / "run", scenario=scenario).path


@pytest.fixture(scope="module")
def with_prior(config):
    """The config of a tiny run whose network begins with searched scores."""
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
    assert [(row["stage"], row["steps"]) for row in rows] == [("ppo", steps) for steps in range(0, 769, 128)]
    assert rows[0]["training_blocking_rate"] is None
    assert all(0 <= row["training_blocking_rate"] <= 1 for row in rows[1:])
    best = min(rows, key=lambda row: row["validation_blocking_rate"])
    rate, steps = best["validation_blocking_rate"], best["steps"]
    assert saved.trained == {
        "config": "tiny",
        "benchmark": chosen.benchmark,
        "seed": 3,
        "stage": "ppo",
        "steps": steps,
        "validation_blocking_rate": rate,
        "stages": [stage("ppo", steps, "decisions", rate)] if steps else [],
        "rules": ["first-fit", "best-fit"],
        "arrivals_per_slot": 1.0,
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


# --- searched scores before PPO ---


def test_a_search_is_validated_kept_and_shown(prepared, scenario):
    folder, recorder = prepared
    rows = [(row["stage"], row["steps"]) for row in curve(folder)]
    assert rows == [("search", 0), *(("ppo", steps) for steps in (128, 192))]
    stages = recorder.of("Stage")
    assert [(each.stage, each.share) for each in stages] == [("search", share) for share in (0.0, 0.5, 1.0)]
    before, saved = SavedNetwork.load(folder / "searched.pt"), SavedNetwork.load(folder / "policy.pt")
    assert before.prior.trained["validation_blocking_rate"] == stages[-1].best
    assert before.prior.weights.tolist() == saved.prior.weights.tolist()
    best = min(curve(folder), key=lambda row: row["validation_blocking_rate"])
    assert (saved.trained["stage"], saved.trained["steps"]) == (best["stage"], best["steps"])
    assert saved.trained["stages"][0] == stage(
        "search", before.prior.trained["generation"], "generations", curve(folder)[0]["validation_blocking_rate"], of="31 weights"
    )


def test_ppo_begins_with_the_searched_scores_and_no_correction(with_prior, tmp_path, monkeypatch, scenario):
    model = at_the_beginning_of_ppo(monkeypatch, with_prior, tmp_path / "run")
    network, env = model.policy.network, model.get_env()
    seen = {key: torch.as_tensor(value) for key, value in env.reset().items()}
    offered = seen["action_mask"] > 0
    scores = network(seen)[0][offered]
    torch.testing.assert_close(scores, with_prior.search.sharpness * seen["candidate_prior"][offered])
    trial = ScorerTrial(ppo._trial(scenario), with_prior.search, with_prior.seed)
    search = scorer_search(trial)
    search.run(lambda: None)
    assert env.prior.weights.tolist() == search.best.tolist()
    played = blocking_rate(network, scenario, 1, env.prior)
    assert played == pytest.approx(search.best_of_all[1])


def test_candidates_of_several_blocks_have_no_searched_scores():
    published = SimpleNamespace(settings=SimpleNamespace(placement_rules=("first-fit", "published")))
    with pytest.raises(PolicyError, match="leave this rule out, or give search=null"):
        ppo._trial(published)
