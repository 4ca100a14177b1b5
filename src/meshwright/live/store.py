"""Where the service keeps what must not be lost: changes of the state, decisions, and what jobs measured.

Two implementations: a `ledger.Ledger`, one SQLite file; and `MemoryStore`, which keeps nothing and says by its few lines what the
other one has to do.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

from ..errors import ConflictError
from .changes import Change, changed
from .decisions import JobDecision, KeptDecision, Mention, Observation, mentioned, status_after
from .state import ClusterState

AT_ONCE = 1000
"""Changes or decisions that are asked for at a time."""


class KeptChange(NamedTuple):
    """A change in a store.

    Attributes:
        seq: its number, from 1.
        at: when it was kept (UTC), for people.
        change: what changed.
    """

    seq: int
    at: str
    change: Change


class Turn(Protocol):
    """A writer's turn: all of it is kept when it ends, or nothing.

    Attributes:
        seq: number of the last change.
        state: after it.
    """

    seq: int
    state: ClusterState

    def change(self, change: Change) -> ClusterState:
        """Change the state; the state after it. One that changes nothing is not kept.

        Raises:
            StateError: the change contradicts the state.
        """

    def next_id(self) -> str:
        """The id of the next decision."""

    def keep(self, decision: JobDecision, key: str | None = None) -> KeptDecision:
        """Keep a decision, or in place of one that was being prepared what it became.

        Raises:
            ConflictError: the key is another decision's, or the decision is decided already.
        """

    def keep_document(self, digest: str, body: str) -> None:
        """Keep a text under its digest, once."""

    def observe(self, decision: str, observed: Sequence[Observation]) -> int:
        """Keep measured step times; how many are new, as each step of each rank is kept once."""


class Store(Protocol):
    """See the module; every method may raise `InputFileError` where a file cannot be read or written."""

    def turn(self) -> AbstractContextManager[Turn]:
        """Begin a writer's turn; others wait. What is raised inside undoes all of it."""

    def group(self) -> AbstractContextManager[None]:
        """Put the turns inside on the disk together, when it ends; each is still undone by itself."""

    def last(self) -> tuple[int, ClusterState]:
        """Number of the last change, and the state after it."""

    def state_at(self, seq: int) -> ClusterState:
        """The state after a change."""

    def changes_after(self, seq: int, limit: int) -> list[KeptChange]:
        """Changes after a number, the first one first."""

    def decision(self, name: str) -> KeptDecision | None:
        """A decision by its id."""

    def decision_of_key(self, key: str) -> KeptDecision | None:
        """A decision by the client's key."""

    def decisions(self, before: int | None, limit: int) -> list[KeptDecision]:
        """Decisions before a number, the last one first."""

    def preparing(self) -> list[str]:
        """Ids of the decisions that are being prepared, the first one first."""

    def mentions(self, decision: str) -> list[Mention]:
        """The changes about a decision, the first one first."""

    def document(self, digest: str) -> str | None:
        """A text by its digest."""

    def observations(self, decision: str) -> list[Observation]:
        """What was measured, by step and rank."""

    def observed(self) -> list[str]:
        """Ids of the decisions of which something was measured."""

    def close(self) -> None:
        """Let go of what is open."""


class MemoryStore:
    """A store that ends with its process.

    Args:
        now: the time, for people and for replays; by default the clock's.
    """

    def __init__(self, now: Callable[[], str] | None = None) -> None:
        self.now = now or utc_now
        self._lock = threading.RLock()
        self._changes: list[KeptChange] = []
        self._states: list[ClusterState] = [ClusterState()]
        self._decisions: dict[str, KeptDecision] = {}
        self._mentions: dict[str, list[Mention]] = {}
        self._documents: dict[str, str] = {}
        self._observations: dict[str, dict[tuple[int, int], Observation]] = {}

    @contextmanager
    def group(self) -> Iterator[None]:
        """See `Store.group`."""
        with self._undoing():
            yield

    @contextmanager
    def turn(self) -> Iterator[_MemoryTurn]:
        """See `Store.turn`."""
        with self._undoing():
            yield _MemoryTurn(self)

    @contextmanager
    def _undoing(self) -> Iterator[None]:
        with self._lock:
            kept = {name: copy.copy(value) for name, value in self.__dict__.items() if name != "_lock"}
            kept["_mentions"] = {name: list(value) for name, value in self._mentions.items()}
            kept["_observations"] = {name: dict(value) for name, value in self._observations.items()}
            try:
                yield
            except BaseException:
                self.__dict__.update(kept)
                raise

    def last(self) -> tuple[int, ClusterState]:
        """See `Store.last`."""
        return len(self._changes), self._states[-1]

    def state_at(self, seq: int) -> ClusterState:
        """See `Store.state_at`."""
        return self._states[seq]

    def changes_after(self, seq: int, limit: int) -> list[KeptChange]:
        """See `Store.changes_after`."""
        return self._changes[seq : seq + limit]

    def decision(self, name: str) -> KeptDecision | None:
        """See `Store.decision`."""
        return self._decisions.get(name)

    def decision_of_key(self, key: str) -> KeptDecision | None:
        """See `Store.decision_of_key`."""
        return next((kept for kept in self._decisions.values() if kept.key == key), None)

    def decisions(self, before: int | None, limit: int) -> list[KeptDecision]:
        """See `Store.decisions`."""
        found = [kept for kept in self._decisions.values() if before is None or kept.number < before]
        return found[::-1][:limit]

    def preparing(self) -> list[str]:
        """See `Store.preparing`."""
        return [name for name, kept in self._decisions.items() if kept.decision.outcome == "preparing"]

    def mentions(self, decision: str) -> list[Mention]:
        """See `Store.mentions`."""
        return list(self._mentions.get(decision, ()))

    def document(self, digest: str) -> str | None:
        """See `Store.document`."""
        return self._documents.get(digest)

    def observations(self, decision: str) -> list[Observation]:
        """See `Store.observations`."""
        return [one for _, one in sorted(self._observations.get(decision, {}).items())]

    def observed(self) -> list[str]:
        """See `Store.observed`."""
        return sorted(self._observations)

    def close(self) -> None:
        """See `Store.close`."""


class _MemoryTurn:
    """See `Turn`."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.seq, self.state = store.last()

    def change(self, change: Change) -> ClusterState:
        store, before = self._store, self.state
        after = changed(before, change)
        if after != before:
            kept = KeptChange(self.seq + 1, store.now(), change)
            store._changes.append(kept)
            store._states.append(after)
            for name in mentioned(before, after):
                mention = Mention(kept.seq, kept.at, *status_after(name, change, before, after))
                store._mentions.setdefault(name, []).append(mention)
            self.seq, self.state = kept.seq, after
        return after

    def next_id(self) -> str:
        return f"memory-{len(self._store._decisions) + 1}"

    def keep(self, decision: JobDecision, key: str | None = None) -> KeptDecision:
        store, old = self._store, self._store._decisions.get(decision.id)
        if old is not None:
            check_undecided(old.decision)
            kept = old._replace(decision=decision)
        elif key is not None and store.decision_of_key(key) is not None:
            raise key_taken(key)
        else:
            kept = KeptDecision(len(store._decisions) + 1, key, store.now(), decision)
        store._decisions[decision.id] = kept
        return kept

    def keep_document(self, digest: str, body: str) -> None:
        self._store._documents.setdefault(digest, body)

    def observe(self, decision: str, observed: Sequence[Observation]) -> int:
        held = self._store._observations.setdefault(decision, {})
        before = len(held)
        for one in observed:
            held.setdefault((one.step, one.rank), one)
        return len(held) - before


def every_change(store: Store, after: int) -> Iterator[KeptChange]:
    """All changes after a number, the first one first."""
    while found := store.changes_after(after, AT_ONCE):
        yield from found
        after = found[-1].seq


def every_decision(store: Store) -> list[KeptDecision]:
    """All decisions, the first one first."""
    found: list[KeptDecision] = []
    while more := store.decisions(found[-1].number if found else None, AT_ONCE):
        found += more
    return found[::-1]


def utc_now() -> str:
    """The time, for people."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def key_taken(key: str) -> ConflictError:
    """The refusal of a key that another decision has."""
    return ConflictError("another decision has this key", field="key", value=key)


def check_undecided(decision: JobDecision) -> None:
    """Refuse to decide twice.

    Raises:
        ConflictError: the decision is decided.
    """
    if decision.outcome != "preparing":
        raise ConflictError("is decided already", field=f"decision {decision.id}", value=decision.outcome)
