"""Which wires a cluster is built from, and that namespaces are gone afterwards, however it ends."""

import os
import shutil
import signal
import subprocess
import sys

import pytest

from meshwright.clusters import load_cluster
from meshwright.clusters.cluster import Cluster
from meshwright.errors import ClusterError, MeshwrightError
from meshwright.evaluation.validation.network_lab import namespaces as network_namespaces
from meshwright.evaluation.validation.network_lab.namespaces import Shaper, namespaces, why_not, wiring
from meshwright.evaluation.validation.network_lab.scenes import dumbbell, star


@pytest.fixture(scope="module")
def root_on_linux():
    """Nothing, where namespaces can be made; else a skip with the reason."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)


def existing(prefix="meshwright-"):
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return [line.split()[0] for line in listed.splitlines() if line.startswith(prefix)]


def changed(cluster, **topology):
    data = cluster.to_data()
    data["topology"] |= topology
    return Cluster.from_data(data)


def test_a_star_is_one_wire_for_each_host():
    wires = wiring(star(3, 100))
    assert [(wire.a, wire.b) for wire in wires] == [("l0-h0", "leaf0"), ("l0-h1", "leaf0"), ("l0-h2", "leaf0")]
    assert {wire.from_a for wire in wires} == {wire.from_b for wire in wires} == {Shaper(12.5e6)}


def test_a_dumbbell_has_its_sides_joined_at_the_rate_of_one_host():
    wires = wiring(dumbbell(2, 1000))
    assert {(wire.a, wire.b) for wire in wires} == {
        ("l0-h0", "leaf0"),
        ("l0-h1", "leaf0"),
        ("l1-h0", "leaf1"),
        ("l1-h1", "leaf1"),
        ("leaf0", "spine0"),
        ("leaf1", "spine0"),
    }
    assert {wire.from_a.bytes_per_s for wire in wires} | {wire.from_b.bytes_per_s for wire in wires} == {125e6}


def test_what_is_handed_over_at_once_fits_into_the_bucket_with_its_headers():
    for bytes_per_s in (1e5, 12.5e6, 125e6, 1e10):
        shaper = Shaper(bytes_per_s)
        frames = -(-shaper.segment_bytes // 1448)
        assert shaper.segment_bytes + 66 * frames <= shaper.burst_bytes
    assert Shaper(125e6).segment_bytes == 31250  # 0.25 ms
    assert (Shaper(1.0).segment_bytes, Shaper(1e12).segment_bytes) == (16384, 65536)


def test_wires_that_bridges_cannot_serve_are_refused():
    with pytest.raises(ClusterError, match="close a loop"):
        wiring(changed(dumbbell(2, 100), num_spines=2))
    with pytest.raises(ClusterError, match="hosts of one device"):
        wiring(load_cluster("preset:dgx-a100-8x8"))
    with pytest.raises(ClusterError, match="at most 64"):
        wiring(star(70, 100))


def test_the_reason_is_told_where_there_can_be_no_namespaces(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert why_not() == "only root may make network namespaces"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda tool: None if tool == "tc" else "/sbin/ip")
    assert why_not() == "the command tc is missing (package iproute2)"
    monkeypatch.setattr(shutil, "which", lambda tool: "/sbin/ip")
    monkeypatch.setattr(network_namespaces, "_run", refuse)
    assert why_not() == "ip says: Operation not permitted"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert why_not() == "network namespaces are a feature of Linux"


def refuse(words):
    raise MeshwrightError("ip says: Operation not permitted")


def test_hosts_reach_each_other_and_nothing_is_left_of_them(root_on_linux):
    before = existing()
    with namespaces(dumbbell(1, 100)) as wires:
        wires.shape()
        assert sorted(set(existing()) - set(before)) == sorted(
            wires.name(n) for n in ("l0-h0", "l1-h0", "leaf0", "leaf1", "spine0")
        )
        shapers = subprocess.run(wires.command("l0-h0", "tc", "qdisc"), capture_output=True, text=True, check=True).stdout
        assert "tbf" in shapers
        assert "rate 100Mbit" in shapers
        listen = "import socket; s = socket.create_server(('', 7000)); print('up', flush=True); s.accept()[0].sendall(b'hello')"
        call = "import socket; print(socket.create_connection(('10.77.0.2', 7000), timeout=10).recv(5).decode())"
        server = subprocess.Popen(wires.command("l1-h0", sys.executable, "-c", listen), stdout=subprocess.PIPE, text=True)
        with server:
            assert server.stdout.readline() == "up\n"
            client = wires.command("l0-h0", sys.executable, "-c", call)
            assert subprocess.run(client, capture_output=True, text=True, check=True).stdout == "hello\n"
        assert wires.sent_bytes("l1-h0") > 5
    assert existing() == before


def test_a_failure_half_way_leaves_nothing(root_on_linux, monkeypatch):
    before = existing()
    plain = network_namespaces._run

    def fails_at_the_second_wire(words):
        if words[:3] == ["ip", "link", "add"] and "leaf0" in words[-1] and len(set(existing()) - set(before)) >= 3:
            raise MeshwrightError("no more")
        return plain(words)

    monkeypatch.setattr(network_namespaces, "_run", fails_at_the_second_wire)
    with pytest.raises(MeshwrightError, match="no more"), namespaces(star(2, 100)):
        pytest.fail("the block was entered")
    assert existing() == before
    with pytest.raises(ZeroDivisionError):
        make_and_fail(monkeypatch, plain)
    assert existing() == before


def make_and_fail(monkeypatch, plain):
    monkeypatch.setattr(network_namespaces, "_run", plain)
    with namespaces(star(2, 100)):
        raise ZeroDivisionError


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_program_that_is_ended_leaves_nothing(root_on_linux, number):
    code = (
        "import time\n"
        "from meshwright.evaluation.validation.network_lab.namespaces import namespaces\n"
        "from meshwright.evaluation.validation.network_lab.scenes import star\n"
        "with namespaces(star(2, 100)):\n"
        "    print('made', flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as program:
        assert program.stdout.readline() == "made\n"
        prefix = f"meshwright-{program.pid}-"
        assert len(existing(prefix)) == 3
        program.send_signal(number)
        assert program.wait(timeout=30) != 0
    assert existing(prefix) == []
