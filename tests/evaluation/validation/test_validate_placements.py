"""Published figures of operator placement, and all values of one instance."""

import json

import pytest

from meshwright.cli import run_command_line
from meshwright.evaluation.validation import placements
from meshwright.evaluation.validation.placements import PlacementSources
from meshwright.evaluation.validation.published_figures import PublishedFigure
from meshwright.simulation.operators.instance_files import save

from ...planners.operators.instances import fork
from ...simulation.operators.published_samples import PIPER, PUBLISHED, SPLIT, written

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
    count, figures = placements.FAMILIES[family]
    found = list(figures(sources))
    assert len(found) == count
    return [figure for figure in found if not figure.agrees]


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
    figures = list(placements.FAMILIES["max-load"][1](sources))
    assert len(figures) == 14
    assert [figure for figure in figures if not figure.agrees] == []


def test_a_figure_agrees_within_its_tolerance_or_its_last_digit():
    def agrees(ours, published, is_limit=False):
        return PublishedFigure("", "", "", ours, published, 1e-6, is_limit).agrees

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
    return {"some": (len(rows), lambda sources: iter(rows))}


def test_a_figure_that_disagrees_ends_with_1_and_is_marked(tmp_path, monkeypatch, capsys):
    (tmp_path / "operators").mkdir()
    (tmp_path / "pipedream").mkdir()
    good, bad = PublishedFigure("", "a", "one", 1.0, "1.000", 1e-6), PublishedFigure("", "b", "two", 2.0, "1.000", 1e-6)
    monkeypatch.setattr(placements, "FAMILIES", figures_of(good))
    assert run_command_line(["validate", "placements", str(tmp_path / "operators")]) == 0
    monkeypatch.setattr(placements, "FAMILIES", figures_of(good, bad))
    told = tmp_path / "told.json"
    assert run_command_line(["validate", "placements", str(tmp_path / "operators"), "--json", str(told)]) == 1
    assert "DISAGREES" in capsys.readouterr().out
    data = json.loads(told.read_text())
    assert [row["agrees"] for row in data["figures"]] == [True, False]
    assert data["figures"][1]["deviation"] == 1.0


def values(capsys, *words):
    assert run_command_line(["validate", "placements", *map(str, words), "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)["values"]
    return {(each["form"], each["planner"]): each["value_s"] for each in found}


def test_all_values_of_an_instance_are_shown(tmp_path, capsys):
    save(fork(), tmp_path / "fork.json")
    found = values(capsys, tmp_path / "fork.json", "--search-s", "1")
    assert found["latency", "exhaustive"] == 6
    assert found["throughput", "exhaustive"] == found["throughput", "ideals"] == 6
    assert found["throughput", "lower bound"] == 4


def test_a_placement_is_valued_in_every_form(tmp_path, capsys):
    save(fork(), tmp_path / "fork.json")
    ways = ([0, 0, 1, 0], ["device0", "device0", "device1", "device0"], {"op0": 0, "op1": 0, "op2": "device1", "op3": 0})
    for data in (*ways, {"device_of": ways[0]}):
        found = values(capsys, tmp_path / "fork.json", "--placement", written(tmp_path / "placement.json", data))
        # a, b, d on device 0: 5 s of ops, a's output leaves, c's comes; c on device 1: 3 s, and the same two.
        assert found["latency", "given"] == 7
        assert found["throughput", "given"] == 7


def test_published_instances_of_every_form_have_values(tmp_path, capsys):
    instance, split = written(tmp_path / "i.json", PUBLISHED), written(tmp_path / "split.json", SPLIT)
    # a and c on one: 7 ms; a's output leaves (0.5), b's comes (0.25). b: 2 + 0.5 + 0.25.
    assert values(capsys, instance, "--placement", split)["throughput", "given"] == pytest.approx(7.75e-3)
    assert values(capsys, written(tmp_path / "piper.json", PIPER))["piper", "piper"] > 0
    (tmp_path / "graph.txt").write_text(PROFILE)
    assert values(capsys, tmp_path / "graph.txt")["pipedream", "pipedream"] > 0


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
    assert run_command_line(["validate", "placements", str(tmp_path / "fork.json"), "--placement", str(path)]) == 2
    assert f"{path}: {message}" in " ".join(capsys.readouterr().err.split())


def test_folders_that_are_not_there_are_refused(tmp_path, capsys):
    (tmp_path / "operators").mkdir()
    assert run_command_line(["validate", "placements", str(tmp_path / "operators")]) == 2
    assert "no such folder" in capsys.readouterr().err
    assert run_command_line(["validate", "placements", str(tmp_path / "none")]) == 2
    assert run_command_line(["validate", "placements", str(tmp_path), "--placement", str(tmp_path / "x.json")]) == 2
