"""Operator placement in a study: how policies are asked, values over bounds, and variants beside the same seeds of the whole."""

import pytest

from benchmarks.study.__main__ import resolved
from benchmarks.study.archive import pack, unpack
from benchmarks.study.findings import joined, read
from benchmarks.study.page import part
from benchmarks.study.places import Places
from benchmarks.study.plan import tasks
from benchmarks.study.runner import record_file
from benchmarks.study.study import load_study
from benchmarks.study.tasks import CURVE, RESULTS, EvaluationTask, shown
from benchmarks.study.worlds.operators import Operators
from meshwright import files
from meshwright.envs.operators.benchmark import load_placement_benchmark
from meshwright.errors import ConfigError, InputFileError, PolicyError
from meshwright.evaluation.operators.evaluate import evaluate_operators
from meshwright.simulation.operators.instance_files import save

STUDY = """
training:
  - {name: net, config: train.yaml, seeds: [0, 1]}
  - {name: less, config: train.yaml, variants: {no-edges: ["network.without=[edges]"]}, seeds: [0, 1]}
  - {name: less, config: train.yaml, variants: {no-walks: [network.walks=0]}, seeds: [1]}
evaluations:
  - {name: rules-small, benchmark: place.yaml}
  - name: nets-small
    benchmark: place.yaml
    changes: ["policies=[]"]
    trained: [net, less]
    asked: [greedy, search-0.1]
    pretrained: [net]
tables:
  main:
    kind: comparison
    columns: [small]
    evaluations: [rules-small, nets-small]
    ours: net
    rows: [{label: HEFT, policy: heft}, {label: the best rule, policy: best-rule}]
    references:
      - {label: imitation, pretrained: net, against: true}
      - {label: no edges, trained: less-no-edges, against: true}
      - {label: search, trained: net, asked: search-0.1}
  searched:
    kind: comparison
    columns: [small]
    evaluations: [rules-small, nets-small]
    ours: net
    asked: search-0.1
    references: [{label: annealing, policy: annealing@0.1, against: true}]
  parts:
    kind: ablations
    columns: [small]
    evaluations: [nets-small]
    ours: less
    whole: net
    labels: {full: the whole, no-edges: no edges, no-walks: no walks}
    pretrained: imitation alone
  times: {kind: durations}
"""

FILES = {
    "study.yaml": STUDY,
    "place.yaml": """
name: small
placement: {instances: {kind: layered, num_ops: [8]}, devices: {num_devices: [3]}}
policies: [heft, m-etf, annealing@0.1]
best_known_s: 0.01
num_seeds: 2
""",
    "train.yaml": """
method: operators
name: small
benchmark: place.yaml
imitation: {steps: 6}
updates: 4
""",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def all_tasks(folder):
    study, places = load_study(folder / "study.yaml"), Places(folder / "out", folder)
    return study, places, {task.name: task for task in tasks(study, places, resolved)}


def change(folder, file, old, new):
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new))


def test_trained_policies_are_evaluated_in_every_way_that_they_are_asked(folder):
    _, places, found = all_tasks(folder)
    run = f"{places.out}/training/net-seed-1"
    told = found["nets-small"].specs(places)
    assert len(told) == 2 * 5 + 2
    assert [spec for spec in told if "net-seed-1" in spec] == [run, f"{run}@search-0.1", f"{run}/imitated-net-seed-1.pt"]
    assert shown(found["net-seed-0"])[-1].endswith("imitated.pt runs/results/training/net-seed-0/imitated-net-seed-0.pt")
    assert "--graphs" not in [*found["net-seed-0"].command(places), *found["nets-small"].command(places)]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "[greedy, search-0.1]",
            "[search-0.1, serch-0.1]",
            r"nets-small.asked: is no way .*'serch-0.1'.*did you mean 'search-0.1'",
        ),
        ("[greedy, search-0.1]", "[search-0.1, search-0]", r"nets-small.asked: is no way to ask a policy \(got 'search-0'\)"),
        ("[greedy, search-0.1]", "[greedy]", r"tables.main.asked: nothing in the study has this name \(got 'search-0.1'\)"),
        (
            "    asked: search-0.1",
            "    asked: search-0.2",
            r"tables.searched.asked: .*\(got 'search-0.2'\); valid: greedy, search-0.1",
        ),
        ("{label: HEFT,", "{label: HEFT, asked: shuffled,", "asked goes with trained"),
        (
            "nets-small\n    benchmark: place.yaml",
            "nets-small\n    benchmark: preset:toy",
            "scenario are asked in one way .*search",
        ),
    ],
)
def test_a_way_of_asking_that_is_none_or_that_nobody_evaluates_is_refused(folder, old, new, told):
    change(folder, "study.yaml", old, new)
    with pytest.raises(ConfigError, match=told):
        all_tasks(folder)


def test_a_digest_follows_what_is_placed_but_no_name_and_no_time_for_the_best_known(folder):
    def digests():
        _, places, found = all_tasks(folder)
        return found["net-seed-0"].digest(places), found["rules-small"].digest(places)

    before = digests()
    change(folder, "place.yaml", "name: small", "# a comment\nname: other")
    change(folder, "place.yaml", "best_known_s: 0.01", "best_known_s: 0.02")
    change(folder, "train.yaml", "name: small", "name: other\nnum_threads: 2")
    assert digests() == before
    seen = {*before}
    for old, new in (("[8]", "[9]"), ("[3]", "[4]"), ("placement: {", "placement: {objective: throughput, ")):
        change(folder, "place.yaml", old, new)
        now = digests()
        assert not seen & {*now}, new
        seen |= {*now}


def test_instances_of_files_count_by_what_they_hold(folder):
    world, drawn = Operators(), load_placement_benchmark("place.yaml").placement
    for name, seed in (("one", 0), ("two", 0), ("three", 1)):
        save(drawn.instance("test", seed), folder / f"{name}.json")
    one, two, three = (
        world.digest(world.load("place.yaml", [f"placement.instances={{kind: files, files: [{name}.json]}}"]))
        for name in ("one", "two", "three")
    )
    assert one == two != three


def test_an_evaluation_follows_the_bytes_of_the_policies_that_it_asks(folder):
    _, places, found = all_tasks(folder)
    with pytest.raises(PolicyError):
        found["nets-small"].digest(places)
    for run in found["nets-small"].needs:
        for name in ("policy.pt", f"imitated-{run}.pt"):
            files.write_text(places.out / "training" / run / name, name)
    before = found["nets-small"].digest(places)
    change(folder, "study.yaml", "[greedy, search-0.1]", "[greedy, search-0.1, sample-2]")
    assert all_tasks(folder)[2]["nets-small"].digest(places) != before
    files.write_text(places.out / "training" / "net-seed-1" / "imitated-net-seed-1.pt", "other")
    assert found["nets-small"].digest(places) != before


def test_what_an_evaluation_wrote_becomes_values_over_bounds_and_the_best_rule_is_that_of_each_instance(folder):
    found = evaluate_operators(load_placement_benchmark("place.yaml"), [])
    files.write_json(folder / "results.json", found)
    read_back = Operators().results(folder / "results.json")
    rows = {row["policy"]: row for row in read_back["rows"]}
    assert {name: row["kind"] for name, row in rows.items()} == {
        **{"heft": "baseline", "m-etf": "baseline", "best-rule": "baseline", "annealing@0.1": "planner"},
    }
    values = {row["policy"]: [v / b for v, b in zip(row["values_s"], found["bounds_s"], strict=True)] for row in found["rows"]}
    for name, each in values.items():
        assert rows[name]["per_seed"]["over_bound"] == pytest.approx(each)
    assert rows["best-rule"]["per_seed"]["over_bound"] == pytest.approx(list(map(min, values["heft"], values["m-etf"])))
    assert read_back["seeds"] == [0, 1]


def results(over_bound, *, bounds_s=(2.0, 4.0), infeasible=()):
    """Results with nothing in them but what readers want: values over bounds by policy, each with whether it is a rule."""
    rows = [
        {
            "policy": policy,
            "kind": "learned" if "/" in policy else "planner",
            "is_rule": "/" not in policy and "@" not in policy,
            "infeasible": 0.5 if policy in infeasible else 0.0,
            "against_best_rule": None if "/" in policy else {"mean": 0.0, "low": None, "high": None},
            "values_s": [ratio * bound_s for ratio, bound_s in zip(ratios, bounds_s, strict=True)],
            "against": {"anybody": {}},
            "by_size": {},
        }
        for policy, ratios in over_bound.items()
    ]
    told = {"format_version": 1, "benchmark": "small", "placement": {}, "objective": "latency"}
    return {**told, "bounds_s": list(bounds_s), "rows": rows}


RULES = {"heft": [2.0, 1.5], "m-etf": [1.5, 2.0], "annealing@0.1": [1.25, 1.25]}
ASKED = {
    "net-seed-0": [1.25, 1.25],
    "net-seed-1": [1.5, 1.5],
    "net-seed-0@search-0.1": [1.0, 1.0],
    "net-seed-1@search-0.1": [1.25, 1.25],
    "net-seed-0/imitated-net-seed-0.pt": [1.5, 1.5],
    "net-seed-1/imitated-net-seed-1.pt": [1.5, 1.5],
    "less-no-edges-seed-0": [1.5, 1.5],
    "less-no-edges-seed-1": [1.75, 1.75],
    "less-no-walks-seed-1": [1.75, 1.75],
}
GIVEN = {
    "rules-small": results(RULES),
    "nets-small": results({f"runs/training/{name}": ratios for name, ratios in ASKED.items()}),
}


@pytest.fixture
def given(folder):
    """The study with both evaluations and a training done."""
    study, places, found = all_tasks(folder)
    curve = [{"update": 5 * i, "validation": 1 - i / 8, "elapsed_s": 60.0 * i} for i in range(3)]
    for name, content in (GIVEN | {"net-seed-0": curve}).items():
        task = found[name]
        files.write_json(task.folder(places) / (RESULTS if isinstance(task, EvaluationTask) else CURVE), content)
        files.write_json(record_file(task, places), {"state": "done", "digest": "0"})
    return study, places, found


def rows_of(study, places, found, name):
    lines, _ = part(read(study, list(found.values()), places), name, study.tables[name], set())
    return [line for line in lines if line.startswith("| ")]


def test_figures_are_multiples_of_the_bound_and_differences_have_their_share(given):
    # On each instance one of the rules has 1.5: the mean of the best is 1.5, of each 1.75. Ours, 1.375, is 8 % below 1.5.
    assert rows_of(*given, "main") == [
        "| policy | small: value, times the lower bound |",
        "| --- | --- |",
        "| HEFT | 1.75 [1.50, 2.00] |",
        "| the best rule | 1.50 [1.50, 1.50] |",
        "| ours, training seed 0 | 1.25 [1.25, 1.25] |",
        "| ours, training seed 1 | 1.50 [1.50, 1.50] |",
        "| **ours, mean over training seeds** | **1.38 [1.38, 1.38]** |",
        "| ours against the best baseline | -0.12 [-0.12, -0.12] better (-8 [-8, -8] %) |",
        "| the best baseline | the best rule |",
        "| imitation | 1.50 [1.50, 1.50] |",
        "| no edges | 1.62 [1.62, 1.62] |",
        "| search | 1.12 [1.12, 1.12] |",
        "| ours against imitation | -0.12 [-0.12, -0.12] better (-8 [-8, -8] %) |",
        "| ours against no edges | -0.25 [-0.25, -0.25] better (-15 [-15, -15] %) |",
    ]


def test_a_table_is_about_ours_as_it_asks_them_and_a_search_is_no_baseline(given):
    assert rows_of(*given, "searched")[2:] == [
        "| ours, training seed 0 | 1.00 [1.00, 1.00] |",
        "| ours, training seed 1 | 1.25 [1.25, 1.25] |",
        "| **ours, mean over training seeds** | **1.12 [1.12, 1.12]** |",
        "| ours against the best baseline | -0.38 [-0.38, -0.38] better (-25 [-25, -25] %) |",
        "| the best baseline | best-rule |",
        "| annealing | 1.25 [1.25, 1.25] |",
        "| ours against annealing | -0.12 [-0.12, -0.12] better (-10 [-10, -10] %) |",
    ]


def test_a_variant_stands_against_those_seeds_of_the_whole_that_it_has(given):
    # The whole: 1.25 and 1.5. Without edges 1.5 and 1.75, a quarter more; without walks, seed 1 alone, 1.75 against 1.5.
    assert rows_of(*given, "parts")[2:] == [
        "| the whole | 1.38 [1.38, 1.38] | - |",
        "| no edges | 1.62 [1.62, 1.62] | +0.25 [+0.25, +0.25] worse (+18 [+18, +18] %) |",
        "| no walks | 1.75 [1.75, 1.75] | +0.25 [+0.25, +0.25] worse (+17 [+17, +17] %) |",
        "| imitation alone | 1.50 [1.50, 1.50] | +0.12 [+0.12, +0.12] worse (+9 [+9, +9] %) |",
    ]


def test_training_counts_updates_and_steps_of_the_imitation(given):
    _, places, found = given
    assert found["net-seed-0"].total == 6 + 4
    assert found["net-seed-0"].share_done(places) == 1.0
    assert rows_of(*given, "times")[2:] == ["| net-seed-0 | 10 updates | 2.0 | 0.75 |"]


def test_who_has_no_placement_for_an_instance_has_no_figure(given):
    _, places, found = given
    files.write_json(found["rules-small"].folder(places) / RESULTS, results(RULES, infeasible=["heft"]))
    told = rows_of(*given, "main")
    assert told[2:4] == ["| HEFT | - |", "| the best rule | 1.50 [1.50, 1.50] |"]


def test_an_archive_fills_the_same_tables(given, folder):
    study, here, found = given
    pack(list(found.values()), here, folder / "packed")
    there = Places(folder / "there")
    assert set(unpack(folder / "packed", list(found.values()), there)) == {*GIVEN, "net-seed-0"}
    for name in study.tables:
        assert rows_of(study, there, found, name) == rows_of(study, here, found, name)
    assert "by_size" not in files.read_json(found["rules-small"].folder(there) / RESULTS)["rows"][0]


def test_evaluations_of_other_instances_are_not_joined(given):
    _, places, found = given
    changed = results(RULES, bounds_s=(2.0, 4.1))
    files.write_json(found["rules-small"].folder(places) / RESULTS, changed)
    with pytest.raises(InputFileError, match="two evaluations of one column differ in their instances"):
        rows_of(*given, "main")
    files.write_json(found["rules-small"].folder(places) / RESULTS, results(RULES, bounds_s=(2.0 * (1 + 1e-15), 4.0)))
    assert rows_of(*given, "main")
    path = found["rules-small"].folder(places) / RESULTS
    assert joined([found["rules-small"].world.results(path)]).scenario == {}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"format_version": 1', '"format_version": 9', "is no evaluation of operator placement of format 1"),
        ('"bounds_s": [\n    2.0,', '"bounds_s": [\n    0.0,', "bounds_s"),
        ('"bounds_s": [\n    2.0,', '"bounds_s": [\n    7.0,\n    2.0,', "has 2 episodes for 3 seeds"),
        ('"is_rule": true', '"is_rule": "yes"', "is_rule"),
    ],
)
def test_results_that_are_not_of_the_form_are_refused(given, old, new, told):
    _, places, found = given
    path = found["rules-small"].folder(places) / RESULTS
    text = path.read_text()
    assert old in text
    files.write_text(path, text.replace(old, new))
    with pytest.raises(InputFileError, match=told):
        rows_of(*given, "main")
