"""A replay of 5,000 jobs of 40 kinds on 256 devices under four policies."""

from __future__ import annotations

import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from meshwright.clusters import load_cluster
from meshwright.clusters.cluster import Cluster
from meshwright.live.changes import JobAdded, JobConfirmed, JobRemoved
from meshwright.live.deciding import Planners
from meshwright.live.decisions import JobDecision, JobRequest, Observation
from meshwright.live.ledger import Ledger
from meshwright.live.replay.report import Asked, replay
from meshwright.live.state import HeldJob

from .measure import BenchmarkFigure

NUM_JOBS, NUM_DAYS = 5_000, 30
CLUSTER = "preset:clos-256-4to1"
POLICIES = ("menu:fastest-feasible", "menu:sjf:fixed-8+backfill", "menu:marginal-gain", "menu:least-device-seconds")
KINDS = [(name, batch) for name in ("resnet18", "resnet50", "vgg16", "alexnet", "squeezenet") for batch in range(64, 576, 64)]
STEP_S, RATIO = 0.05, 1.1
BEGIN = datetime(2026, 1, 5, tzinfo=UTC)


def replay_figures() -> list[BenchmarkFigure]:
    """CPU seconds of a replay, its menus priced before, and of the first one."""
    cluster = load_cluster(CLUSTER)
    on = f"{NUM_JOBS:,} jobs of {len(KINDS)} kinds in {NUM_DAYS} days, {cluster.num_devices} devices, {len(POLICIES)} policies"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _past(folder / "now.db", cluster)
        request = Asked(BEGIN, BEGIN + timedelta(days=NUM_DAYS), POLICIES)
        times = []
        for _ in range(2):
            began = time.process_time()
            with Ledger(folder / "now.db", is_read=True) as ledger:
                result = replay(
                    ledger, cluster, request, lambda policy: Planners(cluster, policy, scratch=folder), cache=folder / "menus"
                )
            times.append(time.process_time() - began)
        assert result["is_trusted"], result["why"]
        assert result["num_jobs"] == NUM_JOBS, result["remarks"]
    return [
        BenchmarkFigure("live: a replay, CPU", times[1], "s", on),
        BenchmarkFigure("live: the same where its menus are priced first, CPU", times[0], "s", on),
    ]


def _past(path: Path, cluster: Cluster) -> None:
    """A ledger of jobs on eight devices of one host each, the first to come first."""
    rng = np.random.default_rng(0)
    asked_s = np.sort(rng.uniform(0, NUM_DAYS * 86_400.0, NUM_JOBS))
    steps = np.round(np.exp(rng.normal(np.log(9_000.0), 1.0, NUM_JOBS)) / (RATIO * STEP_S)).astype(int)
    runs_s = RATIO * STEP_S * steps
    free_s = np.zeros(cluster.num_hosts)
    events: list[tuple[float, int, int]] = []
    host = np.empty(NUM_JOBS, np.int64)
    for job in range(NUM_JOBS):
        host[job] = free_s.argmin()
        start_s = max(asked_s[job], free_s[host[job]])
        free_s[host[job]] = start_s + runs_s[job]
        events += [(start_s, 1, job), (free_s[host[job]], 0, job)]
    now_s = [0.0]
    with Ledger(path, now=lambda: (BEGIN + timedelta(seconds=now_s[0])).isoformat()) as ledger, ledger.turn() as turn:
        for at_s, is_start, job in sorted(events):
            now_s[0] = at_s
            if is_start:
                kind, batch = KINDS[job % len(KINDS)]
                made = _decision(f"d-{job}", kind, batch, cluster.host_names[host[job]], int(host[job]), int(steps[job]))
                turn.keep(made)
                devices = {cluster.host_names[host[job]]: tuple(range(8))}
                turn.change(JobAdded(job=HeldJob(id=made.id, devices=devices, source="plan")))
                turn.change(JobConfirmed(id=made.id, confirmed_as=str(job)))
                turn.observe(made.id, [Observation(step=step, step_s=RATIO * STEP_S) for step in range(40)])
            else:
                turn.change(JobRemoved(id=f"d-{job}"))


def _decision(name: str, kind: str, batch: int, host: str, number: int, steps: int) -> JobDecision:
    ranks = [{"rank": k, "host": host, "local_rank": k, "device": 8 * number + k} for k in range(8)]
    return JobDecision(
        id=name,
        request=JobRequest(job=f"zoo:{kind}", name=name, steps=steps, batch=batch),
        outcome="placed",
        why="first come, first served",
        predicted={"step_s": STEP_S, "completion_s": steps * STEP_S},
        plan={"ranks": ranks},
    )
