"""Tasks on the nodes of a Ray cluster: stateless remote functions, gathered by ``ray.wait``.

What plays is pickled once, with the scenario that it plays and the files of its policies, so that nodes need nothing but
the same meshwright; each worker process keeps the last one that it was brought. A task whose node is lost is given to
another one, however often; one whose worker process dies on a node that goes on is given up after `MOST_CRASHES`; what is wrong
with the input ends everything at once. Ray itself tries nothing again, as it counts both kinds of deaths as one.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import meshwright

from ...errors import MeshwrightError
from .workers import Result, Task

MOST_CRASHES = 3
"""Worker processes that one task may lose."""

NO_NODE_S = 60.0
"""Longest wait for a node with a CPU, which an autoscaler may bring."""

LOOK_EVERY_S = 1.0
"""Time between two looks at the nodes that there are."""

TASKS_A_CPU = 3
"""Tasks under way for each CPU, so that no worker waits for its next one."""


class RayWorkers:
    """Workers on a cluster that this process is connected to (see `ray_cluster.ray_workers`).

    Args:
        address: of the cluster, for messages.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._play: Callable[[Any], Any] | None = None
        self._brought: tuple[Any, ...] = ()

    def do(self, play: Callable[[Task], Result], tasks: Sequence[Task], keep: Callable[[Task, Result], None]) -> None:
        """See `workers.Workers.do`."""
        ray: Any = import_module("ray")
        if self._play is not play:
            content = pickle.dumps(play)
            self._brought = (_sources(), str(Path.cwd()), hashlib.sha256(content).hexdigest(), [ray.put(content)])
            self._play = play
        brought = self._brought
        remote = ray.remote(num_cpus=1, max_retries=0)(_remote())
        waiting, under_way, done = list(range(len(tasks)))[::-1], dict[Any, int](), dict[int, Result]()
        crashes, num_kept = Counter[int](), 0
        num_cpus, looked, seen = 0, -LOOK_EVERY_S, time.monotonic()
        while num_kept < len(tasks):
            now = time.monotonic()
            if now - looked >= LOOK_EVERY_S:
                num_cpus, looked = int(ray.cluster_resources().get("CPU", 0)), now
                seen = now if num_cpus else seen
                if now - seen > NO_NODE_S:
                    raise self._error(f"the cluster has had no node with a CPU for {NO_NODE_S:g} s")
            while waiting and len(under_way) < max(1, TASKS_A_CPU * num_cpus):
                number = waiting.pop()
                under_way[remote.remote(*brought, tasks[number])] = number
            for ready in ray.wait(list(under_way), timeout=LOOK_EVERY_S)[0]:
                number = under_way.pop(ready)
                try:
                    is_wrong, found = ray.get(ready)
                except (ray.exceptions.NodeDiedError, ray.exceptions.ObjectLostError):
                    waiting.append(number)
                    continue
                except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as error:
                    crashes[number] += 1
                    if crashes[number] == MOST_CRASHES:
                        last = first_line(error)
                        raise self._error(f"{MOST_CRASHES} worker processes died over one task; the last one: {last}") from None
                    waiting.append(number)
                    continue
                if is_wrong:
                    raise found if isinstance(found, MeshwrightError) else self._error(found)
                done[number] = found
            while num_kept in done:
                keep(tasks[num_kept], done.pop(num_kept))
                num_kept += 1

    def _error(self, problem: str) -> MeshwrightError:
        return MeshwrightError(problem, field="--ray", value=self._address)


def first_line(error: Exception) -> str:
    """What an error of Ray says, without the pages below."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _remote() -> Callable[..., tuple[bool, Any]]:
    """What Ray runs. It is pickled by value, being no function of a module: a node without meshwright says so itself."""
    home, version = __name__, meshwright.__version__

    def play_there(sources: str, folder: str, digest: str, content: list[Any], task: Any) -> tuple[bool, Any]:
        import importlib
        import socket

        try:
            there = importlib.import_module(home)
            is_same = there._sources() == sources
        except (ImportError, AttributeError):
            is_same = False
        if is_same:
            found: tuple[bool, Any] = there._play(folder, digest, content, task)
            return found
        return True, f"the node {socket.gethostname()} lacks the meshwright of this command ({version}, the same sources)"

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
            path = Path(folder) / name
            state.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return state.hexdigest()
