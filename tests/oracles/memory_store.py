"""The plain reference of the ledger: what a `meshwright.live.ledger.Ledger` has to do, in a few lines and in memory."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from meshwright.errors import StateError
from meshwright.live.changes import Change, changed
from meshwright.live.decisions import JobDecision, KeptDecision, Mention, Observation, mentioned, status_after
from meshwright.live.state import ClusterState
from meshwright.live.store import Floor, KeptChange, OldKey, check_undecided, key_taken, utc_now


class MemoryStore:
    """In place of a ledger; it ends with its process.

    Args:
        now: the time, for people and for replays; by default the clock's.
    """

    def __init__(self, now: Callable[[], str] | None = None) -> None:
        self.now = now or utc_now
        self._lock = threading.RLock()
        self._changes: list[KeptChange] = []
        self._states: list[ClusterState] = [ClusterState()]
        self._floor = Floor()
        self._num_decided = 0
        self._old_keys: dict[str, OldKey] = {}
        self._decisions: dict[str, KeptDecision] = {}
        self._mentions: dict[str, list[Mention]] = {}
        self._documents: dict[str, str] = {}
        self._observations: dict[str, dict[tuple[int, int], Observation]] = {}

    @contextmanager
    def group(self) -> Iterator[None]:
        """See `Ledger.group`."""
        with self._undoing():
            yield

    @contextmanager
    def turn(self) -> Iterator[_MemoryTurn]:
        """See `Ledger.turn`."""
        with self._undoing():
            yield _MemoryTurn(self)

    @contextmanager
    def _undoing(self) -> Iterator[None]:
        with self._lock:
            stored = {name: copy.copy(value) for name, value in self.__dict__.items() if name != "_lock"}
            stored["_mentions"] = {name: list(value) for name, value in self._mentions.items()}
            stored["_observations"] = {name: dict(value) for name, value in self._observations.items()}
            try:
                yield
            except BaseException:
                self.__dict__.update(stored)
                raise

    def last(self) -> tuple[int, ClusterState]:
        """See `Ledger.last`."""
        return self._floor.seq + len(self._changes), self._states[-1]

    def state_at(self, seq: int) -> ClusterState:
        """See `Ledger.state_at`."""
        if seq < self._floor.seq:
            raise StateError("the state after this change is kept no more", field="change", value=seq)
        return self._states[seq - self._floor.seq]

    def floor(self) -> Floor:
        """See `Ledger.floor`."""
        return self._floor

    def old_key(self, key: str) -> OldKey | None:
        """See `Ledger.old_key`."""
        return self._old_keys.get(key)

    def changes_after(self, seq: int, limit: int) -> list[KeptChange]:
        """See `Ledger.changes_after`."""
        begin = max(0, seq - self._floor.seq)
        return self._changes[begin : begin + limit]

    def decision(self, name: str) -> KeptDecision | None:
        """See `Ledger.decision`."""
        return self._decisions.get(name)

    def decision_of_key(self, key: str) -> KeptDecision | None:
        """See `Ledger.decision_of_key`."""
        return next((decision for decision in self._decisions.values() if decision.key == key), None)

    def decisions(self, before: int | None, limit: int) -> list[KeptDecision]:
        """See `Ledger.decisions`."""
        results = [decision for decision in self._decisions.values() if before is None or decision.number < before]
        return results[::-1][:limit]

    def preparing(self) -> list[str]:
        """See `Ledger.preparing`."""
        return [name for name, stored in self._decisions.items() if stored.decision.outcome == "preparing"]

    def mentions(self, decision: str) -> list[Mention]:
        """See `Ledger.mentions`."""
        return list(self._mentions.get(decision, ()))

    def document(self, digest: str) -> str | None:
        """See `Ledger.document`."""
        return self._documents.get(digest)

    def observations(self, decision: str) -> list[Observation]:
        """See `Ledger.observations`."""
        return [one for _, one in sorted(self._observations.get(decision, {}).items())]

    def observed(self) -> list[str]:
        """See `Ledger.observed`."""
        return sorted(self._observations)

    def close(self) -> None:
        """See `Ledger.close`."""


class _MemoryTurn:
    """See `LedgerTurn`."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.seq, self.state = store.last()

    def change(self, change: Change) -> ClusterState:
        store, before = self._store, self.state
        after = changed(before, change)
        if after != before:
            stored = KeptChange(self.seq + 1, store.now(), change)
            store._changes.append(stored)
            store._states.append(after)
            for name in mentioned(before, after):
                mention = Mention(stored.seq, stored.at, *status_after(name, change, before, after))
                store._mentions.setdefault(name, []).append(mention)
            self.seq, self.state = stored.seq, after
        return after

    def next_id(self) -> str:
        return f"memory-{self._store._num_decided + 1}"

    def keep(self, decision: JobDecision, key: str | None = None) -> KeptDecision:
        store, old = self._store, self._store._decisions.get(decision.id)
        if old is not None:
            check_undecided(old.decision)
            stored = old._replace(decision=decision)
        elif key is not None and store.decision_of_key(key) is not None:
            raise key_taken(key)
        else:
            store._num_decided += 1
            stored = KeptDecision(store._num_decided, key, store.now(), decision)
        store._decisions[decision.id] = stored
        return stored

    def keep_document(self, digest: str, body: str) -> None:
        self._store._documents.setdefault(digest, body)

    def observe(self, decision: str, observed: Sequence[Observation]) -> int:
        held = self._store._observations.setdefault(decision, {})
        before = len(held)
        for one in observed:
            held.setdefault((one.step, one.rank), one)
        return len(held) - before

    def has_documents(self, digests: Iterable[str]) -> bool:
        return all(digest in self._store._documents for digest in digests)

    def raise_floor(self, seq: int, before: str, state: ClusterState) -> None:
        store, gone = self._store, seq - self._store._floor.seq
        store._changes, store._states = store._changes[gone:], store._states[gone:]
        store._floor = Floor(seq, max(before, store._floor.at or ""))
        for name in store._mentions.keys() - store._decisions.keys():
            store._mentions[name] = [one for one in store._mentions[name] if one.seq > seq]

    def sweep(self, limit: int) -> int:
        return 0

    def give_up(self, before: str, after: int, limit: int) -> tuple[int, int | None]:
        store, holding = self._store, {job.of_decision for job in self.state.jobs}
        given_up = []
        for name, stored in store._decisions.items():
            last_at = max([stored.at, *(one.at for one in store.mentions(name))])
            if last_at < before and name not in holding and stored.decision.outcome != "preparing":
                given_up.append(name)
        for name in given_up:
            stored = store._decisions.pop(name)
            store._mentions.pop(name, None)
            store._observations.pop(name, None)
            if stored.key is not None:
                store._old_keys[stored.key] = OldKey(name, stored.decision.request.digest, store.now())
        if given_up:
            store._floor = store._floor._replace(at=max(before, store._floor.at or ""))
            named = {digest for decision in store._decisions.values() for digest in decision.decision.documents.values()}
            store._documents = {digest: text for digest, text in store._documents.items() if digest in named}
        return len(given_up), None

    def forget_keys(self, before: str, limit: int) -> int:
        old = [key for key, one in self._store._old_keys.items() if one.at < before][:limit]
        for key in old:
            del self._store._old_keys[key]
        return len(old)
