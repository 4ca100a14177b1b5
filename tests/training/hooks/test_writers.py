"""Each writer, read back with its library's own reader, also after a run was killed and resumed."""

import csv
import importlib.util
import io
import json
import shutil
import time

import pytest

from meshwright.errors import ConfigError
from meshwright.training.hooks import writers
from meshwright.training.hooks.callback import TrainingCallback
from meshwright.training.linear.settings import LinearSettings
from meshwright.training.linear.tune import tune

NAMES = ("csv", "tensorboard", "stdout")


class KilledError(Exception):
    """Stands in for the end of the process."""


def needs(library):
    return pytest.mark.skipif(importlib.util.find_spec(library) is None, reason=f"{library} is not installed (an extra)")


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


def test_a_library_that_is_missing_is_told_before_anything_is_written(tuned, scenario, tmp_path, monkeypatch):
    monkeypatch.setitem(writers.LIBRARIES, "wandb", "no_such_library_of_anybody")
    with pytest.raises(ConfigError, match=r"pip install 'meshwright\[no_such_library_of_anybody\]'"):
        tune(tuned.model_copy(update={"log": ("wandb",)}), tmp_path / "run", scenario=scenario)
    assert not (tmp_path / "run").exists()


@needs("mlflow")
@pytest.mark.filterwarnings("ignore:.*noload.*")  # SQLAlchemy 2.1 of a loader strategy in MLflow 3.17
@pytest.mark.slow
def test_mlflow_holds_one_run_with_each_validation_once(tuned, scenario, tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    chosen = tuned.model_copy(update={"log": ("mlflow",)})
    # MLflow writes where the config says, so that the killed run itself goes on.
    killed(chosen, scenario, tmp_path / "run", tmp_path / "copy")
    shutil.copy(tmp_path / "copy" / "checkpoint.json", tmp_path / "run" / "checkpoint.json")
    tune(chosen, tmp_path / "run", scenario=scenario, resume=True)
    import mlflow

    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'run' / 'mlflow.db'}")
    (run,) = client.search_runs([client.get_experiment_by_name("meshwright").experiment_id])
    history = client.get_metric_history(run.info.run_id, "validation/blocking_rate")
    assert sorted((each.step, each.value) for each in history) == expected(tmp_path / "run")
    assert run.info.status == "FINISHED"
    assert run.data.params["generations"] == "3"


@needs("wandb")
@pytest.mark.slow
def test_wandb_holds_each_validation_once_under_one_id(tuned, scenario, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    chosen = tuned.model_copy(update={"log": ("wandb",)})
    killed(chosen, scenario, tmp_path / "run", tmp_path / "copy")
    shutil.copy(tmp_path / "copy" / "checkpoint.json", tmp_path / "run" / "checkpoint.json")
    tune(chosen, tmp_path / "run", scenario=scenario, resume=True)
    files = sorted((tmp_path / "run" / "wandb").glob("offline-run-*/run-*.wandb"))
    assert len(files) == 2
    assert len({path.name for path in files}) == 1  # the same id
    rows = [row for path in files for row in history(path)]
    assert [(row["step"], row["validation/blocking_rate"]) for row in rows] == expected(tmp_path / "run")
    assert [row["_step"] for row in rows] == [0, 1, 2, 3]


def history(path):
    """Rows of a run's history, from its file."""
    for record in closed(path):
        if record.WhichOneof("record_type") == "history":
            yield {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}


def closed(path):
    """Messages of Weights & Biases itself, framed as in a log of LevelDB with seven bytes before it.

    Its service writes the last ones a moment after ``finish`` has returned (seen with 0.31).
    """
    from wandb.proto import wandb_internal_pb2

    for _ in range(100):
        records = [wandb_internal_pb2.Record.FromString(data) for data in framed(path.read_bytes())]
        if records and records[-1].WhichOneof("record_type") == "exit":
            return records
        time.sleep(0.1)
    raise AssertionError(f"{path} has no end")


def framed(data, block=32_768):
    """Records of a log of LevelDB: whole (1), or a first (2), middle (3) and last (4) part in blocks of 32 KiB."""
    at, parts = 7, b""
    while at + 7 <= len(data):
        if block - at % block < 7:
            at += block - at % block
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        parts += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):
            yield parts
            parts = b""
