import csv
import dataclasses
import itertools
import json
import shutil

import numpy as np
import pytest

from meshwright.errors import MeshwrightError
from meshwright.evaluation import result_folder
from meshwright.evaluation.metrics import METRICS
from meshwright.evaluation.result_folder import best_policy, remove_exports, write_evaluation
from meshwright.export import export, export_run, write
from meshwright.planning.plans_of_episode import plan_files, plan_of
from meshwright.plans import load_plan

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(scope="module")
def written(compare, tmp_path_factory):
    folder = tmp_path_factory.mktemp("out") / "evaluation"
    result = compare(num_seeds=2)
    write_evaluation(result, folder)
    return result, folder


def test_an_evaluation_leaves_results_table_report_and_plans(written):
    result, folder = written
    assert json.loads((folder / "results.json").read_text()) == json.loads(json.dumps(result.results))
    with (folder / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["policy"] for row in rows] == [row["policy"] for row in result.results["rows"]]
    assert float(rows[0]["blocking_rate_mean"]) == result.results["rows"][0]["metrics"]["blocking_rate"]["mean"]
    for name in ("report.html", "results.md"):
        assert result.results["verdict"].partition(";")[0] in (folder / name).read_text()


def test_every_placed_job_of_the_shown_episode_has_a_plan_that_predicts_what_happened(written, scenario):
    result, folder = written
    record = result.played[best_policy(result.results)].records[0]
    index = json.loads((folder / "plans" / "index.json").read_text())
    assert len(index["plans"]) == record.is_accepted.sum()
    for name in index["plans"]:
        k = int(name.split("-")[1])
        plan = load_plan(folder / "plans" / f"{name}.json")
        assert [rank.device for rank in plan.ranks] == scenario.space.block(int(record.block[k])).tolist()
        assert plan.figure("completion_s").value == record.completion_s[k]
        assert plan.figure("step_s").value * record.num_steps[k] == pytest.approx(record.completion_s[k])


def test_the_plans_can_be_exported(written, tmp_path):
    folder = written[1]
    plans = {path.stem: load_plan(path) for path in (folder / "plans").glob("job-*.json")}
    done = export_run(plans, "slurm", tmp_path / "slurm")
    assert set(done.written) == set(plans)


@pytest.fixture
def no_page(monkeypatch):
    """For tests that look at plans alone: to draw the page takes most of the time."""
    monkeypatch.setattr(result_folder, "_report", lambda *_: "")


@pytest.mark.usefixtures("no_page")
def test_writing_again_replaces_the_plans_of_before(written, tmp_path):
    result, folder = written[0], tmp_path / "again"
    write_evaluation(result, folder)
    (folder / "plans" / "job-9999-old.json").write_text("{}")
    write_evaluation(result, folder)
    assert not (folder / "plans" / "job-9999-old.json").exists()


@pytest.mark.usefixtures("no_page")
def test_exports_of_plans_that_are_replaced_are_removed_and_other_files_stay(written, tmp_path):
    result = written[0]
    out = tmp_path / "run"
    write_evaluation(result, out)
    plans = {path.stem: load_plan(path) for path in (out / "plans").glob("job-*.json")}
    for target in ("slurm", "torchrun"):
        export_run(plans, target, out / "export" / target)
    write(export(next(iter(plans.values())), "slurm"), out / "export" / "one")
    (out / "export" / "slurm" / "notes.txt").write_text("mine")
    write_evaluation(result, out)
    assert (out / "export" / "torchrun" / "index.json").is_file()  # the same plans again, so their exports still hold
    worst = max(result.results["rows"], key=METRICS["blocking_rate"].cost)["policy"]
    write_evaluation(dataclasses.replace(result, played=dict.fromkeys(result.played, result.played[worst])), out)
    assert [path.relative_to(out).as_posix() for path in (out / "export").rglob("*")] == [
        "export/slurm",
        "export/slurm/notes.txt",
    ]
    (out / "export" / "slurm" / "notes.txt").unlink()
    remove_exports(out / "export")
    assert not (out / "export").exists()


def test_an_export_cannot_name_files_outside_its_folder(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    (tmp_path / "export").mkdir()
    manifest = {"format": "slurm", "files": ["../thesis.tex", "..", "absent", 5, "export.json"]}
    (tmp_path / "export" / "export.json").write_text(json.dumps(manifest))
    remove_exports(tmp_path / "export")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_an_export_through_a_link_is_not_removed(tmp_path):
    (tmp_path / "mine").mkdir()
    for name in ("export.json", "index.json"):
        (tmp_path / "mine" / name).write_text(json.dumps({"format": "slurm", "files": ["export.json"], "plans": ["a"]}))
    (tmp_path / "run" / "export").mkdir(parents=True)
    (tmp_path / "run" / "export" / "slurm").symlink_to(tmp_path / "mine")
    (tmp_path / "other").symlink_to(tmp_path / "mine")
    remove_exports(tmp_path / "run" / "export")
    remove_exports(tmp_path / "other")
    assert sorted(path.name for path in (tmp_path / "mine").iterdir()) == ["export.json", "index.json"]


def test_plans_of_a_folder_whose_index_names_no_files_are_read(written, tmp_path):
    folder = tmp_path / "run" / "plans"
    shutil.copytree(written[1] / "plans", folder)
    index = json.loads((folder / "index.json").read_text())
    (folder / index["files"].pop(index["plans"][0])).rename(folder / "job-0-a model.json")
    former = {key: index[key] for key in ("policy", "jobs")} | {"plans": ["job-0-a model", *index["plans"][1:]]}
    (folder / "index.json").write_text(json.dumps(former))
    assert list(plan_files(folder)) == former["plans"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"plans": ["../../outside"]}, "leads out of the folder"),
        ({"files": {"a": "/outside.json"}, "plans": ["a"]}, "files: leads out of the folder"),
        ({"files": ["a.json"]}, "files: must be the files of the plans, by name"),
        ({"files": {"a": 5}}, "files: must be the files of the plans, by name"),
        ({"plans": []}, "no job was placed"),
        ({"plans": [5]}, "must list the names of the plans"),
    ],
)
def test_an_index_cannot_name_plans_elsewhere(tmp_path, change, message):
    (tmp_path / "index.json").write_text(json.dumps({"plans": ["a"]} | change))
    with pytest.raises(MeshwrightError, match=message):
        plan_files(tmp_path)


@pytest.mark.parametrize("is_own", [True, False])
def test_the_report_tells_of_a_training_run_only_beside_its_own_policy(written, tmp_path, is_own):
    result = written[0]
    out = tmp_path / "run-1.2"
    out.mkdir()
    row = {"steps": 0, "validation_blocking_rate": 0.5, "training_blocking_rate": None, "elapsed_s": 0.0}
    (out / "learning_curve.json").write_text(json.dumps([row, row | {"steps": 9}]))
    (out / "command.txt").write_text("meshwright train a-config-of-mine\n")
    rows = [row | {"policy": "run-1", "kind": "learned"} if row["policy"] == "max" else row for row in result.results["rows"]]
    results = result.results | {"rows": rows} if is_own else result.results
    played = result.played | {"run-1": result.played["max"]}
    write_evaluation(dataclasses.replace(result, results=results, played=played), out)
    report = (out / "report.html").read_text()
    assert ("How the policy learned" in report) is is_own
    assert ("a-config-of-mine" in report) is is_own


def test_a_plan_embeds_its_job_and_cluster(written, scenario):
    record = written[0].played["max"].records[0]
    k = int(np.flatnonzero(record.is_accepted)[0])
    plan = plan_of(record, scenario, k)
    assert plan.job_graph().digest == scenario.workload.graphs[int(record.graph_id[k])].digest
    assert plan.embedded_cluster().digest == scenario.cluster.digest


def test_the_episode_trace_shows_every_placed_job_on_each_of_its_devices_and_no_two_at_once(written, scenario):
    result, folder = written
    record = result.played[best_policy(result.results)].records[0]
    events = json.loads((folder / "episode.trace.json").read_text())["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    assert len(slices) == record.degree[record.is_accepted].sum()
    assert sum(event["ph"] == "i" for event in events) == (~record.is_accepted).sum()
    by_device = {}
    for event in slices:
        by_device.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    for spans in by_device.values():
        spans.sort()
        assert all(end <= start + 1e-6 for (_, end), (start, _) in itertools.pairwise(spans))
