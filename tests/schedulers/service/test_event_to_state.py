"""Delay from an event of a real Slurm to the state of a real service: by the hooks, and by listings every five seconds.

It prints the figures; the bounds are those that the service is meant to keep. An event is a line of slurmctld's log, which has
milliseconds: a job is given its hosts, or has ended. The state is asked for without a pause.
"""

import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest
import yaml

from meshwright.live.client import Client
from meshwright.live.decisions import JobRequest

from ..conftest import CLUSTER, EIGHT
from ..processes import search_path, wait_for
from ..slurm import LoopbackSlurm

pytestmark = pytest.mark.scheduler("slurm")

NUM_JOBS = 6
HOOK_S, POLL_S = 0.2, 6.0
RESYNC_S = 5
GIVEN = re.compile(r"\[(\S+)\] (?:sched: Allocate|sched/backfill: _start_job: Started) JobId=(\d+) ")
ENDED = re.compile(r"\[(\S+)\] _job_complete: JobId=(\d+) done")


@contextmanager
def served(running: LoopbackSlurm, cluster: dict, folder: Path, source: str, resync_s: float, socket: Path) -> Iterator[Client]:
    """A service of its own process on a socket file; a client of it."""
    (folder / "cluster.yaml").write_text(yaml.safe_dump(cluster))
    words = ("serve", "--cluster", "cluster.yaml", "--policy", "max@best-fit", "--state", "s.db", "--source", source)
    more = ("--set", f"resync_s={resync_s}", "--listen", f"unix:{socket}")
    environment = {**running.environment, "PATH": search_path()}
    service = subprocess.Popen(["meshwright", *words, *more], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert service.stdout is not None
        with service.stdout:
            assert "listening on" in service.stdout.readline()
            assert service.stdout.readline() == "slurm: listed\n"
            yield Client(f"unix:{socket}")
    finally:
        service.terminate()
        service.wait(20)


def logged_at(running: LoopbackSlurm, event: re.Pattern[str], job: str) -> float:
    """When an event of a job was logged, in seconds since 1970."""
    results: list[str] = []

    def is_there() -> bool:
        results[:] = [at for at, number in event.findall((running.folder / "log" / "slurmctld.log").read_text()) if number == job]
        return bool(results)

    wait_for(is_there, f"{event.pattern} of {job}")
    return datetime.fromisoformat(results[0]).timestamp()


def known_at(condition: Callable[[], bool], what: str) -> float:
    """When a condition was first seen to hold."""
    until_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until_s, what
        time.sleep(0.002)
    return time.time()


def told(name: str, delays_s: list[float], wanted_s: float) -> None:
    """Print a row."""
    middle_s, longest_s = statistics.median(delays_s), max(delays_s)
    sys.stdout.write(f"{name}: median {middle_s:.3f} s, longest {longest_s:.3f} s of {len(delays_s)} (wanted {wanted_s} s)\n")


def test_by_the_hooks(hooked_slurm, tmp_path):
    starts, ends = [], []
    sbatch = ("sbatch", "--parsable", "--output=/dev/null", "--nodes=1", "--gpus-per-node=4", "--wrap=sleep 1")
    with served(hooked_slurm, EIGHT, tmp_path, "slurm", 600, hooked_slurm.folder / "service") as client:

        def status(name: str) -> str:
            return str(client.view(name)["status"])

        client.try_plan(JobRequest(job="zoo:squeezenet", devices=4, max_devices=4))  # then its kind of job is ready
        for _ in range(NUM_JOBS):
            ran = hooked_slurm.run(*sbatch, "--comment=mw:auto job=zoo:squeezenet")
            (name,), job = re.findall(r"as decision (\S+)", ran.stderr), ran.stdout.strip()
            begun = known_at(lambda name=name: status(name) != "reserved", f"the start of {name}")
            done = known_at(lambda name=name: status(name) == "ended", f"the end of {name}")
            starts.append(begun - logged_at(hooked_slurm, GIVEN, job))
            ends.append(done - logged_at(hooked_slurm, ENDED, job))
    told("a job's start, by the prolog", starts, HOOK_S)
    told("a job's end, by the epilog", ends, HOOK_S)
    assert statistics.median(starts) <= HOOK_S
    assert statistics.median(ends) <= HOOK_S


def test_by_listings(loopback_slurm, tmp_path):
    jobs, seen = [], {}
    sbatch = ("sbatch", "--parsable", "--output=/dev/null", "--nodes=1", "--gpus-per-node=1", "--wrap=sleep 60")

    def are_seen() -> bool:
        if len(jobs) < NUM_JOBS and time.monotonic() >= begun_s + 0.9 * len(jobs):  # at other times of the five seconds
            jobs.append(loopback_slurm.run(*sbatch).stdout.strip())
        seen.update({one["id"]: time.time() for one in client.cluster()["jobs"] if one["id"] not in seen})
        return len(jobs) == NUM_JOBS and seen.keys() >= set(jobs)

    try:
        with served(loopback_slurm, CLUSTER, tmp_path, "slurm", RESYNC_S, tmp_path / "service") as client:
            begun_s = time.monotonic()
            known_at(are_seen, f"{NUM_JOBS} jobs in the state")
            delays = [seen[job] - logged_at(loopback_slurm, GIVEN, job) for job in jobs]
    finally:
        loopback_slurm.restore()
    told(f"a job's start, by listings every {RESYNC_S} s", delays, POLL_S)
    assert max(delays) <= POLL_S
