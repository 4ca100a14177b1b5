"""A cluster as Linux network namespaces: hosts and switches joined by veth links whose both ends are shaped by tbf.

The wires are those of the cluster's own description: one namespace for each host and each switch that a path crosses,
one veth pair for each full-duplex link, a bridge in each switch. The shaper of a link's end sends at the link's
bandwidth; nothing but the machine delays a frame. Only namespaces that are made here are touched, and they are removed
again however the block ends.

Frames of one send call stay together up to `Shaper.segment_bytes`, which saves the machine most of the work per frame;
tbf counts them with the headers that each of them has on a wire. Queues hold all that the windows of the connections
through them let out, so that nothing is dropped.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType

from ....clusters.cluster import Cluster
from ....errors import ClusterError, MeshwrightError

WINDOW_BYTES = 256 * 1024
"""Limit of a connection's buffers: at 1 Gbit/s two milliseconds, far above the round trip of these wires."""

QUEUE_BYTES = 16 * WINDOW_BYTES
"""Room of a queue: the windows of more connections than ever share one here."""

MAX_NODES = 64
"""Hosts and switches, at most: each is a namespace."""

_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Shaper:
    """What one end of a link sends.

    Attributes:
        bytes_per_s: frames with their Ethernet headers.
    """

    bytes_per_s: float

    @property
    def segment_bytes(self) -> int:
        """Most bytes that the host sends at once: a quarter of a millisecond, 16-64 KiB."""
        return int(min(max(self.bytes_per_s / 4000, 16 * 1024), 64 * 1024))

    @property
    def burst_bytes(self) -> int:
        """Depth of the token bucket: what is handed over at once must fit, or tbf takes it apart frame by frame."""
        return self.segment_bytes * 3 // 2


@dataclass(frozen=True)
class Wire:
    """A full-duplex link between two nodes, ``a`` and ``b``, and what each end sends."""

    a: str
    b: str
    from_a: Shaper
    from_b: Shaper


def wiring(cluster: Cluster) -> tuple[Wire, ...]:
    """The wires between hosts and switches that the paths of a cluster use.

    Raises:
        ClusterError: several devices on a host, several cards, too many nodes, or wires that close a loop (a bridge would
            send frames around it for ever).
    """
    if cluster.num_devices != cluster.num_hosts:
        raise ClusterError("wires need hosts of one device", field="topology", value=cluster.num_devices)
    devices = range(cluster.num_devices)
    used = sorted({link for a in devices for b in devices for link in cluster.path(a, b)})
    rate: dict[tuple[str, str], float] = {}
    for link in used:
        source, _, target = (name.partition(".nic")[0] for name in cluster.links.names[link].partition(">"))
        if (source, target) in rate:
            raise ClusterError("wires need hosts of one card", field="topology", value=cluster.links.names[link])
        rate[source, target] = float(cluster.links.bandwidth_bytes_per_s[link])
    wires = tuple(Wire(a, b, Shaper(rate[a, b]), Shaper(rate[b, a])) for a, b in rate if (b, a) in rate and a < b)
    _check_tree(wires, cluster)
    return wires


class Namespaces:
    """The namespaces of one cluster while they exist.

    Attributes:
        cluster: what they stand for; its bandwidths count whole frames.
        wires: see `wiring`.
        prefix: of every namespace's name.
    """

    def __init__(self, cluster: Cluster, prefix: str) -> None:
        self.cluster, self.prefix = cluster, prefix
        self.wires = wiring(cluster)
        self._made: list[str] = []
        self._ends: list[tuple[str, str, Shaper]] = []

    def name(self, node: str) -> str:
        """The namespace of a host or switch."""
        return f"{self.prefix}-{node}"

    def command(self, host: str, *words: str) -> list[str]:
        """A command line that runs a program on a host."""
        return ["ip", "netns", "exec", self.name(host), *words]

    def sent_bytes(self, host: str) -> int:
        """Bytes that a host has sent, by its card's own count (headers of frames that stay together count once)."""
        return int(_run(self.command(host, "cat", f"/sys/class/net/{_CARD}/statistics/tx_bytes")))

    def shape(self) -> None:
        """Attach a shaper to both ends of each wire."""
        for node, end, shaper in self._ends:
            words = f"rate {round(shaper.bytes_per_s * 8)}bit burst {shaper.burst_bytes}b limit {QUEUE_BYTES}b"
            _run([*self.command(node), "tc", "qdisc", "replace", "dev", end, "root", "tbf", *words.split()])

    def build(self) -> None:
        """Make the namespaces and the wires between them; not yet shaped."""
        hosts = self.cluster.host_names
        for node in dict.fromkeys(node for wire in self.wires for node in (wire.a, wire.b)):
            self._made.append(self.name(node))  # first, so that an interrupt in between leaves nothing behind
            _run(["ip", "netns", "add", self.name(node)])
            _run(["ip", "-n", self.name(node), "link", "set", "lo", "up"])
            if node not in hosts:
                _run(["ip", "-n", self.name(node), "link", "add", _BRIDGE, "type", "bridge"])
                _run(["ip", "-n", self.name(node), "link", "set", _BRIDGE, "up"])
        for number, wire in enumerate(self.wires):
            ends = [_CARD if node in hosts else f"port{number}" for node in (wire.a, wire.b)]
            there = ["netns", self.name(wire.b)]
            pair = ["type", "veth", "peer", "name", ends[1], *there]
            _run(["ip", "link", "add", ends[0], "netns", self.name(wire.a), *pair])
            for node, end, shaper in ((wire.a, ends[0], wire.from_a), (wire.b, ends[1], wire.from_b)):
                self._ends.append((node, end, shaper))
                at = ["ip", "-n", self.name(node)]
                _run([*at, "link", "set", end, "gso_max_size", str(shaper.segment_bytes)])
                if node in hosts:
                    _run([*at, "addr", "add", f"10.77.0.{hosts.index(node) + 1}/24", "dev", end])
                else:
                    _run([*at, "link", "set", end, "master", _BRIDGE])
                _run([*at, "link", "set", end, "up"])
        for host in hosts:
            _run(self.command(host, "sh", "-c", _TCP))

    def remove(self) -> None:
        """Delete what `build` made; that one is gone already, or was never made, is no error."""
        while self._made:
            with suppress(MeshwrightError):
                _run(["ip", "netns", "delete", self._made[-1]])
            self._made.pop()


_CARD, _BRIDGE = "eth0", "br0"

# Reno is in every kernel, and as nothing is lost here all of them fill the window and stay there.
_TCP = "; ".join(
    f"echo {value} > /proc/sys/net/ipv4/{key}"
    for key, value in {
        "tcp_congestion_control": "reno",
        "tcp_slow_start_after_idle": "0",
        "tcp_no_metrics_save": "1",
        "tcp_wmem": f"4096 16384 {WINDOW_BYTES}",
        "tcp_rmem": f"4096 131072 {WINDOW_BYTES}",
    }.items()
)


@contextmanager
def namespaces(cluster: Cluster) -> Iterator[Namespaces]:
    """The cluster as namespaces, wired and not yet shaped; all of them are gone after the block.

    Raises:
        ClusterError: see `wiring`.
        MeshwrightError: the system refuses a step.
    """
    made = Namespaces(cluster, f"meshwright-{os.getpid()}")
    with _ended_by_signals():
        try:
            made.build()
            yield made
        finally:
            with _undisturbed():
                made.remove()


def why_not() -> str | None:
    """Why there can be no such namespaces here, in a few words; None where they can be made."""
    if not sys.platform.startswith("linux"):
        return "network namespaces are a feature of Linux"
    if os.geteuid() != 0:
        return "only root may make network namespaces"
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if missing:
        return f"the command {missing[0]} is missing (package iproute2)"
    data = {
        "name": "probe",
        "device": "a100",  # nothing is computed
        "topology": {
            "kind": "clos",
            "num_hosts": 2,
            "hosts_per_leaf": 2,
            "num_spines": 1,
            "oversubscription": 1.0,
            "spine_latency_us": 0.0,
            "devices_per_host": 1,
            "intra_host_bandwidth_gbytes_per_s": 1.0,
            "intra_host_latency_us": 0.0,
            "nics_per_host": 1,
            "nic_bandwidth_gbytes_per_s": 0.0125,
            "nic_latency_us": 0.0,
        },
    }
    try:
        with namespaces(Cluster.from_data(data)) as made:
            made.shape()
    except MeshwrightError as error:
        return str(error)
    return None


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Termination ends the block as Ctrl-C does, so that what is made in it is cleared away."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Neither Ctrl-C nor termination interrupts the block; they are forgotten, since it is the last thing done."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, action in before.items():
            signal.signal(number, action)


def _check_tree(wires: tuple[Wire, ...], cluster: Cluster) -> None:
    """Refuse wires that are no tree."""
    joined: dict[str, str] = {}

    def root(node: str) -> str:
        while joined.get(node, node) != node:
            node = joined[node]
        return node

    for wire in wires:
        if root(wire.a) == root(wire.b):
            raise ClusterError("its wires close a loop; one spine is what bridges can serve", field=cluster.name)
        joined[root(wire.a)] = root(wire.b)
    if len(wires) >= MAX_NODES:
        raise ClusterError(f"wires are made for at most {MAX_NODES} hosts and switches", field=cluster.name)


def _run(words: list[str]) -> str:
    """Run a command in a session of its own, so that a Ctrl-C at the terminal does not reach it; its output."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_TIMEOUT_S, start_new_session=True)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MeshwrightError(f"cannot run {words[0]}: {error}") from None
    if done.returncode:
        told = (done.stderr or done.stdout).strip().splitlines()
        raise MeshwrightError(f"{' '.join(words[:6])} ... says: {told[-1] if told else f'status {done.returncode}'}")
    return done.stdout
