"""The service over HTTP on the loopback: how many decisions a second, how late they are, and what a burst does.

The client is a process of its own, of plain sockets, so that it costs as little as it can. CPU seconds are the service's own.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from .measure import BenchmarkFigure

CLUSTER = "preset:clos-256-4to1"
SMALL = ("resnet50", "alexnet", "vgg16", "gpt2-small", "bert-base", "resnet18", "squeezenet", "gnmt")
NUM_KINDS = 40
"""Kinds of jobs that the service knows; a network wants the limit of devices that it was trained with, so it knows fewer."""

RATE, SECONDS = 200, float(os.environ.get("MESHWRIGHT_SECONDS", "20"))
NUM_ALONE, NUM_BURST, NUM_CONNECTIONS, NUM_HELD = 500, 2_000, 16, 20

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def service_figures() -> list[BenchmarkFigure]:
    """Return a rule and a trained network, every decision on the disk before it is answered."""
    jobs = [{"job": f"zoo:{name}"} for name in SMALL]
    many = [{**jobs[n % len(jobs)], "max_devices": 4 + n // len(jobs)} for n in range(NUM_KINDS)]
    figures: list[BenchmarkFigure] = []
    for policy, requests in (("fastest-feasible", many), ("shipped:quickstart", jobs)):
        with serving(policy) as (port, pid):
            figures += asyncio.run(_measured(port, pid, policy, requests, is_whole=requests is many))
    return figures


@contextmanager
def serving(policy: str, *words: str) -> Iterator[tuple[int, int]]:
    """Run a service in a process of its own; its port and process id."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        state = str(Path(folder) / "s.db")
        words_given = ["serve", "--cluster", CLUSTER, "--policy", policy, "--state", state, "--listen", ":0", *words]
        with log.open("w") as out:
            command = [sys.executable, "-c", "from meshwright.cli import main; main()", *words_given]
            process = subprocess.Popen(command, stdout=out, stderr=out)
        try:
            while (listening := re.search(r"listening on http://127.0.0.1:(\d+)", log.read_text())) is None:
                assert process.poll() is None, log.read_text()
                time.sleep(0.05)
            yield int(listening[1]), process.pid
        finally:
            process.terminate()
            process.wait()


async def _measured(
    port: int, pid: int, policy: str, requests: Sequence[dict[str, Any]], *, is_whole: bool
) -> list[BenchmarkFigure]:
    async with connected(port) as one:
        await _make_ready(one, requests)
        begin_cpu_s = cpu_s(pid)
        alone_s = await _one_at_a_time(one, requests)
        alone_cpu_s = (cpu_s(pid) - begin_cpu_s) / NUM_ALONE
    begin_cpu_s, begin_s = cpu_s(pid), time.perf_counter()
    late_s, refused = await _at_a_rate(port, requests)
    rate, used_s = len(late_s) / (time.perf_counter() - begin_s), cpu_s(pid) - begin_cpu_s
    on = f"{policy}, 256 devices, {len(requests)} kinds of jobs"
    note = f"{on}, {SECONDS:g} s, each given back later"
    result = [
        BenchmarkFigure("service: one at a time, median", 1e3 * _share(alone_s, 0.5), "ms", on),
        BenchmarkFigure("service: one at a time, 99th percentile", 1e3 * _share(alone_s, 0.99), "ms", on),
        BenchmarkFigure("service: CPU of a decision and its release", 1e3 * alone_cpu_s, "ms", on),
        BenchmarkFigure(f"service: decisions at {RATE} a second", rate, "1/s", note),
        BenchmarkFigure(f"service: median at {RATE} a second", 1e3 * _share(late_s, 0.5), "ms", note),
        BenchmarkFigure(f"service: 99th percentile at {RATE} a second", 1e3 * _share(late_s, 0.99), "ms", note),
        BenchmarkFigure(f"service: CPU at {RATE} a second", used_s / SECONDS, "cores", note),
        BenchmarkFigure("service: refused", refused, "requests", note),
    ]
    if not is_whole:
        return result
    async with connected(port) as one:
        pods_s = await _foreign_pods(one)
    before = memory_bytes(pid)
    burst_s = await _burst(port, requests)
    grown = memory_bytes(pid) - before
    together = f"{NUM_BURST:,} requests at once, {on}"
    result.append(BenchmarkFigure("service: filter and prioritize of a foreign pod, 99th", 1e3 * _share(pods_s, 0.99), "ms", on))
    result.append(BenchmarkFigure("service: a burst is answered", burst_s, "s", together))
    result.append(BenchmarkFigure("service: memory that a burst adds", grown / 1e6, "MB", together))
    return result


async def _make_ready(connection: Connection, requests: Sequence[dict[str, Any]]) -> None:
    for number, request in enumerate(requests):
        while True:
            status, answer = await call(connection, "POST", "/v1/decisions", request, f"ready-{number}")
            assert status in (201, 202), answer
            if status == 201:
                break
            await asyncio.sleep(0.1)
        await call(connection, "POST", f"/v1/decisions/{answer['id']}/release")


async def _one_at_a_time(connection: Connection, requests: Sequence[dict[str, Any]]) -> list[float]:
    result = []
    for number in range(NUM_ALONE):
        request = requests[number % len(requests)] | {"steps": 1 + number}
        begin_s = time.perf_counter()
        status, answer = await call(connection, "POST", "/v1/decisions", request, f"alone-{number}")
        result.append(time.perf_counter() - begin_s)
        assert status == 201, answer
        await call(connection, "POST", f"/v1/decisions/{answer['id']}/release")
    return result


async def _at_a_rate(port: int, requests: Sequence[dict[str, Any]]) -> tuple[list[float], int]:
    """Return how late each answer came after its request was due, and how many were none."""
    late_s: list[float] = []
    held: asyncio.Queue[str] = asyncio.Queue()
    due: asyncio.Queue[int | None] = asyncio.Queue()
    refused, begin_s, number_of_all = 0, time.perf_counter(), int(RATE * SECONDS)

    async def work() -> None:
        nonlocal refused
        async with connected(port) as own:
            while (number := await due.get()) is not None:
                request = requests[number % len(requests)] | {"steps": 1 + number}
                status, answer = await call(own, "POST", "/v1/decisions", request, f"rate-{number}")
                late_s.append(time.perf_counter() - begin_s - number / RATE)
                refused += status != 201
                if status == 201 and answer["outcome"] == "placed":
                    held.put_nowait(answer["id"])
                while held.qsize() > NUM_HELD:
                    status, _ = await call(own, "POST", f"/v1/decisions/{held.get_nowait()}/release")
                    refused += status != 200

    workers = [asyncio.create_task(work()) for _ in range(NUM_CONNECTIONS)]
    for number in range(number_of_all):
        await asyncio.sleep(max(0.0, begin_s + number / RATE - time.perf_counter()))
        due.put_nowait(number)
    for _ in workers:
        due.put_nowait(None)
    await asyncio.gather(*workers)
    return late_s, refused


async def _foreign_pods(connection: Connection) -> list[float]:
    pod = {"metadata": {"name": "other", "namespace": "default", "labels": {"app": "x"}}, "spec": {"containers": []}}
    request = {"Pod": pod, "Nodes": None, "NodeNames": [f"l{leaf}-h{host}" for leaf in range(8) for host in range(4)]}
    result = []
    for _ in range(NUM_ALONE):
        begin_s = time.perf_counter()
        for verb in ("filter", "prioritize"):
            status, answer = await call(connection, "POST", f"/v1/extender/{verb}", request)
            assert status == 200, answer
        result.append(time.perf_counter() - begin_s)
    return result


async def _burst(port: int, requests: Sequence[dict[str, Any]]) -> float:
    async def one(number: int) -> None:
        async with connected(port) as own:
            status, answer = await call(own, "POST", "/v1/decisions", requests[number % len(requests)], f"burst-{number}")
            assert status == 201, answer

    begin_s = time.perf_counter()
    await asyncio.gather(*(one(number) for number in range(NUM_BURST)))
    return time.perf_counter() - begin_s


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Connection]:
    """Open a connection to the service."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def call(connection: Connection, method: str, path: str, body: Any = None, key: str | None = None) -> tuple[int, Any]:
    """Return the status and content of an answer."""
    reader, writer = connection
    sent = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json", f"Content-Length: {len(sent)}"]
    lines += [] if key is None else [f"Idempotency-Key: {key}"]
    writer.write("\r\n".join([*lines, "", ""]).encode() + sent)
    await writer.drain()
    status, length = int((await reader.readline()).split()[1]), 0
    while (line := await reader.readline()) != b"\r\n":
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    content = await reader.readexactly(length)
    return status, json.loads(content) if content else None


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_bytes(pid: int) -> int:
    """Return the memory of a process that lies in main memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _share(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
