"""Training seeds as tasks: the same policies however often a task is lost, and by whatever way it is done."""

import pickle

import pytest

from meshwright import cli, settings
from meshwright.errors import CheckpointError, ConfigError
from meshwright.models.policy_files import VERDICT
from meshwright.models.tensor_file import load_tensors, save_tensors
from meshwright.training.linear.settings import LinearSettings
from meshwright.training.methods import train
from meshwright.training.seeds import MOST_SEEDS, SeedRun, begin, seed_folder, seeds_of, train_seed
from meshwright.training.settings import TrainSettings

from .runs import KilledError, Recorder, equal, reaches


@pytest.fixture(scope="module")
def config(config, tmp_path_factory):
    """The tiny config, of a third of its steps."""
    path = tmp_path_factory.mktemp("shorter") / "train.yaml"
    path.write_text(
        config.read_text().replace("total_steps: 768", "total_steps: 256").replace("every_steps: 192", "every_steps: 64")
    )
    return path


def run(config, folder, seed, *changes):
    choice = settings.load(TrainSettings, config, changes=[*changes, f"seed={seed}"])
    return SeedRun(choice, seed_folder(folder / "run", seed), None, folder)


def policy(folder):
    """The bytes of its weights, without the verdict that the command writes."""
    data = load_tensors(folder / "policy.pt")
    data["trained"].pop(VERDICT, None)
    save_tensors(folder / "plain.pt", data)
    return (folder / "plain.pt").read_bytes()


@pytest.fixture(scope="module")
def alone(config, tmp_path_factory):
    """The run of one seed, trained by itself."""
    folder = tmp_path_factory.mktemp("alone")
    train(settings.load(TrainSettings, config, changes=["seed=4"]), folder / "run")
    return folder / "run"


@pytest.mark.parametrize("text", ["", "a", "0,", "-1", "0,,1", "1.5", "0-3", "1,1", "99999999", "²", "0, 1"])
def test_what_are_no_seeds(text):
    with pytest.raises(ConfigError, match=r"^--seeds: "):
        seeds_of(text)


def test_seeds_are_numbers_each_once():
    assert seeds_of("3,0,12") == (3, 0, 12)
    with pytest.raises(ConfigError, match="more than"):
        seeds_of(",".join(map(str, range(MOST_SEEDS + 1))))


def test_seeds_in_one_process_are_the_runs_that_each_would_be_alone(config, alone, tmp_path):
    runs = [pickle.loads(pickle.dumps(run(config, tmp_path, seed))) for seed in (5, 4)]
    begin(runs, ["meshwright", "train"])
    curves = [train_seed(one) for one in runs]
    assert policy(runs[1].folder) == policy(alone)
    assert policy(runs[0].folder) != policy(alone)
    assert curves[0][-1]["steps"] == curves[1][-1]["steps"] == 256


def test_a_task_that_is_lost_anywhere_and_done_again_ends_as_if_it_had_not_been(config, alone, tmp_path):
    lost = run(config, tmp_path, 4)
    begin([lost], [])
    for steps in (1, 190):  # before the first checkpoint, and behind some
        with pytest.raises(KilledError):
            train_seed(lost, [Recorder(kills=reaches(steps))])
    train_seed(lost)
    assert policy(lost.folder) == policy(alone)
    stored = load_tensors(lost.folder / "checkpoint.pt")
    expected = load_tensors(alone / "checkpoint.pt")
    assert equal(stored["state"], expected["state"])
    before = policy(lost.folder)
    train_seed(lost)  # a task that was done, and whose end nobody heard of
    assert policy(lost.folder) == before
    assert equal(load_tensors(lost.folder / "checkpoint.pt")["state"], stored["state"])


def test_other_methods_are_tasks_too(config, tmp_path):
    benchmark = settings.read_yaml(config)[0]["benchmark"]
    data = {"name": "linear", "method": "linear", "benchmark": benchmark, "seed": 4}
    data |= {"generations": 2, "population": 4, "elite": 2, "num_episodes": 1, "num_validation_seeds": 2}
    choice = settings.build_settings(LinearSettings, data)
    one = SeedRun(choice, tmp_path / "task", None, tmp_path)
    begin([one], [])
    train_seed(one)
    train(choice, tmp_path / "alone")
    assert (one.folder / "policy.json").read_bytes() == (tmp_path / "alone" / "policy.json").read_bytes()


def test_nothing_is_begun_unless_all_may_be(config, tmp_path):
    runs = [run(config, tmp_path, seed) for seed in (0, 1)]
    runs[1].folder.mkdir()
    (runs[1].folder / "notes.txt").write_text("mine")
    with pytest.raises(CheckpointError, match="give another folder"):
        begin(runs, [], overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["run-seed-1"]


def test_the_command_trains_resumes_and_refuses(config, alone, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = ["train", str(config), "--seeds", "4,6"]
    assert cli.run_command_line([*command, "--json", "told.json"]) == 0
    assert policy(tmp_path / "runs" / "tiny-seed-4") == policy(alone)
    assert len(settings.read_yaml(tmp_path / "told.json")[0]["runs"]) == 2
    assert cli.run_command_line(command) == 2
    assert "exists already" in capsys.readouterr().err
    assert cli.run_command_line(["train", "--seeds", "4,6", "--resume", "runs/tiny"]) == 0
    assert policy(tmp_path / "runs" / "tiny-seed-4") == policy(alone)
    assert cli.run_command_line(["train", "--seeds", "4,7", "--resume", "runs/tiny"]) == 2
    for words, message in (
        (["--seeds", "1", "--set", "seed=2"], "--set seed: is said by --seeds"),
        (["--jobs", "2"], "--jobs: goes with --seeds"),
        (["--jobs", "local:2"], "--jobs: goes with --seeds"),
    ):
        capsys.readouterr()
        assert cli.run_command_line(["train", str(config), "--out", "new", *words]) == 2
        assert message in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs", "told.json"]


@pytest.mark.slow
def test_two_processes_train_what_one_does(config, alone, tmp_path):
    assert cli.run_command_line(["train", str(config), "--seeds", "4,5,6", "--jobs", "2", "--out", str(tmp_path / "run")]) == 0
    assert policy(tmp_path / "run-seed-4") == policy(alone)
