"""`JobFollower`: the way of decisions, from devices that are held for a job to the scheduler's report of its end.

Only leases depend on a clock: the time for which a plan is held for a job that nobody has handed over. They use the monotonic
clock of this process and begin anew when it starts. Times of schedulers are data.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from ..clusters.cluster import Cluster
from ..errors import ConflictError
from .changes import JobConfirmed, JobRemoved, listed
from .decisions import KeptDecision, Mention, Observation
from .ledger import Ledger
from .sources.listings import Listing, Taken
from .state import ClusterState, HeldDevices, occupancy, occupancy_after
from .store import keep_observations, stored_decision

LEASE_S = 600.0
"""How long devices are held for a job that nobody has handed to the scheduler."""

LISTINGS_TO_END = 2
"""Listings in a row that do not know a job which was handed over, after which it has ended: one may come between two records."""


class JobFollower:
    """See the module; one thread at a time calls it.

    Args:
        store: what is kept.
        cluster: whose devices are held.
        lease_s: how long devices are held for a job that nobody has handed over.
        elapsed_s: a clock that never goes back.

    Raises:
        InputFileError: the store cannot be read.
        StateError: its state is not of the cluster.
    """

    def __init__(
        self, store: Ledger, cluster: Cluster, *, lease_s: float = LEASE_S, elapsed_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.store = store
        self.cluster = cluster
        self.lease_s = lease_s
        self._elapsed_s = elapsed_s
        self._missed: Counter[str] = Counter()
        self._leases: dict[str, float] = {}
        self._ended: set[str] = set()
        self._held: tuple[ClusterState, HeldDevices] | None = None
        _, state = store.last()
        self.held(state)
        self._begin_leases(state)

    def close(self) -> None:
        """Close the store."""
        self.store.close()

    def forget(self) -> None:
        """Forget what was kept a moment ago, as the disk failed."""
        self._held = None
        self._missed.clear()
        self._begin_leases(self.store.last()[1])

    def held(self, state: ClusterState) -> HeldDevices:
        """The job that holds each device of the cluster.

        Raises:
            StateError: the state is not of the cluster.
        """
        if self._held is None or self._held[0] is not state:
            known = self._held
            held = occupancy(state, self.cluster) if known is None else occupancy_after(*known, state, self.cluster)
            self._held = state, held
        return self._held[1]

    def stored(self, name: str) -> KeptDecision:
        """See `store.stored_decision`."""
        return stored_decision(self.store, name)

    def confirm(self, name: str, scheduler_id: str) -> None:
        """The job of a decision was handed to the scheduler; once more is no change.

        Args:
            name: of the decision.
            scheduler_id: the scheduler's id of the job.

        Raises:
            StateError: there is no such decision.
            ConflictError: its devices were given back, or it was handed over as another job.
        """
        self.stored(name)
        with self.store.turn() as turn:
            if turn.state.planned(name) is None:
                mentions = self.store.mentions(name)
                if any(mention.detail == scheduler_id and mention.status in ("confirmed", "running") for mention in mentions):
                    return
                last = mentions[-1] if mentions else None
                state = "holds no devices" if last is None else f"is {last.status}" + (f": {last.detail}" if last.detail else "")
                raise ConflictError(state, field=f"decision {name}", value=scheduler_id)
            turn.change(JobConfirmed(id=name, confirmed_as=scheduler_id))
        self._leases.pop(name, None)

    def renew(self, name: str) -> None:
        """Renew the lease of a decision whose job has not been submitted yet, because its devices are still needed."""
        if name in self._leases:
            self._leases[name] = self._elapsed_s() + self.lease_s

    def release(self, name: str, reason: str | None = None) -> bool:
        """Release the devices of a decision; whether it held any.

        Raises:
            StateError: there is no such decision.
            ConflictError: its job runs, which only the scheduler can end.
        """
        self.stored(name)
        with self.store.turn() as turn:
            running = next((job for job in turn.state.jobs if job.of_decision == name), None)
            if running is not None and running.source != "plan":
                raise ConflictError(f"runs as {running.id}: end it there", field=f"decision {name}")
            if running is not None:
                turn.change(JobRemoved(id=name, reason=reason))
        self._leases.pop(name, None)
        return running is not None

    def end(self, scheduler_id: str, reason: str) -> bool:
        """The scheduler says that a job has ended, before a listing does; whether it held devices.

        Args:
            scheduler_id: the scheduler's id of the job.
            reason: how it ended.
        """
        with self.store.turn() as turn:
            for job in turn.state.jobs:
                if scheduler_id == (job.confirmed_as if job.source == "plan" else job.id):
                    self._ended.add(scheduler_id)
                    turn.change(JobRemoved(id=job.id, reason=reason[:1000], has_ended=True))
                    return True
        return False

    def mentions(self, name: str) -> list[Mention]:
        """See `Ledger.mentions`."""
        return self.store.mentions(name)

    def expire(self) -> list[str]:
        """Release the devices of decisions whose jobs were not submitted in time; ids of these decisions."""
        now_s = self._elapsed_s()
        late = [name for name, until_s in self._leases.items() if until_s <= now_s]
        expired = []
        for name in late:
            with self.store.turn() as turn:
                held = turn.state.planned(name)
                if held is not None and held.confirmed_as is None:
                    turn.change(JobRemoved(id=name, reason=f"not handed to the scheduler within {self.lease_s:g} s"))
                    expired.append(name)
            del self._leases[name]
        return expired

    def handed_over(self) -> tuple[str, ...]:
        """The decisions whose jobs were handed to a scheduler; to be called before it is asked for a listing."""
        self._ended.clear()
        return tuple(job.id for job in self.store.last()[1].jobs if job.source == "plan" and job.confirmed_as is not None)

    def take(self, listing: Listing, handed: Iterable[str] = ()) -> Taken:
        """Apply a listing as the truth.

        Args:
            listing: of a scheduler.
            handed: what `asked` said before it was asked.

        Raises:
            StateError: the listing contradicts itself or is of another cluster; then nothing changes.
        """
        listing = listing.without(self._ended)  # it was asked for before they ended
        occupancy(listing.state, self.cluster)
        known = {job.decision for job in listing.state.jobs} | set(listing.waiting)
        missing = set(handed) - known
        missed = Counter({name: self._missed[name] + 1 for name in missing})
        ended = [name for name, count in missed.items() if count >= LISTINGS_TO_END]
        released = []
        with self.store.turn() as turn:
            for job in turn.state.jobs:
                entry = listing.queued.get(job.id) or listing.ended.get(job.id)
                if job.is_unconfirmed and entry is not None:  # whoever handed it over died before saying so
                    turn.change(JobConfirmed(id=job.id, confirmed_as=entry))
                    self._leases.pop(job.id, None)
            before = turn.state
            ended += [job.id for job in before.jobs if job.source == "plan" and job.id in listing.ended]
            change = listed(before, listing.state, ended)
            after = turn.change(change)
            for job in after.jobs:
                closed = next((host for host in job.devices if after.is_closed(host)), None)
                if job.is_unconfirmed and closed is not None and job.id in self._leases:
                    state = after.hosts[closed]
                    why = f"{closed} is {state.condition}" + (f": {state.reason}" if state.reason else "")
                    turn.change(JobRemoved(id=job.id, reason=why[:1000]))
                    released.append(job.id)
        for name in released:
            self._leases.pop(name, None)
        self._missed = missed
        return Taken(change.drift, tuple(released))

    def observe(self, name: str, observed: Sequence[Observation]) -> int:
        """See `store.keep_observations`."""
        return keep_observations(self.store, name, observed)

    def _begin_leases(self, state: ClusterState) -> None:
        """Begin the leases of plans that nobody has handed over and that have none."""
        for job in state.jobs:
            if job.is_unconfirmed and job.id not in self._leases and self.store.decision(job.id) is not None:
                self._leases[job.id] = self._elapsed_s() + self.lease_s
