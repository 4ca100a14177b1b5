"""`Service`: the controller on a thread of its own; its sources are polled, and slow work runs at the same time.

One writer thread owns the controller; nothing else decides. Readers open the ledger by themselves. Sources list everything every
``resync_s``, so that what was lost, repeated or came in another order changes nothing after the next listing. A job that is new
is priced in a process of its own, then decided on.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from ..clusters.cluster import Cluster
from ..errors import InputFileError, MeshwrightError
from ..worker_pool import WorkerPool
from .controller import Controller
from .decisions import JobDecision, JobRequest, KeptDecision
from .feedback.calibration import ObservedLayer
from .ledger import Ledger
from .pricing import LIMIT_S, JobPricing
from .records.retention import KEEP_DAYS, Retention
from .sources.source import Source
from .writer import Writer

RESYNC_S = 30.0
MAX_AGE_S = 120.0
EXPIRE_EVERY_S = 1.0
RETRY_S = 1.0
LEARN_S = 300.0
RETAIN_AFTER_S = 60.0
RETAIN_EVERY_S = 3600.0
TRY_EVERY_S = 1.0
STEP_EVERY_S = 0.05
"""Between two steps of a giving up of what is too old, in which others are answered."""

NUM_READERS = 2

LOG = logging.getLogger("meshwright.serve")

Result = TypeVar("Result")


@dataclass
class SourceStatus:
    """The status of a source.

    Attributes:
        name: of it.
        listed_at: when its last listing was taken; None before.
        listed_s: the same by the monotonic clock.
        num_listings, num_failures, num_drifts: so far.
        problem: why the last one failed; None where it did not.
        remarks: of the last one, for people.
    """

    name: str
    listed_at: datetime | None = None
    listed_s: float = -float("inf")
    num_listings: int = 0
    num_failures: int = 0
    num_drifts: int = 0
    problem: str | None = None
    remarks: tuple[str, ...] = field(default=())

    @property
    def age_s(self) -> float:
        """Seconds since its last listing; infinite before."""
        return time.monotonic() - self.listed_s


class Service:
    """See the module.

    Attributes:
        began: a word of this start, which distinguishes answers of another one.
        problems: current problems other than of decisions and sources, a sentence by its name.
        path: of the ledger.

    Args:
        controller: decides; from `start` to `stop` nobody else calls it.
        path: of its ledger, which other threads read by connections of their own.
        sources: who lists.
        resync_s: seconds between two listings.
        max_age_s: age of a listing beyond which nothing is decided.
        layer: the source of the controller's factors, which learns every `LEARN_S` seconds; None where it has none.
        keep_days: of the past; older records are given up, see `records.retention`. None: all is kept.
        pricing_limit_s: longest that the pricing of a new job may take.
    """

    def __init__(
        self,
        controller: Controller,
        path: Path,
        sources: Sequence[Source] = (),
        *,
        resync_s: float = RESYNC_S,
        max_age_s: float = MAX_AGE_S,
        layer: ObservedLayer | None = None,
        keep_days: float | None = KEEP_DAYS,
        pricing_limit_s: float = LIMIT_S,
    ) -> None:
        self.controller = controller
        self.cluster: Cluster = controller.cluster
        self.max_age_s = max_age_s
        self.layer = layer
        self.statuses = tuple(SourceStatus(source.name) for source in sources)
        self.counts: Counter[str] = Counter()
        self.path = path
        self.keep_days = keep_days
        self.problems: dict[str, str] = {}
        self.pricer = JobPricing(controller.planners, limit_s=pricing_limit_s)
        self._sources = tuple(sources)
        self._resync_s = resync_s
        self._writer = Writer(controller.store, controller.forget)
        self._readers = ThreadPoolExecutor(NUM_READERS, "reader")
        self._own = threading.local()
        self._opened: list[Ledger] = []
        self._pools: weakref.WeakSet[WorkerPool] = weakref.WeakSet()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._background: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._resync_requests = [asyncio.Event() for _ in self._sources]
        self.changed = asyncio.Condition()
        self.is_stopping = False
        self.began = secrets.token_hex(4)
        self.num_notices = 0
        self._tried_s = -float("inf")
        self._write_problem: str | None = None

    async def start(self) -> None:
        """Ask every source once, go on with what was being prepared, and begin to ask again and again."""
        await asyncio.gather(*(self._resync(number) for number in range(len(self._sources))))
        for name in await self.write(self.controller.store.preparing):
            self._begin(self._prepare(name))
        for number in range(len(self._sources)):
            self._begin(self._keep_listing(number))
        self._begin(self._keep_expiring())
        if self.layer is not None:
            self._begin(self._keep_learning(self.layer))
        if self.keep_days is not None:
            self._begin(self._keep_less(self.keep_days))
        for work in self._background:
            self._begin(work())

    def also_runs(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run something as long as the service runs; to be said before it starts."""
        self._background.append(work)

    def also_ends(self, pool: WorkerPool) -> None:
        """End what runs in a pool when the service stops."""
        self._pools.add(pool)

    async def is_done(self, pool: WorkerPool) -> None:
        """Let go of a pool that has done its work."""
        self._pools.discard(pool)
        await asyncio.to_thread(pool.shutdown, wait=True)

    async def begin_to_stop(self) -> None:
        """Let those go that wait for changes."""
        self.is_stopping = True
        await self.notify()

    async def stop(self) -> None:
        """End what was begun; what is kept is on the disk."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.pricer.stop()
        for pool in self._pools:
            await asyncio.to_thread(pool.end)
        await asyncio.to_thread(self._readers.shutdown, wait=True, cancel_futures=True)
        await asyncio.to_thread(self._writer.stop)
        for ledger in self._opened:
            ledger.close()
        self.controller.close()

    async def write(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call something of the controller on its thread."""
        return await self._writer.call(function, *arguments)

    async def read(self, function: Callable[[Ledger], Result]) -> Result:
        """Read the store in parallel with the writer."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, function)

    async def decide(self, request: JobRequest, key: str | None = None) -> KeptDecision:
        """Return a decision; one that is being prepared where the job is new.

        Raises:
            ConflictError: the key is that of another request.
        """
        record = await self.write(self.controller.decide_or_prepare, request, key)
        if record.decision.outcome == "preparing":
            self._begin(self._prepare(record.decision.id), name=record.decision.id)
        await self.notify()
        return record

    async def try_plan(self, request: JobRequest) -> JobDecision:
        """Return the decision that a job would get now, with its whole plan; nothing is held or kept.

        Raises:
            MeshwrightError: the job is missing or wrong.
        """
        await self.pricer.make_ready(request)
        inputs, result = await self.write(self.controller.try_plan, request)
        made = result.as_decision("none", inputs)
        if result.plan is None:
            return made
        predicted = {figure.name: figure.value for figure in result.plan.predicted}
        plan = result.plan.model_dump(mode="json", exclude_none=True)
        return made.model_copy(update={"plan": plan, "predicted": predicted})

    def prepare(self, request: JobRequest) -> None:
        """Make a job ready, so that the next request for it is decided on at once."""

        async def made() -> None:
            with suppress(MeshwrightError):  # the next caller gets the error
                await self.pricer.make_ready(request)

        self._begin(made(), name=f"prepare {request.digest}")

    async def notify(self) -> None:
        """Wake those that wait for a change."""
        async with self.changed:
            self.num_notices += 1
            self.changed.notify_all()

    async def write_problem(self) -> str | None:
        """Return why the store takes nothing now, as far as a real write of a decision's size shows; None where it does."""
        if time.monotonic() - self._tried_s > TRY_EVERY_S:
            self._tried_s = time.monotonic()
            try:
                await self.write(self.controller.store.try_writing)
                self._write_problem = None
            except MeshwrightError as error:
                self._write_problem = error.problem
        return self._write_problem

    def is_stale(self) -> bool:
        """Return whether a source has listed nothing for too long."""
        return any(status.age_s > self.max_age_s for status in self.statuses)

    def ask_now(self) -> None:
        """Ask all sources soon, as something has happened."""
        for event in self._resync_requests:
            event.set()

    def _begin(self, work: Any, name: str | None = None) -> None:
        if name is not None and any(task.get_name() == name for task in self._tasks):
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _read(self, function: Callable[[Ledger], Result]) -> Result:
        ledger: Ledger | None = getattr(self._own, "ledger", None)
        if ledger is None:
            ledger = self._own.ledger = Ledger(self.path, is_read=True)
            self._opened.append(ledger)
        return function(ledger)

    async def _prepare(self, name: str) -> None:
        """Price a job in a process of its own, make it ready here, and decide."""
        request = (await self.write(self.controller.stored, name)).decision.request
        why, field = "", None
        try:
            await self.pricer.make_ready(request)
        except MeshwrightError as error:
            why, field = str(error), error.field
        except Exception:
            LOG.exception("decision %s", name)
            why = "something is wrong in the service, not in the request"
        while True:
            while not why and self.is_stale():
                await asyncio.sleep(RETRY_S)
            try:
                if why:
                    await self.write(self.controller.fail, name, why, field)
                else:
                    await self.write(self.controller.finish, name)
                break
            except InputFileError as error:  # the disk is full, say
                LOG.error("decision %s waits: %s", name, error)
                await asyncio.sleep(RETRY_S)
            except MeshwrightError as error:
                why, field = str(error), error.field
                if (await self.write(self.controller.stored, name)).decision.outcome != "preparing":
                    break
            except Exception:
                LOG.exception("decision %s", name)
                why = "something is wrong in the service, not in the request"
        await self.notify()

    async def _resync(self, number: int) -> None:
        """Ask a source once; what it lists is the truth."""
        source, status = self._sources[number], self.statuses[number]
        try:
            handed = await self.write(self.controller.handed_over)
            _, known = await self.write(self.controller.store.last)
            listing = await asyncio.to_thread(source.listing, known)
            drift, _ = await self.write(self.controller.take, listing, handed)
        except Exception as error:
            status.num_failures += 1
            status.problem = str(error)
            if not isinstance(error, MeshwrightError):
                LOG.exception("source %s", status.name)
                status.problem = f"{type(error).__name__} while it was read"
            return
        status.listed_at, status.listed_s = datetime.now(UTC), time.monotonic()
        status.num_listings += 1
        status.num_drifts += len(drift)
        for remark in listing.remarks:
            if remark not in status.remarks:
                LOG.warning("%s: %s", status.name, remark)
        status.problem, status.remarks = None, listing.remarks
        await self.notify()

    async def _keep_listing(self, number: int) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._resync_requests[number].wait(), self._resync_s)
            self._resync_requests[number].clear()
            await self._resync(number)

    async def _keep_expiring(self) -> None:
        while True:
            await asyncio.sleep(EXPIRE_EVERY_S)
            try:
                expired = await self.write(self.controller.expire)
            except MeshwrightError:  # the disk is full, say; what is late is late the next time too
                continue
            self.counts["expired"] += len(expired)
            if expired:
                await self.notify()

    async def _keep_less(self, keep_days: float) -> None:
        """Give up what is too old, a little at a time, once those who wait at the start are answered."""
        await asyncio.sleep(RETAIN_AFTER_S)
        while True:
            result = Retention(keep_days, self.controller.confirmed_now())
            try:
                await self.read(result.look)
                while await self.write(result.step, self.controller.store):
                    await asyncio.sleep(STEP_EVERY_S)
            except MeshwrightError as error:  # the disk is full, say; the next time goes on
                LOG.warning("giving up records older than %g days failed: %s", keep_days, error)
            except Exception:
                LOG.exception("giving up records older than %g days failed", keep_days)
            self.counts["given up changes"] += result.num_changes
            self.counts["given up decisions"] += result.num_decisions
            await asyncio.sleep(RETAIN_EVERY_S)

    async def _keep_learning(self, layer: ObservedLayer) -> None:
        while True:
            try:
                await self.read(layer.learn)
            except Exception:
                LOG.exception("learning from measured steps failed")
            await asyncio.sleep(LEARN_S)
