"""``meshwright serve`` and ``token``: what they refuse before anything is made, in a line, and what a file of tokens holds."""

import hashlib
import socket
from datetime import UTC, datetime, timedelta

import pytest

from meshwright.cli import run_command_line
from meshwright.live.web.access import read_tokens

from ....live.live_samples import CLUSTER

SERVE = ("serve", "--cluster", "three.yaml", "--policy", "fastest-feasible")


@pytest.fixture
def busy():
    """A port that another program listens on."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


def test_what_cannot_be_served_is_told_in_a_line(refused, tmp_path, busy):
    state = ("--state", "s.db")
    (tmp_path / "three.yaml").write_text(CLUSTER)
    (tmp_path / "open").write_text("decide " + "0" * 64 + "\n")
    (tmp_path / "open").chmod(0o666)
    (tmp_path / "wrong").write_text("decide secret\n")
    (tmp_path / "wrong").chmod(0o600)
    (tmp_path / "right").write_text("decide " + "0" * 64 + "\n")
    (tmp_path / "right").chmod(0o600)
    for words, message in (
        ((*SERVE, "--state", "s.json"), "a service keeps its state in a ledger, which ends in .db"),
        ((*SERVE, *state, "--listen", "0.0.0.0"), "others can reach this address: give the service tokens with --token-file"),
        ((*SERVE, *state, "--listen", "0.0.0.0", "--token-file", "none"), "none: "),
        ((*SERVE, *state, "--token-file", "open"), "others may write this file of tokens"),
        ((*SERVE, *state, "--token-file", "wrong"), "wrong:1: no token; a line is scope, SHA-256 and owner"),
        ((*SERVE, *state, "--source", "slrum"), "source: no such source (got 'slrum'); did you mean 'slurm'?"),
        ((*SERVE, *state, "--source", "file:none.json"), "source: no such file (got 'none.json')"),
        ((*SERVE, *state, "--source", "slurm:jsn"), "source: no such way to ask Slurm (got 'jsn'); did you mean 'json'?"),
        ((*SERVE, *state, "--source", "slurm:http://"), "source: must be http://HOST:PORT, https://HOST:PORT or unix:PATH"),
        ((*SERVE, *state, "--source", "ray", "--set", "slurm_token_file=open"), "--set slurm_token_file: goes with slurmrestd"),
        ((*SERVE, *state, "--set", "tls_cert=three.yaml"), "--set tls_cert and tls_key: go together"),
        ((*SERVE[:3], *state, "--policy", "menu:foo"), "no such rule of a fleet"),
        ((*SERVE, *state, "--set", "sharing=host"), "--set: sharing: not a valid choice (got 'host'); did you mean 'hosts'?"),
        ((*SERVE, *state, "--set", "kueue_check=ours"), "goes with --source kubernetes"),
        ((*SERVE, *state, "--source", "kubernetes", "--set", "kueue_check=../x"), "is no name of an object"),
        ((*SERVE[:3], *state, "--policy", "fastest-feasable"), "fastest-feasible"),
        (("serve", "--cluster", "none.yaml", *state), "none.yaml"),
        ((*SERVE, *state, "--listen", f":{busy}"), f"--listen: 127.0.0.1:{busy} is in use"),
        ((*SERVE, *state, "--listen", ":99999"), "error: --listen: must be HOST:PORT, HOST, :PORT or unix:PATH"),
        ((*SERVE, *state, "--listen", "192.0.2.1", "--token-file", "right"), "--listen: is no address of this machine"),
        ((*SERVE, *state, "--listen", "x.invalid", "--token-file", "right"), "--listen: no such address"),
        (("serve", "token", "--file", "wrong"), "wrong:1: no token"),
        (
            ("serve", "token", "--file", "new", "--scope", "decides"),
            "--scope: no such scope (got 'decides'); did you mean 'decide'?",
        ),
        (("plan", "--state", "http://127.0.0.1:1", "--job", "zoo:alexnet"), "is the service running?"),
        (
            ("plan", "--state", "http://127.0.0.1:1", "--job", "zoo:alexnet", "--policy", "max"),
            "does not go with a service as --state",
        ),
        (("plan", "--state", "http://", "--job", "zoo:alexnet"), "error: --state: must be http://HOST:PORT"),
        (("history", "decisions", "--state", "http://"), "error: --state: must be http://HOST:PORT"),
        (("plan", "--state", "http://127.0.0.1:1", "--job", "zoo:alexnet", "--set", "max_degree=0"), "error: --set max_degree: "),
        (("plan", "--job", "zoo:alexnet"), "--cluster: is missing"),
    ):
        assert message in f"error: {refused(*words)}", words


def test_a_token_is_printed_once_and_its_digest_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for scope in ("read", "admin"):
        assert run_command_line(["serve", "token", "--file", "tokens", "--scope", scope, "--owner", "me & you"]) == 0
    tokens = capsys.readouterr().out.split()
    lines = (tmp_path / "tokens").read_text().splitlines()
    assert lines == [
        f"{scope} {hashlib.sha256(token.encode()).hexdigest()} me & you"
        for scope, token in zip(("read", "admin"), tokens, strict=True)
    ]
    assert (tmp_path / "tokens").stat().st_mode & 0o777 == 0o600


def test_a_token_of_some_days_says_until_when(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run_command_line(["serve", "token", "--file", "tokens", "--days", "30", "--owner", "ann"]) == 0
    (result,) = read_tokens(tmp_path / "tokens")
    assert result.owner == "ann"
    assert timedelta(days=29.9) < result.until - datetime.now(UTC) < timedelta(days=30.1)
    (tmp_path / "tokens").write_text(f"read {'0' * 64} until=tomorrow\n")
    assert run_command_line(["serve", "token", "--file", "tokens"]) == 2
    assert "tokens:1: until: must be an instant with its time zone" in capsys.readouterr().err
