"""Training configs and run folders: what is written, what is refused."""

import json
import re
from pathlib import Path

import pytest
import torch
import yaml

import meshwright
from meshwright import settings
from meshwright.cli import run_command_line
from meshwright.errors import CheckpointError, ConfigError
from meshwright.training import methods
from meshwright.training.device import pick_device
from meshwright.training.hooks.names import RunSettings
from meshwright.training.methods import load_config, train
from meshwright.training.run import Learner
from meshwright.training.run_folder import RunFolder, to_yaml
from meshwright.training.settings import TrainSettings, load_train_settings

SHIPPED = [
    path
    for path in sorted((Path(__file__).parents[2] / "configs" / "train").glob("*.yaml"))
    if "method" not in yaml.safe_load(path.read_text())
]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_config_is_whole_and_names_every_key(path):
    loaded = settings.load(TrainSettings, path)
    assert loaded.name == path.stem
    written = yaml.safe_load(path.read_text())
    for part, model in ((written, loaded), (written["ppo"], loaded.ppo), (written["network"], loaded.network)):
        assert set(part) == set(model.model_dump())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("totl_steps=5", "totl_steps: unknown key (got 'totl_steps'); did you mean 'total_steps'?"),
        ("ppo.lerning_rate=5", "ppo.lerning_rate: unknown key (got 'lerning_rate'); did you mean 'learning_rate'?"),
        ("ppo.minibatch=48", "num_envs x rollout_steps (64) must be a multiple of minibatch"),
        ("ppo.minibatch=1", "ppo.minibatch"),
        ("ppo.learning_rate=0", "ppo.learning_rate"),
        ("ppo.clip=1.0", "ppo.clip"),
        ("ppo.discount=.nan", "ppo.discount"),
        ("total_steps=0", "total_steps"),
        ("seed=-1", "seed"),
        ("device=gpu", "device: not a valid choice (got 'gpu'); valid: auto, cpu, cuda"),
        ("device=tpu9", "device: not a valid choice (got 'tpu9')"),
        ("network.hidden=0", "network.hidden"),
        ("name=../away", "name"),
        ("patience=3", "patience: unknown key (got 'patience')"),
        ("network.without=[graph]", "network.without: unknown key"),
        ("search={strategy: cross-entropy, population: 4}", "search: elite (8) must be less than population (4)"),
        ("search.sharpness=0", "search.sharpness"),
        ("pretraining={kind: values}", "pretraining: unknown key"),
        ("curriculum=[]", "curriculum: unknown key (got 'curriculum'); valid: "),
    ],
)
def test_a_wrong_config_is_told_in_one_line(config, change, message):
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        settings.load(TrainSettings, config, changes=[change])
    assert "\n" not in str(caught.value)


def test_a_config_with_a_search_is_written_whole(config):
    loaded = settings.load(TrainSettings, config, changes=["search={strategy: cma-es}", "network.messages=false"])
    written = yaml.safe_load(to_yaml(loaded))
    assert written["search"]["population"] == loaded.search.population
    assert TrainSettings.model_validate(written) == loaded


def test_a_benchmark_is_looked_for_beside_the_config_and_then_in_the_current_folder(config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    text = re.sub("benchmark: .*", "benchmark: bench.yaml", config.read_text())
    (tmp_path / "mine" / "train.yaml").write_text(text)
    assert load_train_settings("mine/train.yaml").benchmark == "mine/bench.yaml"
    here = tmp_path.resolve()
    (tmp_path / "bench.yaml").write_text("name: here\n")
    assert load_train_settings("mine/train.yaml").benchmark == str(here / "bench.yaml")
    (tmp_path / "mine" / "bench.yaml").write_text("name: next\n")
    assert load_train_settings("mine/train.yaml").benchmark == str(here / "mine" / "bench.yaml")
    assert load_train_settings("mine/train.yaml", ["seed=5"]).benchmark == str(here / "mine" / "bench.yaml")
    assert load_train_settings("mine/train.yaml", ["benchmark=bench.yaml"]).benchmark == str(here / "bench.yaml")
    assert load_train_settings("mine/train.yaml", ["benchmark=preset:toy"]).benchmark == "preset:toy"


def test_a_folder_beside_the_config_hides_no_shipped_benchmark(config, tmp_path):
    (tmp_path / "toy").mkdir()
    (tmp_path / "train.yaml").write_text(re.sub("benchmark: .*", "benchmark: toy", config.read_text()))
    assert load_train_settings(tmp_path / "train.yaml").benchmark == "toy"


def test_a_gpu_that_is_not_there_is_told_and_leaves_no_run_folder(chosen, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert pick_device("auto") == "cpu"
    expected = chosen.model_copy(update={"device": "cuda"})
    with pytest.raises(ConfigError, match="device: torch sees no CUDA device here"):
        train(expected, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_unknown_benchmark_leaves_no_run_folder(chosen, tmp_path):
    with pytest.raises(ConfigError, match="did you mean"):
        train(chosen.model_copy(update={"benchmark": "preset:tooy"}), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


# --- run folders ---


def test_a_run_folder_tells_config_command_and_versions(chosen, tmp_path):
    run = RunFolder(tmp_path / "run")
    run.create(chosen, ["meshwright", "train", "my config.yaml"])
    assert {path.name for path in run.path.iterdir()} == {"config.yaml", "command.txt", "versions.json"}
    assert run.loaded(TrainSettings) == chosen
    assert (run.path / "command.txt").read_text() == "meshwright train 'my config.yaml'\n"
    versions = json.loads((run.path / "versions.json").read_text())
    assert versions["torch"] == torch.__version__.partition("+")[0] or versions["torch"] == torch.__version__
    assert versions["meshwright"] == meshwright.__version__
    assert {"python", "machine", "numpy", "stable-baselines3"} <= set(versions)


def test_an_old_run_is_replaced_only_on_demand_and_as_a_whole(chosen, tmp_path):
    old = RunFolder(tmp_path / "run")
    old.create(chosen, ["old"])
    old.policy.write_text("weights")
    with pytest.raises(CheckpointError, match="exists already; give another folder, --resume it or --overwrite it"):
        old.create(chosen, ["new"])
    assert old.policy.exists()
    old.create(chosen, ["new"], overwrite=True)
    assert not old.policy.exists()
    assert (old.path / "command.txt").read_text() == "new\n"
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_an_empty_folder_is_taken(chosen, tmp_path):
    RunFolder(tmp_path).create(chosen, [])
    assert RunFolder(tmp_path).config.is_file()


@pytest.mark.parametrize("name", ["absent", "empty"])
def test_what_is_no_run_folder_is_told(tmp_path, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match=rf"{name}: is no run folder"):
        RunFolder(tmp_path / name).loaded(TrainSettings)


METHODS = {
    "linear": {},
    "fleet": {"total_steps": 0, "search": {"start": "runs/other"}, "network": {"linear": True}, "imitation": None},
    "elastic": {"trace": "philly.csv"},
    "graph": {"changes": ["tasklets.file=./philly.csv", "num_seeds=4"]},
}


@pytest.mark.parametrize("method", METHODS)
def test_paths_of_every_method_start_at_the_folder_of_the_config(method, tmp_path, monkeypatch):
    here, folder = tmp_path / "here", tmp_path / "there"
    (folder / "runs" / "other").mkdir(parents=True)
    here.mkdir()
    monkeypatch.chdir(here)
    for name in ("own.yaml", "philly.csv"):
        (folder / name).touch()
        (here / name).touch()
    figures = {"method": method, "name": "a", "benchmark": "own.yaml", **METHODS[method]}
    (folder / "run.yaml").write_text(json.dumps(figures))
    read = load_config("../there/run.yaml").model_dump()
    assert read["benchmark"] == str(folder / "own.yaml")
    assert read.get("trace") in (None, str(folder / "philly.csv"))
    assert (read.get("search") or {}).get("start") in (None, str(folder / "runs" / "other"))
    assert read["changes"] in ((), (f"tasklets.file={folder / 'philly.csv'}", "num_seeds=4"))
    assert load_config("../there/run.yaml", ["benchmark=own.yaml"]).benchmark == str(here / "own.yaml")
    (folder / "run.yaml").write_text(json.dumps({**figures, "benchmark": "preset:toy"}))
    assert load_config("../there/run.yaml").benchmark == "preset:toy"


@pytest.mark.parametrize("method", METHODS)
def test_a_benchmark_that_is_nowhere_is_named_where_it_was_looked_for(method, tmp_path, capsys):
    (tmp_path / "run.yaml").write_text(json.dumps({"method": method, "name": "a", **METHODS[method], "benchmark": "gone.yaml"}))
    assert run_command_line(["train", str(tmp_path / "run.yaml"), "--out", str(tmp_path / "run")]) == 2
    assert str(tmp_path / "gone.yaml") in capsys.readouterr().err


@pytest.mark.parametrize("method", methods.METHODS.values(), ids=map(str, methods.METHODS))
def test_a_method_names_its_config_and_its_learner(method):
    assert issubclass(methods.load(method.settings), RunSettings)
    assert issubclass(methods.load(method.learner), Learner)
