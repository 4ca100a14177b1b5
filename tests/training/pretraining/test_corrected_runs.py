"""Whole runs whose network has a linear scorer added to its worth: how it is tuned, heard, kept and refused."""

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from meshwright import settings
from meshwright.envs.benchmark import load_benchmark
from meshwright.envs.static_features import static_features
from meshwright.errors import ConfigError, PolicyError
from meshwright.models.corrected_trial import CorrectedTrial
from meshwright.models.saved import SavedNetwork
from meshwright.models.tensor_file import load_tensors
from meshwright.planners.linear import FEATURES, LinearWeights
from meshwright.training import callbacks
from meshwright.training.linear.search import LinearSearch
from meshwright.training.pretraining import stages, temporal_difference
from meshwright.training.pretraining.stages import check_pretraining
from meshwright.training.settings import TrainSettings
from meshwright.training.train import train
from meshwright.training.vec_env_wrappers import AfterstateFeatures, wrapper_of

from ..runs import VALUES, at_the_beginning_of_ppo, copied_at_each_update, curve, equal, go_on, same_run, scalars

LINEAR = "pretraining.linear={generations: 2, population: 4, elite: 2, num_episodes: 1, num_validation_seeds: 1}"


@pytest.fixture(scope="module", autouse=True)
def _short_preparation():
    """What decisions pay is learned from fewer of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(temporal_difference, "PREPARING_STEPS", 48)
        yield


@pytest.fixture(scope="module")
def with_prior(config):
    """A tiny run whose network has a linear scorer added to its worth."""
    changes = [
        VALUES,
        "pretraining.steps=256",
        LINEAR,
        "network={prior: true, after: [8, 4]}",
        "changes=[scenario.shape_slots=4]",
    ]
    return settings.load(TrainSettings, config, changes=changes)


@pytest.fixture(scope="module")
def watched(with_prior, tmp_path_factory):
    """Never interrupted, what a progress display was given, and a copy of the folder at each of its calls."""
    parent, shown = tmp_path_factory.mktemp("prior"), []
    folder, copies = parent / "run", parent / "copies"

    def progress(now):
        copied_at_each_update(folder, copies / str(now.tuned))(now)
        shown.append(now)

    train(with_prior, folder, progress=progress)
    return folder, shown, copies


@pytest.fixture(scope="module")
def whole_with_prior(watched):
    return watched[0]


def test_worth_with_the_linear_scorer_is_looked_at_before_ppo(whole_with_prior):
    rows = [(row["phase"], row["steps"]) for row in curve(whole_with_prior)]
    assert rows[2:5] == [("pretraining", 256), ("tuned", 256), ("ppo", 256)]


def test_the_tuning_tells_how_far_it_is_and_leaves_its_curve(watched):
    folder, told, _ = watched
    at = next(i for i, now in enumerate(told) if now.tuned < 1.0)
    assert [(now.steps, now.tuned) for now in told[at : at + 3]] == [(256, 0.0), (256, 0.5), (256, 1.0)]
    assert {now.tuned for now in told[:at] + told[at + 3 :]} == {1.0}
    rows = json.loads((folder / "tuning_curve.json").read_text())
    assert [row["generation"] for row in rows] == [0, 2]
    assert told[at + 2].best == min(row["validation_blocking_rate"] for row in rows)


def test_tensorboard_shows_how_the_tuning_goes_by_the_decisions_before_it(whole_with_prior):
    found = scalars(whole_with_prior, "pretraining")["tuned_blocking_rate/validation"]
    rows = json.loads((whole_with_prior / "tuning_curve.json").read_text())
    # 256 decisions before it, and a generation of four scorers with an episode of 30 decisions each.
    assert [step for step, _ in found] == [256, 256 + 2 * 4 * 30]
    assert [rate for _, rate in found] == [np.float32(row["validation_blocking_rate"]) for row in rows]


def test_the_network_before_ppo_hears_worth_alone(whole_with_prior):
    saved = SavedNetwork.load(whole_with_prior / "pretrained.pt")
    assert (float(saved.weights["prior_sharpness"]), float(saved.weights["log_sharpness"])) == (0.0, 0.0)
    assert saved.trained["phase"] == "pretraining"
    assert not saved.prior.weights.any()


@pytest.mark.parametrize(("tuned", "heard"), [(0.2, 1.0), (0.5, 0.0)])
def test_ppo_begins_with_the_linear_scorer_where_it_is_better(with_prior, tmp_path, monkeypatch, tuned, heard):
    rates = iter([0.5, 0.4, 0.4, tuned])  # three validations of values alone, one with the scorer added
    monkeypatch.setattr(callbacks, "blocking_rate", lambda *_: next(rates))
    model = at_the_beginning_of_ppo(monkeypatch, with_prior, tmp_path / "run")
    network, temperature = model.policy.network, with_prior.pretraining.temperature
    assert network.prior_sharpness.item() == pytest.approx(heard / temperature)
    assert network.log_sharpness.exp().item() == pytest.approx(1 / temperature)
    # It is tuned as what is added to the values that PPO begins with.
    benchmark = load_benchmark(with_prior.benchmark, changes=list(with_prior.changes))
    before = SavedNetwork.load(tmp_path / "run" / "pretrained.pt")
    scenario = benchmark.build()
    trial = CorrectedTrial(before.network(static_features(scenario)), scenario, benchmark.reward)
    search = LinearSearch(with_prior.pretraining.linear, trial, with_prior.seed, start={})
    search.run()
    assert wrapper_of(model, AfterstateFeatures).prior.weights.tolist() == search.best["weights"]


@pytest.mark.parametrize("generation", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, 2))])
def test_a_run_killed_while_its_scorer_is_tuned_goes_on_from_there(generation, with_prior, watched, whole_with_prior, tmp_path):
    folder = shutil.copytree(watched[2] / str(generation / 2) / "256", tmp_path / "run")
    told = []
    go_on(with_prior, folder, None, progress=told.append)
    assert told[0].tuned == min(1.0, (generation + 1) / 2)
    same_run(folder, whole_with_prior)


@pytest.mark.parametrize("steps", [pytest.param(n, marks=pytest.mark.slow) for n in (128, 192, 256 + 384)])
def test_a_killed_run_with_a_linear_scorer_comes_to_the_same(steps, with_prior, watched, whole_with_prior, tmp_path):
    folder = shutil.copytree(watched[2] / "1.0" / str(steps), tmp_path / "run")
    go_on(with_prior, folder, None)
    same_run(folder, whole_with_prior)


def test_a_killed_run_goes_on_with_its_scorer_also_where_that_was_no_better(with_prior, tmp_path, monkeypatch):
    """The best policy so far has none then."""

    def tuned(network, scenario, *_):
        return LinearWeights(np.linspace(-1, 1, len(FEATURES)), scenario.settings.placement_rules)

    monkeypatch.setattr(stages, "tuned_prior", tuned)
    with_prior = with_prior.model_copy(update={"total_steps": 320})
    told = iter([0.4] * 3 + [0.5] * 99)
    monkeypatch.setattr(callbacks, "blocking_rate", lambda *_: next(told))
    whole, killed = tmp_path / "whole", tmp_path / "copies" / str(256 + 192)
    train(with_prior, whole, progress=copied_at_each_update(whole, killed.parent))
    go_on(with_prior, killed, None)
    ours, theirs = (load_tensors(folder / "checkpoint.pt") for folder in (whole, killed))
    assert np.any(list(ours["prior"]["weights"].values()))
    assert not SavedNetwork.load(whole / "policy.pt").prior.weights.any()
    assert equal(ours["policy"], theirs["policy"])
    assert equal(ours["prior"], theirs["prior"])


def test_candidates_of_several_blocks_are_refused_beside_a_linear_scorer(with_prior):
    published = SimpleNamespace(settings=SimpleNamespace(placement_rules=("published", "first-fit")))
    with pytest.raises(PolicyError, match="can only be added to the worth of candidates of single blocks"):
        check_pretraining(with_prior, [published])


def test_cma_es_needs_no_elite(config):
    base = [VALUES, "network.after=[8, 4]", "changes=[scenario.shape_slots=4]", "network.prior=true"]
    settings.load(TrainSettings, config, changes=[*base, "pretraining.linear={population: 4}"])
    with pytest.raises(ConfigError, match="must be less than population"):
        settings.load(TrainSettings, config, changes=[*base, "pretraining.linear={population: 4, strategy: cross-entropy}"])


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ((LINEAR,), "network.prior, a linear scorer within the network, and pretraining.linear, its tuning, need each other"),
        (("network.prior=true",), "network.prior, a linear scorer within the network, and pretraining.linear, its tuning"),
        (
            (LINEAR, "network.prior=true", "network.without=[time-to-free, look-ahead, graph]"),
            "network.prior reads what network.without takes away: look-ahead, time-to-free",
        ),
        (
            (LINEAR, "network.prior=true", "mixed=[preset:toy]"),
            "tunes a linear scorer for one benchmark: mixed must be empty",
        ),
    ],
)
def test_a_linear_scorer_that_does_not_fit_is_refused(config, changes, told):
    base = [VALUES, "network.after=[8, 4]", "changes=[scenario.shape_slots=4]"]
    with pytest.raises(ConfigError) as caught:
        settings.load(TrainSettings, config, changes=[*base, *changes])
    assert told in str(caught.value)
