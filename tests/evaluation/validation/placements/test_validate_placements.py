"""Published figures of operator placement, and all values of one instance."""

import json

import pytest

from meshwright.cli import run_command_line
from meshwright.evaluation.validation.placements import validate as placements
from meshwright.evaluation.validation.placements.placed_latencies import ratio_rows
from meshwright.evaluation.validation.placements.validate import PlacementSources
from meshwright.evaluation.validation.published_figures import PublishedFigure
from meshwright.simulation.operators.instance_files import save

from ....planners.operators.instances import chain, fork
from ....simulation.operators.published_samples import PIPER, PUBLISHED, SPLIT, written

NUM_FIGURES = {
    "max-load": 41,
    "max-load, other devices": 12,
    "max-load, not contiguous": 3,
    "pipedream": 33,
    "piper": 10,
    "latency": 15,
    "tasklets": 15,
}

PROFILE = """node1 -- Input -- forward_compute_time=9.0, backward_compute_time=0.0, activation_size=8.0, parameter_size=0.0
node2 -- Linear -- forward_compute_time=3.0, backward_compute_time=1.0, activation_size=8.0, parameter_size=8.0
node3 -- Linear -- forward_compute_time=1.0, backward_compute_time=1.0, activation_size=8.0, parameter_size=8.0
\tnode1 -- node2
\tnode2 -- node3
"""


@pytest.fixture
def sources(reference):
    return PlacementSources(reference / "operators", reference / "pipedream", 60.0)


def wrong(family, sources):
    result = list(placements.FAMILIES[family](sources))
    assert len(result) == NUM_FIGURES[family]
    return [figure for figure in result if not figure.agrees]


@pytest.mark.reference
@pytest.mark.slow
@pytest.mark.parametrize("family", list(placements.FAMILIES))
def test_every_published_figure_is_computed_again(sources, family):
    assert wrong(family, sources) == []


@pytest.mark.reference
def test_the_published_pipelines_of_pipedream_are_found_again(sources):
    assert wrong("pipedream", sources) == []


@pytest.mark.reference
def test_some_published_loads_are_computed_again(sources, monkeypatch):
    names = ("layers_bert24_inference", "layers_bert24_training", "operators_resnet50_inference")
    monkeypatch.setattr(placements, "MAX_LOAD_MS", {name: placements.MAX_LOAD_MS[name] for name in names})
    figures = list(placements.FAMILIES["max-load"](sources))
    assert len(figures) == 14
    assert [figure for figure in figures if not figure.agrees] == []


def test_a_figure_agrees_within_its_tolerance_or_its_last_digit():
    def agrees(ours, published, is_limit=False):
        return PublishedFigure("", "", ours, published, 1e-6, is_limit).agrees

    assert agrees(1.00049, "1.000")
    assert not agrees(1.0006, "1.000")
    assert agrees(1234567.5, "1234567.0")
    assert not agrees(0.9, "1.000")
    assert agrees(0.9, "1.000", is_limit=True)
    assert not agrees(1.1, "1.000", is_limit=True)
    assert agrees(30.0, "30")
    assert not agrees(31.0, "30")
    assert agrees("3:1", "3:1")
    assert not agrees("2:2", "3:1")


def figures_of(*rows):
    return {"some": lambda sources: iter(rows)}


def test_a_figure_that_disagrees_ends_with_1_and_is_marked(tmp_path, monkeypatch, capsys):
    (tmp_path / "operators").mkdir()
    (tmp_path / "pipedream").mkdir()
    good, bad = PublishedFigure("a", "one", 1.0, "1.000", 1e-6), PublishedFigure("b", "two", 2.0, "1.000", 1e-6)
    monkeypatch.setattr(placements, "FAMILIES", figures_of(good))
    assert run_command_line(["dev", "validate", "placements", str(tmp_path / "operators")]) == 0
    monkeypatch.setattr(placements, "FAMILIES", figures_of(good, bad))
    reported = tmp_path / "told.json"
    assert run_command_line(["dev", "validate", "placements", str(tmp_path / "operators"), "--json", str(reported)]) == 1
    assert "DISAGREES" in capsys.readouterr().out
    data = json.loads(reported.read_text())
    assert [row["agrees"] for row in data["figures"]] == [True, False]
    assert data["figures"][1]["deviation"] == 1.0


def told(capsys, *words):
    assert run_command_line(["dev", "validate", "placements", *map(str, words), "--json", "-"]) == 0
    return json.loads(capsys.readouterr().out)["values"]


def values(capsys, *words):
    return {(each["objective"], each["form"], each["planner"]): each["value_s"] for each in told(capsys, *words)}


def given(capsys, *words):
    return {each["form"]: each["value_s"] for each in told(capsys, *words) if each["planner"] == "given"}


def test_all_values_of_an_instance_are_shown(tmp_path, capsys):
    save(fork(), tmp_path / "fork.json")
    result = values(capsys, tmp_path / "fork.json", "--set", "search_s=0.2")
    assert result["latency", "independent", "exhaustive"] == 6
    assert result["throughput", "max-load", "exhaustive"] == result["throughput", "max-load", "ideals"] == 6
    assert result["throughput", "max-load", "lower bound"] == 4
    assert {form for _, form, _ in result} == ALL_FORMS


ALL_FORMS = {"independent", "fair", "contiguous-accelerator", "max-load", "simulated"}


def test_a_placement_is_valued_in_every_form(tmp_path, capsys):
    save(fork(), tmp_path / "fork.json")
    ways = ([0, 0, 1, 0], ["device0", "device0", "device1", "device0"], {"op0": 0, "op1": 0, "op2": "device1", "op3": 0})
    for data in (*ways, {"device_of": ways[0]}):
        result = given(capsys, tmp_path / "fork.json", "--set", f"placement={written(tmp_path / 'placement.json', data)}")
        # a, b, d on device 0: 5 s of ops, a's output leaves, c's comes; c on device 1: 3 s, and the same two.
        assert result.keys() == ALL_FORMS
        assert result["independent"] == result["fair"] == result["max-load"] == 7
        # The other device's message is under way while a device computes: 5 s of ops.
        assert result["simulated"] == pytest.approx(5)
        # Device 0 begins c and waits for it: in pieces a and b 4 + 2, c 1 + 3 + 1, d 2 + 1.
        assert result["contiguous-accelerator"] == 14


def test_a_pipeline_is_valued_in_every_form(tmp_path, capsys):
    save(chain(), tmp_path / "chain.json")
    result = given(capsys, tmp_path / "chain.json", "--set", f"placement={written(tmp_path / 'placement.json', [0, 0, 1, 1])}")
    # 2 s of ops each, 1 GB at 1 GB/s: once on each side (max-load), or one after another.
    assert (result["max-load"], result["independent"], result["contiguous-accelerator"]) == (3, 5, 6)


def test_published_instances_of_every_form_have_values(tmp_path, capsys):
    instance, split = written(tmp_path / "i.json", PUBLISHED), written(tmp_path / "split.json", SPLIT)
    # a and c on one: 7 ms; a's output leaves (0.5), b's comes (0.25). b: 2 + 0.5 + 0.25.
    assert given(capsys, instance, "--set", f"placement={split}")["max-load"] == pytest.approx(7.75e-3)
    assert values(capsys, written(tmp_path / "piper.json", PIPER))["throughput", "piper", "piper"] > 0
    (tmp_path / "graph.txt").write_text(PROFILE)
    assert values(capsys, tmp_path / "graph.txt")["throughput", "pipedream", "pipedream"] > 0


def test_given_stages_are_valued_by_the_form_of_their_file(tmp_path, capsys):
    (tmp_path / "graph.txt").write_text(PROFILE)
    stages = {"stages": [{"ops": ["node2"], "replicas": 2}, {"ops": ["node3"]}]}
    path = written(tmp_path / "stages.json", stages)
    # 4 ms on two machines, and 4 (2 - 1) 8 B / (1 GB/s x 2) = 16 ns for their parameters: (4 ms + 16 ns) / 2.
    assert given(capsys, tmp_path / "graph.txt", "--set", f"placement={path}")["pipedream"] == pytest.approx(2e-3 + 8e-9)
    stages = {"stages": [{"ops": ["a 1"]}, {"ops": ["b 2"]}]}
    result = given(capsys, written(tmp_path / "piper.json", PIPER), "--set", f"placement={written(path, stages)}")
    # Of b: 1 s, and 2 (3 + 2) bytes at 10 B/s.
    assert result["piper"] == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([0, 1], "must be an object (got 'list')"),
        ({"stages": []}, "stages: has no stage"),
        ({"stages": [{"ops": ["node9"]}]}, "stages[0].ops: no such op (got 'node9'); valid: node2, node3"),
        ({"stages": [{"ops": []}]}, "stages[0].ops: a stage has an op or more"),
        ({"stages": [{"ops": ["node2"], "copies": 2}]}, "stages[0].copies: unknown key (got 'copies'); valid: ops, replicas"),
        ({"stages": [{"ops": ["node2"], "replicas": 0}]}, "stages[0].replicas: must be a whole number of 1 to 10000 (got 0)"),
        ({"stages": [{"ops": ["node2"]}]}, "stages: each op is in one stage (got 'node3 is in 0')"),
        ({"stages": [{"ops": ["node3"]}, {"ops": ["node2"]}]}, "stages: node3 is in an earlier stage than node2"),
    ],
)
def test_stages_that_are_none_are_refused_in_one_line(tmp_path, capsys, data, message):
    (tmp_path / "graph.txt").write_text(PROFILE)
    path = written(tmp_path / "stages.json", data)
    assert run_command_line(["dev", "validate", "placements", str(tmp_path / "graph.txt"), "--set", f"placement={path}"]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([0, 0, 1], "must give a device to each of the 4 ops"),
        ([0, 0, 1, 2], "op3: no such device (got 2); "),
        ([0, 0, 1, "devise1"], "op3: no such device (got 'devise1'); valid: device0, device1"),
        ({"op0": 0, "op9": 1}, "op9: no such op (got 'op9'); valid: op0, op1, op2, op3"),
        ({"op0": 0}, "op1: no device is given to this op"),
        ({"fpgas": [], "cpus": []}, "a split of dnn-partitioning is for one of its instances"),
    ],
)
def test_a_placement_that_does_not_fit_its_instance_is_refused(tmp_path, capsys, data, message):
    save(fork(), tmp_path / "fork.json")
    path = written(tmp_path / "placement.json", data)
    assert run_command_line(["dev", "validate", "placements", str(tmp_path / "fork.json"), "--set", f"placement={path}"]) == 2
    assert f"{path}: {message}" in " ".join(capsys.readouterr().err.split())


def test_folders_that_are_not_there_are_refused(tmp_path, capsys):
    (tmp_path / "operators").mkdir()
    assert run_command_line(["dev", "validate", "placements", str(tmp_path / "operators")]) == 2
    assert "no such folder" in capsys.readouterr().err
    assert run_command_line(["dev", "validate", "placements", str(tmp_path / "none")]) == 2
    assert run_command_line(["dev", "validate", "placements", str(tmp_path), "--placement", str(tmp_path / "x.json")]) == 2


def test_heft_is_as_near_the_critical_path_as_published():
    figures = list(ratio_rows())
    assert [figure.figure for figure in figures if not figure.agrees] == []
    by_name = {figure.figure.partition(",")[0]: figure.ours for figure in figures}
    assert by_name["HEFT with insertion"] <= by_name["HEFT without insertion"] < by_name["best of 20 random"] < by_name["random"]
