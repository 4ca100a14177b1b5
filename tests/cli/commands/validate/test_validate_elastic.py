"""``meshwright validate elastic``: what agrees, what disagrees, and what is refused."""

import json
import shutil

import numpy as np
import pytest

from meshwright.cli import run_command_line
from meshwright.evaluation.validation.elastic import validate
from meshwright.jobs.readers.elastic import load_workload
from meshwright.planners.elastic.scheduler import PUBLISHED, play
from meshwright.simulation.elastic import simulation as simulating

from ....elastic_samples import CLUSTER, simulation_of, write_folder, write_times

CSV = "workloads/load-1.0/workload-1.csv"


@pytest.fixture(scope="module")
def agreeing(tmp_path_factory):
    """A folder whose stored times are what its schedulers give."""
    folder = write_folder(tmp_path_factory.mktemp("elastic") / "published")
    simulation = simulation_of(folder / "applications")
    jobs = load_workload(folder / CSV, simulation.applications)
    for policy, scheduler in PUBLISHED.items():
        write_times(folder, policy, play(simulation, scheduler(), [jobs])[0])
    return folder


@pytest.fixture
def folder(agreeing, tmp_path, monkeypatch):
    monkeypatch.setattr(simulating, "ElasticCluster", lambda: CLUSTER)
    return shutil.copytree(agreeing, tmp_path / "elastic")


def test_what_is_stored_agrees_with_itself(folder, tmp_path, capsys):
    assert run_command_line(["dev", "validate", "elastic", str(folder), "--json", str(tmp_path / "told.json")]) == 0
    assert "tiresias" in capsys.readouterr().out
    data = json.loads((tmp_path / "told.json").read_text())
    assert data["agrees"]
    assert data["summary"]["tiresias"]["items"] == 6
    assert [row["num_equal"] for row in data["workloads"]] == [6, 6]


def test_a_job_may_be_a_round_off_and_no_more(folder):
    path = folder / "published" / "tiresias-load-1.0.json"
    data = json.loads(path.read_text())
    times = data["jcts"]["workload-1"]
    times |= {"job-0": times["job-0"] + 60, "job-1": times["job-1"] + 61}
    path.write_text(json.dumps(data))
    result, workloads = validate(folder)
    row = next(each for each in workloads if each["policy"] == "tiresias")
    assert (row["num_equal"], row["num_within_round"], row["num_off"]) == (4, 1, 1)
    assert [each.figure for each in result.rows if not each.agrees and each.family == "tiresias"] == ["job-1"]
    assert run_command_line(["dev", "validate", "elastic", str(folder)]) == 1


def changed(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


MISTAKES = {
    "no folder": (lambda f: shutil.rmtree(f), "no such folder"),
    "no applications": (lambda f: shutil.rmtree(f / "applications"), "applications: no such folder"),
    "no measurement": (lambda f: (f / "applications/quick/placements.csv").unlink(), "quick/placements.csv: no such file"),
    "no run": (lambda f: [p.unlink() for p in f.glob("applications/slow/validation-*")], "slow: holds no validation-BATCH.csv"),
    "no column": (
        lambda f: changed(f / "applications/quick/scalability.csv", "sync_time", "sync"),
        "scalability.csv:1: sync_time",
    ),
    "a short row": (lambda f: changed(f / "applications/quick/placements.csv", "1,4,", "4,"), "placements.csv:2: has 3 columns"),
    "a placement": (lambda f: changed(f / "applications/quick/placements.csv", "\n1,", "\n7,"), "placements.csv:2: placement"),
    "no number": (lambda f: changed(f / "applications/slow/validation-16.csv", "302.0", "nan"), "validation-16.csv:2: progress"),
    "falling": (lambda f: changed(f / "applications/slow/validation-16.csv", "602.0", "60.0"), "validation-16.csv:3: progress"),
    "no workload": (lambda f: (f / CSV).unlink(), "load-1.0: holds no workload"),
    "an application": (lambda f: changed(f / CSV, "slow", "slw"), "workload-1.csv:3: application: .*did you mean 'slow'"),
    "a batch": (lambda f: changed(f / CSV, "1,64", "1,65"), "workload-1.csv:2: batch_size"),
    "too many ranks": (lambda f: changed(f / CSV, ",1,64", ",17,64"), "workload-1.csv:2: num_replicas"),
    "a job twice": (lambda f: changed(f / CSV, "job-1", "job-0"), "workload-1.csv:3: name"),
    "no times": (lambda f: (f / "published/optimus-load-1.0.json").unlink(), "optimus-load-1.0.json: no such file"),
    "a missing job": (lambda f: changed(f / "published/tiresias-load-1.0.json", "job-3", "job-9"), "jcts.workload-1: the job is"),
    "no time": (lambda f: changed(f / "published/tiresias-load-1.0.json", ': {"job-0": ', ': {"job-0": -'), "workload-1.job-0"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_in_one_line_that_names_its_place(folder, capsys, mistake):
    damage, message = MISTAKES[mistake]
    damage(folder)
    assert run_command_line(["dev", "validate", "elastic", str(folder)]) == 2
    line = capsys.readouterr().err.strip()
    assert "\n" not in line
    assert np.all([part in line for part in message.split(".*")]), line
