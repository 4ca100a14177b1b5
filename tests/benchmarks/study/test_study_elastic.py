"""Elastic workloads in a study: what they need, their digests, and tables about a policy that nothing is trained for."""

import pytest

from benchmarks.study.__main__ import resolved
from benchmarks.study.archive import pack, unpack
from benchmarks.study.findings import read
from benchmarks.study.page import part
from benchmarks.study.places import Places
from benchmarks.study.plan import tasks
from benchmarks.study.runner import carry_out, record_file, standing
from benchmarks.study.study import load_study
from benchmarks.study.tasks import RESULTS
from meshwright import files
from meshwright.errors import ConfigError, InputFileError

from ...elastic_samples import write_folder, write_times

STUDY = """
evaluations:
  - {name: elastic-small, benchmark: elastic.yaml, policies: [expected-remaining]}
tables:
  main:
    kind: comparison
    columns: [small]
    evaluations: [elastic-<column>]
    policy: shipped:learned-shares
    rows:
      - {label: attained service, policy: tiresias}
      - {label: as published, policy: "published:tiresias", against: true}
"""
BENCHMARK = """
name: small
elastic:
  load: load-1.0
  published: [tiresias]
  against: tiresias
  cluster: {num_nodes: 3, devices_per_node: 4, round_s: 60, restart_s: 30, interference: 0.0}
policies: [tiresias, shipped:learned-shares]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    data = write_folder(tmp_path / "reference" / "elastic")
    write_times(data, "tiresias", [600, 700, 800, 900, 1000, 1100])
    monkeypatch.setenv("MESHWRIGHT_REFERENCE", str(tmp_path / "reference"))
    files.write_text(tmp_path / "study.yaml", STUDY)
    files.write_text(tmp_path / "elastic.yaml", BENCHMARK)
    return tmp_path


def the_task(folder):
    (found,) = tasks(load_study(folder / "study.yaml"), Places(folder / "out"), resolved)
    return found


def results(values, workloads=("workload-1", "workload-2")):
    """As `meshwright evaluate` writes them, from mean completion times by policy."""
    rows = [
        {"policy": policy, "kind": kind, "per_seed": {"mean_completion_s": times, "restarts_per_job": [1.0] * len(times)}}
        for policy, (kind, times) in values.items()
    ]
    elastic = {"load": "load-1.0", "against": "tiresias", "num_devices": 12, "num_jobs": [6, 6]}
    told = {"format_version": 1, "benchmark": "small", "objective": "mean_completion_s", "elastic": elastic}
    return told | {"workloads": list(workloads), "rows": rows}


GIVEN = {
    "tiresias": ("baseline", [900.0, 1100.0]),
    "expected-remaining": ("baseline", [800.0, 1000.0]),
    "shipped:learned-shares": ("learned", [600.0, 800.0]),
    "published:tiresias": ("published", [850.0, 1050.0]),
}


def done(folder, content):
    task, places = the_task(folder), Places(folder / "out")
    files.write_json(task.folder(places) / RESULTS, content)
    files.write_json(record_file(task, places), {"state": "done", "digest": task.digest(places)})
    return task, places


def lines_of(folder, task, places):
    study = load_study(folder / "study.yaml")
    return [line for line in part(read(study, [task], places), "main", study.tables["main"], set())[0] if line.startswith("| ")]


def test_the_table_is_in_seconds_and_paired_by_workload(folder):
    task, places = done(folder, results(GIVEN))
    assert standing(task, places) == "done"
    rows = [
        "| policy | small: mean completion time, s |",
        "| --- | --- |",
        "| attained service | 1000 [900, 1100] |",
        "| as published | 950 [850, 1050] |",
        "| **ours** | **700 [600, 800]** |",
        "| ours against the best baseline | -200 [-200, -200] better (-22 [-22, -22] %) |",  # expected-remaining, 900
        "| the best baseline | expected-remaining |",
        "| ours against as published | -250 [-250, -250] better (-26 [-26, -26] %) |",
    ]
    assert lines_of(folder, task, places) == rows
    pack([task], places, folder / "packed")
    there = Places(folder / "there")
    assert unpack(folder / "packed", [task], there) == ["elastic-small"]
    assert lines_of(folder, task, there) == rows


def test_published_times_count_among_the_baselines(folder):
    better = GIVEN | {"published:tiresias": ("published", [500.0, 700.0])}
    told = lines_of(folder, *done(folder, results(better)))
    assert told[-3:-1] == [
        "| ours against the best baseline | +100 [+100, +100] worse (+17 [+17, +17] %) |",
        "| the best baseline | as published |",
    ]


def test_a_digest_follows_the_data_and_the_number_of_workloads_but_not_where_they_lie(folder, monkeypatch):
    task, places = the_task(folder), Places(folder / "out")
    before = task.digest(places)
    (folder / "reference").rename(folder / "moved")
    monkeypatch.setenv("MESHWRIGHT_REFERENCE", str(folder / "moved"))
    assert the_task(folder).digest(places) == before
    (quick,) = tasks(load_study(folder / "study.yaml", quick=True), places, resolved)
    assert quick.digest(places) != before
    assert quick.command(places)[-4:-2] == ["--seeds", "2"]
    path = folder / "moved" / "elastic" / "workloads" / "load-1.0" / "workload-1.csv"
    files.write_text(path, path.read_text().replace("job-5", "job-6"))
    assert the_task(folder).digest(places) != before


def test_without_the_data_it_is_left_out_with_the_reason_and_what_was_done_stays(folder, monkeypatch):
    task, places = done(folder, results(GIVEN))
    monkeypatch.delenv("MESHWRIGHT_REFERENCE")
    assert standing(task, places) == "done"
    said = []
    words = carry_out([task], Places(folder / "empty"), program=["false"], report=lambda *told: said.append(told))
    assert words == {"elastic-small": "left out"}
    assert said == [("elastic-small", "left out", "needs the published elastic workloads (MESHWRIGHT_REFERENCE)")]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (results(GIVEN, ["workload-1"]), "tiresias has 2 episodes for 1 seeds"),
        (results(GIVEN) | {"format_version": 9}, "is no evaluation of elastic jobs of format 1"),
    ],
)
def test_results_that_are_not_of_the_form_are_refused(folder, content, told):
    with pytest.raises(InputFileError, match=told):
        lines_of(folder, *done(folder, content))


def test_a_table_is_about_trainings_or_about_a_policy(folder):
    for wrong in ("", "policy: tiresias\n    ours: net"):
        files.write_text(folder / "study.yaml", STUDY.replace("policy: shipped:learned-shares\n", f"{wrong}\n"))
        with pytest.raises(ConfigError, match="about exactly one of ours and policy"):
            load_study(folder / "study.yaml")
