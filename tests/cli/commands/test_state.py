"""``meshwright state`` and ``--state``: successive plans share no device, and one line reports each mistake."""

import json

import pytest

from meshwright.cli import run_command_line
from meshwright.live.changes import host_changed
from meshwright.live.ledger import Ledger
from meshwright.plans import load_plan

CLUSTER = "preset:clos-64-4to1"


def said(capsys, *words):
    """Standard output of a command that does its work."""
    assert run_command_line([*map(str, words)]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def refused(capsys, *words):
    """The line that a command that refuses prints."""
    assert run_command_line([*map(str, words)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize("ending", ["db", "json"])
def test_plans_one_after_another_share_no_device_until_the_cluster_is_full(tmp_path, capsys, ending):
    state, held = tmp_path / f"now.{ending}", set()
    said(capsys, "state", "drain", "l0-h0", "--state", state, "--reason", "a fan")
    job = ["--job", "zoo:vgg16", "--cluster", CLUSTER, "--policy", "fixed-16", "--set", "max_degree=16"]
    for number in range(3):
        file = tmp_path / f"p{number}.json"
        out = said(capsys, "plan", *job, "--state", state, "--json", file)
        assert f"to hold its devices: meshwright state add {file} --state {state}" in " ".join(out.split())
        devices = {(rank.host, rank.local_rank) for rank in load_plan(file).ranks}
        assert len(devices) == 16
        assert not devices & held
        assert "l0-h0" not in {host for host, _ in devices}
        held |= devices
        assert "on " in said(capsys, "state", "add", file, "--state", state)
    message = refused(capsys, "plan", *job, "--state", state)
    assert "turns this job away; 8 of 64 devices are free" in message
    shown = said(capsys, "state", "show", "--state", state, "--cluster", CLUSTER)
    assert "8 of 64 devices are free, 48 held" in shown
    assert "a fan" in shown
    said(capsys, "state", "remove", "p1", "--state", state)
    said(capsys, "plan", *job, "--state", state)
    again = refused(capsys, "state", "add", tmp_path / "p0.json", "--as", "other", "--state", state)
    assert "p0 holds" in again
    assert "plan anew with --state" in again


def test_a_search_and_an_estimate_take_free_devices_too(tmp_path, capsys):
    state, first, second = tmp_path / "now.db", tmp_path / "a.json", tmp_path / "b.json"
    search = ["plan", "--search", "--job", "zoo:gpt2-small", "--cluster", CLUSTER, "--devices", "8"]
    search += ["--keep", "tp=1,pp=1,cp=1", "--set", "top=1"]
    said(capsys, *search, "--json", first)
    said(capsys, "state", "add", first, "--state", state)
    assert "56 of 64 devices are free" in said(capsys, *search, "--state", state, "--json", second)
    assert not {rank.host for rank in load_plan(first).ranks} & {rank.host for rank in load_plan(second).ranks}
    estimate = ["estimate", "--job", "zoo:gpt2-small", "--cluster", CLUSTER, "--state", state, "--layout"]
    assert "56 of 64" in said(capsys, *estimate, "dp=32,micro_batch=1,global_batch=32")
    assert "has 64 ranks, but only 56 of 64 devices" in refused(capsys, *estimate, "dp=64,micro_batch=1,global_batch=64")


@pytest.mark.parametrize("option", ["--json", "--trace"])
def test_a_result_never_replaces_the_state_by_whatever_name(tmp_path, capsys, option):
    state, link = tmp_path / "now.db", tmp_path / "link.db"
    said(capsys, "state", "drain", "l0-h0", "--state", state)
    link.symlink_to(state)
    before = state.read_bytes()
    for name in (state, link):
        refused(capsys, "plan", "--job", "zoo:alexnet", "--cluster", CLUSTER, "--state", state, option, name)
    assert state.read_bytes() == before


def test_what_a_terminal_would_obey_is_not_printed(tmp_path, capsys):
    job = {"id": "a\x1b[2Jb", "name": "\u202ex", "devices": {"l0-h0": [0]}}
    (tmp_path / "now.json").write_text(json.dumps({"schema_version": 1, "jobs": [job]}))
    shown = said(capsys, "state", "show", "--state", tmp_path / "now.json")
    assert "a?[2Jb" in shown
    assert "?x" in shown


def test_the_log_of_a_ledger_and_its_json(tmp_path, capsys):
    state = tmp_path / "now.db"
    said(capsys, "state", "drain", "l0-h1", "--state", state)
    assert "nothing changed" in said(capsys, "state", "drain", "l0-h1", "--state", state)
    said(capsys, "state", "resume", "l0-h1", "--state", state)
    said(capsys, "state", "show", "--state", state, "--log", "--json", tmp_path / "log.json")
    data = json.loads((tmp_path / "log.json").read_text())
    assert [change["kind"] for change in data["changes"]] == ["host changed"] * 2
    assert data["state"]["hosts"]["l0-h1"]["condition"] == "up"


def test_a_ledger_is_pruned_and_its_state_stays(tmp_path, capsys):
    state = tmp_path / "now.db"
    with Ledger(state, now=lambda: "2020-01-01T00:00:00+00:00") as ledger:
        for host, reason in (("l0-h1", None), ("l0-h1", "a fan"), ("l0-h2", None)):
            ledger.append(lambda before, host=host, reason=reason: host_changed(host, "drained", reason))
    before = said(capsys, "state", "show", "--state", state)
    reported = said(capsys, "state", "prune", "--state", state, "--keep-days", "30")
    assert "now.db: given up: 3 changes, 0 decisions, 0 old keys; kept is what came since 20" in reported
    assert said(capsys, "state", "show", "--state", state) == before
    assert "given up: 0 changes" in said(capsys, "state", "prune", "--state", state)
    said(capsys, "state", "show", "--state", state, "--log", "--json", tmp_path / "log.json")
    assert json.loads((tmp_path / "log.json").read_text())["changes"] == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["state", "prune", "--state", "now.json"], "decisions are kept in a ledger, which ends in .db"),
        (["state", "prune", "--state", "absent.db"], "--state: no such file (got 'absent.db')"),
        (["state", "prune", "--state", "absent.db", "--keep-days", "0"], "--keep-days"),
        (["state", "show", "--state", "absent.db"], "--state: no such file (got 'absent.db')"),
        (["state", "show", "--state", "x.txt"], "a state is a .json file, or a ledger, which ends in .db"),
        (["state", "show", "--state", "plan.json"], "plan.json: is a plan, which `meshwright export` takes"),
        (["state", "show", "--state", "now.json", "--log"], "--log: only a ledger (.db) keeps its changes"),
        (
            ["state", "show", "--state", "now.json", "--cluster", "preset:host-8"],
            "no host of the state is one of the cluster host-8",
        ),
        (["state", "remove", "jon", "--state", "now.json"], "job: there is no such job (got 'jon'); did you mean 'job'?"),
        (["state", "drain", "L0-H0", "--state", "now.json", "--cluster", CLUSTER], "has no such host (got 'L0-H0')"),
        (["state", "resume", "l0-h9", "--state", "now.json"], "there is no such host"),
        (
            ["state", "drain", "l0-h0/2", "--state", "now.json", "--cluster", CLUSTER],
            "host: drain the whole host, or hold single",
        ),
        (["state", "resume", "l0-h0/2", "--state", "now.json"], "host: resume the whole host"),
        (["state", "drain", "no host", "--state", "now.json"], "not a host name by RFC 1123"),
        (["plan", "--job", "zoo:vgg16", "--cluster", CLUSTER, "--state", "absent.db"], "`meshwright state` makes one"),
    ],
)
def test_what_is_wrong_is_told_in_a_line_and_changes_nothing(tmp_path, capsys, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "now.json").write_text(json.dumps({"schema_version": 1, "jobs": [{"id": "job", "devices": {"l0-h0": [0, 1]}}]}))
    (tmp_path / "plan.json").write_text(json.dumps({"schema_version": 2, "ranks": [], "job": {}, "partition": {}}))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert message in refused(capsys, *words)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.suffix != ".lock"} == before


def test_the_page_of_a_state_shows_its_hosts_and_wants_the_cluster_that_has_them(tmp_path, capsys):
    state, page = tmp_path / "now.db", tmp_path / "now.html"
    said(capsys, "state", "drain", "l0-h0", "--state", state, "--reason", "a <fan>")
    assert "name it with --cluster (got" in refused(capsys, "state", "show", "--state", state, "--html", page)
    assert not page.exists()
    assert f"written: {page}" in "".join(
        said(capsys, "state", "show", "--state", state, "--html", page, "--cluster", CLUSTER).splitlines()
    )
    text = page.read_text()
    assert "takes no new jobs; a &lt;fan&gt;." in text
    assert "from now.db, whose last change, number 1, is of" in text
