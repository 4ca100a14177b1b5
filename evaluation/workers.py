"""Workers that play episodes and train seeds, to the same results: this process, several, or the nodes of a Ray cluster."""

from __future__ import annotations

import importlib.util
import pickle
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Generic, TypeVar

import meshwright

from .. import files
from ..errors import ConfigError, MeshwrightError
from ..worker_pool import WorkerPool, deaf_to_interrupts

Task = TypeVar("Task")
Made = TypeVar("Made")
MAX_PROCESSES = 256
_unpickled = lru_cache(1)(pickle.loads)


class CarriedPolicies(Generic[Made]):
    """Policies by their spelling, made where they play; pickled are spellings, and the files that those of ``specs`` name."""

    def __init__(self, make: Callable[[str], Made], file_of: Callable[[str], tuple[str, Path] | None], specs: Iterable[str]):
        self._make, self._file_of, self.specs = make, file_of, tuple(dict.fromkeys(specs))
        self._carried, self._made = dict[str, tuple[str, str, bytes]](), dict[str, Made]()

    def __getitem__(self, spec: str) -> Made:
        if spec not in self._made:
            with TemporaryDirectory(prefix="meshwright-") as folder:
                named, name, content = self._carried.get(spec, ("", "none", b""))
                Path(folder, name).write_bytes(content)
                self._made[spec] = self._make(spec.replace(named, f"{folder}/{name}") if named else spec)
        return self._made[spec]

    def __getstate__(self) -> dict[str, Any]:
        results = [(spec, *file) for spec in self.specs if (file := self._file_of(spec)) is not None]
        return vars(self) | {
            "_carried": {spec: (name, file.name, file.read_bytes()) for spec, name, file in results},
            "_made": {},
        }


class Workers:
    """Do tasks in this process, or ``jobs`` at a time in 1 to `MAX_PROCESSES` others of this machine."""

    def __init__(self, jobs: int = 1) -> None:
        if not 1 <= jobs <= MAX_PROCESSES:
            raise ConfigError(f"must be 1 to {MAX_PROCESSES}", field="jobs", value=jobs)
        self._jobs = jobs

    def do(self, play: Callable[[Task], Any], tasks: Sequence[Task], keep: Callable[[Task, Any], None]) -> None:
        """Do each task by ``play``, and hand it with its result to ``keep`` in the order of the tasks.

        Raises:
            MeshwrightError: no worker is left that could do a task, or as ``play`` says.
        """
        if min(self._jobs, len(tasks)) <= 1:
            for task in tasks:
                keep(task, play(task))
            return
        content = pickle.dumps(play)
        try:
            with WorkerPool(min(self._jobs, len(tasks))) as pool:
                with deaf_to_interrupts():  # not `map`, which trips over a pool whose processes end while tasks wait
                    results = [pool.submit(_do, content, task) for task in tasks]
                for task, result in zip(tasks, results, strict=True):
                    keep(task, result.result())
        except BrokenProcessPool:
            raise MeshwrightError("a worker process died; try fewer", field="jobs", value=self._jobs) from None


class RayWorkers(Workers):
    """Do tasks on the nodes of the Ray cluster that this process has joined; messages name its address."""

    def __init__(self, address: str) -> None:
        self._address = address

    def do(self, play: Callable[[Task], Any], tasks: Sequence[Task], keep: Callable[[Task, Any], None]) -> None:
        """See `Workers.do`; a task whose node or worker process is lost is done again, three times at most."""
        import ray  # takes seconds

        do, content = ray.remote(num_cpus=1, max_retries=3)(_do), ray.put(pickle.dumps(play))
        results = [do.remote(content, task, _sources()) for task in tasks]
        for task, result in zip(tasks, results, strict=True):
            try:
                while not ray.wait([result], timeout=60.0)[0]:  # an autoscaler may bring a node
                    if not ray.cluster_resources().get("CPU"):
                        raise MeshwrightError("no node has a CPU for a minute", field="--jobs", value=self._address)
                keep(task, ray.get(result))
            except ray.exceptions.RayTaskError as error:
                raise error.cause from None
            except ray.exceptions.RayError as error:
                raise MeshwrightError(str(error).partition("\n")[0], field="--jobs", value=self._address) from None


def worker_count(jobs: str) -> AbstractContextManager[Workers]:
    """Return the workers of ``--jobs``: a number of processes, or ``HOST:PORT`` or ``local:N`` of a Ray cluster.

    The first is a cluster with this machine in it.

    Raises:
        MeshwrightError: wrongly spelled, or Ray is not installed; in the context, no such cluster.
    """
    if re.fullmatch(r"[+-]?[0-9]{1,9}", jobs):
        return nullcontext(Workers(int(jobs)))
    ray = jobs
    host, _, port = ray.rpartition(":")
    most = MAX_PROCESSES if host == "local" else 65_535
    if not (host and "/" not in host and port.isascii() and port.isdigit() and 1 <= int(port[:9]) <= most):
        raise ConfigError(
            f"is a number, HOST:PORT of a Ray cluster, or local:N of 1 to {MAX_PROCESSES} CPUs", field="--jobs", value=ray
        )
    if importlib.util.find_spec("ray") is None:
        raise MeshwrightError("Ray is not installed; the extra meshwright[ray] is", field="--jobs", value=ray)
    return _on_ray(ray, host, int(port))


@contextmanager
def _on_ray(address: str, host: str, port: int) -> Iterator[Workers]:
    import ray

    with TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:  # short, as names of sockets are
        local = {"address": "local", "num_cpus": port, "object_store_memory": 80 * 2**20, "include_dashboard": False}
        local |= {"_node_ip_address": "127.0.0.1", "_temp_dir": folder}
        try:
            if host != "local":
                socket.create_connection((host, port), timeout=3.0).close()  # Ray itself asks for minutes
            ray.init(**(local if host == "local" else {"address": address}), log_to_driver=False, logging_level="CRITICAL")
        except (RuntimeError, OSError, ValueError) as error:
            raise MeshwrightError(f"no cluster: {str(error).splitlines()[0]}", field="--jobs", value=address) from None
        try:
            yield RayWorkers(address)
        finally:
            with deaf_to_interrupts():
                ray.shutdown()


def _do(content: bytes, task: Any, sources: str | None = None) -> Any:
    if sources and sources != _sources():
        raise MeshwrightError("has other sources of meshwright than this command", field="node", value=socket.gethostname())
    return _unpickled(content)(task)


@cache
def _sources() -> str:
    root = Path(meshwright.__file__).parent
    paths = sorted([*root.glob("*.py"), *root.glob("*/**/*.py")])  # folders of packages may be links
    return files.digest(*((str(path.relative_to(root)), path.read_bytes()) for path in paths))
