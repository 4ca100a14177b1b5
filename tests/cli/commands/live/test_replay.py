"""``meshwright replay``, ``observe`` and ``calibration`` on a ledger of six jobs."""

import json

import pytest

from meshwright.cli import run_command_line
from meshwright.live.ledger import Ledger
from tests.live.replay.past import BEGIN, Past, planners, request
from tests.tiny_fleet import CLUSTER


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    """A ledger whose jobs take 1.3 times what was predicted, and the file of its cluster."""
    folder = tmp_path_factory.mktemp("ledger")
    (folder / "cluster.yaml").write_text(CLUSTER)
    arrivals = [(100_000.0 * k, request(k, 2000)) for k in range(6)]
    past = Past(planners(folder), truth=lambda case, devices: 1.3, observed=60, file=folder / "now.db").play(arrivals)
    past.store.close()
    return folder


@pytest.fixture
def run(ledger, capsys):
    """``run(words)``: status, output and the line of an error of a command on the ledger."""

    def runs(*words):
        state = ("--state", ledger / "now.db")
        status = run_command_line([*map(str, words), *map(str, () if "--state" in words else state)])
        said = capsys.readouterr()
        return status, " ".join(said.out.split()), said.err

    return runs


SPAN = ("--since", BEGIN.isoformat(), "--until", "2026-04-01")


def test_a_span_is_replayed_and_told(run, ledger):
    cluster = ("--cluster", ledger / "cluster.yaml")
    file = ledger / "replay.json"
    status, out, _ = run("history", "replay", *cluster, *SPAN, "--policy", "sjf", "--policy", "menu:fixed-2", "--json", file)
    data = json.loads(file.read_text())
    assert status == 0
    assert data["is_trusted"]
    assert [row["policy"] for row in data["rows"]] == ["what happened", "sjf", "menu:fixed-2"]
    mean = data["rows"][0]["mean_completion_s"]
    assert mean["low"] == pytest.approx(mean["mean"]) == mean["high"], "six equal days"
    assert "the real events, played back, take" in out


def test_decisions_are_checked(run, ledger):
    cluster = ("--cluster", ledger / "cluster.yaml", "--check", "--policy")
    status, out, _ = run("history", "replay", *cluster, "menu:fastest-feasible")
    assert (status, out) == (0, "6 of 6 decisions are the same when they are decided anew")
    status, out, _ = run("history", "replay", *cluster, "menu:fixed-2")
    assert status == 1
    assert "the policy is another one now: it was decided by menu:fastest-feasible, here is menu:fixed-2" in out


def test_observed_steps_are_kept_once_and_show_in_the_calibration(run, ledger):
    with Ledger(ledger / "now.db", is_read=True) as stored:
        name = stored.decisions(None, 1)[0].decision.id
        step_s = stored.decisions(None, 1)[0].decision.predicted["step_s"]
    rows = [{"step": 60 + k, "step_s": 1.3 * step_s} for k in range(1500)]
    file = ledger / "steps.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    status, out, _ = run("history", "observe", name, file)
    assert status == 0
    assert f"{name}: 1,500 step times, 1,500 of them new" in out
    assert "SLOW" in out
    assert "took 1.3 times what was predicted" in out
    assert "1,500 step times, 0 of them new" in run("history", "observe", name, file)[1]
    status, out, _ = run("history", "calibration", "--json", ledger / "calibration.json")
    (row,) = json.loads((ledger / "calibration.json").read_text())["rows"]
    assert (row["num_runs"], row["ratio"]) == (6, pytest.approx(1.3))
    assert "on: the mean error of step times is" in out


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", ":2: is no JSON"),
        ("[1]", ":2: a row is an object"),
        ('{"step": 1}', ":2: step_s: the key is missing"),
        ('{"step": -1, "step_s": 1}', ":2: step:"),
        ('{"step": 1, "step_s": 1, "rnk": 0}', "did you mean 'rank'"),
    ],
)
def test_bad_rows_are_told_by_their_line(run, tmp_path, line, message):
    file = tmp_path / "steps.jsonl"
    file.write_text('{"step": 1, "step_s": 0.5}\n' + line)
    status, _, error = run("history", "observe", "d", file)
    assert status == 2
    assert message in error


def test_what_cannot_be_is_told_in_a_line(run, ledger, tmp_path):
    cluster = ("--cluster", ledger / "cluster.yaml", "--policy", "sjf")
    (tmp_path / "steps.jsonl").write_text('{"step": 1, "step_s": 0.5}')
    (tmp_path / "empty.jsonl").write_text("\n")
    for words, message in (
        (("history", "replay", *cluster, "--since", "yesterday"), "is neither a time ago, as 12h, 7d or 4w, nor an instant"),
        (("history", "replay", *cluster, "--since", "1d", "--until", "2d"), "is not before the end"),
        (("history", "replay", *cluster, "--since", "1m"), "no job came between"),
        (("history", "replay", *cluster, "--set", "queue=-1"), "--set: queue: must be at least 0 (got -1)"),
        (("history", "replay", *cluster, "--policy", "fifo", "--check"), "--check decides by one policy"),
        (("history", "replay", *cluster, "--state", tmp_path / "no.db"), "no such file"),
        (("history", "calibration", "--state", tmp_path / "no.json"), "decisions are kept in a ledger, which ends in .db"),
        (("history", "observe", "d", tmp_path / "steps.jsonl"), "decision: there is no such decision (got 'd')"),
        (("history", "observe", "d", tmp_path / "empty.jsonl"), "holds no step times"),
        (("history", "observe", "d", tmp_path / "steps.jsonl", "--state", "http://127.0.0.1:1"), "is the service running?"),
    ):
        status, _, error = run(*words)
        assert status == 2, words
        assert message in error
        assert len(error.splitlines()) == 1
