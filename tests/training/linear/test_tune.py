"""Tuning a linear scorer: its curve, what it keeps, on which episodes it learns, and what a config refuses."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from meshwright import settings
from meshwright.envs.job_partitioning import play_episode
from meshwright.envs.training_conditions import TrainingConditions
from meshwright.errors import ConfigError, PolicyError
from meshwright.models.policy_files import stage
from meshwright.planners.episode_player import LinearTrial
from meshwright.planners.linear import LinearScorer, LinearWeights
from meshwright.training.linear.settings import LinearSettings
from meshwright.training.methods import train

from ..runs import linear_config

SHIPPED = Path(__file__).parents[3] / "configs" / "train" / "linear.yaml"


def test_a_tuning_keeps_the_best_mean_and_meets_no_test_or_validation_episode(chosen, scenario, tmp_path, monkeypatch):
    met, rates = {}, LinearTrial.blocking_rates

    def noting(self, weights, rngs):
        met.setdefault(len(weights), set()).update(str(rng.bit_generator.state["state"]) for rng in rngs)
        return rates(self, weights, rngs)

    monkeypatch.setattr(LinearTrial, "blocking_rates", noting)
    linear = linear_config(chosen.benchmark, seed=3, generations=6, num_episodes=2, population=8)
    linear = linear.model_copy(update={"validate_every_generations": 2})
    run = train(linear, tmp_path / "run", scenario=scenario)
    curve, saved = json.loads(run.learning_curve.read_text()), LinearWeights.load(run.policy)
    # 8 sets of weights, 2 episodes of 30 jobs.
    assert [(row["generation"], row["steps"]) for row in curve] == [(0, 0), (2, 960), (4, 1920), (6, 2880)]
    assert curve[0]["training_blocking_rate"] is None
    assert all(0 <= row["training_blocking_rate"] <= 1 for row in curve[1:])
    best = min(curve, key=lambda row: row["validation_blocking_rate"])
    figures = {key: best[key] for key in ("generation", "validation_blocking_rate")}
    assert saved.trained == {
        "config": "tiny",
        "benchmark": linear.benchmark,
        "seed": 3,
        **figures,
        "stages": [stage("search", best["generation"], "generations", best["validation_blocking_rate"], of="31 weights")],
        "ground": [TrainingConditions.from_scenario("tiny", scenario).model_dump(mode="json")],
    }
    played = [play_episode(LinearScorer("", saved, scenario), scenario, seed).blocking_rate(slice(4, 30)) for seed in (100, 101)]
    assert np.mean(played) == best["validation_blocking_rate"]
    states = [str(np.random.default_rng(seed).bit_generator.state["state"]) for seed in range(200)]
    assert len(met[8]) == 6 * 2
    assert not met[8] & set(states)
    assert met[1] == set(states[100:102])


@pytest.mark.parametrize("strategy", ["cross-entropy", "cma-es"])
def test_on_the_toy_tuning_comes_near_the_optimum(tmp_path, strategy):
    # No job need be turned away there, yet every rule of thumb turns some away.
    more = {"generations": 12, "population": 24, "elite": 3, "num_episodes": 2, "num_validation_seeds": 10}
    curve = json.loads(train(linear_config("preset:toy", strategy=strategy, **more), tmp_path / "run").learning_curve.read_text())
    assert curve[0]["validation_blocking_rate"] > 0.08
    assert min(row["validation_blocking_rate"] for row in curve) < 0.02


def test_a_placement_rule_that_the_benchmark_lacks_is_refused_before_anything_is_written(chosen, scenario, tmp_path):
    with pytest.raises(PolicyError, match=r"placement_rules: .* \(got 'aligned'\); valid: best-fit, first-fit"):
        train(linear_config(chosen.benchmark, placement_rules=("aligned",)), tmp_path / "run", scenario=scenario)
    assert not (tmp_path / "run").exists()


def test_the_shipped_config_is_whole_and_names_every_key():
    written = yaml.safe_load(SHIPPED.read_text())
    loaded = settings.load(LinearSettings, SHIPPED)
    assert set(written) == set(loaded.model_dump())
    assert loaded.name == SHIPPED.stem


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("generation=5", "generation: unknown key (got 'generation'); did you mean 'generations'?"),
        ("elite=48", "elite (48) must be less than population (24)"),
        ("population=1", "population"),
        ("spread=0", "spread"),
        ("method=lineal", "method: not a valid choice (got 'lineal')"),
        ("placement_rules=[]", "placement_rules"),
        ("name=../away", "name"),
    ],
)
def test_a_wrong_config_is_told_in_one_line(change, message):
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        settings.load(LinearSettings, SHIPPED, changes=["strategy=cross-entropy", change])
    assert "\n" not in str(caught.value)
