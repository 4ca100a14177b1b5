"""Laws of sweeps: what is wrong is told before anything is trained; a sweep that was killed goes on to the same trials."""

import importlib.util
import re
import time

import pytest

from meshwright import settings
from meshwright.errors import CheckpointError, ConfigError
from meshwright.evaluation.plots.sweeps import history_svg, parallel_svg
from meshwright.evaluation.report import sweep_page
from meshwright.training.linear.settings import load_linear_settings
from meshwright.training.sweeps import study
from meshwright.training.sweeps.settings import load_sweep
from meshwright.training.sweeps.study import TrialSummary, best_of, importances, sweep

from ...evaluation.plots.texts import texts

needs_optuna = pytest.mark.skipif(importlib.util.find_spec("optuna") is None, reason="optuna is not installed (an extra)")

LINEAR = """
method: linear
name: tiny
benchmark: tiny.yaml
generations: 3
population: 4
elite: 2
num_episodes: 1
validate_every_generations: 1
num_validation_seeds: 2
"""
SWEEP = """
name: few
config: linear.yaml
trials: 6
num_startup_trials: 2
parameters:
  spread: {low: 0.01, high: 1.0, log: true}
  population: {low: 4, high: 8, whole: true}
  strategy: {choices: [cross-entropy, cma-es]}
"""


@pytest.fixture
def path(config, tmp_path):
    config.with_name("linear.yaml").write_text(LINEAR)
    path = config.with_name("sweep.yaml")
    path.write_text(SWEEP)
    return path


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("parameters.spreed={low: 1, high: 2}", "parameters: the training config has no such key .* did you mean 'spread'"),
        ("parameters.population={low: 0, high: 3, whole: true}", "parameters.population: .*at least"),
        ("parameters.spread={low: 2, high: 1}", "low must be less than high"),
        ("parameters.spread={low: 0, high: 1, log: true}", "low must be above 0"),
        ("parameters.spread={choices: [1, 1]}", "holds a choice twice"),
        ("parameters.spread={}", "needs low and high, or choices"),
        ("parameters.name={choices: [a, b]}", "no key that a sweep may change"),
        ("config=preset:quickstrat", "no such training config .* did you mean 'preset:quickstart'"),
        ("trials=0", "trials: .*at least 1"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(path, change, told):
    with pytest.raises(ConfigError) as error:
        load_sweep(path, (change,))
    assert re.search(told, str(error.value)), str(error.value)
    assert "\n" not in str(error.value)


@needs_optuna
@pytest.mark.slow
def test_a_sweep_that_was_killed_goes_on_to_the_same_trials(path, tmp_path, monkeypatch):
    chosen = load_sweep(path)
    whole = sweep(chosen, tmp_path / "whole")

    class KilledError(Exception):
        """Stands in for the end of the process."""

    train, begun = study.train, []

    def dies(config, folder, **options):
        begun.append(folder)
        if len(begun) == 4:
            raise KilledError
        return train(config, folder, **options)

    monkeypatch.setattr(study, "train", dies)
    with pytest.raises(KilledError):
        sweep(chosen, tmp_path / "killed")
    monkeypatch.setattr(study, "train", train)
    again = sweep(chosen, tmp_path / "killed", resume=True)
    assert [trial.state for trial in again].count("failed") == 1
    kept = [(trial.values, trial.value, trial.state) for trial in again if trial.state != "failed"]
    assert kept == [(trial.values, trial.value, trial.state) for trial in whole]
    assert len(whole) == 6
    winner = best_of(whole, is_less_better=True)
    made = load_linear_settings(tmp_path / "killed" / "best.yaml")
    assert (made.spread, made.population, made.strategy) == tuple(winner.values.values())
    with pytest.raises(CheckpointError, match="differs from the sweep"):
        sweep(chosen.model_copy(update={"seed": 1}), tmp_path / "killed", resume=True)
    with pytest.raises(CheckpointError, match="holds something already"):
        sweep(chosen, tmp_path / "killed")
    shares = importances(chosen, tmp_path / "whole")
    options = {"measure": "blocking_rate", "is_less_better": True}
    page = sweep_page.to_html(chosen, whole, shares, tmp_path / "whole", **options)
    assert page == sweep_page.to_html(chosen, whole, shares, tmp_path / "whole", **options)
    assert "http:" not in page
    assert "https:" not in page
    assert page.count("<tr") == 1 + 6


@needs_optuna
def test_no_trial_is_begun_once_the_time_is_over(path, tmp_path):
    assert sweep(load_sweep(path), tmp_path / "sweep", budget_s=0.0) == []
    study._in_a_process(load_sweep(path), tmp_path / "sweep", time.monotonic() - 1.0)
    assert study.ended(load_sweep(path), tmp_path / "sweep") == []


@needs_optuna
@pytest.mark.slow
def test_two_processes_train_all_trials_each_once_and_this_one_is_one_of_them(path, tmp_path, monkeypatch):
    train, here = study.train, []

    def noted(config, folder, **options):
        here.append(folder.name)
        return train(config, folder, **options)

    monkeypatch.setattr(study, "train", noted)
    told = []
    trials = sweep(load_sweep(path), tmp_path / "sweep", jobs=2, told=lambda trial, ended: told.append(trial.number))
    assert [trial.number for trial in trials] == sorted(told) == list(range(6))
    assert 0 < len(here) <= 6
    assert {each.name for each in (tmp_path / "sweep" / "trials").iterdir()} == {f"{number:04}" for number in range(6)}


def test_the_page_escapes_what_it_is_given_and_tells_what_is_missing(path, tmp_path):
    chosen = settings.load(study.SweepSettings, path, changes=["parameters={'<b>': {choices: ['<i>', 1]}}"])
    trials = [TrialSummary(0, "failed", {"<b>": "<i>"}, None, {}, None, "no <u> way")]
    page = sweep_page.to_html(chosen, trials, {}, tmp_path, measure="blocking_rate", is_less_better=True)
    assert "<i>" not in page
    assert "<u>" not in page
    assert "No trial was trained to its end" in page


def test_axes_of_whole_numbers_name_what_was_tried_and_none_is_a_part_of_a_trial():
    rows = [({"width": width}, 0.1 * width) for width in (8, 16, 32)]
    named = texts(parallel_svg(["width"], rows, [False], "blocking_rate"))
    assert {"8", "16", "32"} <= set(named)
    assert "20" not in named  # half way, and tried by none
    close = texts(parallel_svg(["width"], [({"width": width}, 0.0) for width in (1, 2, 1000)], [False], "blocking_rate"))
    assert "2" not in close  # would stand on the 1
    drawn = texts(history_svg([(0, "complete", 0.25), (1, "pruned", 0.75)], [(0, 0.25)], "blocking_rate"))
    assert {"0", "1"} <= set(drawn)
    assert "0.0" not in drawn[: drawn.index("trial")]
    assert "0.5" not in drawn[: drawn.index("trial")]


def test_the_best_trial_is_one_that_was_trained_to_its_end_and_the_first_of_equals():
    trials = [
        TrialSummary(number, state, {}, value, {}, 1.0, None)
        for number, (state, value) in enumerate([("pruned", 0.1), ("complete", 0.3), ("complete", 0.2), ("complete", 0.2)])
    ]
    assert best_of(trials, is_less_better=True).number == 2
    assert best_of(trials, is_less_better=False).number == 1
    assert best_of(trials[:1], is_less_better=True) is None
