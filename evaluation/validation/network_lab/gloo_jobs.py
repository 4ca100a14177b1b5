"""Jobs of gloo ranks on the hosts of network namespaces: started together and timed by the wall clock.

Every order names the instant at which its ranks begin; they share the machine's clock, so no barrier crosses the wires.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ....errors import MeshwrightError
from .namespaces import Namespaces

START_TIMEOUT_S = 120.0
ORDER_TIMEOUT_S = 120.0

_LEAD_S = 0.03  # between the order and the instant that it names
_BUFFERS_STAY = {  # freed memory is used again and not asked of the system page by page
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**32),
    "MALLOC_TOP_PAD_": str(2**26),
}


@dataclass(frozen=True)
class Sending:
    """What the ranks of a job send.

    Attributes:
        kind: ``all-reduce``, ``all-gather`` or ``send/recv`` (from rank 0 to rank 1).
        payload_bytes: one rank's buffer, which for an all-gather is the gathered one.
        times: how often, one after another.
        start_s: after the first job.
    """

    kind: str
    payload_bytes: int
    times: int = 1
    start_s: float = 0.0


class GlooJobs:
    """Jobs whose ranks wait for orders.

    Attributes:
        versions: what the first rank says of itself.
    """

    def __init__(self, ranks: Sequence[Sequence[_Rank]]) -> None:
        self._ranks = ranks
        deadline = time.monotonic() + START_TIMEOUT_S
        told = [rank.answer(deadline) for job in ranks for rank in job]
        self.versions: dict[str, Any] = told[0]

    def run(self, sendings: Sequence[Sending | None]) -> list[float]:
        """Run the jobs side by side; seconds of each from its first begin to its last end (0 where it does not send).

        Raises:
            MeshwrightError: a rank has ended, or did not answer in `ORDER_TIMEOUT_S`.
        """
        at = time.monotonic() + _LEAD_S
        busy = [(job, sending) for job, sending in zip(self._ranks, sendings, strict=True)]
        for job, sending in busy:
            for rank in job if sending else ():
                assert sending is not None
                order = {"kind": sending.kind, "payload_bytes": sending.payload_bytes, "times": sending.times}
                rank.tell(order | {"at": at + sending.start_s})
        took_s = []
        for job, sending in busy:
            found = [rank.answer(at + ORDER_TIMEOUT_S) for rank in job] if sending else []
            took_s.append(max(end for _, end in found) - min(begin for begin, _ in found) if found else 0.0)
        return took_s


@contextmanager
def gloo_jobs(wires: Namespaces, hosts: Sequence[Sequence[str]]) -> Iterator[GlooJobs]:
    """Start a job on each list of hosts, a rank on each of them; all have ended after the block.

    Raises:
        MeshwrightError: a rank ends, or does not start in `START_TIMEOUT_S`.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="meshwright-gloo-")))
        jobs: list[list[_Rank]] = []
        for number, members in enumerate(hosts):
            jobs.append([])
            for rank, host in enumerate(members):
                words = [str(rank), str(len(members)), str(folder / f"store-{number}"), "eth0"]
                jobs[-1].append(stack.enter_context(_started(wires, host, words, folder / f"{number}-{rank}.log")))
        yield GlooJobs(jobs)


class _Rank:
    def __init__(self, process: subprocess.Popen[str], host: str, log: Path) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process, self.host, self.log = process, host, log
        self.orders: IO[str] = process.stdin
        self.answers: IO[str] = process.stdout

    def tell(self, order: dict[str, Any]) -> None:
        try:
            self.orders.write(json.dumps(order) + "\n")
            self.orders.flush()
        except OSError:
            raise self._ended() from None

    def answer(self, deadline: float) -> Any:
        ready, _, _ = select.select([self.answers], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise MeshwrightError("a rank does not answer", field=self.host)
        line = self.answers.readline()
        if not line:
            raise self._ended()
        return json.loads(line)

    def _ended(self) -> MeshwrightError:
        told = self.log.read_text(errors="replace").strip().splitlines()
        return MeshwrightError("a rank has ended", field=self.host, value=told[-1] if told else None)


@contextmanager
def _started(wires: Namespaces, host: str, words: list[str], log: Path) -> Iterator[_Rank]:
    environment = {key: value for key, value in os.environ.items() if key not in ("LOCAL_WORLD_SIZE", "GLOO_SOCKET_IFNAME")}
    command = wires.command(host, sys.executable, "-m", "meshwright.evaluation.validation.network_lab.gloo_worker", *words)
    with log.open("wb") as errors:
        process = subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment | _BUFFERS_STAY,
            start_new_session=True,
        )
    try:
        yield _Rank(process, host, log)
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except OSError:  # an order that nobody read
                continue
