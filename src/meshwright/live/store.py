"""What the service must not lose: changes of the state, decisions, and measurements of jobs.

Two implementations: a `ledger.Ledger`, one SQLite file; and a `records.memory_store.MemoryStore`, which ends with its process and
says by its few lines what the other one has to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

from ..errors import ConflictError
from .changes import Change
from .decisions import JobDecision, KeptDecision, Mention, Observation
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


class Floor(NamedTuple):
    """The point from which a store keeps the past.

    Attributes:
        seq: number of the last change that was given up; 0 where all are kept.
        at: all that is of this time (UTC) or later is kept; None where all is.
    """

    seq: int = 0
    at: str | None = None


class OldKey(NamedTuple):
    """The key of a decision that was given up.

    Attributes:
        decision: its id.
        request: the digest of its request.
        at: when it was given up (UTC).
    """

    decision: str
    request: str
    at: str


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

    def has_documents(self, digests: Iterable[str]) -> bool:
        """Whether all these texts are kept, and named by a decision."""

    def raise_floor(self, seq: int, before: str, state: ClusterState) -> None:
        """Give up the changes up to a number; `sweep` then removes those that are in a file.

        Args:
            seq: the last of them.
            before: all that is of this time or later is kept.
            state: after it.
        """

    def sweep(self, limit: int) -> int:
        """Remove a number of changes that were given up, with their parts of deleted decisions; how many were."""

    def give_up(self, before: str, after: int, limit: int) -> tuple[int, int | None]:
        """Delete decisions that nothing was reported of for long; those that hold devices or are being prepared stay.

        Their keys stay as `OldKey`.

        Args:
            before: nothing of a decision may be of this time (UTC) or later.
            after: number of the decision after which it is looked for.
            limit: decisions that are looked at.

        Returns:
            How many were given up, and the number after which to go on; None where no older one is left.
        """

    def forget_keys(self, before: str, limit: int) -> int:
        """Delete a number of keys of decisions that were deleted before a time (UTC); how many were."""


class Store(Protocol):
    """See the module; every method may raise `InputFileError` where a file cannot be read or written."""

    def turn(self) -> AbstractContextManager[Turn]:
        """Begin a writer's turn; others wait. An exception inside undoes all of it."""

    def group(self) -> AbstractContextManager[None]:
        """Write the turns inside to disk together, when the block ends; each is still undone by itself."""

    def last(self) -> tuple[int, ClusterState]:
        """Number of the last change, and the state after it."""

    def state_at(self, seq: int) -> ClusterState:
        """The state after a change.

        Raises:
            StateError: it is kept no more.
        """

    def floor(self) -> Floor:
        """The point from which the past is kept."""

    def changes_after(self, seq: int, limit: int) -> list[KeptChange]:
        """Changes after a number, the first one first; those that were given up are left out."""

    def old_key(self, key: str) -> OldKey | None:
        """What is known of the key of a decision that was given up; None where it was none."""

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
        """Close what is open."""


def last_before(store: Store, at: datetime) -> int:
    """The number of the last change that was kept before an instant, by halves; at least that of the floor."""
    low, high = store.floor().seq, store.last()[0]
    while low < high:
        middle = (low + high + 1) // 2
        if datetime.fromisoformat(store.changes_after(middle - 1, 1)[0].at) < at:
            low = middle
        else:
            high = middle - 1
    return low


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
