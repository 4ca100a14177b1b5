"""``make results`` from end to end on a study that takes seconds, with real training runs and evaluations."""

import json

import pytest

from benchmarks.study.__main__ import main

from ...fleet_samples import write_small_fleet

STUDY = """
quick: {num_seeds: 1, training_seeds: 1}
training:
  - name: net
    config: train.yaml
    changes:
      - network.after=[4, 4]
      - changes=[scenario.shape_slots=2]
      - "pretraining={kind: values, steps: 32, rollout_steps: 8}"
    quick: [total_steps=16]
  - name: fleet
    config: fleet-train.yaml
  - name: ops
    config: ops-train.yaml
evaluations:
  - name: rules
    benchmark: benchmark.yaml
    references: [linear-programme]
  - name: nets
    benchmark: benchmark.yaml
    changes: [scenario.shape_slots=2]
    trained: [net]
    pretrained: [net]
  - name: fleets
    benchmark: fleet.yaml
    changes: ["policies=[fifo]"]
    trained: [fleet]
    pretrained: [fleet]
  - name: placed
    benchmark: preset:latency-tight
    changes: [best_known_s=0.001, "policies=[heft, m-etf]", num_seeds=2, "placement.instances.num_ops=[8]"]
    trained: [ops]
    asked: [greedy, sample-2]
    pretrained: [ops]
tables:
  main:
    kind: comparison
    columns: [pair]
    evaluations: [rules, nets]
    ours: net
    rows: [{label: most ranks, policy: max}, {label: TD network, pretrained: net}]
    references: [{label: the bound, policy: linear-programme}]
  states: {kind: degrees, columns: [pair], evaluations: [nets], ours: net}
  waiting:
    kind: comparison
    columns: [small]
    evaluations: [fleets]
    ours: fleet
    rows: [{label: first come, policy: fifo}]
    references: [{label: imitation, pretrained: fleet, against: true}]
  placing:
    kind: comparison
    columns: [small]
    evaluations: [placed]
    ours: ops
    rows: [{label: the best rule, policy: best-rule}]
    references: [{label: the imitated, pretrained: ops}, {label: of two draws, trained: ops, asked: sample-2}]
"""

FLEET_TRAIN = """
method: fleet
name: small
benchmark: fleet.yaml
total_steps: 64
num_validation_seeds: 1
imitation: {rule: sjf, decisions: 1000, epochs: 1}
ppo: {num_envs: 2, rollout_steps: 16, minibatch: 16, epochs: 1}
network: {width: 8}
"""

OPS_TRAIN = """
method: operators
name: small
benchmark: preset:latency-tight
changes: ["placement.instances.num_ops=[8]", num_validation_seeds=2]
num_training_instances: 16
imitation: {moves_per_op: 2, steps: 2, minibatch: 4}
updates: 1
network: {hidden: 8, rounds: 1}
ppo: {instances_per_update: 2, samples_per_instance: 2}
"""

TABLES = ("main", "states", "waiting", "placing")
PAGE = "".join(f"<!-- results: {name} -->\n<!-- end of results: {name} -->\n\n" for name in TABLES)


@pytest.fixture
def study(work, monkeypatch):
    monkeypatch.delenv("MESHWRIGHT_REFERENCE", raising=False)
    (work / "study.yaml").write_text(STUDY)
    (work / "fleet-train.yaml").write_text(FLEET_TRAIN)
    (work / "ops-train.yaml").write_text(OPS_TRAIN)
    write_small_fleet(work)
    (work / "page.md").write_text(f"# Results\n\n{PAGE}The end.\n")
    return work


@pytest.mark.slow
def test_a_study_is_carried_out_shown_and_not_done_twice(study, capsys):
    options = ["--study", "study.yaml", "--jobs", "2", "--page", "page.md"]
    assert main(options) == 0, (study / "runs/results/tasks/net-seed-0.log").read_text()
    text = (study / "page.md").read_text()
    shown = ("most ranks", "TD network", "**ours**", "ours against the best baseline", "the bound", "first come", "imitation")
    for label in (*shown, "ours against imitation", "the best rule", "the imitated", "of two draws"):
        assert f"| {label} | " in text
        assert f"| {label} | - |" not in text
    assert "**pair**, run net-seed-0: the most frequent degree" in text
    assert "Not produced yet" not in text
    assert text.endswith("The end.\n")
    (row,) = [row for row in results(study, "nets")["rows"] if row["policy"] == "td-net-seed-0"]
    assert row["kind"] == "learned"
    capsys.readouterr()
    assert main(options) == 0
    told = capsys.readouterr().out
    assert told.count("done already") == 7
    assert (study / "page.md").read_text() == text


def results(study, name):
    return json.loads((study / "runs" / "results" / "evaluations" / name / "results.json").read_text())


def test_a_quick_study_has_a_folder_and_a_page_of_its_own(study, capsys):
    (study / "docs").mkdir()
    (study / "page.md").rename(study / "docs" / "results.md")
    assert main(["--study", "study.yaml", "--quick", "--only", "rules"]) == 0
    page = (study / "runs" / "results-quick" / "results.md").read_text()
    assert page.count("**Quick run: training cut to a few steps, 1 test episode.") == len(TABLES)
    assert "Not produced yet: `net-seed-0`, `nets`." in page
    assert "Quick" not in (study / "docs" / "results.md").read_text()


def test_what_is_wrong_is_told_in_one_line(study, capsys):
    for options, told in (
        (["--only", "ruls"], "--only: nothing in the study has this name (got 'ruls'); did you mean 'rules'?"),
        (["--jobs", "0"], "jobs: must be 1 to 256"),
        (["--graphs", "nowhere"], "--graphs: no such file or folder"),
        (["--page", "absent.md", "--tables"], "results.md"),
    ):
        assert main(["--study", "study.yaml", *options]) == 2
        err = capsys.readouterr().err
        assert told in err
        assert err.startswith("meshwright: error: ")
        assert err.count("\n") == 1


def test_failures_are_counted_in_the_exit_status_and_named(study, capsys):
    text = (study / "study.yaml").read_text()
    (study / "study.yaml").write_text(text.replace("    references: [linear-programme]", "    policies: [fixed-3]"))
    assert main(["--study", "study.yaml", "--only", "rules", "--no-page"]) == 1
    told = capsys.readouterr().out
    assert "failed" in told
    assert "fixed-3" in told
    assert "not done: rules" in told


def test_the_list_tells_how_far_everything_is_and_does_nothing(study, capsys):
    assert main(["--study", "study.yaml", "--list"]) == 0
    assert capsys.readouterr().out.count("missing") == 7
    assert not (study / "runs").exists()
