"""Each writer, read back with its library's own reader, also after a run was killed and resumed."""

import csv
import io
import json
import shutil

import pytest

from meshwright.training.hooks.callback import TrainingCallback
from meshwright.training.linear.settings import LinearSettings
from meshwright.training.linear.tune import tune

NAMES = ("csv", "tensorboard", "stdout")


class KilledError(Exception):
    """Stands in for the end of the process."""


@pytest.fixture(scope="module")
def tuned(config):
    """The config of a run of four validations that takes a tenth of a second."""
    return LinearSettings(
        name="tiny", benchmark=str(config.with_name("tiny.yaml")), generations=3, population=4, elite=2, num_episodes=1,
        validate_every_generations=1, num_validation_seeds=2, log=NAMES,
    )  # fmt: skip


def killed(chosen, scenario, folder, copy, at=2):
    """A run as it lies on the disk when a validation has been written and its checkpoint is that of the one before."""

    class Kills(TrainingCallback):
        checkpoint = ""

        def on_validation(self, record):
            if record.number == at:
                shutil.copytree(folder, copy)
                (copy / "checkpoint.json").write_text(self.checkpoint)
                raise KilledError
            self.checkpoint = (folder / "checkpoint.json").read_text()

    with pytest.raises(KilledError):
        tune(chosen, folder, scenario=scenario, callbacks=[Kills()])


def expected(folder):
    return [
        (row["generation"], row["validation_blocking_rate"]) for row in json.loads((folder / "learning_curve.json").read_text())
    ]


@pytest.fixture(scope="module")
def resumed(tuned, scenario, tmp_path_factory):
    """A run that was killed and went on, and what standard output then had."""
    folder = tmp_path_factory.mktemp("resumed")
    killed(tuned, scenario, folder / "first", folder / "run")
    tune(tuned, folder / "run", scenario=scenario, resume=True)
    return folder / "run"


def test_the_csv_holds_each_validation_once(resumed):
    rows = list(csv.DictReader(io.StringIO((resumed / "log.csv").read_text())))
    assert [(int(row["step"]), float(row["value"])) for row in rows] == expected(resumed)
    assert [int(row["number"]) for row in rows] == [0, 1, 2, 3]
    assert float(rows[-1]["training_blocking_rate"]) >= 0


def test_tensorboard_shows_each_validation_once(resumed):
    from tests.training.runs import scalars

    shown = scalars(resumed)["validation/blocking_rate"]
    assert [step for step, _ in shown] == [step for step, _ in expected(resumed)]
    assert [value for _, value in shown] == pytest.approx([value for _, value in expected(resumed)])


def test_lines_tell_each_validation(tuned, scenario, tmp_path, capsys):
    tune(tuned, tmp_path / "run", scenario=scenario)
    lines = capsys.readouterr().out.splitlines()
    assert [one.split()[2] for one in lines] == ["0", "1", "2", "3"]
    assert all("blocking rate" in one and len(one) < 80 for one in lines)
