"""``meshwright validate flows``: what agrees, what disagrees, and what is refused."""

import copy
import json
from functools import partial

import pytest

from meshwright.cli import run_command_line
from meshwright.evaluation.validation.flows import load_flows, validate

from .given_files import replaced, write

# Two flows share 10 B/s; the second has 10 of its 20 bytes left when the first ends at 2 s, and 0.5 s of latency more.
SHARED = {
    "links": {"up": {"bandwidth": 10.0, "latency": 0.0}, "down": {"bandwidth": 100, "latency": 0.5}},
    "flows": [
        {"path": ["up"], "bytes": 10, "start": 0, "finish": 2.0},
        {"path": ["up", "down"], "bytes": 20, "start": 0, "finish": 3.5},
    ],
}


changed = partial(replaced, SHARED)


def test_a_file_that_agrees_exits_with_0_and_tells_every_flow(tmp_path, capsys):
    out = tmp_path / "out.json"
    assert run_command_line(["dev", "validate", "flows", str(write(tmp_path, SHARED)), "--json", str(out)]) == 0
    assert "agrees" in capsys.readouterr().out
    written = json.loads(out.read_text())
    file = str(tmp_path / "figures.json")
    same = {"family": "flows", "relative_error": 0.0, "tolerance": 1e-9, "agrees": True}
    assert written["rows"] == [
        same | {"item": f"{file}: flow 0", "predicted": 2.0, "reference": 2.0},
        same | {"item": f"{file}: flow 1", "predicted": 3.5, "reference": 3.5},
    ]
    none = {"items": 2, "disagreeing": 0, "max_relative_error": 0.0, "mean_relative_error": 0.0}
    assert (written["summary"], written["agrees"]) == ({"flows": none}, True)


def test_a_finish_that_is_off_exits_with_1_unless_that_much_is_allowed(tmp_path, capsys):
    # 3.5 against 3.5 (1 - 1e-6): the relative error is 1e-6 to first order.
    path = str(write(tmp_path, changed(["flows", 1, "finish"], 3.5 * (1 - 1e-6))))
    assert run_command_line(["dev", "validate", "flows", path]) == 1
    output = capsys.readouterr().out
    assert "DISAGREES" in output
    assert "1 of 2 flows disagree" in output
    assert run_command_line(["dev", "validate", "flows", path, "--set", "max_error=2e-6"]) == 0
    assert run_command_line(["dev", "validate", "flows", path, "--set", "max_error=0.9e-6"]) == 1


def test_one_nanosecond_in_a_second_is_the_border(tmp_path):
    lone = {"links": {"a": {"bandwidth": 1.0, "latency": 0.0}}, "flows": [{"path": ["a"], "bytes": 1, "start": 0, "finish": 1.0}]}
    for finish, status in ((1.0 + 0.9e-9, 0), (1.0 + 1.1e-9, 1)):
        lone["flows"][0]["finish"] = finish
        assert run_command_line(["dev", "validate", "flows", str(write(tmp_path, lone))]) == status


def test_several_files_are_judged_each_and_one_that_disagrees_fails_all(tmp_path, capsys):
    good = write(tmp_path, SHARED, "good.json")
    bad = write(tmp_path, changed(["flows", 0, "finish"], 4.0), "bad.json")
    assert run_command_line(["dev", "validate", "flows", str(good), str(bad), str(good), "--json", "-"]) == 1
    written = json.loads(capsys.readouterr().out)
    assert [(row["item"], row["agrees"]) for row in written["rows"]] == [
        (f"{good}: flow 0", True),
        (f"{good}: flow 1", True),
        (f"{bad}: flow 0", False),
        (f"{bad}: flow 1", True),
    ]
    # |2 - 4| / 4
    assert written["summary"]["flows"] == {"items": 4, "disagreeing": 1, "max_relative_error": 0.5, "mean_relative_error": 0.125}
    assert not written["agrees"]


def test_of_many_flows_that_disagree_the_worst_are_shown(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a short path leaves each flow its line
    data = {"links": {"a": {"bandwidth": 1.0, "latency": 0.0}, "b": {"bandwidth": 1.0, "latency": 0.0}}, "flows": []}
    for i in range(12):
        # Each alone, one after another: it ends at 2 i + 1 and is said to end i % later.
        data["flows"].append({"path": ["a"], "bytes": 1, "start": 2 * i, "finish": (2 * i + 1) * (1 + i / 100)})
    assert run_command_line(["dev", "validate", "flows", write(tmp_path, data, "flows.json").name]) == 1
    output = capsys.readouterr().out
    assert "11 of 12 flows disagree, the worst 10" in output
    shown = [line.split()[-4] for line in output.splitlines() if line.split()[-5:-4] == ["flow"]]
    assert shown == [str(i) for i in range(11, 1, -1)]


def test_the_other_reading_of_latency_is_an_option_and_a_hint(tmp_path, capsys):
    # Latency first: flow 0 is alone until 0.5 s and has 5 bytes left; 5 B/s each until 1.5 s; then 15 of 20 are left.
    data = changed(["flows", 0, "finish"], 1.5)
    data["flows"][1]["finish"] = 3.0
    path = str(write(tmp_path, data))
    assert run_command_line(["dev", "validate", "flows", path]) == 1
    assert "give --set latency_first=true" in capsys.readouterr().out
    assert run_command_line(["dev", "validate", "flows", path, "--set", "latency_first=true"]) == 0
    agreeing = str(write(tmp_path, SHARED))
    assert run_command_line(["dev", "validate", "flows", agreeing, "--set", "latency_first=true"]) == 1
    assert "leave out --set latency_first=true" in capsys.readouterr().out


def test_a_finish_of_zero_has_an_error_of_one_unless_met(tmp_path):
    data = changed(["flows", 0, "finish"], 0.0)
    assert validate([write(tmp_path, data)]).rows[0].relative_error == 1.0
    data["flows"][0]["path"] = []
    assert validate([write(tmp_path, data)]).rows[0].relative_error == 0.0


def test_keys_that_tell_where_the_figures_come_from_are_left_alone(tmp_path):
    data = copy.deepcopy(SHARED) | {"source": "by hand"}
    data["flows"][0]["name"] = "first"
    assert validate([write(tmp_path, data)]).agrees


def test_links_are_numbered_in_the_order_of_the_file(tmp_path):
    links, flows, finish = load_flows(write(tmp_path, SHARED))
    assert links.names == ("up", "down")
    assert links.bandwidth_bytes_per_s.tolist() == [10.0, 100.0]
    assert (flows.path(0), flows.path(1), finish) == ([0], [0, 1], [2.0, 3.5])


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (["links", "up", "bandwidth"], 0, "links.up.bandwidth: must be more than 0 (got 0"),
        (["links", "up", "bandwidth"], "10", "links.up.bandwidth: must be a number (got '10')"),
        (["links", "down", "latency"], -1e-6, "links.down.latency: must be at least 0 (got -1e-06)"),
        (["links", "down"], {"bandwidth": 1.0}, "links.down.latency: the key is missing"),
        (["flows"], [], "flows: must have at least 1 item"),
        (["flows", 1, "bytes"], 0, "flows.1.bytes: must be more than 0 (got 0"),
        (["flows", 0, "finish"], -1, "flows.0.finish: lies before the start (0.0) (got -1.0)"),
        (["flows", 1, "path"], ["up", "dwon"], "flows.1.path.1: no such link (got 'dwon'); did you mean 'down'?"),
        (["flows", 1, "path"], "up", "flows.1.path: must be a list"),
        (["flows", 0, "bytes"], 1e302, "flows.0.bytes: must be 0 to 1e+19"),
    ],
)
def test_an_impossible_file_is_refused_in_one_line_with_the_field(tmp_path, refused, keys, value, message):
    path = write(tmp_path, changed(keys, value))
    assert refused("dev", "validate", "flows", path).startswith(f"{path}: {message}")


def test_a_missing_file_and_an_impossible_error_are_refused(tmp_path, capsys):
    good = str(write(tmp_path, SHARED))
    assert run_command_line(["dev", "validate", "flows", str(tmp_path / "figure.json")]) == 2
    assert "did you mean 'figures.json'?" in capsys.readouterr().err
    for error in ("-1e-9", "nan"):
        assert run_command_line(["dev", "validate", "flows", good, "--set", f"max_error={error}"]) == 2
        assert "--set: max_error: must be " in capsys.readouterr().err
