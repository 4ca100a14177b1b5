"""Callbacks: what they are told, in which order, and that a run that they stop goes on as if it had not been stopped."""

import dataclasses
import math

import pytest

import meshwright
from meshwright import settings
from meshwright.errors import ConfigError, PolicyError
from meshwright.training.hooks.callback import TrainingCallback, ValidationRecord
from meshwright.training.hooks.lines import line
from meshwright.training.hooks.names import log_names
from meshwright.training.linear.settings import LinearSettings
from meshwright.training.train import train
from tests.training.runs import VALUES, curve, go_on, same_run


class Heard(TrainingCallback):
    """Keeps all that it is told; stops where it is asked to."""

    def __init__(self, stop_at_update=math.inf, stop_at_validation=math.inf):
        self.told, self._stop_at_update, self._stop_at_validation = [], stop_at_update, stop_at_validation

    def on_start(self, start):
        self.told.append(start)

    def on_update(self, record):
        self.told.append(record)
        return record.step < self._stop_at_update

    def on_validation(self, record):
        self.told.append(record)
        return record.number < self._stop_at_validation

    def on_end(self, end):
        self.told.append(end)

    def of(self, kind):
        return [each for each in self.told if type(each).__name__ == kind]


@pytest.fixture(scope="module")
def whole(chosen, scenario, tmp_path_factory):
    heard, folder = Heard(), tmp_path_factory.mktemp("whole") / "run"
    train(chosen, folder, scenario=scenario, callbacks=[heard])
    return heard, folder


def test_validations_are_the_learning_curve_and_the_last_update_is_the_end(whole, chosen):
    heard, folder = whole
    start, *_, end = heard.told
    assert (start.method, start.measure, start.unit, start.total_steps) == ("ppo", "blocking_rate", "decisions", 768)
    told = [(each.step, each.value) for each in heard.of("ValidationRecord")]
    assert told == [(row["steps"], row["validation_blocking_rate"]) for row in curve(folder)]
    assert [each.number for each in heard.of("ValidationRecord")] == list(range(len(told)))
    for number, each in enumerate(heard.of("ValidationRecord")):
        assert each.best == min(value for _, value in told[: number + 1])
        assert each.is_best == all(each.value < value for _, value in told[:number])
    assert (end.ending, end.step, end.best) == ("done", 768, min(value for _, value in told))
    assert "train/loss" in heard.of("UpdateRecord")[-2].figures


@pytest.mark.parametrize(
    "stop",
    [
        pytest.param(Heard(stop_at_validation=2), marks=pytest.mark.slow, id="validation"),
        pytest.param(Heard(stop_at_update=320), id="update"),
    ],
)
def test_a_run_that_a_callback_stops_goes_on_as_if_it_had_not_been_stopped(stop, whole, chosen, scenario, tmp_path):
    train(chosen, tmp_path / "run", scenario=scenario, callbacks=[stop])
    assert stop.told[-1].ending == "stopped"
    assert stop.told[-1].step < 768
    again = Heard()
    go_on(chosen, tmp_path / "run", scenario, callbacks=[again])
    assert again.told[0].is_resumed
    assert again.told[0].num_validations == len(stop.of("ValidationRecord"))
    numbers = [each.number for each in (*stop.of("ValidationRecord"), *again.of("ValidationRecord"))]
    assert numbers == list(range(len(whole[0].of("ValidationRecord"))))
    same_run(tmp_path / "run", whole[1])


@pytest.mark.slow
def test_a_run_that_is_stopped_while_values_are_learned_goes_on_too(config, scenario, tmp_path):
    from meshwright.training.settings import load_train_settings

    changes = [VALUES, "changes=[scenario.shape_slots=8]", "network.after=[6, 4]", "total_steps=128"]
    chosen = load_train_settings(config, changes)
    train(chosen, tmp_path / "whole")
    stop = Heard(stop_at_update=256)
    train(chosen, tmp_path / "stopped", callbacks=[stop])
    assert stop.told[-1].ending == "stopped"
    go_on(chosen, tmp_path / "stopped", None)
    same_run(tmp_path / "stopped", tmp_path / "whole")


def test_an_error_ends_the_run_and_is_told_to_all(chosen, scenario, tmp_path):
    class Broken(TrainingCallback):
        def on_validation(self, record):
            raise ArithmeticError("of the user's own")

    heard = Heard()
    with pytest.raises(ArithmeticError, match="own"):
        train(chosen, tmp_path / "run", scenario=scenario, callbacks=[Broken(), heard])
    assert heard.told[-1].ending == "failed"


def test_what_is_no_callback_and_a_writer_that_is_unknown_are_refused_before_anything_is_written(chosen, scenario, tmp_path):
    with pytest.raises(PolicyError, match="callbacks: is no callback"):
        train(chosen, tmp_path / "run", scenario=scenario, callbacks=[Heard])
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match=r"--log: no such writer \(got 'tensorbord'\); did you mean 'tensorboard'"):
        log_names("csv,tensorbord")
    assert log_names("csv,stdout,csv") == ("csv", "stdout")
    assert log_names("none") == ()


def test_the_public_function_trains_by_the_method_that_the_config_names(config, tmp_path):
    chosen = LinearSettings(
        name="tiny", benchmark=str(config.with_name("tiny.yaml")), generations=2, population=4, elite=2, num_episodes=1,
        validate_every_generations=1, num_validation_seeds=2,
    )  # fmt: skip
    heard = Heard()
    made = meshwright.train(chosen, tmp_path / "run", callbacks=[heard])
    assert made.policy.name == "policy.json"
    assert [(each.step, each.unit) for each in heard.of("ValidationRecord")] == [(n, "generations") for n in range(3)]
    stop, again = Heard(stop_at_validation=1), Heard()
    meshwright.train(chosen, tmp_path / "other", callbacks=[stop])
    meshwright.train(chosen, tmp_path / "other", resume=True, callbacks=[again])
    assert [each.number for each in again.of("ValidationRecord")] == [2]
    assert curve(tmp_path / "other") == curve(made.path)
    path = tmp_path / "config.yaml"
    path.write_text(made.config.read_text())
    assert meshwright.train(str(path), tmp_path / "third").settings() == settings.load(LinearSettings, path)


RECORD = ValidationRecord(3, "ppo", 40_960, 409_600, "decisions", "blocking_rate", 0.08125, 0.07, False, 3725.0)


def test_a_line_tells_all_and_fits_into_eighty_columns():
    assert line(RECORD).split() == ["10", "%", "40,960", "decisions", "blocking", "rate", "0.08125", "best", "0.07", "1:02:05"]
    longest = dataclasses.replace(RECORD, measure="mean_completion_s", unit="generations", total_steps=100_000, value=-1234567.89)
    assert max(len(line(RECORD)), len(line(longest))) <= 80
