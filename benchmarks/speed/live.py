"""The ledger of a live cluster: 2,000 jobs on 512 hosts of eight devices, and a million changes."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from meshwright.live.changes import JobAdded, JobRemoved, listed
from meshwright.live.keeping import KeptState
from meshwright.live.state import ClusterState, HeldJob, HostState

from .measure import BenchmarkFigure, median_s

NUM_HOSTS, NUM_JOBS, NUM_CHANGES = 512, 2_000, 1_000_000


def live_figures() -> list[BenchmarkFigure]:
    """Return the seconds of CPU and of waiting for the disk, as a command takes them after its start."""
    on = f"{NUM_JOBS:,} jobs on {NUM_HOSTS} hosts"
    first, second = _listing(0), _listing(1)
    with tempfile.TemporaryDirectory() as folder:
        ledger = KeptState(Path(folder) / "now.db")
        begin_s = _once_s(lambda: ledger.apply(lambda before: listed(before, first)))
        size_bytes, changes = ledger.path.stat().st_size, len(ledger.changes())
        same_s = median_s(lambda: ledger.apply(lambda before: listed(before, first)))
        assert len(ledger.changes()) == changes, "a listing without changes writes nothing"
        turn = iter(range(1_000_000))
        other_s = median_s(lambda: ledger.apply(lambda before: listed(before, (second, first)[next(turn) % 2])))
        add_s = median_s(lambda: _add_and_remove(ledger))
        result = [
            BenchmarkFigure("live: first listing kept", 1e3 * begin_s, "ms", on),
            BenchmarkFigure("live: its size in the ledger", size_bytes / 1e6, "MB", on),
            BenchmarkFigure("live: a listing without changes", 1e3 * same_s, "ms", on),
            BenchmarkFigure("live: a listing in which a tenth of the jobs is new", 1e3 * other_s, "ms", on),
            BenchmarkFigure("live: a job added and removed, each on the disk", 1e3 * add_s, "ms", on),
        ]
        long = Path(folder) / "long.db"
        _fill(long)
        ends = f"{NUM_CHANGES:,} changes"
        with_snapshot_s = median_s(lambda: KeptState(long).read())
        database = sqlite3.connect(long)
        with database:
            database.execute("DELETE FROM snapshot")
        database.close()
        whole_s = _once_s(lambda: KeptState(long).read())
        result.append(BenchmarkFigure("live: state read, by its snapshot", with_snapshot_s, "s", ends))
        result.append(BenchmarkFigure("live: state read, folded anew", whole_s, "s", ends))
    return result


def _job(number: int, host: int, device: int) -> HeldJob:
    return HeldJob(id=str(number), name="training", devices={f"node{host}": (device,)}, source="slurm")


def _listing(turn: int) -> ClusterState:
    """Return the jobs on two devices of a host; a tenth of them has another number in another turn."""
    jobs = []
    for number in range(NUM_JOBS):
        host, pair = divmod(number, 4)
        devices = {f"node{host}": (2 * pair, 2 * pair + 1)}
        jobs.append(
            HeldJob(id=str(number + 100_000 * turn * (number % 10 == 0)), name="training", devices=devices, source="slurm")
        )
    return ClusterState(source="slurm", hosts={f"node{n}": HostState(num_devices=8) for n in range(NUM_HOSTS)}, jobs=tuple(jobs))


def _add_and_remove(ledger: KeptState) -> None:
    job = _job(1_000_000, NUM_HOSTS - 1, 7)
    ledger.apply(lambda before: JobAdded(job=job))
    ledger.apply(lambda before: JobRemoved(id=job.id))


def _once_s(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def _fill(path: Path) -> None:
    """Write jobs that come and go, as a ledger holds them, with the snapshot that it would have made."""
    ledger = KeptState(path)
    ledger.apply(lambda before: JobAdded(job=_job(0, NUM_HOSTS, 0)))
    database = sqlite3.connect(path)
    bodies = []
    for number in range(1, NUM_CHANGES // 2):
        job = _job(number, number % NUM_HOSTS, number % 8)
        bodies += [JobAdded(job=job).model_dump_json(), JobRemoved(id=job.id).model_dump_json()]
    with database:
        database.executemany("INSERT INTO change (body, at) VALUES (?, '')", ((body,) for body in bodies))
        body = ClusterState(jobs=(_job(0, NUM_HOSTS, 0),)).model_dump_json()
        database.execute("INSERT INTO snapshot (seq, body) VALUES (?, ?)", (NUM_CHANGES - 101, body))
    database.close()
