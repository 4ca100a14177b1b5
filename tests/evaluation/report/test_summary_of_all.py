"""Evaluations of fleets, elastic jobs and operator placement on the page of several, beside those of scenarios."""

import json

import pytest

from meshwright import files
from meshwright.cli import run_command_line
from meshwright.errors import InputFileError
from meshwright.evaluation.report import summary

pytestmark = pytest.mark.usefixtures("undrawn")

MEAN = {"mean": 120.0, "low": 100.0, "high": 140.0}
SHARE = {"mean": 0.25, "low": 0.2, "high": 0.3}
BETTER = {"policy": "fifo", "mean": -60.0, "low": -90.0, "high": -30.0}


def fleet_row(policy, kind, mean_s, against):
    own = {**MEAN, "mean": mean_s}
    figures = {"mean_completion_s": own, "mean_wait_s": MEAN, "blocking_rate": SHARE, "devices_useful": SHARE}
    per_seed = {"mean_completion_s": [mean_s - 1, mean_s + 1]}
    row = {"policy": policy, "kind": kind, **figures, "per_seed": per_seed, "against_best_baseline": against}
    return {**row, "degrees": {}, "layouts": {}}


FLEET = {
    "format_version": 1,
    "benchmark": "small",
    "objective": "mean_completion_s",
    "verdict": "mine beats fifo.",
    "fleet": {"cluster": "four hosts", "num_devices": 8},
    "seeds": [0, 1],
    "best_fixed_entry": {},
    "best_baselines": ["fifo"],
    "rows": [fleet_row("mine", "learned", 60.0, BETTER), fleet_row("fifo", "baseline", 120.0, None)],
}


def elastic_row(policy, kind, mean_s):
    return {
        "policy": policy,
        "kind": kind,
        "mean_completion_s": {**MEAN, "mean": mean_s},
        "against_best_baseline": None,
        "against_published": None if kind == "published" else BETTER,
        "worst_against_published": None if kind == "published" else -0.05,
        **dict.fromkeys(("p95_completion_s", "makespan_s"), MEAN),
        **dict.fromkeys(("devices_held", "restarts_per_job"), SHARE),
    }


ELASTIC = {
    "format_version": 1,
    "benchmark": "elastic-mine",
    "objective": "mean_completion_s",
    "verdict": "No learned policy was compared.",
    "elastic": {"load": "load-1.0", "against": "tiresias", "num_devices": 64, "num_jobs": [160]},
    "workloads": ["workload-1"],
    "best_baselines": ["shares"],
    "timing": {"decision_s": {"shares": 0.001}},
    "rows": [elastic_row("shares", "baseline", 90.0), elastic_row("published:tiresias", "published", 120.0)],
}


def operator_row(policy, kind, over):
    ratio = {"mean": over, "low": over - 0.01, "high": over + 0.01}
    figures = {"over_bound": ratio, "over_best_known": ratio, "against_best_rule": ratio}
    return {"policy": policy, "kind": kind, **figures, "won": 0.5, "seconds": {"median": 0.001, "p99": 0.002}, "values_s": [over]}


OPERATORS = {
    "format_version": 1,
    "benchmark": "placed",
    "objective": "latency",
    "verdict": "heft is best.",
    "placement": {},
    "num_instances": 20,
    "best_known_s": 0.1,
    "rows": [operator_row("heft", "rule", 1.02), operator_row("net", "learned", 1.1)],
}

METHODS = {
    "fleet": [{"steps": 1000 * s, "validation": 120.0 - 30 * s, "elapsed_s": 1.0} for s in range(3)],
    "elastic": [{"generation": s, "validation_mean_completion_s": 120.0 - 30 * s} for s in range(3)],
    "operators": [{"update": s, "validation": 1.3 - 0.1 * s} for s in range(3)],
}


@pytest.fixture
def folder(tmp_path):
    for name, data in {"fleet": FLEET, "elastic": ELASTIC, "placed": OPERATORS}.items():
        (tmp_path / name).mkdir()
        files.write_json(tmp_path / name / "results.json", data)
    for method, rows in METHODS.items():
        for seed in range(2):
            run = tmp_path / f"{method}-{seed}"
            run.mkdir()
            files.write_json(run / "learning_curve.json", rows)
            benchmark = "preset:llm-256" if method == "fleet" else "mine"
            text = f"method: {method}\nname: {method}-{seed}\nseed: {seed}\nbenchmark: {benchmark}\n"
            (run / "config.yaml").write_text(text)
    return tmp_path


def test_each_has_a_table_a_figure_and_its_verdict(folder):
    found = summary.read(folder)
    assert (found.results, sorted(found.others)) == ({}, ["elastic", "fleet", "placed"])
    tables = summary.other_benchmarks(found)
    fleet = tables["small: four hosts, 8 devices, 2 episodes"]
    # 60 s are a minute, and 60 s less than fifo's another one
    assert fleet["rows"][0][:3] == ["mine", "1.0 [1.7, 2.3]", "-1.0 [-1.5, -0.5] better"]
    elastic = tables["elastic-mine: 64 devices, 1 workload of load-1.0"]
    assert [row[0] for row in elastic["rows"]] == ["shares", "published:tiresias"]
    assert tables["placed: latency, 20 instances"]["rows"][0][:2] == ["heft", "1.020 [1.010, 1.030]"]
    page = summary.to_html(found)
    assert page.count("<figure>") >= 3 + 3
    for words in ("mine beats fifo.", "heft is best.", "From 3 evaluations and 6 training runs", *map(str, tables)):
        assert words in page
    assert "http:" not in page
    assert "| mine | 1.0 [1.7, 2.3] |" in summary.to_markdown(found)


def test_runs_of_each_method_stand_together_with_what_they_validate_by(folder):
    found = summary.read(folder)
    best = {name: summary._best_of(runs, found.measures[name])[0][1] for name, runs in found.learning.items()}
    # minutes of the fleet's mean completion time and of elastic jobs, and a ratio
    assert sorted(best.values()) == ["1.0", "1.0", "1.100"]
    assert {measure.step_name for measure in found.measures.values()} == {"decisions (thousands)", "generations", "updates"}


def test_the_command_prints_and_writes_them(folder, capsys):
    assert run_command_line(["summarise", str(folder), "--out", str(folder / "out"), "--json", str(folder / "all.json")]) == 0
    assert "small: four hosts, 8 devices, 2 episodes" in capsys.readouterr().out
    told = json.loads((folder / "all.json").read_text())
    assert len(told["other_benchmarks"]) == 3
    assert (folder / "out" / "summary.html").is_file()


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("fleet", lambda data: data["rows"][0].pop("mean_wait_s"), "mean_wait_s"),
        ("fleet", lambda data: data.update(format_version=0), "no evaluation of a fleet of format 1"),
        ("fleet", lambda data: data.update(objective="makespan_s"), "has 0 episodes|no makespan_s"),
        ("elastic", lambda data: data.pop("timing"), "timing"),
        ("elastic", lambda data: data["rows"][0].update(mean_completion_s=None), "mean_completion_s"),
        ("placed", lambda data: data["rows"][0].update(won="half"), "won"),
    ],
)
def test_a_spoiled_file_is_refused_by_its_field(folder, name, change, said):
    path = folder / name / "results.json"
    data = json.loads(path.read_text())
    change(data)
    files.write_json(path, data)
    with pytest.raises(InputFileError, match=said) as error:
        summary.read(folder)
    assert "\n" not in str(error.value)


def test_what_was_trained_on_rows_is_tested_on_columns_and_ablations_are_told(tmp_path, capsys):
    network = {"without": [], "rounds": 4, "walks": 2}
    trained = {"benchmark": "latency-tight", "changes": ["placement.instances.kind=mixed"], "network": network}
    less = {"benchmark": "latency-tight", "network": {**network, "without": ["edges"]}}
    against = {"net": {"mean": 0.1, "low": 0.05, "high": 0.2}}
    for number, name in enumerate(("small", "large")):
        planner = {**operator_row("heft", "planner", 1.02 + number), "kind": "planner"}
        rows = [
            planner,
            {**operator_row("net", "learned", 1.1 + number), "trained": trained},
            {**operator_row("net@sample-64", "learned", 1.05), "trained": trained},
            {**operator_row("less", "learned", 1.2), "trained": less, "against": against},
        ]
        files.write_json(tmp_path / "in" / name / "results.json", {**OPERATORS, "rows": rows[: 3 + (number == 0)]})
    asked = ["summarise", str(tmp_path / "in"), "--against", "net", "--out", str(tmp_path / "out"), "--json", str(tmp_path / "s")]
    assert run_command_line(asked) == 0
    told = json.loads((tmp_path / "s").read_text())["operators"]
    head, rows = told[summary.TRANSFER]["head"], told[summary.TRANSFER]["rows"]
    assert head == ["policy", "trained on", "large", "small"]
    assert rows[0][:3] == ["net", "latency-tight; instances.kind=mixed", "2.100 [2.090, 2.110]"]
    assert [row[0] for row in rows] == ["net", "less", "best planner"]
    assert rows[1][2] == "-"
    assert rows[2][3] == "1.020 [1.010, 1.030] heft"
    ablated = told["Ablations on placed (small)"]["rows"]
    assert [row[:2] for row in ablated] == [["net", "nothing"], ["net@sample-64", "nothing"], ["less", "edges"]]
    assert ablated[2][3] == "+0.100 [+0.050, +0.200] worse"
    for written in ("summary.html", "summary.md"):
        assert summary.TRANSFER in (tmp_path / "out" / written).read_text()
    assert "trained on" in capsys.readouterr().out
