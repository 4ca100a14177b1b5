"""Connections to a real server: those that ask nothing end no service, what is malformed is refused, ready means it can keep."""

from __future__ import annotations

import json
import re
import resource
import socket
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from meshwright.live.service import Service
from meshwright.live.web import server as servers
from meshwright.live.web.access import access, new_token
from meshwright.live.web.app import build_app

from ..controller_samples import Clock, controller
from ..live_samples import CLUSTER
from .web_samples import serving

FEW_FILES = 128
BODY = json.dumps({"job": "zoo:alexnet", "max_devices": 2}).encode()


@pytest.fixture
def process(tmp_path):
    """A service in a process of its own that may have few open files; its port and the process."""
    (tmp_path / "three.yaml").write_text(CLUSTER)
    code = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({FEW_FILES},) * 2)"
    code += "; from meshwright.cli import run_command_line; import sys; sys.exit(run_command_line(sys.argv[1:]))"
    words = ["serve", "--cluster", "three.yaml", "--policy", "fastest-feasible", "--state", "s.db", "--listen", ":0"]
    with subprocess.Popen(
        [sys.executable, "-c", code, *words], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as made:
        try:
            yield int(re.search(r":(\d+) ", made.stdout.readline())[1]), made
        finally:
            made.kill()


@pytest.fixture
def port(tmp_path, planners, monkeypatch):
    """Of a service that wants tokens and waits shortly, and its file of tokens."""
    monkeypatch.setattr(servers, "HEAD_S", 0.3)
    monkeypatch.setattr(servers, "BODY_S", 0.3)
    tokens = tmp_path / "tokens"
    token, line = new_token("decide")
    tokens.write_text(line + "\n")
    service = Service(controller(tmp_path / "s.db", planners, Clock()), tmp_path / "s.db")
    app = build_app(service, access("127.0.0.1", tokens))
    with serving(app, **servers.limits()) as made:
        yield made, tokens, token


def said(port: int, *parts: bytes, host: bytes = b"localhost", head: bytes = b"") -> bytes:
    """All that is answered to a request, until the connection is closed."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as one:
        one.sendall(
            parts[0] + b" HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n" + head + b"\r\n" + b"".join(parts[1:])
        )
        return b"".join(iter(lambda: one.recv(65536), b""))


def status(answer: bytes) -> int:
    return int(answer.split()[1])


def decided(port: int) -> int:
    return status(
        said(port, b"POST /v1/decisions", BODY, head=b"Content-Type: application/json\r\nContent-Length: %d\r\n" % len(BODY))
    )


def test_silent_connections_end_no_service_and_a_full_disk_is_not_ready(process):
    port, made = process
    silent = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(200)]
    assert status(said(port, b"GET /healthz")) == 200
    assert status(said(port, b"GET /readyz")) == 200
    for one in silent:
        one.close()
    limit = resource.prlimit(made.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(made.pid, resource.RLIMIT_FSIZE, (4096, limit[1]))
    time.sleep(1.1)  # the last answer holds for a second
    assert decided(port) == 503
    answer = said(port, b"GET /readyz")
    assert status(answer) == 503
    assert b'"status":"full"' in answer
    resource.prlimit(made.pid, resource.RLIMIT_FSIZE, limit)
    time.sleep(1.1)
    assert status(said(port, b"GET /readyz")) == 200
    assert decided(port) in (201, 202)
    made.terminate()
    assert "connections closed: 1, the last one for more than 64 at a time" in made.communicate()[1]


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET /healthz HTTP/1.1\r\nHost: loc", b"POST /sign-in HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nto"],
)
def test_a_connection_that_does_not_go_on_is_closed(port, sent):
    with socket.create_connection(("127.0.0.1", port[0]), timeout=5) as one:
        one.sendall(sent)
        with suppress(ConnectionResetError):
            assert one.recv(1) == b""


def test_what_is_malformed_is_refused_with_its_status(port):
    port, _, token = port
    known = b"Authorization: Bearer " + token.encode() + b"\r\nContent-Type: application/json\r\n"
    chunks = b"4800\r\n" + b" " * 0x4800 + b"\r\n0\r\n\r\n"  # more than may be sent without a token
    chunked = said(port, b"POST /v1/decisions", chunks, head=b"Transfer-Encoding: chunked\r\n")
    assert (status(chunked), b"too long" in chunked) == (413, True)
    assert status(said(port, b"GET /healthz", head=b"Host: localhost\r\n")) == 400
    for host in (b"localhost:1@evil.com", b"localhost@evil.com", b"[::1]evil.com", b"localhost:1:2", b"localhost/", b""):
        assert status(said(port, b"GET /v1/cluster", host=host, head=known)) == 421, host
    for host in (b"localhost", b"LOCALHOST:80", b"[::1]:8765", b"127.0.0.1:"):
        assert status(said(port, b"GET /v1/cluster", host=host, head=known)) == 200, host
    for body in (
        rb'{"job": "\ud800"}',
        rb'{"job": "a", "\ud800": 1}',
        rb'{"job": "a", "name": "\udfff"}',
        rb'["\ud800"]',
        rb'"\ud800"',
    ):
        for accept in (b"", b"Accept: text/html\r\n"):
            head = known + accept + b"Content-Length: %d\r\n" % len(body)
            assert status(said(port, b"POST /v1/decisions", body, head=head)) == 422, (body, accept)


def test_a_token_is_revoked_and_expires_without_a_restart(port):
    port, tokens, token = port

    def seen(token: str) -> int:
        return status(said(port, b"GET /v1/cluster", head=b"Authorization: Bearer " + token.encode() + b"\r\n"))

    form = b"token=" + token.encode()
    signed = said(port, b"POST /sign-in", form, head=b"Content-Length: %d\r\n" % len(form))
    cookie = re.search(rb"set-cookie: ([^;]*)", signed, re.IGNORECASE)[1]

    def page() -> int:
        return status(said(port, b"GET /v1/cluster", head=b"Cookie: " + cookie + b"\r\n"))

    assert (seen(token), page()) == (200, 200)
    line = tokens.read_text().split()
    tokens.write_text(" ".join([*line[:2], "until=2020-01-01T00:00:00Z", "ann"]) + "\n")
    assert (seen(token), page()) == (401, 401)
    tokens.write_text(" ".join([*line[:2], "until=2999-01-01T00:00:00+00:00"]) + "\n")
    assert (seen(token), page()) == (200, 200)
    other, added = new_token("read")
    tokens.write_text(added + "\n")
    assert (seen(token), page(), seen(other)) == (401, 401, 200)
    tokens.write_text("no tokens\n")
    assert seen(other) == 401
