"""The controller's calls over HTTP: the same answers, the same errors, and one line where no service answers."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from meshwright.cli import run_command_line
from meshwright.errors import ConfigError, ConflictError, InputFileError, StateError
from meshwright.live.client import Client
from meshwright.live.decisions import JobRequest, Observation

from .controller_samples import JOB
from .live_samples import CLUSTER

PRICED_IN_THREADS = """
from concurrent.futures import ThreadPoolExecutor
from meshwright.cli import main
from meshwright.live import pricing
pricing.WorkerPool = type("InThreads", (ThreadPoolExecutor,), {"end": ThreadPoolExecutor.shutdown})
main()
"""
"""The program, without a process for the prices of jobs, which `test_pricing` is about."""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The URL of a service in a process of its own, on a socket file, which wants tokens; and a token."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "three.yaml").write_text(CLUSTER)
    meshwright = [sys.executable, "-c", PRICED_IN_THREADS]
    with redirect_stdout(io.StringIO()) as reported:
        assert run_command_line(["serve", "token", "--file", str(folder / "tokens"), "--owner", "me"]) == 0
    token = reported.getvalue().strip()
    words = ["--cluster", "three.yaml", "--policy", "fastest-feasible", "--state", "s.db", "--token-file", "tokens"]
    with (folder / "log").open("w") as log:
        said = {"cwd": folder, "stdout": log, "stderr": log, "env": os.environ | {"TMPDIR": str(folder)}}
        process = subprocess.Popen([*meshwright, "serve", *words, "--listen", "unix:s"], **said)
    while "listening on" not in (folder / "log").read_text():
        assert process.poll() is None, (folder / "log").read_text()
        time.sleep(0.05)
    yield f"unix:{folder}/s", token
    process.terminate()
    assert process.wait() == -15
    assert not [*folder.glob("s"), *folder.glob("*meshwright-serve*")]
    assert "Traceback" not in (folder / "log").read_text()


def test_a_client_does_what_a_controller_does(served):
    client = Client(*served)
    first = client.decide(JOB, "mine")
    assert first.decision.outcome == "placed"
    assert client.decide(JOB, "mine") == first
    with pytest.raises(ConflictError, match="the key is that of another request, which differs here"):
        client.decide(JOB.model_copy(update={"steps": 7}), "mine")
    assert client.whole_plan(first.decision).num_ranks == 4
    client.confirm(first.decision.id, "100")
    with pytest.raises(ConflictError, match="was handed over as 100"):
        client.confirm(first.decision.id, "101")
    observed = [Observation(step=step, step_s=1.0) for step in range(2500)]
    assert client.observe(first.decision.id, observed) == 2500
    assert client.view(first.decision.id)["observed"]["count"] == 2500
    assert client.release(first.decision.id, "enough")
    assert not client.release(first.decision.id)
    plan, why = client.try_plan(JOB)
    assert plan.num_ranks == 4
    assert "fastest-feasible chose" in why
    assert [row["status"] for row in client.rows()] == ["released"]
    assert client.cluster()["devices"]["free"] == 12
    with pytest.raises(StateError, match="alexnot"):
        client.decide(JobRequest(job="zoo:alexnot"))
    with pytest.raises(StateError, match="there is no such decision"):
        client.view("none")


def test_who_is_not_known_and_who_does_not_answer_is_told_in_a_line(served, tmp_path):
    url, _ = served
    with pytest.raises(InputFileError, match="a bearer token that the service knows is wanted"):
        Client(url).rows()
    for wrong in (f"unix:{tmp_path}/none", "http://127.0.0.1:1"):
        with pytest.raises(InputFileError, match="is the service running"):
            Client(wrong).rows()
    for wrong in ("ftp://x", "127.0.0.1:8765", "http://me:secret@host"):
        with pytest.raises(ConfigError, match="must be http://HOST:PORT"):
            Client(wrong)


def test_slow_steps_raise_an_alarm_here_and_there(served, tmp_path, monkeypatch, capsys):
    url, token = served
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MESHWRIGHT_TOKEN", token)
    client = Client(url, token)
    made = client.decide(JobRequest(job="zoo:alexnet", max_devices=4, steps=9)).decision
    usual = "\n".join(json.dumps({"step": step, "step_s": made.predicted["step_s"]}) for step in range(100))
    slow = "\n".join(json.dumps({"step": step, "step_s": 2 * made.predicted["step_s"]}) for step in range(100, 200))
    (tmp_path / "usual.jsonl").write_text(usual)
    (tmp_path / "slow.jsonl").write_text(slow)
    assert run_command_line(["history", "observe", made.id, "usual.jsonl", "--state", url]) == 0
    assert "SLOW" not in capsys.readouterr().out
    assert run_command_line(["history", "observe", made.id, "slow.jsonl", "--state", url]) == 0
    (host,) = {rank["host"] for rank in made.plan["ranks"]}
    printed = " ".join(capsys.readouterr().out.split())
    assert f"steps 100 to 199 took 2 times what was predicted; its only host is {host}" in printed
    assert client.view(made.id)["observed"]["alarm"].startswith(f"{made.id}: steps 100 to 199")
    client.release(made.id)


def test_a_second_service_on_a_ledger_is_refused(served, capsys):
    folder = Path(served[0].removeprefix("unix:")).parent
    words = ["serve", "--cluster", str(folder / "three.yaml"), "--policy", "fastest-feasible", "--state", str(folder / "s.db")]
    assert run_command_line([*words, "--listen", ":0"]) == 2
    assert "another service serves this ledger; stop it first" in capsys.readouterr().err


def test_submit_and_decisions_ask_a_service_too(served, tmp_path, monkeypatch, capsys):
    url, token = served
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MESHWRIGHT_TOKEN", token)
    words = ["submit", "--state", url, "--job", "zoo:alexnet", "--set", "max_devices=4", "--to", "none", "--set", "key=by-server"]
    assert run_command_line([*words, "--json", "done.json", "--", "train.py"]) == 0
    done = json.loads((tmp_path / "done.json").read_text())
    assert done["outcome"] == "placed"
    assert (tmp_path / done["out"] / "job.sbatch").is_file()
    assert f"more: meshwright history decisions {done['decision']} --state {url}" in capsys.readouterr().out
    assert run_command_line(["history", "decisions", "--state", url]) == 0
    assert done["decision"] in capsys.readouterr().out
    assert run_command_line(["history", "decisions", done["decision"], "--state", url, "--json", "one.json"]) == 0
    assert json.loads((tmp_path / "one.json").read_text())["devices"] == done["devices"]
    assert "fastest-feasible chose" in " ".join(capsys.readouterr().out.split())
    assert run_command_line([*words, "--cluster", "x", "--", "train.py"]) == 2
    assert "--cluster: does not go with a service as --state: the service says it" in capsys.readouterr().err
    assert run_command_line([*words[:1], *words[3:], "--", "train.py"]) == 2
    assert "--state: name a ledger, FILE.db, or the URL of a service" in capsys.readouterr().err
