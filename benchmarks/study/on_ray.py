"""A command on some node of a Ray cluster: ``python -m benchmarks.study.on_ray HOST:PORT COMMAND...`` ends as the command does.

It runs in the folder of the same path, on one CPU, and ends with this process. Where its node is lost the status is `AGAIN`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from meshwright.cli import guarded
from meshwright.evaluation.workers.ray_cluster import ray_workers

from .runner import AGAIN


def run_there(words: list[str], folder: str) -> tuple[int, str]:
    """In a worker: the status of a command and the end of what it said; it dies with its worker, as that does with its node."""
    import ctypes
    import signal
    import subprocess

    libc = ctypes.CDLL(None)
    ran = subprocess.run(
        words,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=lambda: libc.prctl(1, signal.SIGTERM),
        check=False,
    )
    return ran.returncode, ran.stdout[-65_536:].decode(errors="replace")


def main(arguments: list[str]) -> int:
    """Run it; returns the exit status."""
    address, *words = arguments
    with ray_workers(address):
        ray: Any = import_module("ray")
        begun = ray.remote(num_cpus=1, max_retries=0)(run_there).remote(words, str(Path.cwd()))
        try:
            status, said = ray.get(begun)
        except (ray.exceptions.NodeDiedError, ray.exceptions.ObjectLostError):
            return AGAIN
    sys.stdout.write(said)
    return int(status)


if __name__ == "__main__":
    sys.exit(guarded(lambda: main(sys.argv[1:])))
