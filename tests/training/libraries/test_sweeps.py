"""Laws of sweeps: mistakes are reported before any training; a killed sweep resumes to the same trials."""

import importlib.util
import re
import time

import pytest

from meshwright.errors import ConfigError
from meshwright.training.methods import load_config

if importlib.util.find_spec("optuna") is None:
    pytest.skip("optuna is not installed (an extra)", allow_module_level=True)

from meshwright.training.libraries import sweeps
from meshwright.training.libraries.sweeps import load_sweep, study_of, sweep

from ...small_benchmarks import LINEAR

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
NEVER = float("inf")


@pytest.fixture
def path(config):
    config.with_name("linear.yaml").write_text(LINEAR.replace("benchmark.yaml", "tiny.yaml"))
    path = config.with_name("sweep.yaml")
    path.write_text(SWEEP)
    return path


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("parameters.spreed={low: 1, high: 2}", "parameters.spreed: unknown key"),
        ("parameters.population={low: 0, high: 3, whole: true}", "parameters.population: .*at least"),
        ("parameters.spread={low: 2, high: 1}", "low"),
        ("parameters.spread={low: 0, high: 1, log: true}", "low"),
        ("parameters.spread={}", "needs low and high, or choices"),
        ("config=preset:quickstrat", "no such training config .* did you mean 'preset:quickstart'"),
        ("trials=0", "trials: .*at least 1"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(path, change, said):
    with pytest.raises(ConfigError) as error:
        load_sweep(path, (change,))
    assert re.search(said, str(error.value)), str(error.value)
    assert "\n" not in str(error.value)


def alone(chosen, folder, after=lambda study: None):
    """The trials of a sweep in this process."""
    folder.mkdir(exist_ok=True)
    study = sweep(chosen, folder, 1, 0.0, after)  # none is begun, but those that were cut off are asked for again
    while sweeps._num_ended(study) < chosen.trials:
        sweeps._run_trial(chosen, folder, NEVER)
    return study


@pytest.mark.slow
def test_a_sweep_that_was_killed_goes_on_to_the_same_trials(path, tmp_path, monkeypatch):
    config = load_sweep(path)
    whole = alone(config, tmp_path / "whole")

    class KilledError(Exception):
        """In place of the end of the process."""

    train, begun = sweeps.train, []

    def dies(config, folder, **options):
        begun.append(folder)
        if len(begun) == 4:
            raise KilledError
        return train(config, folder, **options)

    monkeypatch.setattr(sweeps, "train", dies)
    with pytest.raises(KilledError):
        alone(config, tmp_path / "killed")
    monkeypatch.setattr(sweeps, "train", train)
    again = alone(config, tmp_path / "killed")
    states = [trial.state.name for trial in again.trials]
    assert states.count("FAIL") == 1
    stored = [(trial.params, trial.value, trial.state) for trial in again.trials if trial.state.name != "FAIL"]
    assert stored == [(trial.params, trial.value, trial.state) for trial in whole.trials]
    assert len(whole.trials) == 6


@pytest.mark.slow
def test_two_processes_train_all_trials_each_once_and_the_best_config_is_written(path, tmp_path):
    config, ended = load_sweep(path), []
    study = sweep(config, tmp_path, 2, NEVER, lambda study: ended.append(len(study.trials)))
    assert [trial.number for trial in study.trials] == list(range(6))
    assert len(ended) == 6
    assert {one.name for one in (tmp_path / "trials").iterdir()} == {f"{number:04}" for number in range(6)}
    made = load_config(tmp_path / "best.yaml")
    best = config.values_of(study.best_trial)
    assert (made.spread, made.population, made.strategy) == (best["spread"], best["population"], best["strategy"])


def test_no_trial_is_begun_once_the_time_is_over(path, tmp_path):
    config = load_sweep(path)
    sweeps._run_trial(config, tmp_path, time.monotonic() - 1.0)
    assert study_of(config, tmp_path).trials == []
