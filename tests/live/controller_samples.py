"""Controllers on a cluster of three hosts of four devices, clocks that a test sets, and listings."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from meshwright.live.controller import Controller
from meshwright.live.decisions import JobRequest
from meshwright.live.sources.listings import Listing
from meshwright.live.state import ClusterState, HeldJob, HostState

from .live_samples import HOSTS

NOW = datetime(2026, 3, 1, tzinfo=UTC)
JOB = JobRequest(job="zoo:alexnet", steps=100, max_devices=4)


class Clock:
    """Times that a test sets."""

    def __init__(self):
        self.elapsed_s = 0.0
        self.now = NOW


class InThreads(ThreadPoolExecutor):
    """In place of the processes that price jobs and replay the past, where these are not what a test is about."""

    def end(self):
        self.shutdown(wait=True, cancel_futures=True)


def controller(store, planners, clock=None, **options) -> Controller:
    clock = clock or Clock()
    return Controller(store, planners, now=lambda: clock.now, elapsed_s=lambda: clock.elapsed_s, lease_s=10.0, **options)


def forget_snapshots(ledger) -> None:
    """A ledger's states are those of its changes alone from then on."""
    ledger._db.execute("DELETE FROM snapshot")
    ledger._known = None


def written_to(path, statement: str):
    """Do one statement of SQL to a ledger's file, as no program of ours would; its first row."""
    with sqlite3.connect(path) as database:
        result = database.execute(statement).fetchone()
    database.close()
    return result


def devices_of(plan) -> set[tuple[str, int]]:
    return {(rank["host"], rank["local_rank"]) for rank in plan["ranks"]}


def all_up(*jobs: HeldJob, waiting=(), **others: HostState) -> Listing:
    hosts = {host: HostState(num_devices=4) for host in HOSTS} | others
    return Listing(ClusterState(source="slurm", hosts=hosts, jobs=jobs), waiting=tuple(waiting))


def running(name: str, decision: str | None, **devices: tuple[int, ...]) -> HeldJob:
    return HeldJob(id=name, devices=devices, source="slurm", decision=decision)
