"""``make results``: tasks over public commands, kept when done, resumed after a kill, and tables held by hand."""

import json
import re
import subprocess

import pytest

from benchmarks import results as study_results
from benchmarks.results import Study, Tasks, main
from benchmarks.results_tables import StudyTable, fill_page, lines_of
from meshwright import settings
from meshwright.cli import run_command_line
from meshwright.errors import ConfigError, InputFileError

from ...evaluation.report.samples import results, row
from ...tree import ROOT

SMALL = """
training:
  - name: small-<each>
    each: [toy]
    config: preset:linear
    changes: [benchmark=preset:<each>]
    seeds: [0, 1]
    quick: [generations=2, population=4, elite=2, num_episodes=1, num_validation_seeds=1]
evaluations:
  - name: played
    benchmark: preset:toy
    changes: ["policies=[min, max]"]
    policies: [trained(small-*)]
    quick: [scenario.num_jobs=20]
tables:
  toy:
    columns: [toy]
    evaluations: [played]
    ours: trained(small-toy)
    rows: {min: fewest}
    against: [min]
"""


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.delenv("MESHWRIGHT_REFERENCE", raising=False)  # the toy's jobs are named, so it takes no profiles
    (tmp_path / "study.yaml").write_text(SMALL)
    return tmp_path / "study.yaml"


def in_this_process(command):
    assert run_command_line(list(command)) == 0
    return command


@pytest.mark.usefixtures("undrawn")
def test_a_study_trains_and_evaluates_once_and_resumes_what_was_begun(study, tmp_path, monkeypatch):
    monkeypatch.setattr(study_results, "_run", in_this_process)
    options = ["--study", str(study), "--quick", "--out", str(tmp_path / "out")]
    assert main([*options, "run", "evaluate:played"]) == 0
    record = tmp_path / "out" / "evaluations" / "played" / "made.json"
    made, before = json.loads(record.read_text()), record.stat().st_mtime_ns
    assert made["command"][:3] == ["meshwright", "evaluate", str(tmp_path / "out" / "training" / "small-toy-seed-0")]
    # Nothing that is done is done again, and a setting that changes is noticed where it counts.
    assert main([*options, "run", "evaluate:played"]) == 0
    assert record.stat().st_mtime_ns == before
    study.write_text(SMALL.replace("scenario.num_jobs=20", "scenario.num_jobs=21"))
    tasks = Tasks(settings.load(Study, study), tmp_path / "out", is_quick=True)
    assert [task["uptodate"][0]() for task in (*tasks.task_train(), *tasks.task_evaluate())] == [True, False]
    ran = []
    monkeypatch.setattr(study_results, "_run", lambda command: ran.append(command[:2]))
    for each in (tasks, Tasks(tasks.study, tmp_path / "new", is_quick=True)):
        each._train(each.runs[0])
    assert ran == [["train", "--resume"], ["train", "preset:linear"]]


def write_results(folder, name, **rates):
    result = results("cluster", *(row("cluster", policy, values, kind) for policy, (kind, values) in rates.items()))
    (folder / "evaluations" / name).mkdir(parents=True)
    (folder / "evaluations" / name / "results.json").write_text(json.dumps(result))


def test_a_table_worked_by_hand(tmp_path):
    a, mine = [0.2, 0.4, 0.3, 0.2, 0.4], [0.1, 0.2, 0.15, 0.1, 0.2]
    write_results(tmp_path, "one", a=("baseline", a), b=("baseline", [value + 0.1 for value in a]))
    write_results(tmp_path, "two", **{"mine-seed-0": ("learned", mine), "mine-seed-1": ("learned", [0.1, 0.4, 0.25, 0.1, 0.4])})
    runs = {"mine": ["training/mine-seed-0", "training/mine-seed-1"]}
    rows = {"rows": {"a": "first"}, "against": ("a",), "quoted": {"said elsewhere": {"x": "9"}}, "source": "a paper"}
    table = StudyTable(columns=("x",), evaluations=("one", "two"), ours="mine", **rows)
    lines = lines_of(table, tmp_path, lambda policy: runs.get(policy, [policy]))
    reported = dict(re.fullmatch(r"\| (.*) \| (.*) \|", line).groups() for line in lines if line.startswith("|"))
    assert reported["first"].startswith("30.00 ")
    assert reported["said elsewhere"] == "9"
    # Mean over the seeds .1 and .3, so 20 %; less than a by .1 in each episode.
    assert reported["**ours, mean of 2 training seeds**"].startswith("**20.00 ")
    assert reported["ours against the best baseline"].startswith("-10.00 [-10.00, -10.00] better")
    assert reported["the best baseline"] == "first"
    assert lines[-1] == "Quoted: a paper"


def test_a_page_keeps_its_prose_and_the_places_of_what_was_not_made(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("Words.\n<!-- results: t -->\nold\n<!-- end of results: t -->\nMore.\n")
    tables = {"t": StudyTable(columns=("x",), evaluations=("one",), ours="a")}
    assert fill_page(page, page, tables, tmp_path, lambda policy: [policy]) == ["one"]
    assert "old" in page.read_text()
    write_results(tmp_path, "one", a=("learned", [0.2, 0.4]))
    assert fill_page(page, page, tables, tmp_path, lambda policy: [policy], quick=True) == []
    text = page.read_text()
    assert "old" not in text
    assert "**Quick run:" in text
    assert text.startswith("Words.\n")
    assert text.endswith("More.\n")
    with pytest.raises(InputFileError, match="go in pairs"):
        fill_page(page, page, {"other": tables["t"]}, tmp_path, lambda policy: [policy])


def test_names_that_stand_for_nothing_are_refused(study):
    study.write_text(SMALL.replace("trained(small-*)", "trained(smal-*)"))
    with pytest.raises(ConfigError, match=r"evaluations\.played\.policies: no training has this name .*small-toy"):
        Tasks(settings.load(Study, study), study.parent)
    study.write_text(SMALL.replace("changes: [", "changes: [start=trained(smal), ", 1))
    with pytest.raises(ConfigError, match="no training before it has this name"):
        Tasks(settings.load(Study, study), study.parent)


def test_every_table_of_the_page_is_made_of_its_archive(tmp_path):
    """The page leaves a place for each table, which the results that can be downloaded fill, or says that it is not made."""
    subprocess.run(["tar", "-xJf", ROOT / "docs" / "results.tar.xz", "-C", tmp_path], check=True)
    study = settings.load(Study, ROOT / "configs" / "results.yaml")
    tasks = Tasks(study, tmp_path)
    fill_page(ROOT / "docs" / "results.md", tmp_path / "page.md", study.tables, tmp_path, tasks.policies)
    needed = {task["name"]: task["task_dep"] for task in tasks.task_train()}
    assert needed["place-without-messages-seed-0"] == ["train:operators-without-messages-seed-0"]  # which it starts from
    page = (tmp_path / "page.md").read_text()
    for name in study.tables:
        text = page.partition(f"<!-- results: {name} -->")[2].partition(f"<!-- end of results: {name} -->")[0]
        assert "| policy |" in text or "| benchmark |" in text or "Not made yet" in text, name
