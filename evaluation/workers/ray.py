"""Tasks on the nodes of a Ray cluster, behind the extra ``[ray]``: stateless remote functions, gathered by ``ray.wait``.

What plays is pickled once, with the scenario that it plays and the files of its policies, so that nodes need nothing but
the same meshwright; each worker process keeps the last one that it was brought. A task whose node is lost is given to
another one, however often; one whose worker process dies on a node that goes on is given up after `MOST_CRASHES`; what is wrong
with the input ends everything at once. Ray itself tries nothing again, as it counts both kinds of deaths as one.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pickle
import socket
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import meshwright

from ...errors import ConfigError, MeshwrightError
from ...temporaries import NEW, folder_beside, remove_stale
from .processes import deaf_to_interrupts
from .workers import Result, Task

LOCAL = "local:"
MOST_LOCAL_NODES = 64
STORE_BYTES = 80 * 2**20
"""Object store of a local node: about the smallest that Ray takes."""

BELOW = Path("/tmp")  # noqa: S108 - a folder of its own is made there
"""Where files of local nodes lie, as Ray's own do: names of sockets may have 107 letters, and Ray adds 70."""

ANSWER_S = 10.0
"""Longest wait for a cluster's word; one on this machine takes a second."""

MOST_CRASHES = 3
"""Worker processes that one task may lose."""

NO_NODE_S = 60.0
"""Longest wait for a node with a CPU, which an autoscaler may bring."""

TASKS_A_CPU = 3
"""Tasks under way for each CPU, so that no worker waits for its next one."""

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
    count = address.removeprefix(LOCAL)
    if address.startswith(LOCAL):
        if not (count.isascii() and count.isdigit() and 1 <= int(count[:9]) <= MOST_LOCAL_NODES):
            raise ConfigError(f"local:N starts 1 to {MOST_LOCAL_NODES} nodes", field="--ray", value=address)
    elif not (address.rpartition(":")[0] and address.rpartition(":")[2].isdigit() and "/" not in address):
        raise ConfigError("is HOST:PORT of a running cluster, or local:N", field="--ray", value=address)
    if importlib.util.find_spec("ray") is None:
        raise MeshwrightError("Ray is not installed; the extra meshwright[ray] is", field="--ray", value=address)
    return _local(int(count)) if address.startswith(LOCAL) else _joined(address)


class RayWorkers:
    """Workers on a cluster that this process is connected to (see `ray_workers`).

    Args:
        address: of the cluster, for messages.
    """

    def __init__(self, address: str) -> None:
        self._address = address

    def do(self, play: Callable[[Task], Result], tasks: Sequence[Task], keep: Callable[[Task, Result], None]) -> None:
        """See `workers.Workers.do`."""
        ray: Any = import_module("ray")
        content = pickle.dumps(play)
        brought = (_sources(), str(Path.cwd()), hashlib.sha256(content).hexdigest(), [ray.put(content)])
        remote = ray.remote(num_cpus=1, max_retries=0)(_remote())
        pending, under_way, done, crashes = list(range(len(tasks)))[::-1], dict[Any, int](), dict[int, Result](), Counter[int]()
        kept, alone_since = 0, time.monotonic()
        while kept < len(tasks):
            num_cpus = int(ray.cluster_resources().get("CPU", 0))
            if num_cpus:
                alone_since = time.monotonic()
            elif time.monotonic() - alone_since > NO_NODE_S:
                raise MeshwrightError("the cluster has had no node with a CPU for a minute", field="--ray", value=self._address)
            while pending and len(under_way) < max(1, TASKS_A_CPU * num_cpus):
                number = pending.pop()
                under_way[remote.remote(*brought, tasks[number])] = number
            for ready in ray.wait(list(under_way), timeout=1.0)[0]:
                number = under_way.pop(ready)
                try:
                    is_wrong, found = ray.get(ready)
                except (ray.exceptions.NodeDiedError, ray.exceptions.ObjectLostError):
                    pending.append(number)
                    continue
                except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as error:
                    crashes[number] += 1
                    if crashes[number] == MOST_CRASHES:
                        problem = f"{MOST_CRASHES} worker processes died over one task; the last one: {_line(error)}"
                        raise MeshwrightError(problem, field="--ray", value=self._address) from None
                    pending.append(number)
                    continue
                if is_wrong:
                    raise (
                        found
                        if isinstance(found, MeshwrightError)
                        else MeshwrightError(found, field="--ray", value=self._address)
                    )
                done[number] = found
            while kept in done:
                keep(tasks[kept], done.pop(kept))
                kept += 1


def _remote() -> Callable[..., tuple[bool, Any]]:
    """What Ray runs. It is pickled by value, being no function of a module: a node without meshwright says so itself."""
    home, version = __name__, meshwright.__version__

    def play_there(sources: str, folder: str, digest: str, content: list[Any], task: Any) -> tuple[bool, Any]:
        import importlib
        import socket

        try:
            there = importlib.import_module(home)
            same = there._sources() == sources
        except (ImportError, AttributeError):
            same = False
        if not same:
            return True, f"the node {socket.gethostname()} has not the meshwright of this command ({version}, the same sources)"
        return there._play(folder, digest, content, task)

    return play_there


# What a worker process was brought last, by its digest.
_brought: dict[str, Callable[[Any], Any]] = {}


def _play(folder: str, digest: str, content: list[Any], task: Any) -> tuple[bool, Any]:
    """In a worker: whether the input is wrong, and the result or what is wrong with it."""
    if digest not in _brought:
        if folder not in sys.path:  # where modules of python:MODULE:NAME may lie
            sys.path.insert(0, folder)
        _brought.clear()
        _brought[digest] = pickle.loads(import_module("ray").get(content[0]))  # noqa: S301 - of the command itself
    try:
        return False, _brought[digest](task)
    except MeshwrightError as error:
        return True, error


@cache
def _sources() -> str:
    """A digest of this package's sources, wherever it is installed."""
    root, state = Path(meshwright.__file__).parent, hashlib.sha256()
    for folder, below, names in os.walk(root, followlinks=True):
        below.sort()
        for name in sorted(name for name in names if name.endswith(".py")):
            state.update((Path(folder).relative_to(root) / name).as_posix().encode() + (Path(folder) / name).read_bytes())
    return state.hexdigest()


@contextmanager
def _local(num_nodes: int) -> Iterator[RayWorkers]:
    with ExitStack() as stack:
        remove_stale(BELOW)
        folder = stack.enter_context(folder_beside(BELOW / "r")) / NEW
        (folder / "ray").mkdir()  # Ray notes the cluster's address there, not where another one of this user's may be noted
        stack.enter_context(_variables(RAY_TMPDIR=str(folder), RAY_USAGE_STATS_ENABLED="0"))
        stack.enter_context(_on_loopback())
        common = {"object_store_memory": STORE_BYTES, "include_dashboard": False, "temp_dir": str(folder)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cluster = import_module("ray.cluster_utils").Cluster()
            stack.callback(_stop, cluster.shutdown)
            cluster.add_node(**common, num_cpus=0)
            for _ in range(num_nodes):
                cluster.add_node(**common, num_cpus=1, wait=False)
            cluster.wait_for_nodes()
        yield stack.enter_context(_connected(cluster.address, f"{LOCAL}{num_nodes}"))


@contextmanager
def _joined(address: str) -> Iterator[RayWorkers]:
    host, _, port = address.rpartition(":")
    own: str = import_module("ray.util").get_node_ip_address()
    with ExitStack() as stack:
        if host in ("127.0.0.1", "localhost"):  # Ray takes the machine's own address for it, where most clusters listen
            if _listens(own, int(port)):
                host = own
            else:
                stack.enter_context(_on_loopback())
        problem = "" if _listens(host, int(port)) else "nobody listens there"
        if not problem:
            words = [sys.executable, "-c", ASK, f"{host}:{port}"]
            try:
                asked = subprocess.run(words, timeout=ANSWER_S, capture_output=True, check=False)  # noqa: S603 - a list, no shell
                if asked.returncode != 0:
                    problem = "this machine is no node of the cluster" if asked.returncode == 3 else "no Ray cluster answers"
            except subprocess.TimeoutExpired:
                problem = f"no Ray cluster answers within {ANSWER_S:g} s"
        if problem:
            raise MeshwrightError(problem, field="--ray", value=address)
        yield stack.enter_context(_connected(f"{host}:{port}", address))


@contextmanager
def _connected(address: str, named: str) -> Iterator[RayWorkers]:
    """Connected to a cluster as long as the context lasts; Ray prints nothing meanwhile."""
    ray: Any = import_module("ray")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ray.init(address=address, log_to_driver=False, logging_level="CRITICAL")
    except (RuntimeError, OSError, ValueError) as error:
        raise MeshwrightError(f"Ray does not connect: {_line(error)}", field="--ray", value=named) from None
    try:
        import_module("ray._private.ray_logging").global_worker_stdstream_dispatcher.remove_handler("ray_print_logs")
        yield RayWorkers(named)
    finally:
        _stop(ray.shutdown)


def _stop(end: Callable[[], None]) -> None:
    """Nobody's second Ctrl-C leaves processes behind."""
    with deaf_to_interrupts():
        end()


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Ray's nodes and clients take 127.0.0.1 as the machine's address, as they do by default on macOS."""
    constants: Any = import_module("ray._private.ray_constants")
    before, constants.ENABLE_RAY_CLUSTER = constants.ENABLE_RAY_CLUSTER, False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before


@contextmanager
def _variables(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def _listens(host: str, port: int) -> bool:
    with suppress(OSError, OverflowError), socket.create_connection((host, port), timeout=3.0):
        return True
    return False


def _line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
