"""Laws of the runs of every method: what they leave, the same numbers however they are interrupted, and what is refused."""

import shutil
from types import SimpleNamespace

import pytest

from meshwright import settings
from meshwright.errors import CheckpointError, PolicyError
from meshwright.files import write_json
from meshwright.models.tensor_file import save_tensors
from meshwright.training import checkpoint
from meshwright.training.elastic import search as elastic
from meshwright.training.methods import train
from meshwright.training.settings import TrainSettings
from tests.elastic_samples import workload, write_applications
from tests.tiny_fleet import tiny_fleet

from .runs import (
    IMITATION,
    SEARCH,
    WITH_PRIOR,
    KilledError,
    Recorder,
    begun_earlier,
    content,
    curve,
    elastic_config,
    equal,
    fleet_config,
    graph_config,
    linear_config,
    same_run,
)

JOBS = [(0, 1, 1, 64), (0, 0, 1, 64), (60, 1, 1, 64), (90, 1, 1, 64)]
ALWAYS = {"config.yaml", "command.txt", "versions.json", "learning_curve.json"}
FILES = {
    "ppo": {"tensorboard", "searched.pt"},
    "linear": {"log.csv", "tensorboard"},
    "fleet": {"searched.pt", "imitated.pt"},
    "graph": {"placements.pt", "imitated.pt"},
}
"""In addition to checkpoint and policy."""


@pytest.fixture(scope="module")
def made(config, chosen, scenario, tmp_path_factory):
    """Config and what is built of it, of each kind of run."""
    folder = tmp_path_factory.mktemp("made")
    fleet, network = tiny_fleet(folder, num_jobs=20), {"width": 8, "rounds": 1, "prices": True}
    (folder / "elastic" / "workloads").mkdir(parents=True)
    write_applications(folder / "elastic" / "applications")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(elastic, "_drawn", lambda value, benchmark, simulation, sizes, first: [[workload(JOBS[: sizes[0]])]])
        yield {
            "ppo": (settings.load(TrainSettings, config, changes=[*WITH_PRIOR, *SHORTER]), {}),
            "linear": (linear_config(chosen.benchmark, log=("csv", "tensorboard")), {"scenario": scenario}),
            "elastic": (elastic_config(folder / "elastic"), {}),
            "fleet": (fleet_config(search=SEARCH, network=network, group=2), {"fleet": fleet}),
            "graph": (graph_config(imitation=IMITATION), {}),
        }


KINDS = ("ppo", "linear", "elastic", "fleet", "graph")
SHORTER = ("total_steps=256",)


@pytest.fixture(scope="module", params=KINDS)
def whole(request, made, tmp_path_factory):
    """A run that was never interrupted, what its callbacks were given, and its folder as it was at each update."""
    (choice, built), parent = made[request.param], tmp_path_factory.mktemp(request.param)
    recorder = Recorder(copies=parent / "copies")
    run = train(choice, parent / "run", built=built, command=["meshwright", "a b"], callbacks=[recorder])
    ending = ".json" if request.param in ("linear", "elastic") else ".pt"
    names = ALWAYS | FILES.get(request.param, set()) | {f"policy{ending}", f"checkpoint{ending}"}
    return SimpleNamespace(kind=request.param, chosen=choice, built=built, folder=run.path, names=names, told=recorder, run=run)


def go_on(whole, folder, **options):
    begun_earlier(folder)
    train(whole.chosen, folder, built=whole.built, resume=True, **options)


def test_a_run_leaves_its_files_and_reports_each_validation(whole):
    assert {path.name for path in whole.folder.iterdir()} == whole.names
    assert (whole.folder / "command.txt").read_text() == "meshwright 'a b'\n"
    start, *_, end = whole.told.told
    rows, records = curve(whole.folder), whole.told.of("Validation")
    assert [each.number for each in records] == list(range(len(rows)))
    for number, (each, row) in enumerate(zip(records, rows, strict=True)):
        assert each.value in row.values()
        assert each.best == min(other.value for other in records[: number + 1])
        assert each.is_best == all(each.value < other.value for other in records[:number])
    assert (end.ending, end.step, end.best) == ("done", start.total_steps, records[-1].best)
    assert whole.told.of("Update")[-1].step == start.total_steps
    shares = [each.share for each in whole.told.of("Stage")]
    assert all(0 <= share <= 1 for share in shares)
    stored = content(whole.run.policy)["trained"]
    assert records[-1].best in stored.values()
    assert [each["stage"] for each in stored["stages"]] or records[-1].best == records[0].value


@pytest.mark.parametrize("share", [0.3, 0.8, *(pytest.param(share, marks=pytest.mark.slow) for share in (0.0, 0.5, 0.65))])
def test_a_run_continues_wherever_it_was_killed(whole, tmp_path, share):
    number = int(share * whole.told.num_copies)
    folder = shutil.copytree(whole.folder.with_name("copies") / str(number), tmp_path / "run")
    go_on(whole, folder)
    same_run(folder, whole.folder)


@pytest.mark.parametrize(("of", "value"), [("number", 1), ("share", 0.5)])
def test_a_run_that_a_callback_stops_continues_as_if_it_had_not_been_stopped(whole, tmp_path, of, value):
    if of == "share" and whole.kind != "ppo":  # the one whose stage has a middle at a half
        return
    stops, again = Recorder(stops=lambda record: getattr(record, of, 0) == value), Recorder()
    train(whole.chosen, tmp_path / "run", built=whole.built, command=["meshwright", "a b"], callbacks=[stops])
    assert stops.told[-1].ending == "stopped"
    go_on(whole, tmp_path / "run", callbacks=[again])
    assert again.told[0].is_resumed
    numbers = [each.number for each in (*stops.of("Validation")[: again.told[0].num_validations], *again.of("Validation"))]
    assert numbers == list(range(len(whole.told.of("Validation"))))
    same_run(tmp_path / "run", whole.folder)


def test_another_seed_gives_other_numbers(whole, tmp_path):
    states = []
    for seed in (whole.chosen.seed, 8):
        stops = Recorder(stops=lambda record: getattr(record, "step", 0) > 0 or getattr(record, "share", 0) > 0)
        folder = tmp_path / str(seed)
        train(whole.chosen.model_copy(update={"seed": seed}), folder, built=whole.built, callbacks=[stops])
        states.append(content(folder / whole.run.checkpoint.name)["state"])
    assert not equal(*states)


def test_resuming_a_run_that_has_ended_changes_no_number(whole, tmp_path):
    folder = shutil.copytree(whole.folder, tmp_path / "run")
    go_on(whole, folder)
    same_run(folder, whole.folder)


def broken(path, how):
    """Write a checkpoint anew with a fault."""
    data, digest = content(path), lambda data: {**data, checkpoint.DIGEST: checkpoint.digest_of(data)}
    plain = {key: value for key, value in data.items() if key != checkpoint.DIGEST}
    if how == "truncated":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        return
    faults = {
        "changed": {**data, "curve": []},
        "version": digest(plain | {"format_version": 3}),
        "key": digest(plain | {"key": "0" * 32}),
        "empty": digest(plain | {"state": {}}),
        "far": digest(plain | {"curve": [{"elapsed_s": 1e300}]}),
    }
    (save_tensors if path.suffix == ".pt" else write_json)(path, faults[how])


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("truncated", "is truncated or not a file of tensors|not valid JSON"),
        ("changed", "is damaged: it is not as it was written"),
        ("version", f"is no checkpoint of version {checkpoint.FORMAT_VERSION}"),
        ("key", "belongs to another config, workload or cluster than this run's"),
        ("empty", "is damaged: it does not fit this run"),
        ("far", "is damaged: it does not fit this run"),
    ],
)
def test_a_checkpoint_that_is_not_of_this_run_is_refused_and_nothing_changes(whole, tmp_path, content_of, how, message):
    folder = shutil.copytree(whole.folder, tmp_path / "run")
    broken(folder / whole.run.checkpoint.name, how)
    before = content_of(folder)
    with pytest.raises(CheckpointError, match=message):
        train(whole.chosen, folder, built=whole.built, resume=True)
    assert content_of(folder) == before


def test_what_is_no_run_of_this_config_is_refused_and_nothing_changes(whole, tmp_path, content_of):
    before = content_of(whole.folder)
    with pytest.raises(CheckpointError, match="seed: differs from the config that the run was begun with"):
        train(whole.chosen.model_copy(update={"seed": 9}), whole.folder, built=whole.built, resume=True)
    with pytest.raises(CheckpointError, match="exists already; give another folder, --resume it or --overwrite it"):
        train(whole.chosen, whole.folder, built=whole.built)
    assert content_of(whole.folder) == before
    with pytest.raises(CheckpointError, match="is no run folder"):
        train(whole.chosen, tmp_path / "absent", built=whole.built, resume=True)
    with pytest.raises(PolicyError, match="callbacks: is no callback"):
        train(whole.chosen, tmp_path / "run", built=whole.built, callbacks=[Recorder])
    assert list(tmp_path.iterdir()) == []


def test_overwriting_begins_anew(whole, tmp_path):
    folder = shutil.copytree(whole.folder, tmp_path / "run")
    kills = Recorder(kills=lambda record: True)
    with pytest.raises(KilledError):
        train(whole.chosen, folder, built=whole.built, overwrite=True, callbacks=[kills])
    assert kills.told[-1].ending == "failed"
    assert not {path.name for path in folder.iterdir()} & (FILES.get(whole.kind, set()) - {"tensorboard", "log.csv"})
    assert not (folder / "learning_curve.json").exists() or len(curve(folder)) == 1
