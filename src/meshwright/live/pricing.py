"""`JobPricing`: new jobs are priced in processes of their own, for a limited time, so that none of them stalls the service.

`NUM_AT_A_TIME` are priced at once. A job that exceeds the limit is ended with its process and refused by a `TimeLimitError`, as
is a repeated request soon after. The others continue.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from typing import Any

from ..errors import StateError, TimeLimitError
from ..worker_pool import WorkerPool
from .deciding import Planners
from .decisions import JobRequest

LIMIT_S = 600.0
"""Longest that a job is priced unless somebody says otherwise."""

NUM_AT_A_TIME = 2

REFUSED_FOR_S = 600.0
"""How long a job that took too long is refused at once."""


class JobPricing:
    """See the module; of one event loop.

    Attributes:
        num_timeouts: jobs that took too long so far.

    Args:
        planners: that get the jobs.
        limit_s: longest time for one.
    """

    def __init__(self, planners: Planners, *, limit_s: float = LIMIT_S) -> None:
        self.num_timeouts = 0
        self._planners = planners
        self._limit_s = limit_s
        self._threads = ThreadPoolExecutor(NUM_AT_A_TIME, "preparing")
        self._pools: list[WorkerPool | None] = [None] * NUM_AT_A_TIME
        self._free: asyncio.LifoQueue[int] = asyncio.LifoQueue()
        for number in range(NUM_AT_A_TIME):
            self._free.put_nowait(number)
        self._too_long: dict[str, float] = {}

    async def make_ready(self, request: JobRequest) -> None:
        """Price a job in a process of its own, unless it is ready; then read what was found.

        Raises:
            TimeLimitError: it took longer than the limit, now or a short while ago.
            StateError: the process was ended.
            MeshwrightError: the job is missing or wrong.
        """
        planners = self._planners
        if planners.is_ready(request):
            return
        job = planners.key(request)
        self._check_known(job)
        number = await self._free.get()
        try:
            self._check_known(job)  # several may have waited for one job
            if planners.is_ready(request):
                return
            await self._price(number, request, job)
        finally:
            self._free.put_nowait(number)
        await asyncio.get_running_loop().run_in_executor(self._threads, planners.make_ready, request)

    async def stop(self) -> None:
        """End the processes."""
        for number in range(NUM_AT_A_TIME):
            await self._end(number)
        await asyncio.to_thread(self._threads.shutdown, wait=True, cancel_futures=True)

    async def _price(self, number: int, request: JobRequest, job: str) -> None:
        """Price a job in one of the processes."""
        pool = self._pools[number]
        if pool is None:
            pool = self._pools[number] = WorkerPool(1)
        try:
            async with asyncio.timeout(self._limit_s):
                await asyncio.get_running_loop().run_in_executor(pool, price, self._planners.recipe, request)
        except TimeoutError:
            self.num_timeouts += 1
            self._too_long[job] = time.monotonic() + REFUSED_FOR_S
            await self._end(number)
            raise self._refusal() from None
        except BrokenExecutor:
            self._pools[number] = None
            raise StateError("the process that priced the job was ended; did it take too much memory?") from None

    async def _end(self, number: int) -> None:
        """End a process, whatever it does."""
        pool, self._pools[number] = self._pools[number], None
        if pool is not None:
            await asyncio.to_thread(pool.end)

    def _check_known(self, job: str) -> None:
        """Refuse a job that took too long a short while ago.

        Raises:
            TimeLimitError: so it did.
        """
        now_s = time.monotonic()
        self._too_long = {name: until_s for name, until_s in self._too_long.items() if until_s > now_s}
        if job in self._too_long:
            raise self._refusal()

    def _refusal(self) -> TimeLimitError:
        message = f"reading and pricing it took longer than {self._limit_s:g} s; with a smaller max_devices it is less work"
        return TimeLimitError(message, field="job")


def price(recipe: dict[str, Any], request: JobRequest) -> None:
    """Price a job, so that what was found lies on disk for the next to ask; runs in a process of its own.

    Raises:
        MeshwrightError: the job is missing or wrong.
    """
    Planners(**recipe).make_ready(request)
