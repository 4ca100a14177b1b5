"""A Ray cluster to play on: one that runs, or nodes on this machine for as long as a command lasts."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from ...errors import ConfigError, MeshwrightError
from ...temporaries import NEW, folder_beside, remove_stale
from ...worker_pool import deaf_to_interrupts
from .ray import RayWorkers, first_line

LOCAL = "local:"
MOST_LOCAL_NODES = 64
STORE_BYTES = 80 * 2**20
"""Object store of a local node: about the smallest that Ray takes."""

SYSTEM = {"health_check_period_ms": 1_000, "worker_niceness": 0}
"""Of local nodes. A lost one is known for lost after five such periods; else workers give way to all other processes."""

BELOW = Path("/tmp")  # noqa: S108 - a folder of its own is made there
"""Where files of local nodes lie, as Ray's own do: names of sockets may have 107 letters, and Ray adds 70."""

ANSWER_S = 10.0
"""Longest wait for a cluster's word; one on this machine takes a second."""

ASK = """
import sys
from ray._private import services
from ray._raylet import GcsClient
nodes = GcsClient(address=sys.argv[1]).get_all_node_info()
sys.exit(0 if {node.hex() for node in nodes} & set(services.find_node_ids()) else 3)
"""
"""Run in a process of its own: Ray's client goes on asking an address that does not answer for a minute, and writes about it."""


def ray_workers(address: str) -> AbstractContextManager[RayWorkers]:
    """Workers on a Ray cluster.

    Args:
        address: ``HOST:PORT`` of a running cluster of which this machine is a node, or ``local:N``: N nodes of one CPU on this
            machine and a head without one, for as long as the context lasts, reachable from this machine alone.

    Raises:
        ConfigError: no such spelling.
        MeshwrightError: Ray is not installed; in the context, no such cluster, or one that cannot be used.
    """
    before, _, count = address.rpartition(":")
    is_local, number = address.startswith(LOCAL), int(count[:9]) if count.isascii() and count.isdigit() else 0
    if is_local and not (before == LOCAL[:-1] and 1 <= number <= MOST_LOCAL_NODES):
        raise ConfigError(f"local:N starts 1 to {MOST_LOCAL_NODES} nodes", field="--ray", value=address)
    if not (before and 1 <= number < 65_536 and "/" not in address):
        raise ConfigError("is HOST:PORT of a running cluster, or local:N", field="--ray", value=address)
    if importlib.util.find_spec("ray") is None:
        raise MeshwrightError("Ray is not installed; the extra meshwright[ray] is", field="--ray", value=address)
    return _local(number, address) if is_local else _joined(before, number, address)


@contextmanager
def _local(num_nodes: int, named: str) -> Iterator[RayWorkers]:
    with ExitStack() as stack:
        remove_stale(BELOW)
        folder = stack.enter_context(folder_beside(BELOW / "r")) / NEW
        (folder / "ray").mkdir()  # Ray notes the cluster's address there, not where another one of this user's may be noted
        stack.enter_context(_variables(RAY_TMPDIR=str(folder), RAY_USAGE_STATS_ENABLED="0"))
        stack.enter_context(_on_loopback())
        common = {"object_store_memory": STORE_BYTES, "include_dashboard": False, "temp_dir": str(folder)}
        with _quiet():
            cluster = import_module("ray.cluster_utils").Cluster()
            stack.callback(_stop, cluster.shutdown)
            cluster.add_node(**common, num_cpus=0, _system_config=SYSTEM)
            for _ in range(num_nodes):
                cluster.add_node(**common, num_cpus=1, wait=False)
            cluster.wait_for_nodes()
        yield stack.enter_context(_connected(cluster.address, named))


@contextmanager
def _joined(host: str, port: int, named: str) -> Iterator[RayWorkers]:
    with ExitStack() as stack:
        if host in ("127.0.0.1", "localhost"):  # Ray takes the machine's own address for it, where most clusters listen
            with _quiet():
                own: str = import_module("ray.util").get_node_ip_address()
            if _listens(own, port):
                host = own
            else:
                stack.enter_context(_on_loopback())
        problem = _why_not(host, port)
        if problem:
            raise MeshwrightError(problem, field="--ray", value=named)
        yield stack.enter_context(_connected(f"{host}:{port}", named))


@contextmanager
def _connected(address: str, named: str) -> Iterator[RayWorkers]:
    """Connected to a cluster as long as the context lasts; Ray prints nothing meanwhile."""
    with _quiet():
        ray: Any = import_module("ray")
        with _changed(import_module("ray._private.worker"), "print_to_stdstream", lambda *told, **how: None):
            try:
                ray.init(address=address, log_to_driver=False, logging_level="CRITICAL")
            except (RuntimeError, OSError, ValueError) as error:
                problem = f"Ray does not connect: {first_line(error)}"
                raise MeshwrightError(problem, field="--ray", value=named) from None
            try:
                yield RayWorkers(named)
            finally:
                _stop(ray.shutdown)


def _why_not(host: str, port: int) -> str:
    """Why no cluster can be used there; empty where one can."""
    if not _listens(host, port):
        return "nobody listens there"
    words = [sys.executable, "-c", ASK, f"{host}:{port}"]
    try:
        status = subprocess.run(words, timeout=ANSWER_S, capture_output=True, check=False).returncode  # noqa: S603 - no shell
    except subprocess.TimeoutExpired:
        return f"no Ray cluster answers within {ANSWER_S:g} s"
    return {0: "", 3: "this machine is no node of that cluster"}.get(status, "no Ray cluster answers")


def _listens(host: str, port: int) -> bool:
    with suppress(OSError), socket.create_connection((host, port), timeout=3.0):
        return True
    return False


def _stop(end: Callable[[], None]) -> None:
    """Nobody's second Ctrl-C leaves processes behind."""
    with deaf_to_interrupts():
        end()


def _on_loopback() -> AbstractContextManager[None]:
    """Ray's nodes and clients take 127.0.0.1 as the machine's address, as they do by default on macOS."""
    return _changed(import_module("ray._private.ray_constants"), "ENABLE_RAY_CLUSTER", False)


@contextmanager
def _changed(module: Any, name: str, value: object) -> Iterator[None]:
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without warnings, which here are all about Ray's own future."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _variables(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
