"""Fleets in a study: their commands and digests, and tables in the unit of each benchmark's objective."""

import pytest

from benchmarks.study.__main__ import resolved
from benchmarks.study.archive import pack, unpack
from benchmarks.study.findings import read
from benchmarks.study.page import part
from benchmarks.study.places import Places
from benchmarks.study.plan import selected, tasks
from benchmarks.study.runner import record_file
from benchmarks.study.study import load_study
from benchmarks.study.tasks import CURVE, RESULTS, EvaluationTask, shown
from meshwright import files
from meshwright.errors import ConfigError, InputFileError, PolicyError

from ...fleet_samples import DEADLINES, write_small_fleet

STUDY = f"""
training:
  - {{name: net, config: train.yaml, seeds: [0, 1]}}
  - {{name: blind, config: train.yaml, changes: [network.messages=false]}}
  - {{name: less, config: train.yaml, variants: {{one-job: ["changes=[fleet.visible_jobs=1]"]}}}}
evaluations:
  - {{name: rules-small, benchmark: fleet.yaml}}
  - {{name: rules-late, benchmark: fleet.yaml, changes: {DEADLINES}}}
  - {{name: nets-small, benchmark: fleet.yaml, changes: ["policies=[]"], trained: [net, blind], pretrained: [net]}}
  - {{name: nets-late, benchmark: fleet.yaml, changes: {["policies=[]", *DEADLINES]}, trained: [net]}}
  - {{name: lessened, benchmark: fleet.yaml, changes: ["policies=[]", fleet.visible_jobs=1], trained: [less]}}
tables:
  main:
    kind: comparison
    columns: [small, late]
    evaluations: [rules-<column>, nets-<column>]
    ours: net
    rows:
      - {{label: first come, policy: fifo}}
      - {{label: tuned, policy: sjf+best-refusal}}
    references:
      - {{label: imitation, pretrained: net, columns: [small], against: true}}
      - {{label: blind ones, trained: blind, columns: [small], against: true}}
      - {{label: the bound, policy: bound}}
  parts:
    kind: ablations
    columns: [small]
    evaluations: [nets-small, lessened]
    ours: less
    whole: net
    labels: {{full: the whole, one-job: one job}}
    pretrained: imitation
  taken: {{kind: entries, columns: [small], evaluations: [nets-small], ours: net, least_share: 0.1}}
  times: {{kind: durations}}
"""

TRAIN = "{method: fleet, name: small, benchmark: fleet.yaml, total_steps: 64, imitation: {rule: sjf, decisions: 1000}}"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    write_small_fleet(tmp_path)
    (tmp_path / "study.yaml").write_text(STUDY)
    (tmp_path / "train.yaml").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def all_tasks(folder, graphs=None):
    study, places = load_study(folder / "study.yaml"), Places(folder / "out", graphs)
    return study, places, {task.name: task for task in tasks(study, places, resolved)}


def change(folder, file, old, new):
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new))


def test_commands_are_those_of_other_benchmarks_without_profiles_and_a_network_before_ppo_has_a_name(folder):
    _, places, found = all_tasks(folder, graphs=folder)
    assert "--graphs" not in [*found["net-seed-0"].command(places), *found["nets-small"].command(places)]
    run = "runs/results/training/net-seed-0"
    assert shown(found["net-seed-0"])[-1] == f"cp {run}/imitated.pt {run}/imitated-net-seed-0.pt"
    assert found["nets-small"].specs(places)[-1] == f"{places.out}/training/net-seed-1/imitated-net-seed-1.pt"
    (places.out / "training" / "net-seed-0").mkdir(parents=True)
    (places.out / "training" / "net-seed-0" / "imitated.pt").write_bytes(b"one")
    found["net-seed-0"].keep_pretrained(places)
    assert (places.out / "training" / "net-seed-0" / "imitated-net-seed-0.pt").read_bytes() == b"one"


def test_a_row_of_some_columns_asks_for_nothing_in_others(folder):
    change(folder, "study.yaml", "trained: blind, columns: [small]", "trained: blind-<column>, columns: [small]")
    change(folder, "study.yaml", "name: blind", "name: blind-small")
    change(folder, "study.yaml", "trained: [net, blind]", "trained: [net, blind-small]")
    study, _, found = all_tasks(folder)
    assert {task.name for task in selected(list(found.values()), study, ["main"])} == {
        *("net-seed-0", "net-seed-1", "blind-small-seed-0", "rules-small", "rules-late", "nets-small", "nets-late"),
    }
    change(folder, "study.yaml", "pretrained: net, columns: [small]", "pretrained: net, columns: [smal]")
    with pytest.raises(ConfigError, match="imitation: shown for smal, which is no column"):
        all_tasks(folder)


def test_a_digest_follows_the_settings_of_the_fleet_its_cluster_and_its_jobs_but_no_name(folder):
    def digests():
        _, places, found = all_tasks(folder)
        return found["net-seed-0"].digest(places), found["rules-small"].digest(places)

    before = digests()
    change(folder, "train.yaml", "name: small", "name: other, num_threads: 2")
    change(folder, "fleet.yaml", "name: small\nfleet", "# a comment\nname: small\nfleet")
    assert digests() == before
    seen = {*before}
    for file, old, new in (
        ("fleet.yaml", "num_jobs: 16", "num_jobs: 17"),
        ("fleet.yaml", "layouts: 2", "layouts: 1"),
        ("fleet.yaml", "visible_jobs: 3", "visible_jobs: 3\n  sharing: none"),
        ("fleet.yaml", "zoo:resnet18, global_batch: 64", "zoo:resnet18, global_batch: 128"),
        ("fleet-cluster.yaml", "12.5", "25.0"),
    ):
        change(folder, file, old, new)
        now = digests()
        assert not seen & {*now}, new
        seen |= {*now}
    change(folder, "train.yaml", "total_steps: 64", "total_steps: 65")
    assert digests()[0] not in seen


def test_an_evaluation_follows_the_bytes_of_the_networks_before_ppo(folder):
    _, places, found = all_tasks(folder)
    with pytest.raises(PolicyError):
        found["nets-small"].digest(places)
    for run in ("net-seed-0", "net-seed-1", "blind-seed-0"):
        for name in ("policy.pt", f"imitated-{run}.pt"):
            files.write_text(places.out / "training" / run / name, name)
    before = found["nets-small"].digest(places)
    files.write_text(places.out / "training" / "net-seed-1" / "imitated-net-seed-1.pt", "other")
    assert found["nets-small"].digest(places) != before


def test_a_policy_of_one_world_is_not_evaluated_in_the_other(folder):
    change(
        folder, "study.yaml", 'nets-small, benchmark: fleet.yaml, changes: ["policies=[]"]', "nets-small, benchmark: preset:toy"
    )
    with pytest.raises(ConfigError, match="nets-small: was trained on a fleet, and this is a benchmark of a scenario"):
        all_tasks(folder)


def test_a_table_that_is_about_scenarios_alone_takes_no_fleet(folder):
    change(folder, "study.yaml", "{kind: entries, columns: [small]", "{kind: latency, columns: [small]")
    change(folder, "study.yaml", ", least_share: 0.1", "")
    with pytest.raises(ConfigError, match=r"tables.taken: is of a fleet; such a table shows a scenario \(got 'net-seed-0'\)"):
        all_tasks(folder)


def results(objective, values, chosen=()):
    """Results with nothing in them but what readers want: the objective in each episode by policy."""
    kinds = {"fifo": "baseline", "sjf+best-refusal": "baseline", "bound": "reference"}
    rows = [
        {"policy": policy, "kind": kinds.get(policy, "learned"), "per_seed": {objective: each, "makespan_s": each}}
        | {"degrees": {}, "layouts": {}}
        for policy, each in values.items()
    ]
    return {
        "format_version": 1,
        "benchmark": "small",
        "objective": objective,
        "fleet": {"cluster": "small", "num_devices": 8},
        "seeds": [0, 1],
        "best_fixed_entry": {name: {"chosen": played} for name, played in dict(chosen).items()},
        "rows": rows,
    }


GIVEN = {
    "rules-small": results("mean_completion_s", {"fifo": [1500.0] * 2, "bound": [300.0] * 2}),
    "nets-small": results(
        "mean_completion_s",
        {
            "net-seed-0": [900.0] * 2,
            "net-seed-1": [1020.0] * 2,
            "imitated-net-seed-0": [960.0] * 2,
            "imitated-net-seed-1": [960.0] * 2,
            "blind-seed-0": [None, 1200.0],
        },
    ),
    "rules-late": results(
        "blocking_rate", {"fifo": [0.4] * 2, "sjf+best-refusal": [0.25] * 2}, {"sjf+best-refusal": "sjf+refuse-3"}
    ),
    "nets-late": results("blocking_rate", {"net-seed-0": [0.1] * 2, "net-seed-1": [0.3] * 2}),
    "lessened": results("mean_completion_s", {"less-one-job-seed-0": [1080.0] * 2}),
}
CURVES = {"net-seed-0": [1000.0, 900.0, 930.0], "less-one-job-seed-0": [1080.0]}


@pytest.fixture
def given(folder):
    """The study with all evaluations and two trainings done."""
    study, places, found = all_tasks(folder)
    curves = {
        name: [{"steps": 32 * i, "validation": value, "elapsed_s": 60.0 * i, "cpu_s": 1.0} for i, value in enumerate(values)]
        for name, values in CURVES.items()
    }
    for name, content in (GIVEN | curves).items():
        task = found[name]
        files.write_json(task.folder(places) / (RESULTS if isinstance(task, EvaluationTask) else CURVE), content)
        files.write_json(record_file(task, places), {"state": "done", "digest": "0"})
    return study, places, found


def rows_of(study, places, found, name):
    findings = read(study, list(found.values()), places)
    lines, _ = part(findings, name, study.tables[name], set())
    return [line for line in lines if line.startswith("| ")]


def test_figures_are_in_the_unit_of_each_objective_and_differences_have_their_share(given):
    # small: 15 and 17 min, 16 in the mean, against 25: -9, or -36 % of 25. late: 10 and 30 %, 20 in the mean, against 25.
    assert rows_of(*given, "main") == [
        "| policy | small: mean completion time, min | late: blocked jobs, % |",
        "| --- | --- | --- |",
        "| first come | 25.0 [25.0, 25.0] | 40.0 [40.0, 40.0] |",
        "| tuned | - | 25.0 [25.0, 25.0] (refuse 3 %) |",
        "| ours, training seed 0 | 15.0 [15.0, 15.0] | 10.0 [10.0, 10.0] |",
        "| ours, training seed 1 | 17.0 [17.0, 17.0] | 30.0 [30.0, 30.0] |",
        "| **ours, mean over training seeds** | **16.0 [16.0, 16.0]** | **20.0 [20.0, 20.0]** |",
        "| ours against the best baseline | -9.0 [-9.0, -9.0] better (-36 [-36, -36] %) "
        "| -5.0 [-5.0, -5.0] better (-20 [-20, -20] %) |",
        "| the best baseline | first come | tuned (refuse 3 %) |",
        "| imitation | 16.0 [16.0, 16.0] | - |",
        "| blind ones | - | - |",  # no job of it completed in one of the episodes
        "| the bound | 5.0 [5.0, 5.0] | - |",
        "| ours against imitation | +0.0 [+0.0, +0.0] unclear (+0 [+0, +0] %) | - |",
        "| ours against blind ones | - | - |",
    ]


def test_where_more_is_better_so_is_a_difference_above_zero(given):
    _, places, found = given
    for name in ("rules-late", "nets-late"):
        path = found[name].folder(places) / RESULTS
        files.write_text(path, path.read_text().replace("blocking_rate", "deadline_met_rate"))
    told = [row.split(" | ")[-1] for row in rows_of(*given, "main")]
    assert told[0] == "late: jobs that meet their deadline, % |"
    assert told[7:9] == ["-20.0 [-20.0, -20.0] worse (-50 [-50, -50] %) |", "first come |"]


def test_ablations_stand_beside_the_same_seeds_of_the_whole(given):
    assert rows_of(*given, "parts")[2:] == [
        "| the whole | 15.0 [15.0, 15.0] | - |",  # seed 0 alone, as the variant
        "| one job | 18.0 [18.0, 18.0] | +3.0 [+3.0, +3.0] worse (+20 [+20, +20] %) |",
        "| imitation | 16.0 [16.0, 16.0] | +1.0 [+1.0, +1.0] worse (+7 [+7, +7] %) |",
    ]


def test_entries_are_counted_and_told_by_share_the_most_frequent_first(given):
    _, places, found = given
    content = GIVEN["nets-small"]
    taken = {"degrees": {"2": 0.2, "4": 0.8}, "layouts": {"dp1": 0.09, "dp2": 0.3, "tp4|x": 0.61}}
    rows = [content["rows"][0] | taken, *content["rows"][2:]]
    files.write_json(found["nets-small"].folder(places) / RESULTS, content | {"rows": rows})
    assert rows_of(*given, "taken") == [
        "| benchmark | policy | layouts of 10 % or more | these | devices |",
        "| --- | --- | --- | --- | --- |",
        "| small | net-seed-0 | 2 | tp4\\|x (61 %), dp2 (30 %) | 4 (80 %), 2 (20 %) |",
    ]


def test_durations_tell_the_best_validation_in_the_unit_of_the_objective(given):
    assert rows_of(*given, "times")[2:] == [
        "| net-seed-0 | 64 | 2.0 | 15.0 min |",
        "| less-one-job-seed-0 | 0 | 0.0 | 18.0 min |",
    ]


def test_an_archive_of_fleets_fills_the_same_tables(given, folder):
    study, here, found = given
    pack(list(found.values()), here, folder / "packed")
    there = Places(folder / "there")
    assert set(unpack(folder / "packed", list(found.values()), there)) == {*GIVEN, *CURVES}
    for name in study.tables:
        assert rows_of(study, there, found, name) == rows_of(study, here, found, name)
    held = files.read_json(found["nets-late"].folder(there) / RESULTS)["rows"][0]["per_seed"]
    assert held == {"blocking_rate": [0.1, 0.1]}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"mean_completion_s",', '"happiness",', "objective: .*is none of blocking_rate"),
        ('"format_version": 1', '"format_version": 9', "is no evaluation of a fleet of format 1"),
        ('"seeds": [\n    0,\n', '"seeds": [\n    7,\n    0,\n', "net-seed-0 has 2 episodes for 3 seeds"),
    ],
)
def test_results_that_are_not_of_the_form_are_refused(given, old, new, told):
    _, places, found = given
    path = found["nets-small"].folder(places) / RESULTS
    text = path.read_text()
    assert old in text
    files.write_text(path, text.replace(old, new))
    with pytest.raises(InputFileError, match=told):
        rows_of(*given, "main")
