"""The records of a ledger, and walks over all of them.

`tests/oracles/memory_store.py` is its specification in a few lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from ..errors import ConflictError, StateError
from .changes import Change
from .decisions import JobDecision, KeptDecision, Observation

if TYPE_CHECKING:
    from .ledger import Ledger

AT_ONCE = 1000
"""Changes or decisions that are asked for at a time, and observations that are kept in a turn."""


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


def last_before(store: Ledger, at: datetime) -> int:
    """Return the number of the last change that was kept before an instant, by halves; at least that of the floor."""
    low, high = store.floor().seq, store.last()[0]
    while low < high:
        middle = (low + high + 1) // 2
        if datetime.fromisoformat(store.changes_after(middle - 1, 1)[0].at) < at:
            low = middle
        else:
            high = middle - 1
    return low


def every_change(store: Ledger, after: int) -> Iterator[KeptChange]:
    """Yield all changes after a number, the first one first."""
    while result := store.changes_after(after, AT_ONCE):
        yield from result
        after = result[-1].seq


def every_decision(store: Ledger) -> list[KeptDecision]:
    """Return all decisions, the first one first."""
    records: list[KeptDecision] = []
    while more := store.decisions(records[-1].number if records else None, AT_ONCE):
        records += more
    return records[::-1]


def stored_decision(store: Ledger, name: str) -> KeptDecision:
    """Return a decision by its id.

    Raises:
        StateError: there is none.
    """
    result = store.decision(name)
    if result is None:
        raise StateError("there is no such decision", field="decision", value=name)
    return result


def keep_observations(store: Ledger, name: str, observed: Sequence[Observation]) -> int:
    """Keep how long steps of a decision's job took, `AT_ONCE` in a turn; how many of them are new.

    Raises:
        StateError: there is no such decision.
    """
    stored_decision(store, name)
    new = 0
    for first in range(0, len(observed), AT_ONCE):
        with store.turn() as turn:
            new += turn.observe(name, observed[first : first + AT_ONCE])
    return new


def utc_now() -> str:
    """Return the time, for people."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def key_taken(key: str) -> ConflictError:
    """Return the refusal of a key that another decision has."""
    return ConflictError("another decision has this key", field="key", value=key)


def check_undecided(decision: JobDecision) -> None:
    """Refuse to decide twice.

    Raises:
        ConflictError: the decision is decided.
    """
    if decision.outcome != "preparing":
        raise ConflictError("is decided already", field=f"decision {decision.id}", value=decision.outcome)
