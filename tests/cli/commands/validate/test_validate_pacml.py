"""``meshwright validate pacml``: what agrees, what disagrees, and what is refused."""

import json
from functools import partial

import pytest

from meshwright.cli import run_command_line
from meshwright.errors import GraphError, InputFileError
from meshwright.evaluation.validation.comparison import ComparedFigure, Comparison
from meshwright.evaluation.validation.pacml.replay import validate

from .given_files import replaced, write

PROFILE = """node1 -- Linear -- forward_compute_time=15.0, backward_compute_time=30.0, activation_size=1000.0, parameter_size=0.0
node2 -- Linear -- forward_compute_time=0.0, backward_compute_time=0.0, activation_size=500.0, parameter_size=0.0
\tnode1 -- node2
"""

# One server: 45 "s" a step, 50 steps. Four ops, two edges and the join: 2 x 1000 + 2 x 500 B of memory and 1000 + 500 +
# 500 B on edges. Job 1 runs 2,250 s of the 4,000, job 2 is turned away, job 3 (decided at 2,000 s) still runs at the end.
FIGURES = {
    "single_job_empty_cluster": {
        "one": {
            "1": {"valid": True, "jct": 2250.0, "num_ops": 4, "num_deps": 3, "servers": ["0-0-0"], "reward_at_frac_1": 1},
            "10": {"valid": False},
        }
    },
    "single_job_if_ms_were_converted_to_s": {"one": {"seq": 2.25}},
    "placement_dependence": {"one": {"1": {"jct_min": 2250.0, "jct_max": 2250.0}}},
    "episode_logs": [
        {
            "agent": "by hand",
            "dist": "A",
            "max_simulation_run_time": 4000.0,
            "arrived": 5.0,
            "blocked": 3,
            "completed": 1,
            "mean_jct": 2250.0,
            "mean_demand_total_throughput": 5000 * (1 + 2000 / 2250) / 4000,
            "log": [["one", 1.0, 1, 1], ["one", 0.5, 0, -1], ["one", 1.0, 1, 1], ["one", 0.5, 1, -1]],
        }
    ],
}


changed = partial(replaced, FIGURES)


@pytest.fixture
def graphs(tmp_path):
    (tmp_path / "graphs" / "one").mkdir(parents=True)
    (tmp_path / "graphs" / "one" / "graph.txt").write_text(PROFILE)
    return tmp_path / "graphs"


def test_figures_by_hand_agree_and_every_one_is_told(tmp_path, graphs, capsys):
    out = tmp_path / "out.json"
    words = ["dev", "validate", "pacml", str(write(tmp_path, FIGURES)), "--set", f"graphs={graphs}", "--json", str(out)]
    assert run_command_line(words) == 0
    output = capsys.readouterr().out
    for line in ("one at degree 1", "one at degree 10", "one in milliseconds", "log 0, by hand on A"):
        assert line in output
    written = json.loads(out.read_text())
    assert written["agrees"] is True
    assert len(written["rows"]) == 7 + 1 + 2 + 7 - 1
    row = next(row for row in written["rows"] if row["item"] == "one at degree 1: jct")
    assert row == {
        "item": "one at degree 1: jct",
        "family": "single job",
        "predicted": 2250.0,
        "reference": 2250.0,
        "relative_error": 0.0,
        "tolerance": 1e-9,
        "agrees": True,
    }
    assert sorted(written["summary"]) == ["converted", "log", "placement", "single job"]
    assert all(s["disagreeing"] == 0 and s["max_relative_error"] < 1e-12 for s in written["summary"].values())


@pytest.mark.parametrize(
    ("keys", "value", "figure"),
    [
        (["single_job_empty_cluster", "one", "1", "jct"], 2250.0 * (1 + 2e-9), "jct"),
        (["single_job_empty_cluster", "one", "1", "servers"], ["0-0-1"], "servers"),
        (["single_job_empty_cluster", "one", "1", "valid"], False, "valid"),
        (["single_job_empty_cluster", "one", "10"], {"valid": True, "jct": 1.0}, "jct"),
        (["single_job_if_ms_were_converted_to_s", "one", "seq"], 2.26, "seq"),
        (["placement_dependence", "one", "1", "jct_max"], 2251.0, "jct_max"),
        (["episode_logs", 0, "blocked"], 2, "blocked"),
        (["episode_logs", 0, "mean_jct"], None, "mean_jct"),
        (["episode_logs", 0, "log", 0, 3], -1, "rewards"),
    ],
)
def test_one_figure_that_is_off_exits_with_1_and_is_named(tmp_path, graphs, capsys, keys, value, figure):
    words = ["dev", "validate", "pacml", str(write(tmp_path, changed(keys, value))), "--set", f"graphs={graphs}"]
    assert run_command_line(words) == 1
    output = capsys.readouterr().out
    assert "DISAGREES" in output
    assert figure in output.partition("Disagreements")[2]


def test_a_difference_below_the_tolerance_agrees(tmp_path, graphs):
    keys = ["single_job_empty_cluster", "one", "1", "jct"]
    path = write(tmp_path, changed(keys, 2250.0 * (1 + 5e-10)))
    assert validate(path, graphs).agrees


@pytest.mark.parametrize(
    ("keys", "value", "expected"),
    [
        (["episode_logs", 0, "log", 1, 0], "tow", "episode_logs.0.log.1"),
        (["single_job_empty_cluster", "won"], {"1": {"valid": True}}, "valid: one"),
        (["episode_logs", 0, "log", 1, 1], "half", "episode_logs.0.log.1.1"),
        (["episode_logs", 0, "log", 1, 1], -0.5, "must be positive"),
        (["episode_logs", 0, "log", 1, 3], 0, "episode_logs.0.log.1.3"),
        (["episode_logs", 0, "log"], [], "episode_logs.0.log"),
        (["episode_logs", 0, "max_simulation_run_time"], 5000.0, "4 decisions"),
        (["single_job_empty_cluster", "one", "0"], {"valid": True}, "single_job_empty_cluster.one.0"),
        (["config"], {"topology": {"type": "torus"}}, "config.topology.type"),
    ],
)
def test_malformed_files_and_unknown_graphs_are_refused(tmp_path, graphs, refused, keys, value, expected):
    path = write(tmp_path, changed(keys, value))
    message = refused("dev", "validate", "pacml", path, "--set", f"graphs={graphs}")
    assert str(path) in message
    assert expected in message


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"episode_logs": []}', "{"])
def test_files_of_another_kind_are_refused(tmp_path, graphs, content):
    with pytest.raises(InputFileError, match=r"figures\.json"):
        validate(write(tmp_path, content), graphs)


def test_missing_graphs_are_refused(tmp_path, graphs, capsys):
    path = write(tmp_path, FIGURES)
    with pytest.raises(GraphError, match="no such folder"):
        validate(path, tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(GraphError, match="no such graph"):
        validate(path, tmp_path / "empty")
    assert run_command_line(["dev", "validate", "pacml", str(path)]) == 2
    assert "--set: graphs: the key is missing" in capsys.readouterr().err
    assert run_command_line(["dev", "validate", "pacml", str(tmp_path / "none.json"), "--set", f"graphs={graphs}"]) == 2


def test_statistics_compare_means_by_their_standard_errors(tmp_path, graphs):
    # Jobs of 2,250 s on one of 32 servers: none is blocked but the two that run at the end.
    episodes = [{"blocking_rate": 2 / 1001, "mean_jct": 2250.0, "demand_thr": 4.99}] * 2
    figures = {"ten_seed_statistics": {"A": {"fixed1": episodes}}}
    result = validate(write(tmp_path, figures), graphs, with_statistics=True, num_seeds=2)
    assert [row.figure for row in result.rows] == ["blocking_rate", "mean_jct", "demand_thr"]
    rows = {row.figure: row for row in result.rows}
    assert rows["mean_jct"].predicted == 2250.0
    assert rows["mean_jct"].agrees
    assert not rows["blocking_rate"].agrees  # only deadlines of 1.00 can be met on one server
    with pytest.raises(GraphError, match="names no graph"):
        validate(write(tmp_path, figures), graphs)


def test_relative_errors_by_hand():
    def error(predicted, reference):
        return ComparedFigure("f", "g", "x", predicted, reference, 0.1).relative_error

    assert error(110, 100) == pytest.approx(0.1)
    assert error(0, 0) == error("a", "a") == error(None, None) == 0
    assert error(1, 0) == error("a", "b") == error(None, 2.0) == error(2.0, None) == 1


def test_a_summary_by_hand():
    rows = (
        ComparedFigure("f", "g", "x", 11, 10, 0.2),
        ComparedFigure("f", "g", "y", 13, 10, 0.2),
        ComparedFigure("h", "g", "x", 1, 1, 0.0),
    )
    result = Comparison(rows)
    assert result.summary() == {
        "f": {"items": 2, "disagreeing": 1, "max_relative_error": 0.3, "mean_relative_error": pytest.approx(0.2)},
        "h": {"items": 1, "disagreeing": 0, "max_relative_error": 0.0, "mean_relative_error": 0.0},
    }
    assert not result.agrees
    assert list(result.groups()) == [("f", "g"), ("h", "g")]


def test_what_chance_may_do_is_told_by_hand():
    assert ComparedFigure("f", "g", "x", 10.0, 10.0, 1e-9).interval is None
    cases = {12.0: (True, True), 11.0: (True, False), 13.0: (False, False), 12.0 + 1e-10: (True, True)}
    for reference, (within, attained) in cases.items():
        row = ComparedFigure("f", "g", "x", 10.0, reference, 1e-9, (12.0, 10.5))
        assert row.interval == (10.0, 12.0)
        assert (row.is_within, row.is_attained) == (within, attained)
        assert not row.agrees
        reported = row.to_data()
        assert (reported["interval"], reported["within_interval"], reported["attained"]) == ((10.0, 12.0), within, attained)
    assert ComparedFigure("f", "g", "x", 10.0, 10.0, 0.0, (12.0,)).is_attained
    assert ComparedFigure("f", "g", "x", None, "a", 0.0).is_within is False


def test_rows_that_no_tie_changes_tell_no_interval(tmp_path, graphs):
    result = validate(write(tmp_path, FIGURES), graphs)
    assert not any(row.alternatives or "interval" in row.to_data() for row in result.rows)
