"""Each writer, read back with its library's own reader (that a resumed run writes the same is a law of `test_runs`)."""

import dataclasses

import pytest

from meshwright.errors import ConfigError
from meshwright.settings import build_settings
from meshwright.training.hooks.callback import ValidationRecord
from meshwright.training.hooks.lines import line
from meshwright.training.hooks.names import RunSettings
from meshwright.training.methods import train

from ..runs import curve, linear_config, logged, scalars

RECORD = ValidationRecord(3, "ppo", 40_960, 409_600, "decisions", "blocking_rate", 0.08125, 0.07, False, 3725.0)


def test_every_writer_holds_each_validation_once(chosen, scenario, tmp_path, capsys):
    train(linear_config(chosen.benchmark, log=("csv", "tensorboard", "stdout")), tmp_path / "run", scenario=scenario)
    expected = [(row["generation"], row["validation_blocking_rate"]) for row in curve(tmp_path / "run")]
    rows = logged(tmp_path / "run")
    assert [(int(row["step"]), float(row["value"])) for row in rows] == expected
    assert [int(row["number"]) for row in rows] == [0, 1, 2, 3]
    assert float(rows[-1]["training_blocking_rate"]) >= 0
    shown = scalars(tmp_path / "run")["validation/blocking_rate"]
    assert [step for step, _ in shown] == [step for step, _ in expected]
    assert [value for _, value in shown] == pytest.approx([value for _, value in expected])
    lines = capsys.readouterr().out.splitlines()
    assert [one.split()[2] for one in lines] == ["0", "1", "2", "3"]
    assert all("blocking rate" in one and len(one) < 80 for one in lines)


def test_a_line_says_all_and_fits_into_eighty_columns():
    assert line(RECORD).split() == ["10", "%", "40,960", "decisions", "blocking", "rate", "0.08125", "best", "0.07", "1:02:05"]
    longest = dataclasses.replace(RECORD, measure="mean_completion_s", unit="generations", total_steps=100_000, value=-1234567.89)
    assert max(len(line(RECORD)), len(line(longest))) <= 80


def test_each_writer_is_taken_once_and_an_unknown_one_is_refused():
    assert RunSettings(name="a", benchmark="b", log=["csv", "stdout", "csv"]).log == ("csv", "stdout")
    with pytest.raises(ConfigError, match=r"log\.0: not a valid choice \(got 'tensorbord'\); did you mean 'tensorboard'"):
        build_settings(RunSettings, {"name": "a", "benchmark": "b", "log": ["tensorbord"]})
